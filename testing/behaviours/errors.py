"""Classes of errors."""

import numpy as np
import taichi as ti

from .seeing import f32, raised, raises, raising, structs, vectors


@raises()
def names_that_are_not_there() -> ti.i32:
    return nowhere + 1


@raises()
def functions_that_are_not_there() -> ti.i32:
    return nowhere(1)


def names_that_are_not_there_in_functions():
    @ti.func
    def g():
        return nowhere

    @ti.kernel
    def f() -> ti.i32:
        return g()

    return raised(f)


@raises(1)
def names_of_a_branch_after_it(n: ti.i32) -> ti.i32:
    if n > 0:
        a = 1
    return a


@raises()
def names_of_a_loop_after_it() -> ti.i32:
    for _ in range(3):
        a = 1
    return a


@raises()
def names_that_are_deleted() -> ti.i32:
    a = 1
    del a
    return a


@raises()
def attributes_that_modules_have_not() -> ti.f32:
    return np.nothing_of_it


@raises(x=f32(4))
def attributes_that_fields_have_not() -> ti.i32:
    return x.nothing_of_it


@raises()
def attributes_that_numbers_have_not() -> ti.i32:
    a = 1
    return a.nothing_of_it


@raises()
def components_that_vectors_have_not() -> ti.f32:
    v = ti.Vector([1.0, 2.0])
    return v.z


@raises(kind=lambda: ti.types.struct(a=ti.f32))
def members_that_structs_have_not() -> ti.f32:
    s = kind(1.0)
    return s.b


components_that_vectors_have_not_from_python = raising(
    lambda: v.z, lambda: v[5], v=lambda: ti.Vector([1.0, 2.0])
)


@raises()
def indices_of_vectors_that_are_too_large() -> ti.f32:
    v = ti.Vector([1.0, 2.0])
    return v[2]


@raises()
def indices_of_matrices_that_are_too_large() -> ti.f32:
    m = ti.Matrix([[1.0, 2.0], [3.0, 4.0]])
    return m[1, 2]


@raises()
def indices_of_vectors_that_are_too_many() -> ti.f32:
    v = ti.Vector([1.0, 2.0])
    return v[1, 0]


@raises(x=f32(4))
def indices_of_fields_that_are_too_many() -> ti.f32:
    return x[1, 2]


@raises(x=f32(4, 4))
def indices_of_fields_that_are_too_few() -> ti.f32:
    return x[1]


@raises(np.zeros(4, np.float32))
def indices_of_arrays_that_are_too_many(x: ti.types.ndarray()) -> ti.f32:
    return x[1, 2]


@raises(x=f32(4))
def indices_that_are_no_whole_numbers() -> ti.f32:
    a = 1.0
    return x[a]


@raises(np.zeros(4, np.float32))
def indices_of_arrays_that_are_no_whole_numbers(x: ti.types.ndarray()) -> ti.f32:
    a = 1.0
    return x[a]


@raises()
def indices_of_numbers() -> ti.f32:
    a = 1.0
    return a[0]


def indices_outside_of_fields_in_debug_mode():
    ti.init(arch=ti.cpu, debug=True)
    x = ti.field(ti.f32, shape=4)

    @ti.kernel
    def f(i: ti.i32):
        x[i] = 1.0

    f(3)
    return ["TaichiAssertionError" in raised(lambda i=i: f(i)) for i in (4, -5)]


def indices_outside_of_arrays_in_debug_mode():
    ti.init(arch=ti.cpu, debug=True)

    @ti.kernel
    def f(x: ti.types.ndarray(), i: ti.i32) -> ti.f32:
        return x[i]

    a = np.zeros(4, np.float32)
    return [f(a, 3), "TaichiAssertionError" in raised(lambda: f(a, 7))]


def indices_outside_of_fields_from_python_in_debug_mode():
    ti.init(arch=ti.cpu, debug=True)
    x = ti.field(ti.f32, shape=4)

    def put():
        x[4] = 1.0

    return [raised(lambda: x[4]), raised(put)]


indices_of_fields_from_python_that_are_too_many = raising(lambda: x[1, 2], lambda: x["a"], x=f32(4))


def assertions_that_do_not_hold():
    ti.init(arch=ti.cpu, debug=True)

    @ti.kernel
    def f(n: ti.i32):
        assert n > 3, "too small"

    return [raised(lambda: f(4)), raised(lambda: f(3))]


