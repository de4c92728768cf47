"""Builders of sparse matrices as arguments of kernels: `A[i, j] += v` appends a triplet (row, column, value).

Such an argument is a pack of four arrays. An append takes the next position by an atomic addition to `count`. Appends beyond the
capacity are counted and not stored, so that the builder can refuse them.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final

from ..ir import kernel as ir
from ..ir.simplify import cast, compare, const, unary
from .intrinsics import types
from .packs import PackType
from .scopes import Pass
from .typing_rules import adopt
from .values import ArrayRef, Triplets, Typed

TRIPLETS: Final[PackType] = types.sparse_matrix_builder()


def append(
    state: Pass,
    to: Triplets,
    at: Sequence[ir.Expr],
    value: Typed,
    node: ast.AST,
    *,
    is_negated: bool = False,
) -> None:
    """Emits the append of `value`, or of its negation, in the row and column `at`."""
    where = state.frame.parsed.where(node)
    one, start = const(1, ir.DType.i32), const(0, ir.DType.i64)
    position = state.fresh("position")
    state.emit(ir.Update(to.count.param.name, (start,), "add", one, where, position))
    number = cast(ir.Local(position, ir.DType.i32), ir.DType.i64)
    stored = adopt(value.expr, to.values.dtype)
    entry = (*at, unary("neg", stored) if is_negated else stored)
    arrays: tuple[ArrayRef, ...] = (to.rows, to.columns, to.values)
    stores = tuple(
        ir.Store(a.param.name, (number,), cast(x, a.dtype), where)
        for a, x in zip(arrays, entry, strict=True)
    )
    is_room = compare("lt", number, const(to.rows.shape[0], ir.DType.i64))
    state.emit(ir.If(is_room, stores, (), where))
