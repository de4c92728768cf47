"""Materialisation of shared values: two bodies compute a value twice, or the earlier body stores it in a temporary array.

The locals of a kernel that its adjoint needs are such values: recompute-all or store-all (Griewank and Walther, Evaluating
Derivatives, 2008, section 3.2).
Joined bodies have their shared values in registers, whatever is decided (codegen/passes/joining.py).

The bound has no term for it: it counts a shared value once, and of the later body no loads that stored values may spare.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...kernels.ir.task import Problem
from ...kernels.tasks.shared_values import SharedValues, shared_values
from ..backbone import OUTER, Merge
from ..draft import Draft, Family, Phrases, bits
from ..targets.kind import CPU, GPU
from .fusion import SEPARATE
from .order import APART, BEFORE

RECOMPUTED, STORED = range(2)
MATERIALISED = (
    "RECOMPUTED",  # the later body computes them again
    "STORED",  # the earlier body stores them, an element an iteration, and the later body loads them
)


def pairs_of(s: Draft) -> Iterator[SharedValues]:
    """Yields the pairs of bodies with shared values that one component has: others are planned apart."""
    component_of = {t: k for k, tasks in enumerate(s.backbone.components) for t in tasks}
    for x in shared_values(s.problem):
        if component_of[x.producer] == component_of[x.consumer]:
            yield x


def place_of(problem: Problem, x: SharedValues) -> tuple[int, str]:
    """The place of a pair in decisions: its later task, and both names."""
    names = (problem.tasks[t].name for t in (x.producer, x.consumer))
    return x.consumer, "->".join(names)


def declare(s: Draft) -> None:
    for x in pairs_of(s):
        place = place_of(s.problem, x)
        s.v.of_places["materialised"][place] = s.b.add("materialised", (place[1],), MATERIALISED)


def stored_before(s: Draft) -> None:
    """Semantics: values are stored before they are loaded, and a loop of both has the same iteration of each."""
    for x in pairs_of(s):
        t, u = x.producer, x.consumer
        recomputed = (s.v.of_places["materialised"][place_of(s.problem, x)], bits(RECOMPUTED))
        if s.backbone.may_share_launch(t, u):
            bodies = s.backbone.body_ids
            order = (s.b.order(bodies[t], bodies[u]), bits(BEFORE))
            s.b.clause("values stored before", [recomputed, order])
        for m in (m for m in s.backbone.merges if (m.a, m.b) == (t, u) and not _is_same(s, m)):
            a, b = (levels[OUTER] for levels in s.levels_of(m))
            s.b.clause("values of the same iteration", [recomputed, (s.order(a, b), APART)])


def _is_same(s: Draft, m: Merge) -> bool:
    """True if the loops of a merge are at the same place of both bands."""
    of_a, of_b = ([x.name for x in s.problem.tasks[t].loops] for t in (m.a, m.b))
    return of_a.index(m.loop_a) == of_b.index(m.loop_b)


def stored_by_a_launch(s: Draft) -> None:
    """Semantics: blocks of a GPU see what others have stored when a launch begins."""
    for x in pairs_of(s):
        recomputed = (s.v.of_places["materialised"][place_of(s.problem, x)], bits(RECOMPUTED))
        pair = x.producer, x.consumer
        if pair in s.v.fused:
            apart = (s.v.fused[pair], bits(SEPARATE))
            s.b.clause("values of another launch", [recomputed, apart])


PHRASES = Phrases(
    "materialised",
    "values",
    {
        "RECOMPUTED": "computes shared values twice",
        "STORED": "stores shared values in temporary arrays",
    },
    {"STORED": "through temporary arrays"},
)

FAMILY = Family(
    "materialisation",
    {CPU: (stored_before,), GPU: (stored_before, stored_by_a_launch)},
    declare,
    (PHRASES,),
)
