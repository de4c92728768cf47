"""Literals of C: numbers of each dtype, and the neutral elements of reductions."""

from __future__ import annotations

from math import isfinite

from ...kernels.ir.kernel import DType
from ...kernels.ir.ops import OPS
from . import csyntax as c
from .types import type_name


def constant(value: float | int | bool, dtype: DType) -> c.CExpr:
    """Returns the C literal of a value, exact in its type."""
    if dtype is DType.f16:
        return c.CastTo(type_name(dtype, 0), constant(value, DType.f64))
    if dtype is DType.i64 and value == dtype.range[0]:
        return c.Id("INT64_MIN")  # a minus sign before a number that is none
    if not dtype.is_float:
        suffix = {DType.u32: "u", DType.u64: "ul"}.get(dtype)
        return c.Num(f"{int(value)}{suffix}") if suffix else c.number(int(value))
    number = float(value)
    if number != number:
        return c.Id("NAN")
    if number in (float("inf"), float("-inf")):
        return c.Id("INFINITY") if number > 0 else c.Un("-", c.Id("INFINITY"))
    text = repr(abs(number))
    if "." not in text and "e" not in text:
        text += ".0"
    literal = c.Num(text + ("f" if dtype is DType.f32 else ""))
    return (
        c.Un("-", literal)
        if number < 0 or (number == 0 and text and str(number).startswith("-"))
        else literal
    )


def neutral(op: str, dtype: DType) -> c.CExpr:
    """Returns the C literal of the neutral element of reduction `op`."""
    value = OPS[op].neutral
    assert value is not None
    if dtype.is_float:
        return constant(value, dtype)
    if isfinite(value):
        return constant(dtype.wrapped(int(value)), dtype)
    if not dtype.is_signed and value < 0:
        return c.Num("0")
    sign = "" if dtype.is_signed else "U"
    return c.Id(f"{sign}INT{dtype.size_bytes * 8}_{'MAX' if value > 0 else 'MIN'}")