def assertions_in_parallel_loops_that_do_not_hold():
    ti.init(arch=ti.cpu, debug=True)
    x = ti.field(ti.i32, shape=8)

    @ti.kernel
    def f():
        for i in x:
            assert x[i] == 0 or i < 3
            x[i] = i

    return [raised(f), raised(f)]


@raises()
def static_assertions_that_do_not_hold():
    ti.static_assert(1 > 2, "never")


@raises(3)
def static_assertions_of_what_is_not_known(n: ti.i32):
    ti.static_assert(n > 2)


@raises(1)
def kernels_with_too_few_arguments(a: ti.i32, b: ti.i32) -> ti.i32:
    return a + b


@raises(1, 2)
def kernels_with_too_many_arguments(a: ti.i32) -> ti.i32:
    return a


def kernels_with_arguments_of_other_names():
    @ti.kernel
    def f(a: ti.i32) -> ti.i32:
        return a

    return [raised(lambda: f(b=1)), raised(lambda: f(1, a=2))]


def functions_with_too_few_arguments():
    @ti.func
    def g(a, b):
        return a + b

    @ti.kernel
    def f() -> ti.i32:
        return g(1)

    return raised(f)


def functions_with_too_many_arguments():
    @ti.func
    def g(a):
        return a

    @ti.kernel
    def f() -> ti.i32:
        return g(1, 2)

    return raised(f)


def functions_with_arguments_of_other_names():
    @ti.func
    def g(a):
        return a

    @ti.kernel
    def f() -> ti.i32:
        return g(b=1)

    return raised(f)


@raises("1")
def texts_for_numbers(a: ti.i32) -> ti.i32:
    return a


@raises(None)
def none_for_numbers(a: ti.f32) -> ti.f32:
    return a


@raises(1.5)
def floats_for_whole_numbers(a: ti.i32) -> ti.i32:
    return a


@raises([1.0])
def lists_for_floats(a: ti.f32) -> ti.f32:
    return a


@raises(3)
def numbers_for_arrays(x: ti.types.ndarray()):
    x[0] = 1


@raises([1.0, 2.0])
def lists_for_arrays(x: ti.types.ndarray()):
    x[0] = 1


@raises(lambda: ti.ndarray(ti.i32, shape=4))
def arrays_of_another_type(x: ti.types.ndarray(dtype=ti.f32, ndim=1)):
    x[0] = 1


def arrays_of_another_number_of_axes():
    @ti.kernel
    def f(x: ti.types.ndarray(dtype=ti.f32, ndim=1)):
        x[0] = 1

    x = ti.ndarray(ti.f32, shape=(4, 4))
    return [raised(lambda: f(x)), raised(lambda: f(np.zeros((4, 4), np.float32)))]


def vectors_of_another_length():
    @ti.kernel
    def f(v: ti.types.vector(3, ti.f32)) -> ti.f32:
        return v[0]

    return [raised(lambda: f(ti.Vector([1.0, 2.0]))), raised(lambda: f(1.0))]


@raises(lambda: x, x=f32(4))
def fields_for_numbers(a: ti.f32) -> ti.f32:
    return a


@raises(1)
def parameters_without_a_type(a) -> ti.i32:
    return a


@raises(1)
def parameters_of_a_type_that_is_none(a: "no type at all") -> ti.i32:  # noqa: F722
    return a


def parameters_with_stars():
    def make():
        @ti.kernel
        def f(*a: ti.i32):
            pass

        f(1)

    def name():
        @ti.kernel
        def f(**a: ti.i32):
            pass

        f(a=1)

    return [raised(make), raised(name)]


@raises()
def parameters_with_defaults(a: ti.i32 = 1) -> ti.i32:
    return a


def kernels_called_in_kernels():
    @ti.kernel
    def g():
        pass

    @ti.kernel
    def f():
        g()

    return raised(f)


def kernels_called_in_functions():
    @ti.kernel
    def g():
        pass

    @ti.func
    def h():
        g()

    @ti.kernel
    def f():
        h()

    return raised(f)


def functions_that_call_themselves():
    @ti.func
    def g(n):
        return g(n)

    @ti.kernel
    def f() -> ti.i32:
        return g(1)

    return raised(f)


@raises()
def returns_without_a_type():
    return 1


@raises()
def types_without_a_return() -> ti.i32:
    pass


@raises()
def returns_of_too_many_numbers() -> ti.i32:
    return 1, 2


@raises()
def returns_of_vectors_for_numbers() -> ti.i32:
    return ti.Vector([1, 2])


@raises()
def returns_of_texts() -> ti.i32:
    return "a"


