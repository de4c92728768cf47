"""Rescaled reductions: sums wait for a result in their terms, or are corrected whenever it changes (online softmax).

The bound has no term for it. A merged loop saves the second pass over the values, which the bound
counts by merged loops. The cost of corrections is no guaranteed cost.
"""

from __future__ import annotations

from ..backbone import MID, OUTER
from ..draft import Draft, Family, Phrases, bits
from ..targets.kind import CPU, GPU
from .memory import REGISTER
from .order import APART, MERGED, OUTSIDE

WAITS, RESCALED = range(2)
RESCALING = (
    "WAITS",  # the maximum or mean is known before the first term is added
    "RESCALED",  # in its loop, tile by tile; sums so far are corrected (Milakov and Gimelshein, 2018; Chan et al., 1983)
)


def declare(s: Draft) -> None:
    for r in s.backbone.rescaled if s.kind.has_teams else ():
        if all(s.backbone.may_share_launch(base, r.task) for base in r.bases):
            name = s.problem.tasks[r.task].name
            s.v.of_tasks["rescaling"][r.task] = s.b.add("rescaling", (name,), RESCALING)


def in_its_loop(s: Draft) -> None:
    """Semantics: a rescaled sum merges with all reduction loops of the running results in its terms.

    No other sum does.
    Inside of these loops a tile of each running result comes before the sum's, also of one that others in its terms are made of.
    The running results are in registers, and so (families/memory.py) one thread runs the iterations
    of these loops in order.
    """
    b = s.b
    by_task = {r.task: r for r in s.backbone.rescaled}
    for m in (m for m in s.backbone.merges if m.rescales):
        (first, inside), (second, then) = ((x[OUTER], x[MID]) for x in s.levels_of(m))
        var, order = s.v.of_tasks["rescaling"].get(m.b), s.order(first, second)
        if var is None:
            b.clause("waits for all results", [(order, APART)])
        else:
            b.clause("rescaled in one loop", [(var, bits(WAITS)), (order, bits(MERGED))])
            b.clause("rescaled in one loop", [(var, bits(RESCALED)), (order, APART)])
            b.clause("tile by tile", [(var, bits(WAITS)), (s.order(inside, then), APART)])
    for t, var in s.v.of_tasks["rescaling"].items():
        waits = (var, bits(WAITS))
        for f in by_task[t].flows:
            b.clause("results so far", [waits, (s.v.mem_space[f], bits(REGISTER))])
            dims = s.ordered_dims(f.producer)
            for d in (d for d in dims if not d.loop.is_reduction):
                for e in (e for e in dims if e.loop.is_reduction):
                    b.clause("results so far", [waits, (s.order(d, e), bits(OUTSIDE))])


def known_before(s: Draft) -> None:
    """Hardware: on a GPU, threads of a block share results, so sums always wait for them."""
    for m in s.backbone.merges:
        if m.rescales:
            first, second = (levels[OUTER] for levels in s.levels_of(m))
            s.b.clause("waits for all results", [(s.order(first, second), APART)])


PHRASES = Phrases(
    "rescaling",
    "reductions",
    {"RESCALED": "is summed in the loop of a result in its terms, and rescaled when that changes"},
    {"RESCALED": "rescaled when a result in its terms changes"},
)

FAMILY = Family("rescaling", {CPU: (in_its_loop,), GPU: (known_before,)}, declare, (PHRASES,))
