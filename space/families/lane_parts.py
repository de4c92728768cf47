"""Parts of a body that run in the lanes of a vectorised loop: all statements, or a front that conflicts with no other iteration.

Behind the front the rest runs lane by lane, with what the front has computed (kernels/transforms/lane_fronts.py). So particles that
look up, or activate, the cells of a tree have their arithmetic in vectors. The bound has no term for it: operations of such bodies
count nothing.
"""

from __future__ import annotations

from ..backbone import INNER
from ..draft import Draft, Family, Phrases, bits
from ..targets.kind import CPU
from .batch_layout import AS_STORED
from .tiling import VECTOR, front_in, runs_in_lanes, runs_in_lanes_whole

WHOLE_BODY, FRONT = range(2)
LANE_PARTS = (
    "WHOLE",  # all statements run in lanes; those that share an element update it one after another
    "FRONT",  # what conflicts with no other iteration runs in lanes; the rest of the body follows lane by lane
)


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        for d in s.dims_at(t, INNER) if task.body is not None else ():
            if runs_in_lanes(s, task, d) and front_in(s, task, d) is not None:
                able = {FRONT, *({WHOLE_BODY} if runs_in_lanes_whole(s, task, d) else set())}
                made = s.b.add("lane_parts", (task.name,), LANE_PARTS, bits(*able))
                s.v.of_tasks["lane_parts"][t] = made


def lanes_have_parts(s: Draft) -> None:
    """Coherence: a loop without vectors has no front, so the choice has its first value. Blocks of a batch need the whole body."""
    for t, var in s.v.of_tasks["lane_parts"].items():
        task = s.problem.tasks[t]
        (d,) = (x for x in s.dims_at(t, INNER) if runs_in_lanes(s, task, x))
        if runs_in_lanes_whole(s, task, d):
            s.b.clause("lanes have parts", [(var, bits(WHOLE_BODY)), (s.v.kind[d], bits(VECTOR))])
        if t in s.v.of_tasks["batch_layout"]:
            stored = s.v.of_tasks["batch_layout"][t], bits(AS_STORED)
            s.b.clause("blocks of whole bodies", [(var, bits(WHOLE_BODY)), stored])


PHRASES = Phrases(
    "lane_parts",
    "vectors",
    {"FRONT": "runs in lanes what meets no other iteration, and the rest lane by lane"},
    {"FRONT": "a front in lanes"},
)

FAMILY = Family("lane_parts", {CPU: (lanes_have_parts,)}, declare, (PHRASES,))
