"""Functions of Python that stand for operators, and functions that are marked where they are called."""

import operator

import taichi as ti

from .seeing import each, i32, leaves, returns

TABLE = (operator.add, operator.sub, operator.mul)
PAIRS = ((7, 3), (-7, 3), (7, -3))


def _of_two(function):
    """A row that shows what a function gives for two whole numbers."""

    @each(*PAIRS)
    def row(a: ti.i32, b: ti.i32) -> ti.i32:
        return function(a, b)

    return row


def _of_one(function):
    """A row that shows what a function gives for one whole number."""

    @each(7, -7)
    def row(a: ti.i32) -> ti.i32:
        return function(a)

    return row


operator_add = _of_two(operator.add)
operator_sub = _of_two(operator.sub)
operator_mul = _of_two(operator.mul)
operator_floordiv = _of_two(operator.floordiv)
operator_mod = _of_two(operator.mod)
operator_and = _of_two(operator.and_)
operator_or = _of_two(operator.or_)
operator_xor = _of_two(operator.xor)
operator_neg = _of_one(operator.neg)
operator_invert = _of_one(operator.invert)
operator_abs = _of_one(operator.abs)


@each(*PAIRS)
def operator_truediv(a: ti.i32, b: ti.i32) -> ti.f32:
    return operator.truediv(a, b)


@each((2.0, 3.0), (2.0, 0.5))
def operator_pow(a: ti.f32, b: ti.f32) -> ti.f32:
    return operator.pow(a, b)


@each((7, 3), (1, 10))
def operator_shifts(a: ti.i32, b: ti.i32) -> ti.i32:
    return operator.rshift(operator.lshift(a, b), 1)


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
