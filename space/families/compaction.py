"""Stream compaction: the way to build a list of active cells: by one thread, by prefix sums, or by atomic appends.

The threads of a CPU's team take their prefix sums between barriers. A grid of blocks has none, so on a GPU one block takes them.
"""

from __future__ import annotations

from ...kernels.ir.body import Body
from ...kernels.ir.kernel import Const
from ...kernels.ir.on_trees import compactions
from ..draft import Draft, Family, Phrases, all_but, bits
from ..targets.kind import CPU, GPU
from .fusion import SEPARATE

SERIAL, TWO_PASS, APPEND, BLOCK_SCAN = range(4)
COMPACTION = (
    "SERIAL",  # one thread looks at all cells
    "TWO_PASS",  # each thread counts the active ones of its part, and stores them behind those of the threads before (prefix sums)
    "APPEND",  # threads take room in the list by atomic additions: its order is another in each run, which no program sees
    "BLOCK_SCAN",  # one block of a GPU: in each round prefix sums of what its threads count say where they store
)
IN_A_GRID = (APPEND, BLOCK_SCAN)  # of many threads of a GPU


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        if task.body is not None and task.body.trees.lists:
            many = (TWO_PASS, APPEND) if s.kind.has_teams else IN_A_GRID
            values = bits(SERIAL, *many) if may_share(s, task.body) else bits(SERIAL)
            s.v.of_tasks["compaction"][t] = s.b.add("compaction", (task.name,), COMPACTION, values)


def may_share(s: Draft, body: Body) -> bool:
    """True if several threads can build a list together: they share its loop, which has more than one iteration."""
    found = compactions(body.statements)
    return (
        (s.target.cores > 1 or not s.kind.has_teams)
        and bool(found)
        and all(not isinstance(x.loop.extent, Const) or int(x.loop.extent.value) > 1 for x in found)
    )


def in_own_launch(s: Draft) -> None:
    """Hardware: many threads of a GPU make a list in launches of their own.

    Their blocks and threads are shared out by cells of a tree, as no dim of another task is.
    """
    for t, var in s.v.of_tasks["compaction"].items():
        for fused in (x for pair, x in s.v.fused.items() if t in pair):
            s.b.clause(
                "lists by themselves",
                [(var, all_but(COMPACTION, *IN_A_GRID)), (fused, bits(SEPARATE))],
            )


PHRASES = Phrases(
    "compaction",
    "lists",
    {
        "TWO_PASS": "is made by all threads in two passes",
        "APPEND": "is made by all threads, who take room by atomic additions",
        "BLOCK_SCAN": "is made by one block, with prefix sums",
    },
    {
        "TWO_PASS": "in two passes",
        "APPEND": "by atomic additions",
        "BLOCK_SCAN": "by prefix sums of a block",
    },
)

FAMILY = Family("compaction", {CPU: (), GPU: (in_own_launch,)}, declare, (PHRASES,))
