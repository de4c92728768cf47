"""Classes of errors: operators, functions and methods on what they do not take."""

import numpy as np
import taichi as ti

from .seeing import f32, raised, raises, raising


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
def matrices_with_rows_of_two_lengths():
    m = ti.Matrix([[1, 2], [3]])


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


def numbers_outside_of_their_type():
    @ti.kernel
    def of_the_default():
        b = 0x80000000
        print(b)

    @ti.kernel
    def of_a_named_one():
        b = ti.u16(-1)
        print(b)

    return [raised(of_the_default), raised(of_a_named_one)]


@raises(x=f32(), y=f32())
def fields_that_are_the_same():
    a = x is y


@raises(x=f32())
def fields_that_are_not_the_same():
    a = x is not x
