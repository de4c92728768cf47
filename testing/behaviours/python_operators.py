"""Functions of Python that stand for operators, and functions that are marked where they are called."""

import operator

import taichi as ti

from .seeing import each, i32, leaves, returns

TABLE = (operator.add, operator.sub, operator.mul)
PAIRS = ((7, 3), (-7, 3), (7, -3))


@each(*PAIRS)
def operator_add(a: ti.i32, b: ti.i32) -> ti.i32:
    return operator.add(a, b)


@each(*PAIRS)
def operator_sub(a: ti.i32, b: ti.i32) -> ti.i32:
    return operator.sub(a, b)


@each(*PAIRS)
def operator_mul(a: ti.i32, b: ti.i32) -> ti.i32:
    return operator.mul(a, b)


@each(*PAIRS)
def operator_truediv(a: ti.i32, b: ti.i32) -> ti.f32:
    return operator.truediv(a, b)


@each(*PAIRS)
def operator_floordiv(a: ti.i32, b: ti.i32) -> ti.i32:
    return operator.floordiv(a, b)


@each(*PAIRS)
def operator_mod(a: ti.i32, b: ti.i32) -> ti.i32:
    return operator.mod(a, b)


@each((2.0, 3.0), (2.0, 0.5))
def operator_pow(a: ti.f32, b: ti.f32) -> ti.f32:
    return operator.pow(a, b)


@each(*PAIRS)
def operator_and(a: ti.i32, b: ti.i32) -> ti.i32:
    return operator.and_(a, b)


@each(*PAIRS)
def operator_or(a: ti.i32, b: ti.i32) -> ti.i32:
    return operator.or_(a, b)


@each(*PAIRS)
def operator_xor(a: ti.i32, b: ti.i32) -> ti.i32:
    return operator.xor(a, b)


@each((7, 3), (1, 10))
def operator_shifts(a: ti.i32, b: ti.i32) -> ti.i32:
    return operator.rshift(operator.lshift(a, b), 1)


@each(7, -7)
def operator_neg(a: ti.i32) -> ti.i32:
    return operator.neg(a)


@each(7, -7)
def operator_invert(a: ti.i32) -> ti.i32:
    return operator.invert(a)


@each(7, -7)
def operator_abs(a: ti.i32) -> ti.i32:
    return operator.abs(a)


@each((1, 2), (2, 2), (3, 2))
def operator_comparisons(a: ti.i32, b: ti.i32) -> ti.i32:
    r = 0
    if operator.lt(a, b):
        r += 1
    if operator.le(a, b):
        r += 2
    if operator.gt(a, b):
        r += 4
    if operator.ge(a, b):
        r += 8
    if operator.eq(a, b):
        r += 16
    if operator.ne(a, b):
        r += 32
    return r


@returns(2.0)
def operators_take_vectors(a: ti.f32) -> ti.types.vector(2, ti.f32):
    return operator.add(ti.Vector([a, 1.0]), operator.mul(ti.Vector([3.0, 4.0]), a))


@leaves("x", x=i32(4))
def operators_that_a_table_names():
    for i in ti.static(range(3)):
        x[i] = TABLE[i](10, 4)


def _twice(x):
    return x * 2


def _and_one(x, y=1):
    return x + y


@each(1, 5)
def functions_are_marked_where_they_are_called(a: ti.i32) -> ti.i32:
    return ti.func(_twice)(a)


@each(1, 5)
def marked_functions_call_each_other(a: ti.i32) -> ti.i32:
    return ti.func(_and_one)(ti.func(_twice)(a))


@each(1, 5)
def marked_functions_take_names(a: ti.i32) -> ti.i32:
    return ti.func(_and_one)(a, y=4)


@leaves("x", 3, x=i32(3))
def marked_functions_in_a_static_loop(a: ti.i32):
    for k in ti.static(range(3)):
        x[k] = ti.func((_twice, _and_one, _twice)[k])(a + k)
