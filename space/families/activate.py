"""Activation of sparse cells in a loop: in each iteration, once per list element (hoisted), or not for active cells.

DEMOTED (no activation of surely active cells) and ELEMENT (hoisted) are never worse, so a search
takes them where they are legal. Only a user who fixes the choice gets another value. The activation
of an active cell changes no memory, so all that is proved of one variant of a body holds for the
others.
"""

from __future__ import annotations

from ...kernels.ir.on_trees import EACH, NEEDED, ONCE
from ...kernels.tasks.variants import in_each
from ..backbone import INNER
from ..draft import Draft, Family, Phrases, all_but, bits
from ..targets.kind import CPU, GPU
from .lane_parts import FRONT
from .ranges import IN_TURN
from .scatter import BY_BLOCKS, SCATTER
from .tiling import DIM_KIND, VECTOR

ACTIVATE, DEMOTED, ELEMENT = range(3)
ACTIVATE_KIND = (
    EACH,  # ACTIVATE: each iteration looks whether its cell is active, and makes it so where it is not
    NEEDED,  # DEMOTED: cells that an earlier loop has surely made active are taken as they are
    ONCE,  # ELEMENT: where all cells of a leaf make the same cell active, that is done once before them
)


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        trees = task.body.trees if task.body is not None else None
        if trees is None or not trees.way:
            continue
        ways = {ACTIVATE_KIND.index(trees.way)}
        if in_each(s.problem, task) is not None:
            ways.add(ACTIVATE)
        var = s.b.add("activate", (task.name,), ACTIVATE_KIND, bits(*ways))
        s.v.of_tasks["activate"][t] = var
        s.v.dominated.append(var)


def one_by_one(s: Draft) -> None:
    """Coherence: sorted iterations have the body of the task, vectorised ones DEMOTED.

    Sorting and vectorisation are derived for the body without needless activations. What is left of these, threads make at once, in
    any order. Behind a front lanes activate one by one.
    """
    for t, var in s.v.of_tasks["activate"].items():
        body = s.problem.tasks[t].body
        assert body is not None
        own = ACTIVATE_KIND.index(body.trees.way)
        parts = s.v.of_tasks["lane_parts"].get(t)
        behind = [] if parts is None else [(parts, bits(FRONT))]
        for d in s.dims_at(t, INNER):
            scalar = (s.v.kind[d], all_but(DIM_KIND, VECTOR))
            s.b.clause("activations one by one", [(var, bits(DEMOTED)), scalar, *behind])
        for ranges in (x for (u, _), x in s.v.ranges.items() if u == t):
            s.b.clause("activations one by one", [(var, bits(DEMOTED)), (ranges, bits(IN_TURN))])
        for x in (x for u, x in s.v.scatter if u == t):
            unsorted = (s.v.scatter[t, x], all_but(SCATTER, *BY_BLOCKS))
            s.b.clause("activations of sorted iterations", [(var, bits(own)), unsorted])


PHRASES = Phrases(
    "activate",
    "lists",
    {
        "ACTIVATE": "makes cells active",
        "DEMOTED": "takes cells that are surely active as they are",
        "ELEMENT": "makes cells active once for each leaf that it is in",
    },
    {},
)

FAMILY = Family("activate", {CPU: (one_by_one,), GPU: ()}, declare, (PHRASES,))
