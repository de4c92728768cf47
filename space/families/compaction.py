"""Stream compaction: the way to build a list of active cells: by one thread, in two passes, or by atomic appends.

On a GPU one thread builds it: the other ways need the barriers of a team, and a grid has none.
"""

from __future__ import annotations

from ...kernels.ir.body import Body
from ...kernels.ir.kernel import Const
from ...kernels.ir.on_trees import compactions
from ..draft import Draft, Family, Phrases, bits
from ..targets.kind import CPU, GPU

SERIAL, TWO_PASS, APPEND = range(3)
COMPACTION = (
    "SERIAL",  # one thread looks at all cells
    "TWO_PASS",  # each thread counts the active ones of its part, and stores them behind those of the threads before (prefix sums)
    "APPEND",  # threads take room in the list by atomic additions: its order is another in each run, which no program sees
)


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        if task.body is not None and task.body.trees.lists:
            values = bits(SERIAL, TWO_PASS, APPEND) if may_share(s, task.body) else bits(SERIAL)
            s.v.of_tasks["compaction"][t] = s.b.add("compaction", (task.name,), COMPACTION, values)


def may_share(s: Draft, body: Body) -> bool:
    """True if several threads can build a list together: they share its loop, which has more than one iteration."""
    found = compactions(body.statements)
    return (
        s.kind.has_teams
        and s.target.cores > 1
        and bool(found)
        and all(not isinstance(x.loop.extent, Const) or int(x.loop.extent.value) > 1 for x in found)
    )


PHRASES = Phrases(
    "compaction",
    "lists",
    {
        "TWO_PASS": "is made by all threads in two passes",
        "APPEND": "is made by all threads, who take room by atomic additions",
    },
    {"TWO_PASS": "in two passes", "APPEND": "by atomic additions"},
)

FAMILY = Family("compaction", {CPU: (), GPU: ()}, declare, (PHRASES,))
