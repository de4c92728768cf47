"""Values without a derivative: `stop_grad`. Two reinterpretations of their bits stand around them in the IR, which have none."""

from __future__ import annotations

from collections.abc import Container

from ..ir.kernel import Bitcast, DType, Expr, Load, Stmt
from ..ir.walk import mapped

_WORDS = {2: DType.i16, 4: DType.i32, 8: DType.i64}


def stopped(e: Expr) -> Expr:
    """Returns a value without a derivative."""
    return Bitcast(Bitcast(e, _WORDS[e.dtype.size_bytes]), e.dtype) if e.dtype.is_float else e


def without_derivatives(body: tuple[Stmt, ...], arrays: Container[str]) -> tuple[Stmt, ...]:
    """Returns statements in which loads of some arrays have no derivative."""

    def on_expr(e: Expr) -> Expr:
        e = mapped(e, on_expr, on_stmt)
        return stopped(e) if isinstance(e, Load) and e.array in arrays else e

    def on_stmt(s: Stmt) -> Stmt:
        return mapped(s, on_expr, on_stmt)

    return tuple(map(on_stmt, body))


def plain(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Returns the statements of a derivative without these reinterpretations."""

    def on_expr(e: Expr) -> Expr:
        e = mapped(e, on_expr, on_stmt)
        inner = e.x if isinstance(e, Bitcast) else None
        is_pair = isinstance(inner, Bitcast) and inner.x.dtype is e.dtype
        return inner.x if isinstance(inner, Bitcast) and is_pair else e

    def on_stmt(s: Stmt) -> Stmt:
        return mapped(s, on_expr, on_stmt)

    return tuple(map(on_stmt, body))
