"""Classes of errors: arguments, parameters and results."""

import numpy as np
import taichi as ti

from .seeing import f32, raised, raises


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


def kernels_without_source():
    space = {"ti": ti}

    def make():
        exec("@ti.kernel\ndef f():\n    pass\n", space)
        space["f"]()

    return raised(make)


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
