"""Rescaled reductions: sums wait for the maximum that their terms read, or are corrected whenever it grows (online softmax).

The bound has no term for it. A shared loop saves the second pass over the values, which phases of the bound know of merged loops.
The cost of corrections is not sure.
"""

from __future__ import annotations

from ..backbone import OUTER
from ..draft import Draft, Family, Phrases, bits
from ..targets.kind import CPU, GPU
from .memory import REGISTER
from .order import APART, MERGED, OUTSIDE

WAITS, RESCALED = range(2)
RESCALING = (
    "WAITS",  # the maximum is known before the first term is added
    "RESCALED",  # in the loop of the maximum, tile by tile; sums so far are corrected (Milakov and Gimelshein, 2018)
)


def declare(s: Draft) -> None:
    for r in s.backbone.rescaled if s.kind.has_teams else ():
        if s.backbone.may_share_launch(r.flow.producer, r.flow.consumer):
            t = r.flow.consumer
            s.v.of_tasks["rescaling"][t] = s.b.add(
                "rescaling", (s.problem.tasks[t].name,), RESCALING
            )


def in_its_loop(s: Draft) -> None:
    """Semantics: a rescaled sum shares all reduction loops of its maximum, which is in registers, as no other one does.

    Its iterations of these loops follow one another in one thread: `families/memory.py` says so of registers.
    """
    b = s.b
    for r in s.backbone.rescaled:
        var = s.v.of_tasks["rescaling"].get(r.flow.consumer)
        if var is None:
            continue
        waits, rescaled = (var, bits(WAITS)), (var, bits(RESCALED))
        for m in s.backbone.merges:
            if m.rescales and (m.a, m.b) == (r.flow.producer, r.flow.consumer):
                first, second = (levels[OUTER] for levels in s.levels_of(m))
                order = s.order(first, second)
                b.clause("rescaled in one loop", [waits, (order, bits(MERGED))])
                b.clause("rescaled in one loop", [rescaled, (order, APART)])
        b.clause("the maximum so far", [waits, (s.v.mem_space[r.flow], bits(REGISTER))])
        dims = s.ordered_dims(r.flow.producer)
        for d in (d for d in dims if not d.loop.is_reduction):
            for e in (e for e in dims if e.loop.is_reduction):
                b.clause("the maximum so far", [waits, (s.order(d, e), bits(OUTSIDE))])


def known_before(s: Draft) -> None:
    """Hardware: threads of a block share maxima, so sums wait for them."""
    for m in s.backbone.merges:
        if m.rescales:
            first, second = (levels[OUTER] for levels in s.levels_of(m))
            s.b.clause("the whole maximum", [(s.order(first, second), APART)])


PHRASES = Phrases(
    "rescaling",
    "reductions",
    {"RESCALED": "is summed in the loop of its maximum, and rescaled when that grows"},
    {"RESCALED": "rescaled when its maximum grows"},
)

FAMILY = Family("rescaling", {CPU: (in_its_loop,), GPU: (known_before,)}, declare, (PHRASES,))
