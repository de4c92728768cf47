"""Conditions, names and assignments."""

import taichi as ti

from .seeing import answers, each, raised, refused, refuses, returns


@each(9, 4, 0)
def branches_of_numbers(a: ti.i32) -> ti.i32:
    r = 0
    if a > 5:
        r = 1
    elif a > 2:
        r = 2
    else:
        r = 3
    return r


@each(0, 3, -1)
def numbers_are_true_or_false(a: ti.i32) -> ti.i32:
    r = 0
    if a:
        r += 1
    if not a:
        r += 10
    while a:
        r += 100
        break
    return r


@each(5, 2)
def ternaries(a: ti.i32) -> ti.f32:
    return 1.5 if a > 3 else a


def ternaries_evaluate_one_side():
    x = ti.field(ti.i32, shape=3)

    @ti.func
    def count(k):
        x[k] += 1
        return k

    @ti.kernel
    def f(a: ti.i32) -> ti.i32:
        return count(1) if a else count(2)

    return [f(1), f(0), f(0), x.to_numpy()]


@each(0, 3, 5, 9)
def chained_comparisons(a: ti.i32) -> ti.i32:
    r = 0
    if 1 < a <= 5:
        r += 1
    if 1 < a > 3 != 7:
        r += 10
    return r


def operands_of_chains_are_evaluated_once():
    x = ti.field(ti.i32, shape=())

    @ti.func
    def more():
        return ti.atomic_add(x[None], 2)

    @ti.kernel
    def f() -> ti.i32:
        return 0 <= more() < 1

    return [f(), x[None]]


def and_and_or_stop_early():
    x = ti.field(ti.i32, shape=2)

    @ti.func
    def more(k):
        x[k] += 1
        return True

    @ti.kernel
    def f(a: ti.i32) -> ti.i32:
        r = 0
        if a > 0 and more(0):
            r += 1
        if a > 0 or more(1):
            r += 10
        return r

    return [f(0), f(1), x.to_numpy()]


@each((1, 2), (0, 3), (0, 0), (3, 1), (2, 2))
def and_or_not_of_comparisons(a: ti.i32, b: ti.i32) -> ti.i32:
    r = 0
    if a > 0 and b > 0 and a != b:
        r += 1
    if a > 0 or b > 0 or a == b:
        r += 10
    if not (a > b):
        r += 100
    return r


def and_and_or_of_numbers():
    @ti.kernel
    def f(a: ti.i32, b: ti.i32) -> ti.i32:
        return a and b

    @ti.kernel
    def g(a: ti.i32, b: ti.i32) -> ti.i32:
        return a or b

    return [f(1, 2), f(0, 2), f(3, 0), g(1, 2), g(0, 2), g(0, 0)]


@answers()
def and_and_or_of_vectors() -> ti.types.vector(2, ti.i32):
    a, b = ti.Vector([1, 0]), ti.Vector([2, 3])
    return a and b


@returns()
def comparisons_of_vectors() -> ti.types.vector(3, ti.i32):
    a, b = ti.Vector([1, 5, 3]), ti.Vector([2, 4, 3])
    return ti.cast(a < b, ti.i32) + ti.cast(a == b, ti.i32) * 10


@refuses()
def vectors_as_conditions_are_an_error() -> ti.i32:
    r = 0
    if ti.Vector([1, 2]) > 0:
        r = 1
    return r


@each(0, 1)
def vectors_in_ternaries(a: ti.i32) -> ti.types.vector(2, ti.i32):
    return ti.Vector([1, 2]) if a else ti.Vector([3, 4])


def all_and_any_of_python():
    @ti.kernel
    def f(a: ti.i32) -> ti.i32:
        v = ti.Vector([a, 1, 2])
        r = 0
        if all(v > 0):
            r += 1
        if any(v > 1):
            r += 10
        return r

    return refused(lambda: f(0)) if refused(lambda: f(0)) != "runs" else [f(0), f(1)]


@answers()
def tuples_are_unpacked() -> ti.i32:
    a, b, c = 1, 2, 3
    a, b = b, a
    (a, c), b = (c, a), b + 10
    return a * 100 + b * 10 + c


@returns()
def vectors_are_unpacked() -> ti.i32:
    a, b = ti.Vector([4, 5])
    x, y, z = 2 * ti.Vector([1, 2, 3])
    return a * 10 + b + x * 1000 + y * 100 + z


