"""Vectors that an iteration of a loop hands to the next one, in registers.

What lies in front of a register tile was in the last vector of the tile before. To load it again would be to load from where that
tile has just stored, and each iteration would wait for the one before: 25 cycles on a Zen 3.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..loops.ir import Body, Loop, last_loop_plan
from . import csyntax as c
from .memory import Value
from .point import LoopIndexAt
from .vectors import type_name

if TYPE_CHECKING:
    from .scene import Scene


@dataclass
class Carried:
    """In the loop of a task along rows of vectors, which begins at `lo`: `before` declares in front of it what goes from iteration
    to iteration, by what it stands for.
    """

    task: int
    lo: c.CExpr
    before: list[c.CStmt] = field(default_factory=list)
    names: dict[Hashable, c.Id] = field(default_factory=dict)

    def start(self, lanes: int) -> LoopIndexAt:
        """The first iteration, as the first lane of a vector."""
        terms, offset = c.flatten(self.lo)
        return LoopIndexAt(c.linear(tuple(terms), 0) if terms else None, offset, lanes)

    def vector(self, scene: Scene, key: Hashable, stem: str, first: Value) -> Value:
        """What the iteration before has handed on: to the first one `first`, which is known in front of the loop."""
        if key not in self.names:
            self.names[key] = c.Id(scene.w.fresh(f"{stem}_before"))
            kind = type_name(first.dtype, first.lanes)
            self.before.append(c.Declare(kind, self.names[key].name, first.x))
        return Value(self.names[key], first.dtype, first.lanes)


@contextmanager
def carrying(scene: Scene, node: Loop, lo: c.CExpr) -> Iterator[list[c.CStmt]]:
    """While a loop is written: what has to stand in front of it afterwards."""
    around, scene.carried = scene.carried, None
    if (t := _rows_of(scene, node)) is not None:
        scene.carried = Carried(t, lo)
    before: list[c.CStmt] = []
    try:
        yield before
        if scene.carried is not None:
            before += scene.carried.before
    finally:
        scene.carried = around


def has_rows(scene: Scene, t: int) -> bool:
    """Whether a task reads rows in vectors."""
    return scene.plan.choice("rows", t) == "ROWS"


def _rows_of(scene: Scene, node: Loop) -> int | None:
    """The task of which a loop holds nothing but rows of vectors, tile by tile in their order; None where it does not."""
    match node.children:
        case (Body(t),):
            task = scene.plan.tasks[t]
        case _:
            return None
    in_order = not (node.is_parallel or node.is_last or node.is_cyclic) and node.within is None
    if not in_order or not has_rows(scene, t) or task.vector is None:
        return None
    starts = (last_loop_plan(node, scene.plan.tasks, m) for m in node.members if m.task == t)
    return t if any(p == task.vector for p in starts) else None
