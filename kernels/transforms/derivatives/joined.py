"""Joins updates that add to one element: consecutive updates of a block become one update by their sum."""

from __future__ import annotations

from dataclasses import replace

from ...ir.kernel import Expr, Stmt, Update
from ...ir.simplify import binary
from ...ir.walk import children, loads, with_blocks


def joined(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Returns statements in which no two of consecutive updates add to one element; sums are reordered."""
    made = list[Stmt]()
    row: dict[tuple[str, tuple[Expr, ...]], int] = {}  # places of the updates of this row
    for s in body:
        s = with_blocks(s, joined)
        if not isinstance(s, Update) or s.op != "add" or s.result:
            row = {}
        elif _reads_any(s, {array for array, _ in row}):
            row = {(s.array, s.indices): len(made)}
        else:
            at = row.setdefault((s.array, s.indices), len(made))
            if at < len(made):
                first = made[at]
                assert isinstance(first, Update)
                made[at] = replace(first, value=binary("add", first.value, s.value))
                continue
        made.append(s)
    return tuple(made)


def _reads_any(s: Update, arrays: set[str]) -> bool:
    return any(x.array in arrays for e in children(s) for x in loads(e))