@raises()
def returns_in_parallel_loops() -> ti.i32:
    for i in range(4):
        return i
    return 0


@raises()
def yields():
    yield 1


@raises()
def try_statements():
    try:  # noqa: SIM105
        a = 1
    except ValueError:
        pass


@raises()
def with_statements():
    with open("a") as a:
        pass


@raises()
def raise_statements():
    raise ValueError("a")


@raises()
def lambdas() -> ti.i32:
    g = lambda a: a + 1  # noqa: E731
    return g(1)


@raises()
def imports():
    import math  # noqa: F401


@raises()
def global_statements():
    global _anything
    _anything = 1


@raises()
def classes_in_kernels():
    class A:
        pass


@raises()
def functions_in_kernels():
    def g():
        pass

    g()


def sets_and_set_comprehensions():
    @ti.kernel
    def f():
        a = {1, 2}

    @ti.kernel
    def g():
        a = {x for x in range(3)}  # noqa: C416

    return [raised(f), raised(g)]


@raises()
def matrix_products_of_numbers() -> ti.f32:
    a = 1.0
    return a @ a


@raises()
def matrix_products_that_do_not_fit():
    a = ti.Matrix([[1, 2], [3, 4]])
    b = ti.Vector([1, 2, 3])
    c = a @ b


@raises()
def sums_of_vectors_of_two_lengths():
    a = ti.Vector([1, 2])
    b = ti.Vector([1, 2, 3])
    c = a + b


sums_of_vectors_of_two_lengths_from_python = raising(
    lambda: a + b, a=lambda: ti.Vector([1, 2]), b=lambda: ti.Vector([1, 2, 3])
)


@raises()
def bits_of_floats() -> ti.i32:
    a = 1.5
    return a & 1


@raises()
def shifts_of_floats() -> ti.i32:
    a = 1.5
    return a << 1


@raises()
def the_inverse_of_floats() -> ti.f32:
    a = 1.5
    return ~a


@raises()
def bits_of_floats_that_are_joined_in_place():
    a = 1.5
    a |= 1


@raises()
def vectors_as_conditions() -> ti.i32:
    v = ti.Vector([1, 2])
    r = 0
    if v:
        r = 1
    return r


@raises()
def vectors_as_conditions_of_while():
    v = ti.Vector([1, 2])
    while v:
        v -= 1


@raises()
def vectors_put_into_numbers():
    a = 1.0
    a = ti.Vector([1.0, 2.0])


@raises()
def numbers_put_into_vectors():
    a = ti.Vector([1.0, 2.0])
    a = 1.0


@raises(x=f32(4))
def vectors_put_into_fields_of_numbers():
    x[0] = ti.Vector([1.0, 2.0])


@raises(x=vectors(3, ti.f32, 4))
def vectors_of_another_length_put_into_fields():
    x[0] = ti.Vector([1.0, 2.0])


@raises()
def tuples_of_another_length_are_unpacked():
    a, b = 1, 2, 3


@raises()
def vectors_of_another_length_are_unpacked():
    _a, _b = ti.Vector([1, 2, 3])


@raises()
def numbers_are_unpacked():
    c = 3
    _a, _b = c


@raises(1)
def assignments_to_arguments(a: ti.i32):
    a = 3


@raises()
def assignments_to_loop_variables():
    for i in range(3):
        i += 1


@raises()
def assignments_to_numbers_of_the_module():
    _OUTER += 1  # noqa: F823


_OUTER = 3


@raises(kind=lambda: ti.types.struct(a=ti.f32))
def assignments_to_members_that_are_not_there():
    s = kind(1.0)
    s.b = 2.0


@raises()
def loops_over_numbers():
    for i in 10:
        pass


@raises(3)
def loops_over_numbers_of_the_run(n: ti.i32):
    for i in n:
        pass


@raises()
def loops_over_lists():
    for i in [1, 2, 3]:
        pass


@raises()
def loops_with_else():
    for i in range(3):
        pass
    else:
        pass


@raises()
def while_loops_with_else():
    a = 0
    while a < 3:
        a += 1
    else:
        a = 0


@raises(x=f32(4))
def loops_over_fields_with_too_many_indices():
    for i, j in x:
        x[i] = j


@raises()
def ranges_of_floats():
    for i in range(2.5):
        pass


@raises()
def ranges_of_too_many_bounds():
    for i in range(1, 2, 3, 4):
        pass


@raises()
def ranges_without_bounds():
    for i in range():
        pass


@raises()
def grouped_loops_over_numbers():
    for i in ti.grouped(10):
        pass


