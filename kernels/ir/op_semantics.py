"""Semantics of operations without a NumPy function, on NumPy scalars and arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Numbers = Any  # a NumPy scalar or array
MIX_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
MIX_SHIFTS = (30, 27, 31)


def unsigned(x: Numbers) -> Numbers:
    """Returns integers reinterpreted as unsigned integers with the same bits."""
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def round_away(x: Numbers) -> Numbers:
    """Rounds to the nearest integer, ties away from zero: C's `round`."""
    whole = np.trunc(x)
    return whole + np.copysign((np.abs(x - whole) >= x.dtype.type(0.5)).astype(x.dtype), x)


def rsqrt(x: Numbers) -> Numbers:
    """The reciprocal of the square root."""
    return x.dtype.type(1) / np.sqrt(x)


def erf(x: Numbers) -> Numbers:
    """The error function."""
    return _by_element(math.erf, x)


def erfc(x: Numbers) -> Numbers:
    """The complementary error function."""
    return _by_element(math.erfc, x)


def gamma(x: Numbers) -> Numbers:
    """The gamma function.

    As in C it is infinite at zero, with zero's sign, and NaN at negative integers and -inf.
    """

    def one(x: float) -> float:
        if x == 0:
            return math.copysign(math.inf, x)
        if x == -math.inf or (x < 0 and x.is_integer()):
            return math.nan
        try:
            return math.gamma(x)
        except OverflowError:
            return math.inf

    return _by_element(one, x)


def lgamma(x: Numbers) -> Numbers:
    """The logarithm of the absolute value of the gamma function; infinite at its poles."""

    def one(x: float) -> float:
        if x == -math.inf or (x <= 0 and x.is_integer()):
            return math.inf
        try:
            return math.lgamma(x)
        except OverflowError:
            return math.inf

    return _by_element(one, x)


def _by_element(function: Callable[[float], float], x: Numbers) -> Numbers:
    """Returns `function`, of doubles, applied to each element of `x` and rounded to the type of `x`."""
    values = np.array([function(float(v)) for v in np.ravel(x)], np.float64)
    return values.reshape(np.shape(x)).astype(np.asarray(x).dtype)[()]


def raw_div(a: Numbers, b: Numbers) -> Numbers:
    """The quotient of integers, rounded towards zero; 0 for a divisor of 0."""
    quotient = a // b
    is_below = ((a < 0) != (b < 0)) & (quotient * b != a) & (b != 0)
    return quotient + is_below.astype(quotient.dtype)


def raw_mod(a: Numbers, b: Numbers) -> Numbers:
    """The remainder of integer division rounded towards zero (`raw_div`); 0 for integers and a divisor of 0."""
    return np.fmod(a, b)


def floor_mod(a: Numbers, b: Numbers) -> Numbers:
    """`a - b * floor(a / b)`, each operation rounded: near a multiple of b it may be `b`, or below zero."""
    return a - np.floor(a / b) * b


def power(a: Numbers, b: Numbers) -> Numbers:
    """`a` to the power `b`; for integers modulo the number of values of their type.

    A negative exponent of integers gives the quotient rounded towards zero, and 0 if that is not defined.
    """
    if not np.issubdtype(b.dtype, np.signedinteger):
        return np.power(a, b)
    zero, one = b.dtype.type(0), b.dtype.type(1)
    of_minus_one = np.where(b & one, -one, one)
    quotient = np.where(a == one, one, np.where(a == -one, of_minus_one, zero))
    return np.where(b < zero, quotient, np.power(a, np.maximum(b, zero)))[()]


def bit_shr(a: Numbers, b: Numbers) -> Numbers:
    """Logical right shift of `a` by `b`."""
    return (unsigned(a) >> unsigned(b)).view(a.dtype)


def popcnt(x: Numbers) -> Numbers:
    """The number of bits that are 1."""
    return np.bitwise_count(unsigned(x)).astype(np.int32)


def clz(x: Numbers) -> Numbers:
    """The number of leading zero bits; for 0 the number of all bits."""
    x = unsigned(x)
    n_bits = 8 * x.dtype.itemsize
    for k in range(n_bits.bit_length() - 1):  # every bit behind the first 1 becomes 1
        x = x | (x >> x.dtype.type(1 << k))
    return np.int32(n_bits) - popcnt(x)


def ctz(x: Numbers) -> Numbers:
    """The number of trailing zero bits; for 0 the number of all bits."""
    x = unsigned(x)
    return popcnt(~x & (x - x.dtype.type(1)))  # the zeros behind the last 1 are ones there


def mix64(x: Numbers) -> Numbers:
    """Hash of 64 bits: the finaliser of splitmix64.

    Steele, Lea, Flood, Fast Splittable Pseudorandom Number Generators, 2014.
    """
    shifts = [np.uint64(n) for n in MIX_SHIFTS]
    for factor, shift in zip(MIX_FACTORS, shifts, strict=False):
        x = (x ^ (x >> shift)) * np.uint64(factor)
    return x ^ (x >> shifts[-1])
