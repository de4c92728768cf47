"""Tails of loops: chooses the treatment of partial register tiles at the end of each loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..loops.ir import Alone, InBlocks, Late, Launch, Loop, Node, Schedule, Tails
from ..plan.plan import Plan


def cut_rows(launch: Launch, plan: Plan) -> Launch:
    """Puts a CPU loop's partial tiles behind the loop if its last iteration runs last.

    Otherwise a test in the loop detects partial tiles.
    """

    def tails(loop: Loop) -> Tails:
        comes_anywhere = loop.schedule in (Schedule.CYCLIC, Schedule.GUIDED) or loop.is_last
        return Tails.ROWS_TESTED if comes_anywhere else Tails.ROWS_BEHIND

    return replace(launch, nodes=_cut(launch.nodes, tails))


def cut_elements(launch: Launch, plan: Plan) -> Launch:
    """Makes a GPU loop test each element of partial tiles.

    Rows there belong to one thread and are few: a separate version would only make kernels longer.
    """
    return replace(launch, nodes=_cut(launch.nodes, lambda loop: Tails.ELEMENTS_TESTED))


def _cut(nodes: Sequence[Node], tails: Callable[[Loop], Tails]) -> tuple[Node, ...]:
    made: list[Node] = []
    for n in nodes:
        match n:
            case Loop():
                made.append(replace(n, children=_cut(n.children, tails), tails=tails(n)))
            case Late() | Alone() | InBlocks():
                made.append(replace(n, children=_cut(n.children, tails)))
            case _:
                made.append(n)
    return tuple(made)