def unpacking_needs_the_right_number():
    @ti.kernel
    def f():
        a, b = ti.Vector([1, 2, 3])
        print(a, b)

    @ti.kernel
    def g():
        a, b, c = 1, 2
        print(a, b, c)

    return [refused(f), refused(g)]


@returns()
def several_targets() -> ti.i32:
    a = b = 3
    a += 1
    return a * 10 + b


@refuses(1)
def names_of_branches_are_local(a: ti.i32) -> ti.i32:
    if a:
        inner = 3
    return inner


def names_of_loops_are_local():
    @ti.kernel
    def f() -> ti.i32:
        for i in range(3):
            inner = i
        return inner

    @ti.kernel
    def g() -> ti.i32:
        for i in range(3):
            pass
        return i

    return [refused(f), refused(g)]


@refuses()
def names_without_a_value_are_an_error() -> ti.i32:
    return nowhere


@each(1, 0)
def a_name_keeps_its_type_in_branches(a: ti.i32) -> ti.f32:
    x = 0.0
    if a > 0:
        x = 1
    else:
        x = 0.5
    return x


@returns()
def a_name_first_assigned_in_a_loop() -> ti.i32:
    s = 0
    for _ in range(1):
        for i in range(4):
            t = i * 2
            t += 1
            s += t
    return s


@refuses()
def names_assigned_a_vector_keep_its_shape():
    a = ti.Vector([1, 2])
    a = ti.Vector([1, 2, 3])
    print(a)


@answers()
def a_number_assigned_to_a_vector_is_broadcast_or_an_error() -> ti.types.vector(2, ti.i32):
    a = ti.Vector([1, 2])
    a = 5
    return a


@refuses(1, 2)
def is_and_is_not_are_errors(a: ti.i32, b: ti.i32) -> ti.i32:
    return a is b


@refuses(1)
def membership_of_numbers_at_run_time(a: ti.i32) -> ti.i32:
    return a in (1, 2)


def try_raise_with_and_lambda_are_errors():
    @ti.kernel
    def f():
        try:
            print(1)
        except ValueError:
            print(2)

    @ti.kernel
    def g():
        raise ValueError("no")

    return [refused(f), refused(g)]


@refuses()
def sets_are_errors():
    x = {1, 2}
    print(x)


@returns()
def statements_without_effect_are_allowed() -> ti.i32:
    """Words."""
    a = 3
    a + 1
    return a


@returns(1)
def pass_does_nothing(a: ti.i32) -> ti.i32:
    if a:
        pass
    for _ in range(3):
        pass
    return 2


@each((1, 2), (2, 2), (3, 2))
def comparisons_are_numbers(a: ti.i32, b: ti.i32) -> ti.i32:
    return (a < b) + (a <= b) * 10 + (a == b) * 100 + (a != b) * 1000 + (a >= b) * 10000


@refuses()
def a_deleted_name_is_an_error():
    a = 1
    del a


def assertions_in_debug_stop_the_program():
    ti.init(arch=ti.cpu, debug=True, log_level=ti.ERROR)

    @ti.kernel
    def f(a: ti.i32):
        assert a > 0, "positive"

    return [refused(lambda: f(1)), refused(lambda: f(-1)) != "runs"]


def assertions_with_formatted_words():
    ti.init(arch=ti.cpu, debug=True, log_level=ti.ERROR)

    @ti.kernel
    def f(a: ti.i32):
        assert a > 0, f"positive, not {a}"
        assert a < 9, "small, not %d" % (a)

    return [
        refused(lambda: f(1)),
        refused(lambda: f(-1)) != "runs",
        refused(lambda: f(10)) != "runs",
    ]


@refuses(-1)
def assertions_without_debug_do_nothing(a: ti.i32):
    assert a > 0


def what_an_assertion_calls_is_run_without_debug():
    x = ti.field(ti.i32, shape=())

    @ti.func
    def more(n):
        x[None] += n
        return x[None]

    @ti.kernel
    def f():
        assert more(3) == 3
        assert more(4) > 100

    f()
    return x[None]


@returns(2)
def statements_that_call_nothing_are_skipped(a: ti.i32) -> ti.i32:
    a + 3
    (a, a * 2)
    return a


def vectors_are_no_conditions_of_ternaries():
    @ti.kernel
    def f(a: ti.i32) -> ti.i32:
        v = ti.Vector([a, 1])
        w = ti.Vector([1, 2]) if v > 0 else ti.Vector([3, 4])
        return w[0]

    return raised(lambda: f(1))
