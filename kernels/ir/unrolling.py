"""Unrolling candidates: short loops around a row loop whose index decides conditions in the row.

Unrolling evaluates these conditions at compile time. The row loops stay loops, as compilers vectorise only loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .kernel import Const, For, LoopIndex, Select, Stmt
from .walk import children, nested_statements, walk

_MOST_COPIES = 8  # of a body that is written out, and of operations in all copies
_MOST_COPIED_NODES = 4096


@dataclass(frozen=True)
class FewRows:
    """Unrolling candidate: loop `loop` of `extent` iterations, each of which runs one loop, the row loop `row`."""

    loop: str
    extent: int
    row: str


def few_rows(body: Sequence[Stmt]) -> tuple[FewRows, ...]:
    """Returns the unrolling candidates of a body: short loops whose index occurs in conditions of their rows."""
    found: list[FewRows] = []
    for x in nested_statements(tuple(body)):
        if not isinstance(x, For) or not isinstance(x.extent, Const):
            continue
        n = int(x.extent.value)
        if not 0 < n <= _MOST_COPIES:
            continue
        inside = list(nested_statements(x.body))
        rows = [s for s in inside if isinstance(s, For)]
        if len(rows) != 1:
            continue
        nodes = [e for s in inside for part in children(s) for e in walk(part)]
        asked = (k for e in nodes if isinstance(e, Select) for k in walk(e.condition))
        decides = any(isinstance(k, LoopIndex) and k.loop == x.loop for k in asked)
        if decides and n * len(nodes) <= _MOST_COPIED_NODES:
            found.append(FewRows(x.loop, n, rows[0].loop))
    return tuple(found)


def copies_of(rows: Sequence[FewRows]) -> dict[str, int]:
    """Returns the unroll factor of each loop, by name; 1 for a row loop, so that it stays a loop."""
    return {name: n for x in rows for name, n in ((x.loop, x.extent), (x.row, 1))}
