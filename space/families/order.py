"""Loop structure: the order of every two objects that may share a launch.

The engine declares these choices and their algebra; this file adds constraints.
"""

from __future__ import annotations

from itertools import combinations

from ..draft import Draft, Family, bits
from ..targets.kind import CPU, GPU

BEFORE, AFTER, INSIDE, OUTSIDE, MERGED = range(5)
ORDER = (
    "BEFORE",  # all of x comes before all of y
    "AFTER",  # all of x comes after all of y
    "INNER",  # x is inside y
    "OUTER",  # x is around y
    "MERGED",  # x and y are one loop
)
APART = bits(BEFORE, AFTER, INSIDE, OUTSIDE)


def within_tasks(s: Draft) -> None:
    """Coherence: a task is one band of nested dims, with its body inside all of them.

    The levels of one loop are nested from outer to inner.
    """
    b = s.b
    for t, task in enumerate(s.problem.tasks):
        dims = s.ordered_dims(t)
        for d in dims:
            b.restrict(b.order(d.order_id, s.backbone.body_ids[t]), bits(OUTSIDE))
        for d, e in combinations(dims, 2):
            same_loop = d.loop == e.loop
            strict = not task.fast_math and d.loop.is_reduction and e.loop.is_reduction
            nested = bits(OUTSIDE) if same_loop or strict else bits(OUTSIDE, INSIDE)
            b.restrict(s.order(d, e), nested)


def between_tasks(s: Draft) -> None:
    """Semantics: bodies do not overlap, and dependences point forwards.

    A body is inside no loop that is not merged with a loop of its own task.
    """
    b, bodies = s.b, s.backbone.body_ids
    for t, u in s.backbone.launch_pairs():
        b.restrict(b.order(bodies[t], bodies[u]), bits(BEFORE, AFTER))
    for dep in s.backbone.dependences:
        if s.backbone.may_share_launch(dep.source, dep.sink):
            b.restrict(b.order(bodies[dep.source], bodies[dep.sink]), bits(BEFORE))
    partners = s.backbone.partners
    for d in s.backbone.dims:
        if d.order_id < 0:
            continue
        for e in s.near_dims(d.task):
            if e.task > d.task and e not in partners[d]:
                b.restrict(s.order(d, e), APART)
        for t in s.backbone.neighbours[d.task]:
            if t != d.task:
                own = [e for e in partners[d] if e.task == t]
                literals = [(b.order(d.order_id, bodies[t]), bits(*range(5)) & ~bits(OUTSIDE))]
                literals += [(s.order(d, e), bits(MERGED)) for e in own]
                b.clause(f"no foreign body in {d.name}", literals)


_RULES = (within_tasks, between_tasks)
FAMILY = Family("order", {CPU: _RULES, GPU: _RULES})