@raises()
def breaks_of_parallel_loops():
    for i in range(10):
        if i == 3:
            break


@raises(3)
def static_values_that_are_not_known(n: ti.i32) -> ti.i32:
    return ti.static(n)


@raises(3)
def static_ranges_that_are_not_known(n: ti.i32) -> ti.i32:
    s = 0
    for i in ti.static(range(n)):
        s += i
    return s


@raises()
def chained_comparisons_that_are_not_numbers() -> ti.i32:
    return 1 in ti.Vector([1, 2])


@raises()
def is_and_is_not() -> ti.i32:
    a = 1
    b = 2
    return a is b


@raises()
def sums_of_numbers_and_texts() -> ti.i32:
    return 1 + "a"


@raises(x=f32(4))
def sums_of_numbers_and_fields() -> ti.f32:
    return 1 + x


@raises()
def sums_of_numbers_and_none() -> ti.i32:
    return 1 + None


@raises()
def functions_of_the_language_with_too_many_arguments() -> ti.f32:
    return ti.sqrt(1.0, 2.0)


@raises()
def functions_of_the_language_with_too_few_arguments() -> ti.f32:
    return ti.atan2(1.0)


@raises()
def functions_of_the_language_on_texts() -> ti.f32:
    return ti.sqrt("a")


@raises()
def functions_that_taichi_has_not() -> ti.f32:
    return ti.nothing_of_it(1.0)


names_that_taichi_has_not = raising(lambda: ti.nothing_of_it)


@raises()
def atomics_on_numbers():
    ti.atomic_add(1, 2)


@raises()
def casts_to_what_is_no_type() -> ti.i32:
    return ti.cast(1.5, "i32")


@raises()
def numbers_are_called() -> ti.i32:
    a = 1
    return a(2)


@raises()
def modules_are_called() -> ti.i32:
    return np(2)


def python_functions_that_fail():
    def g():
        raise KeyError("a")

    @ti.kernel
    def f():
        g()

    return raised(f)


@raises()
def prints_with_keywords():
    print(1, file=3)


@raises()
def the_inverse_of_a_matrix_that_is_not_square():
    m = ti.Matrix([[1, 2, 3], [4, 5, 6]])
    m.inverse()


@raises()
def cross_products_of_two_lengths():
    a = ti.Vector([1, 2, 3])
    b = ti.Vector([1, 2])
    a.cross(b)


@raises()
def dot_products_of_two_lengths() -> ti.i32:
    a = ti.Vector([1, 2, 3])
    b = ti.Vector([1, 2])
    return a.dot(b)


@raises()
def methods_that_vectors_have_not():
    a = ti.Vector([1, 2, 3])
    a.nothing_of_it()


@raises()
def matrices_with_rows_of_two_lengths():
    m = ti.Matrix([[1, 2], [3]])


@raises(kind=lambda: ti.types.struct(a=ti.f32))
def structs_with_too_many_members():
    s = kind(1.0, 2.0)


def functions_called_from_python():
    @ti.func
    def g():
        return 1

    return raised(g)


def kernels_of_classes_that_are_not_marked():
    class Plain:
        @ti.kernel
        def f(self):
            pass

    return raised(lambda: Plain().f())


fields_of_another_shape_are_copied = raising(lambda: x.copy_from(y), x=f32(4), y=f32(5))
arrays_of_another_shape_are_copied_into_fields = raising(
    lambda: x.from_numpy(np.zeros(5, np.float32)), x=f32(4)
)


fields_of_no_type = raising(lambda: ti.field("f32", shape=4), lambda: ti.field(3, shape=4))
fields_of_a_wrong_shape = raising(
    lambda: ti.field(ti.f32, shape="a"), lambda: ti.field(ti.f32, shape=(2, "b"))
)


fields_with_an_offset_of_another_length = raising(lambda: ti.field(ti.f32, shape=(4, 4), offset=1))
options_that_are_not_there = raising(lambda: ti.init(arch=ti.cpu, nothing_of_it=3))
fields_are_called = raising(lambda: x(3), x=f32(4))
attributes_that_fields_have_not_from_python = raising(lambda: x.nothing_of_it, x=f32(4))


def kernels_without_source():
    space = {"ti": ti}

    def make():
        exec("@ti.kernel\ndef f():\n    pass\n", space)
        space["f"]()

    return raised(make)


fields_without_a_place = raising(lambda: x.to_numpy(), lambda: x[0], x=lambda: ti.field(ti.f32))
fields_that_are_placed_twice = raising(lambda: ti.root.dense(ti.i, 4).place(x), x=f32(4))


