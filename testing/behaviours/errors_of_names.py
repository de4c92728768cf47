"""Classes of errors: names, attributes and members that are not there."""

import numpy as np
import taichi as ti

from .seeing import f32, raised, raises, raising, structs


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


@raises(kind=lambda: ti.types.struct(a=ti.f32))
def assignments_to_members_that_are_not_there():
    s = kind(1.0)
    s.b = 2.0


@raises()
def functions_that_taichi_has_not() -> ti.f32:
    return ti.nothing_of_it(1.0)


names_that_taichi_has_not = raising(lambda: ti.nothing_of_it)


@raises()
def methods_that_vectors_have_not():
    a = ti.Vector([1, 2, 3])
    a.nothing_of_it()


@raises(kind=lambda: ti.types.struct(a=ti.f32))
def structs_with_too_many_members():
    s = kind(1.0, 2.0)


options_that_are_not_there = raising(lambda: ti.init(arch=ti.cpu, nothing_of_it=3))
attributes_that_fields_have_not_from_python = raising(lambda: x.nothing_of_it, x=f32(4))
members_that_fields_of_structs_have_not = raising(
    lambda: x.b, lambda: x[0].b, x=structs({"a": ti.f32}, 4)
)
types_of_structs_with_members_that_are_none = raising(
    lambda: kind(b=3), kind=lambda: ti.types.struct(a=ti.f32)
)
words_of_kernels_called_from_python = raising(
    lambda: ti.atomic_add(x[0], 1), lambda: ti.grouped(x), lambda: ti.append(x, [], 1), x=f32(4)
)
