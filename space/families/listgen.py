"""List generation: a loop rebuilds its list of active cells always, if cells have changed, or never (reuse).

A later value is never worse than an earlier one, so a search takes the last legal one. Only a user
who fixes it gets another.
"""

from __future__ import annotations

from ...kernels.ir.on_trees import ANEW, AS_IS, IF_OLD, ListSite
from ..draft import Draft, Family, Phrases, bits
from ..targets.kind import CPU, GPU

GENERATE, IF_CHANGED, REUSE = range(3)
LISTGEN = (
    ANEW,  # GENERATE: the list is made before the loop that takes it
    IF_OLD,  # IF_CHANGED: a test at run time makes it only where cells have changed since it was made
    AS_IS,  # REUSE: it is the list of an earlier loop, since no mask of its node or of those above has changed
)


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        for x in task.body.trees.lists if task.body is not None else ():
            var = s.b.add("listgen", (x.name,), LISTGEN, ways_of(x))
            s.v.of_places["listgen"][t, x.name] = var
            s.v.dominated.append(var)


def ways_of(x: ListSite) -> int:
    """Returns the possible values (bit mask) of a list use.

    IF_CHANGED needs a change flag, REUSE an earlier list that is still valid.
    """
    return bits(GENERATE, *([IF_CHANGED] if x.has_flag else []), *([REUSE] if x.is_right else []))


PHRASES = Phrases(
    "listgen",
    "lists",
    {
        "GENERATE": "is made again",
        "IF_CHANGED": "is made where cells have changed",
        "REUSE": "is that of an earlier loop",
    },
    {"GENERATE": "made again"},
)

FAMILY = Family("listgen", {CPU: (), GPU: ()}, declare, (PHRASES,))
