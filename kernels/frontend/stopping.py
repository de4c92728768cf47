"""`stop_grad`: values without a derivative.

In the IR such a value is a pair of bit casts, float to integer and back: it leaves the value unchanged, and has no derivative.
"""

from __future__ import annotations

from collections.abc import Container

from ..ir.kernel import Bitcast, DType, Expr, Load, Stmt
from ..ir.walk import mapped

_WORDS = {2: DType.i16, 4: DType.i32, 8: DType.i64}


def stopped(e: Expr) -> Expr:
    """Returns a value that has no derivative: `e` as an integer's bits and back; an integer unchanged."""
    return Bitcast(Bitcast(e, _WORDS[e.dtype.size_bytes]), e.dtype) if e.dtype.is_float else e


def without_derivatives(body: tuple[Stmt, ...], arrays: Container[str]) -> tuple[Stmt, ...]:
    """Returns statements in which loads of the arrays `arrays` have no derivative."""

    def on_expr(e: Expr) -> Expr:
        e = mapped(e, on_expr, on_stmt)
        return stopped(e) if isinstance(e, Load) and e.array in arrays else e

    def on_stmt(s: Stmt) -> Stmt:
        return mapped(s, on_expr, on_stmt)

    return tuple(map(on_stmt, body))


def plain(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Returns the statements of an adjoint or dual without the pairs of bit casts that `stopped` adds."""

    def on_expr(e: Expr) -> Expr:
        e = mapped(e, on_expr, on_stmt)
        inner = e.x if isinstance(e, Bitcast) else None
        is_pair = isinstance(inner, Bitcast) and inner.x.dtype is e.dtype
        return inner.x if isinstance(inner, Bitcast) and is_pair else e

    def on_stmt(s: Stmt) -> Stmt:
        return mapped(s, on_expr, on_stmt)

    return tuple(map(on_stmt, body))
