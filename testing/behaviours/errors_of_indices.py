"""Classes of errors: indices."""

import numpy as np
import taichi as ti

from .seeing import f32, raised, raises, raising


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
