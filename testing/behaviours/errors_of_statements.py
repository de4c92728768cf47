"""Classes of errors: statements, assignments, loops and assertions."""

import taichi as ti

from .seeing import f32, i32, raised, raises, vectors


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
def loops_that_are_static_twice():
    for i in ti.static(ti.static(range(2))):
        pass


@raises(x=i32(2, 2))
def static_loops_over_the_elements_of_fields():
    for I in ti.static(ti.grouped(x)):
        pass
