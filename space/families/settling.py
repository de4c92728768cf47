"""Settling: the way a GPU reclaims the returned slots of pools: by one thread, or by all blocks in a grid-stride loop.

One thread clears slot after slot. With a grid each thread clears slots of its own, whose cells no other slot has; counters that
say how many there are change in a launch behind. On a CPU one thread of the team reclaims while the others wait.
The bound has no term for it: how many slots were returned is known at run time alone.
"""

from __future__ import annotations

from ...kernels.ir.settlements import settlements
from ...kernels.ir.task import Task
from ...kernels.tasks.non_affine import SETTLING
from ..draft import Draft, Family, Phrases, all_but, bits
from ..targets.kind import GPU
from .fusion import SEPARATE

ONE_THREAD, ALL_BLOCKS = range(2)
SETTLE = (
    "ONE_THREAD",  # one thread clears all slots that were returned
    "ALL_BLOCKS",  # threads of all blocks clear a slot each, in a grid-stride loop
)


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        if not s.kind.has_teams and may_share(task):
            s.v.of_tasks["settling"][t] = s.b.add("settling", (task.name,), SETTLE)


def may_share(task: Task) -> bool:
    """True if a task reclaims pools, and the loops over their slots may run before any counter changes."""
    body = task.body
    return body is not None and body.reason.text == SETTLING and bool(settlements(body.statements))


def in_own_launch(s: Draft) -> None:
    """Hardware: slots are shared out to blocks and threads in launches of their own, as no dim of another task is."""
    for t, var in s.v.of_tasks["settling"].items():
        for fused in (x for pair, x in s.v.fused.items() if t in pair):
            alone = [(var, all_but(SETTLE, ALL_BLOCKS)), (fused, bits(SEPARATE))]
            s.b.clause("pools by themselves", alone)


PHRASES = Phrases(
    "settling",
    "lists",
    {
        "ONE_THREAD": "is done by one thread",
        "ALL_BLOCKS": "is done by all blocks, a slot a thread",
    },
    {"ALL_BLOCKS": "by all blocks"},
)

FAMILY = Family("settling", {GPU: (in_own_launch,)}, declare, (PHRASES,))
