"""Insertion of phases around loops and bodies: the common part of passes that add phases."""

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
    """Phases to insert around one loop: in front of it, at its head, at its end, and behind it."""

    before: list[loop_ir.Node] = field(default_factory=list)
    head: list[loop_ir.Node] = field(default_factory=list)
    tail: list[loop_ir.Node] = field(default_factory=list)
    after: list[loop_ir.Node] = field(default_factory=list)


class Notes:
    """Collected insertions of a pass, around loops and around task bodies; one traversal then inserts them."""

    def __init__(self, order: Sequence[int]) -> None:
        """`order`: the tasks of the launch, in their order."""
        self.loops: dict[Member, Insertions] = {}
        self.bodies: dict[int, Insertions] = {}
        self.order = order

    def at(self, loop: loop_ir.Loop) -> Insertions:
        """Returns the insertions of a loop, which its first member identifies."""
        return self.loops.setdefault(loop.members[0], Insertions())

    def at_body(self, task: int) -> Insertions:
        return self.bodies.setdefault(task, Insertions())

    def placed(self, nodes: Sequence[loop_ir.Node]) -> tuple[loop_ir.Node, ...]:
        """Returns the nodes with all insertions.

        Phases in front of a loop are sorted by task, packing phases of each task first.
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
    """Removes the phases at the end of a list that prepare the next loop, and returns them."""
    k = len(made)
    while k and isinstance(made[k - 1], _OPENING):
        k -= 1
    taken, made[k:] = made[k:], []
    return taken
