"""Insertion of phases around loops and bodies, as passes use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..loops import ir as loop_ir
from ..plan.plan import Member

_OPENING = (
    loop_ir.StartCopies,
    loop_ir.PackFirstBlock,
    loop_ir.FillSums,
    loop_ir.PrefetchSums,
    loop_ir.ResetSums,
    loop_ir.RescaleSums,
)


@dataclass
class Insertions:
    """Phases to insert before a loop, at its head, at its end, and after it."""

    before: list[loop_ir.Node] = field(default_factory=list)
    head: list[loop_ir.Node] = field(default_factory=list)
    tail: list[loop_ir.Node] = field(default_factory=list)
    after: list[loop_ir.Node] = field(default_factory=list)


class Notes:
    """Insertions of a pass, around loops and around the bodies of tasks. They are collected first, and placed in one traversal."""

    def __init__(self, order: Sequence[int]) -> None:
        """`order` is the order of the launch's tasks."""
        self.loops: dict[Member, Insertions] = {}
        self.bodies: dict[int, Insertions] = {}
        self.order = order

    def at(self, loop: loop_ir.Loop) -> Insertions:
        """Returns the insertions of a loop. The first of its members identifies it."""
        return self.loops.setdefault(loop.members[0], Insertions())

    def at_body(self, task: int) -> Insertions:
        return self.bodies.setdefault(task, Insertions())

    def placed(self, nodes: Sequence[loop_ir.Node]) -> tuple[loop_ir.Node, ...]:
        """Returns the nodes with all insertions. Phases before a loop are sorted by task, and those that pack come first in each
        task.
        """
        made: list[loop_ir.Node] = []
        for n in nodes:
            match n:
                case loop_ir.Loop():
                    noted = self.loops.get(n.members[0], Insertions())
                    before = [*_opening_at_end(made), *noted.before]
                    children = (*noted.head, *self.placed(n.children), *noted.tail)
                    made += sorted(before, key=self.rank)
                    made += [replace(n, children=children), *noted.after]
                case loop_ir.TileBody(task):
                    noted = self.bodies.get(task, Insertions())
                    made += [*noted.before, n, *noted.after]
                case _:
                    made.append(n)
        return tuple(made)

    def rank(self, phase: loop_ir.Node) -> tuple[int, int]:
        if isinstance(phase, loop_ir.StartCopies):
            return -1, 0
        assert isinstance(phase, _OPENING)
        return self.order.index(phase.task), not isinstance(phase, loop_ir.PackFirstBlock)


def _opening_at_end(made: list[loop_ir.Node]) -> list[loop_ir.Node]:
    """Removes the phases from the end of a list that belong to the loop that follows, and returns them."""
    k = len(made)
    while k and isinstance(made[k - 1], _OPENING):
        k -= 1
    taken, made[k:] = made[k:], []
    return taken
