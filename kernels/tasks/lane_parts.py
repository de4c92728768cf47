"""Bodies of loops in two parts, of which the first may run in lanes of the innermost loop (kernels/transforms/lane_fronts.py)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ..analysis.accesses import analyse
from ..analysis.conflicts import conflicting
from ..analysis.vectorisable import refusal
from ..ir.body import Closure, Reason
from ..ir.domain import UNBOUNDED, Loop
from ..ir.kernel import NOWHERE, Stmt
from ..ir.task import Problem, Task
from ..transforms.lane_fronts import Front, LoopFacts, split


def parts_of(
    problem: Problem, loops: Sequence[Loop], body: tuple[Stmt, ...], outer: frozenset[str]
) -> Front | None:
    """Returns the body of perfectly nested `loops` in two parts; None if one would have no work, or no lanes could run the first.

    `outer`: locals that are declared outside of the loops.
    """
    shapes = tuple((a.name, a.shape) for a in problem.arrays)
    found = _parts_of(shapes, tuple(loops), body, outer)
    return None if found is None or refusal(found.front, problem) else found


def parts_in(problem: Problem, task: Task) -> Front:
    """Returns the body of a task's innermost loop in two parts; the first is empty if it would have no work."""
    assert task.body is not None
    body = task.body.statements
    return parts_of(problem, task.loops, body, frozenset()) or Front((), body, ())


@lru_cache(maxsize=64)  # asked by rules or the space, and by each plan
def _parts_of(
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    loops: tuple[Loop, ...],
    body: tuple[Stmt, ...],
    outer: frozenset[str],
) -> Front | None:
    sites = analyse(body, loops, Reason(Closure.ORDER, "", NOWHERE)).sites
    shared = frozenset(conflicting(sites, loops))
    extents = {x.name: x.extent for x in loops if x.extent < UNBOUNDED}
    facts = LoopFacts(loops[-1].name, extents, dict(shapes).__getitem__, shared, outer)
    return split(body, facts)
