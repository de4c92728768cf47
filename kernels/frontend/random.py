"""Counter-based random numbers: a function of seed, call, iteration and draw count, equal in every implementation.

A number is splitmix64's mixer (Steele, Lea, Flood 2014) of the mixed iteration number plus the count of earlier draws in that
iteration.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from typing import Any

from ..ir.kernel import DType, Expr, Local, Param, UpdateLocal
from ..ir.simplify import binary, cast, const, unary
from . import intrinsics
from .lvalues import Places
from .scopes import Pass
from .values import Typed, Value

GOLDEN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio, odd
SEED = "seed_"
CALLS: tuple[Any, ...] = (intrinsics.random, intrinsics.randn)


def draw(
    state: Pass,
    places: Places,
    target: Any,
    args: Sequence[Value],
    dtype_of: Callable[[Value, ast.AST], DType],
    node: ast.AST,
) -> Typed | None:
    """Returns the number that a call of `random` or `randn` draws; None if `target` is another function."""
    if not any(target is c for c in CALLS):
        return None
    dtype = dtype_of(args[0], node) if args else state.default_float
    if target is intrinsics.random:
        return places.in_local("drawn", Typed(_uniform(_bits(state, node), dtype)), node)
    # Box and Muller's transformation of two numbers; the first is above zero.
    first = places.in_local("drawn", Typed(_uniform(_bits(state, node), dtype)), node).expr
    second = places.in_local("drawn", Typed(_uniform(_bits(state, node), dtype)), node).expr
    one = const(1, dtype)
    length = unary("sqrt", binary("mul", const(-2, dtype), unary("log", binary("sub", one, first))))
    angle = binary("mul", const(2 * math.pi, dtype), second)
    return places.in_local("drawn", Typed(binary("mul", length, unary("cos", angle))), node)


def _bits(state: Pass, node: ast.AST) -> Expr:
    """Returns the next 64 random bits of the current iteration, and counts the draw."""
    where = state.frame.parsed.where(node)
    if state.seed is None:
        state.seed = Param(SEED, DType.u64)
    if not state.draws:
        state.draws = state.fresh("draws")
    count = Local(state.draws, DType.u64)
    state.emit(UpdateLocal(state.draws, "add", const(GOLDEN, DType.u64), where))
    start: Expr = state.seed
    if state.iteration is not None:
        start = binary("add", start, binary("mul", state.iteration, const(GOLDEN, DType.u64)))
    return unary("mix64", binary("add", unary("mix64", start), count))


def _uniform(bits: Expr, dtype: DType) -> Expr:
    """Returns random bits as a number of type `dtype`: floats in [0, 1), integers over their whole range."""
    if not dtype.is_float:
        return cast(binary("shr", bits, const(64 - 8 * dtype.size_bytes, DType.u64)), dtype)
    digits = {DType.f16: 11, DType.f32: 24}.get(dtype, 53)
    whole = cast(binary("shr", bits, const(64 - digits, DType.u64)), DType.i64)
    return binary("mul", cast(whole, dtype), const(2.0**-digits, dtype))
