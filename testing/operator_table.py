"""Every operation of the language on every pair of types, at the edges of these: the kernel that computes it, and NumPy's value.

NumPy is the judge: its functions on its arrays, and whole numbers and `math` of Python where it has none; of ours there are the
names alone.
Where the language differs on purpose, `Difference` says so, and `docs/kernel.md` has the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ..kernels.ir.ops import COMPARISONS, OPS, Op

Array = np.ndarray[Any, Any]
FLOATS = ("f16", "f32", "f64")
SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("u8", "u16", "u32", "u64")
INTEGERS = (*SIGNED, *UNSIGNED)
TYPES = (*FLOATS, *INTEGERS)
N_EDGES = 12
N = N_EDGES**2
SHIFTS = ("shl", "shr", "bit_shr")
# Not written in kernels on arrays: a hash that random numbers are made of, and what Taichi has for %.
_INSIDE = ("mix64", "floor_mod")
_CALLED = {"abs": "abs", "min": "min", "max": "max"}


def numpy_type(name: str) -> np.dtype[Any]:
    """NumPy's type of this name of the language."""
    return np.dtype(f"{name[0]}{int(name[1:]) // 8}")


def edges(name: str) -> Array:
    """Values of a type at which operations go wrong."""
    dtype = numpy_type(name)
    if dtype.kind == "f":
        limits = np.finfo(dtype)
        known = [0.0, -0.0, 1.0, -1.0, 0.1, 7.0, -2.5, np.nan, np.inf, -np.inf]
        return np.array([*known, limits.max, limits.smallest_subnormal], dtype)
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    if least:
        return np.array([least, least + 1, most, most - 1, 0, 1, -1, 2, -2, 3, -7, 100], dtype)
    return np.array([0, 1, 2, 3, 7, 8, 100, 200, most // 2, most // 2 + 1, most - 1, most], dtype)


def operands(a: str, b: str) -> tuple[Array, Array]:
    """Every pair of edges of two types."""
    return np.repeat(edges(a), N_EDGES), np.tile(edges(b), N_EDGES)


@dataclass(frozen=True)
class Cell:
    """An operation on operands of two types, or one, where `b` is empty."""

    op: str
    a: str
    b: str = ""

    @property
    def is_truth(self) -> bool:
        """True if the result is a truth value."""
        row = OPS[self.op]
        return row.name in COMPARISONS or self.op in ("and", "or", "not", "isnan", "isinf")

    def text(self, module: str, strict: bool = False) -> str:
        """The expression in a kernel, as a number."""
        row, x, y = OPS[self.op], f"a_{self.a}[i]", f"b_{self.b}[i]"
        if self.op == "pow":
            made = f"{x} ** {y}"
        elif row.sign and row.arity == 2:
            made = f"{x} {row.sign} {y}"
        elif row.sign:
            made = f"{row.sign} {x}"
        else:
            called = _CALLED.get(self.op, f"{module}.{self.op}")
            made = f"{called}({x}, {y})" if row.arity == 2 else f"{called}({x})"
        return f"1 if {made} else 0" if self.is_truth else made


def cells(types: Sequence[str] = TYPES) -> list[Cell]:
    """All cells of the table."""
    found = []
    for row in OPS.values():
        if row.name in _INSIDE:
            continue
        pairs: Any = product(types, types) if row.arity == 2 else ((x, "") for x in types)
        found += [Cell(row.name, a, b) for a, b in pairs if _takes(row, a, b or a)]
    return found


def _takes(row: Op, a: str, b: str) -> bool:
    if row.takes == "integers":
        return a in INTEGERS and b in INTEGERS
    if row.takes == "words":
        return a in INTEGERS and int(a[1:]) >= 32
    return True


# --- the judge


@dataclass(frozen=True)
class Difference:
    """A row of the table in docs/kernel.md: what is not as in NumPy, on purpose. `applies`: to a cell; `dtype`: the type in which
    its operands meet instead; `is_open`: elements of which no value is wrong.
    """

    title: str
    applies: Callable[[Cell], bool]
    dtype: Callable[[Cell], np.dtype[Any]] | None = None
    is_open: Callable[[Array, Array], Array] | None = None


def _is_mixed(c: Cell) -> bool:
    return (c.a in FLOATS) != ((c.b or c.a) in FLOATS)


def _are_small(c: Cell) -> bool:
    return c.a != c.b != "" and all(x in INTEGERS and int(x[1:]) < 32 for x in (c.a, c.b))


def _u64_meets_sign(c: Cell) -> bool:
    return (c.a == "u64" and c.b in SIGNED) or (c.b == "u64" and c.a in SIGNED)


def _is_of_integers(c: Cell) -> bool:
    """True if the operands meet as integers."""
    is_float = OPS[c.op].takes == "floats" or c.op == "div"
    return c.a in INTEGERS and (c.b or c.a) in INTEGERS and not is_float


def _float_of(c: Cell) -> np.dtype[Any]:
    return numpy_type(c.a if c.a in FLOATS else c.b)


DIFFERENCES = (
    Difference("a float and an integer", lambda c: c.b != "" and _is_mixed(c), _float_of),
    Difference(
        "small integers of two types",
        lambda c: _are_small(c) and _is_of_integers(c) and c.op not in SHIFTS[:2],
        lambda c: np.dtype(np.int32),
    ),
    Difference(
        "`u64` and a signed integer",
        lambda c: (
            _u64_meets_sign(c)
            and _is_of_integers(c)
            and c.op not in (*SHIFTS[:2], *COMPARISONS, "min", "max", "and", "or")
        ),
        lambda c: np.dtype(np.uint64),
    ),
    Difference(
        "functions and quotients of integers",
        lambda c: (
            c.a in INTEGERS
            and (c.b or c.a) in INTEGERS
            and (OPS[c.op].takes == "floats" or c.op == "div")
        ),
        lambda c: np.dtype(np.float64),
    ),
    Difference("shifts", lambda c: c.op in SHIFTS[:2], lambda c: numpy_type(c.a)),
    Difference(
        "shifts by a negative number, or by all bits and more",
        lambda c: c.op in SHIFTS,
        is_open=lambda x, y: (y < 0) | (y.astype(object) >= 8 * x.dtype.itemsize),
    ),
    Difference(
        "`min` and `max` of a number and NaN, or of 0.0 and -0.0",
        lambda c: c.op in ("min", "max"),
        is_open=lambda x, y: (x != x) | (y != y) | ((x == 0) & (y == 0) & (x.dtype.kind == "f")),
    ),
)


def judged(c: Cell) -> tuple[Array, Array]:
    """NumPy's values of a cell, and a mask of the elements for which no value is wrong."""
    x, y = operands(c.a, c.b or c.a)
    row, is_open = OPS[c.op], np.zeros(N, bool)
    asked = [d for d in DIFFERENCES if d.applies(c)]
    with np.errstate(all="ignore"):
        for dtype in (d.dtype(c) for d in asked if d.dtype is not None):
            if c.op == "pow" and _u64_meets_sign(c):
                x = x.astype(dtype)
            elif not c.is_truth or _is_mixed(c) or row.takes == "floats":
                x, y = x.astype(dtype), y.astype(dtype)
        if _u64_meets_sign(c) and c.op in (*COMPARISONS, "min", "max"):
            x, y = x.astype(object), y.astype(object)  # as numbers
        elif row.arity == 2 and not (
            _u64_meets_sign(c) and c.op == "pow"
        ):  # exponents keep their sign
            common = np.result_type(x, y)
            x, y = x.astype(common), y.astype(common)
        for opened in (d.is_open for d in asked if d.is_open is not None):
            is_open |= opened(x, y)
        y = np.where(is_open, np.ones((), y.dtype), y) if c.op in SHIFTS else y
        return np.asarray(
            _BY_HAND[c.op](x, y) if c.op in _BY_HAND else _by_numpy(row, x, y)
        ), is_open


def _by_numpy(row: Op, x: Array, y: Array) -> Any:
    name = _NAMES.get(row.name, row.name)
    return getattr(np, name)(x) if row.arity == 1 else getattr(np, name)(x, y)


# What NumPy calls them.
_NAMES = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
    "atan2": "arctan2", "neg": "negative", "not": "logical_not", "sub": "subtract", "mul": "multiply", "div": "true_divide",
    "floordiv": "floor_divide", "min": "minimum", "max": "maximum", "and": "logical_and", "or": "logical_or", "bit_not": "invert",
    "bit_and": "bitwise_and", "bit_or": "bitwise_or", "bit_xor": "bitwise_xor", "shl": "left_shift", "shr": "right_shift",
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal",
    "raw_mod": "fmod",
}  # fmt: skip


def _whole(value: Callable[[int, int, int], int]) -> Callable[[Array, Array], Array]:
    """A function of whole numbers of Python and how many bits they have, on elements; it wraps around."""

    def of_arrays(x: Array, y: Array) -> Array:
        bits = 8 * x.dtype.itemsize
        found = [value(int(a), int(b), bits) % (1 << bits) for a, b in zip(x, y, strict=True)]
        return np.array(found, np.dtype(f"u{x.dtype.itemsize}")).view(x.dtype)

    return of_arrays


def _power(a: int, b: int, bits: int) -> int:
    if b >= 0:
        return pow(a, b, 1 << bits)
    return {1: 1, -1: 1 if b % 2 == 0 else -1}.get(a, 0)


def _quotient(a: int, b: int, bits: int) -> int:
    size = abs(a) // abs(b) if b else 0
    return size if (a < 0) is (b < 0) else -size


def _pow(x: Array, y: Array) -> Array:
    return np.power(x, y) if x.dtype.kind == "f" else _whole(_power)(x, y)


def _raw_div(x: Array, y: Array) -> Array:
    return np.true_divide(x, y) if x.dtype.kind == "f" else _whole(_quotient)(x, y)


def _by_python(function: Callable[[float], float], pole: float) -> Callable[[Array, Array], Array]:
    """A function of Python's `math` on elements: what it raises at poles is `pole`, above all numbers infinity."""

    def one(x: float) -> float:
        try:
            return function(x)
        except ValueError:
            return math.copysign(math.inf, x) if x == 0 else pole
        except OverflowError:
            return math.inf

    return lambda x, y: np.array([one(float(v)) for v in x]).astype(x.dtype)


_BY_HAND: dict[str, Callable[[Array, Array], Array]] = {
    "pow": _pow,
    "raw_div": _raw_div,
    "erf": _by_python(math.erf, math.nan),
    "erfc": _by_python(math.erfc, math.nan),
    "gamma": _by_python(math.gamma, math.nan),
    "lgamma": _by_python(lambda x: math.inf if x == 0 else math.lgamma(x), math.inf),
    "rsqrt": lambda x, y: x.dtype.type(1) / np.sqrt(x),
    "round": lambda x, y: np.copysign(
        np.where(abs(x) % 1 == 0.5, np.ceil(abs(x)), np.rint(abs(x))), x
    ),
    "bit_shr": _whole(lambda a, b, bits: (a % (1 << bits)) >> (b if 0 <= b < bits else 0)),
    "popcnt": _whole(lambda a, b, bits: (a % (1 << bits)).bit_count()),
    "clz": _whole(lambda a, b, bits: bits - (a % (1 << bits)).bit_length()),
    "ctz": _whole(lambda a, b, bits: ((a & -a).bit_length() - 1) if a else bits),
}
# One operation of IEEE 754, or a few: equal to the last bit.
ROUNDED = frozenset(
    ("sqrt", "floor", "ceil", "trunc", "rint", "round", "isnan", "isinf", "neg", "abs", "add", "sub", "mul", "div", "floordiv")
) | {"mod", "raw_div", "raw_mod", "min", "max", "and", "or", "not", "floor_mod", *COMPARISONS}  # fmt: skip


def wrong_elements(c: Cell, got: Array, want: Array, is_open: Array, signs: bool = False) -> Array:
    """The elements at which a cell is not what it is to be. `signs`: whether of zeros the sign counts, too."""
    if want.dtype.kind != "f":
        return np.flatnonzero((got.astype(object) != want.astype(object)) & ~is_open)
    limits, close = np.finfo(want.dtype), want.astype(np.float64)
    n_ulp = 0 if c.op in ROUNDED else 8
    # Terms of about 1 cancel near the zeros of lgamma between the negative integers.
    atol = n_ulp * float(limits.eps if c.op == "lgamma" else limits.smallest_subnormal)
    with np.errstate(all="ignore"):
        same = np.isclose(got, close, rtol=n_ulp * float(limits.eps), atol=atol, equal_nan=True)
    if signs and not n_ulp:
        same &= (np.signbit(got) == np.signbit(close)) | np.isnan(close)
    return np.flatnonzero(~same & ~is_open)


def is_float(c: Cell) -> bool:
    """True if the result is a float."""
    return not c.is_truth and not _is_of_integers(c)


def says(c: Cell, k: int, got: Any, want: Any) -> str:
    """A wrong element in words."""
    x, y = operands(c.a, c.b or c.a)
    given = f"{x[k]!s} [{c.a}]" + (f", {y[k]!s} [{c.b}]" if c.b else "")
    return f"{c.op} of {given} is {got!s} and should be {want!s}"


__all__ = [
    "DIFFERENCES",
    "Cell",
    "cells",
    "is_float",
    "judged",
    "operands",
    "says",
    "wrong_elements",
]
