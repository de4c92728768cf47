"""Access analysis: the memory references of a body, their iterations, and whether these touch different elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..ir.access import ALWAYS
from ..ir.affine import Affine
from ..ir.body import Body, Reason, Shape, SiteReader
from ..ir.domain import UNBOUNDED, Loop
from ..ir.kernel import Const, For, If, Stmt, While
from ..ir.walk import nested_statements
from .conflicts import is_injective


def analyse(
    statements: tuple[Stmt, ...],
    loops: Sequence[Loop],
    reason: Reason,
    lists: frozenset[str] = frozenset(),
) -> Body:
    """Returns the body of a task over `loops` with its accesses. `lists` are arrays whose first row holds no number twice.

    Precondition: names of loops inside the body are unique and differ from those of the task's loops.
    """
    reader = SiteReader(tuple(loops), statements, lists)
    reader.block(statements, ALWAYS, ())
    sites = tuple(
        replace(s, is_unique=is_injective(s.index, s.guard, loops, s.loops)) for s in reader.sites
    )
    every = list(nested_statements(statements))
    shape: Shape = "straight"
    if any(isinstance(s, If) for s in every):
        shape = "guarded"
    if any(
        isinstance(s, While) or (isinstance(s, For) and not isinstance(s.extent, Const))
        for s in every
    ):
        shape = "loops"
    return Body(statements, sites, shape, reason)


def longest(
    s: For, shapes: Mapping[str, tuple[int, ...]], reason: Reason, steps: tuple[Loop, ...] = ()
) -> int | None:
    """Returns an upper bound of a loop's extent inside of these steps of repeats; None where there is no bound.

    In each iteration the loop accesses some arrays unconditionally, and no access leaves its array. So the arrays' extents bound
    it.
    """
    found = []
    for site in analyse(s.body, (*steps, Loop(s.loop, UNBOUNDED, False)), reason).sites:
        if site.guard != ALWAYS or site.loops:
            continue
        for axis, n in zip(site.index, shapes.get(site.state.name, ()), strict=False):
            match axis.affine:
                case Affine(const, ((s.loop, step),)) if step > 0 and axis.divisor == 1:
                    found.append(max(0, (n - 1 - const) // step + 1))
    return min(found, default=None)
