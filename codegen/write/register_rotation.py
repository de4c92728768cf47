"""Register rotation: a loop along rows carries vectors in registers from one iteration to the next.

The elements in front of a register tile were the last vector of the previous tile. A load of them
would overlap the latest store, so each iteration would wait for the previous one: 25 cycles on a
Zen 3.
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
    """Context in which a loop is written.

    Yields a list; the writer puts the declarations in it in front of the loop.
    """
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
    """True if task `t` reads shifted rows in vectors."""
    return scene.plan.choice("rows", t) == "ROWS"


def _rows_of(scene: Emission, node: Loop) -> int | None:
    """Returns the number of the task, if the loop contains only its vectorised body and runs its tiles in order.

    Otherwise it returns None.
    """
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