def fields_of_trees_that_are_destroyed():
    tree = ti.FieldsBuilder()
    x = ti.field(ti.f32)
    tree.dense(ti.i, 4).place(x)
    made = tree.finalize()
    made.destroy()
    return [raised(lambda: x[0]), raised(lambda: x.to_numpy())]


def builders_that_are_finalized_twice():
    tree = ti.FieldsBuilder()
    tree.dense(ti.i, 4).place(ti.field(ti.f32))
    tree.finalize()
    return raised(lambda: tree.finalize())


nodes_with_an_extent_that_is_none = raising(
    lambda: ti.root.dense(ti.i, "a"), lambda: ti.root.dense(ti.ij, (1, 2, 3))
)
nodes_with_what_is_no_axis = raising(lambda: ti.root.dense(3, 4))
what_is_no_field_is_placed = raising(lambda: ti.root.dense(ti.i, 4).place(3))
fields_are_copied_from_numbers = raising(
    lambda: x.copy_from(3), lambda: x.from_numpy([1, 2, 3, 4]), x=f32(4)
)


indices_of_vectors_from_python_that_are_too_many = raising(
    lambda: v[1, 0],
    lambda: m[0, 5],
    lambda: v["a"],
    v=lambda: ti.Vector([1, 2, 3]),
    m=lambda: ti.Matrix([[1, 2], [3, 4]]),
)
indices_of_ndarrays_from_python_that_are_too_many = raising(
    lambda: x[1, 2], x=lambda: ti.ndarray(ti.f32, shape=4)
)


ndarrays_of_another_shape_are_copied = raising(
    lambda: x.copy_from(y),
    lambda: x.from_numpy(np.zeros(5, np.float32)),
    x=lambda: ti.ndarray(ti.f32, shape=4),
    y=lambda: ti.ndarray(ti.f32, shape=5),
)
products_from_python_that_do_not_fit = raising(
    lambda: v.dot(w),
    lambda: v.cross(w),
    lambda: m @ v,
    v=lambda: ti.Vector([1, 2, 3]),
    w=lambda: ti.Vector([1, 2]),
    m=lambda: ti.Matrix([[1, 2], [3, 4]]),
)


vectors_with_components_of_two_kinds = raising(
    lambda: ti.Vector([1, "a"]), lambda: ti.Vector(3), lambda: ti.Matrix([[1, 2], [3]])
)
members_that_fields_of_structs_have_not = raising(
    lambda: x.b, lambda: x[0].b, x=structs({"a": ti.f32}, 4)
)


types_of_structs_with_members_that_are_none = raising(
    lambda: kind(b=3), kind=lambda: ti.types.struct(a=ti.f32)
)
options_of_a_wrong_type = raising(
    lambda: ti.init(arch="nothing of it"), lambda: ti.init(arch=ti.cpu, default_fp=3)
)


types_of_vectors_without_a_length = raising(
    lambda: ti.types.vector("a", ti.f32), lambda: ti.types.matrix(2, ti.f32)
)
fields_of_vectors_of_a_wrong_type = raising(lambda: ti.Vector.field(2, "f32", shape=3))
loops_over_fields_from_python = raising(lambda: list(x), x=f32(4))
words_of_kernels_called_from_python = raising(
    lambda: ti.atomic_add(x[0], 1), lambda: ti.grouped(x), lambda: ti.append(x, [], 1), x=f32(4)
)


def errors_of_numbers_in_kernels():
    ti.init(arch=ti.cpu, debug=True)

    @ti.kernel
    def f(a: ti.i32) -> ti.i32:
        return a

    return [
        raised(lambda: f(1 << 40)),
        raised(lambda: f(1 + 2j)),
        raised(lambda: f(np.float64(2.5))),
    ]


@raises(np.zeros(4, np.float32))
def templates_that_are_arrays(x: ti.template()) -> ti.f32:
    return x[0]


def arrays_of_complex_numbers():
    @ti.kernel
    def f(x: ti.types.ndarray()):
        pass

    return [raised(lambda: f(np.zeros(4, np.complex64))), raised(lambda: f(np.array(["a"])))]


def structs_for_numbers():
    kind = ti.types.struct(a=ti.f32)

    @ti.kernel
    def f(a: ti.f32) -> ti.f32:
        return a

    @ti.kernel
    def g(s: kind) -> ti.f32:
        return s.a

    return [raised(lambda: f(kind(1.0))), raised(lambda: g(1.0))]
