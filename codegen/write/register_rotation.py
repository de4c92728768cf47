"""Loop-carried register reuse: vectors that an iteration of a loop passes to the next one, in registers.

The elements in front of a register tile were in the last vector of the tile before. To load them again would be to load from the
place of that tile's latest store. Each iteration would then depend on the one before: 25 cycles on a Zen 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..loops.ir import Loop, TileBody, last_loop_plan
from ..text import csyntax as c
from .context import Carried
from .emission import Emission


@contextmanager
def carrying(scene: Emission, node: Loop, lo: c.CExpr) -> Iterator[list[c.CStmt]]:
    """Context in which a loop is written. Yields the declarations to be put in front of the loop afterwards."""
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


def has_rows(scene: Emission, t: int) -> bool:
    """True if a task reads rows in vectors."""
    return scene.plan.choice("rows", t) == "ROWS"


def _rows_of(scene: Emission, node: Loop) -> int | None:
    """Returns the task if a loop holds only its rows of vectors, tile by tile in their order; otherwise None."""
    match node.children:
        case (TileBody(t),):
            task = scene.plan.tasks[t]
        case _:
            return None
    in_order = not (node.is_parallel or node.is_last or node.is_cyclic) and node.within is None
    if not in_order or not has_rows(scene, t) or task.vector is None:
        return None
    starts = (last_loop_plan(node, scene.plan.tasks, m) for m in node.members if m.task == t)
    return t if any(p == task.vector for p in starts) else None
