"""Software prefetch: number of iterations of a loop over a list by which the blocks that it names are prefetched early.

After Mowry, Lam and Gupta (ASPLOS 1992). A choice of a task whose innermost loop runs over a list of blocks, such as the leaves
of a sparse field, which the list may have in any order. Each row of the current block prefetches a row of the later block, so
lines arrive at the pace of their use (codegen/bodies/prefetch.py). CPUs only: a GPU has other threads to run while one waits. The
bound does not depend on the choice: guaranteed reads and stores of a loop pass through memory, prefetched or not.
"""

from __future__ import annotations

from functools import partial

from ...kernels.analysis.prefetch_sites import PrefetchCandidates, blocks_of
from ...kernels.ir.body import Body
from ...kernels.ir.task import Problem, Task
from ..backbone import INNER
from ..draft import Draft, Family, Phrases, all_but, bits
from ..targets.kind import CPU
from .tiling import DIM_KIND, VECTOR
from .unrolling import bodies_of, keeping

AHEAD_NONE, AHEAD_ONE, AHEAD_TWO, AHEAD_FOUR = range(4)
PREFETCH_DISTANCE = (
    "NONE",  # the hardware finds out by itself
    "ONE",  # the first cache is asked for rows of the block of the next iteration
    "TWO",  # of the one behind it
    "FOUR",
)
DISTANCES = {"NONE": 0, "ONE": 1, "TWO": 2, "FOUR": 4}


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        if any(has_blocks(s, task, body) for body in bodies_of(s.problem, task)):
            name = (task.name,)
            s.v.of_tasks["prefetch_distance"][t] = s.b.add(
                "prefetch_distance", name, PREFETCH_DISTANCE
            )


def has_blocks(s: Draft, task: Task, body: Body) -> bool:
    """True if a body accesses listed blocks (rows of an array named by an index list) beyond a core's private cache."""
    found = blocks_in(s.problem, task, body)
    return found is not None and any(s.is_beyond_own_cache(x.array) for x in found.rows)


def blocks_in(problem: Problem, task: Task, body: Body) -> PrefetchCandidates | None:
    """Returns the listed blocks that a task's innermost loop accesses in one variant of its body.

    It returns None if there are none.
    """
    if not task.loops:
        return None
    return blocks_of(task.loops[-1].name, body.statements, problem.array)


def blocks_are_there(s: Draft) -> None:
    """Coherence: a variant without listed blocks, and vectorised iterations, prefetch nothing.

    So the choice has its first value.
    """
    for t, var in s.v.of_tasks["prefetch_distance"].items():
        task = s.problem.tasks[t]
        for rows in keeping(s, t, partial(has_blocks, s, task)):
            s.b.clause("blocks of this form", [(var, bits(AHEAD_NONE)), *rows])
        for d in s.dims_at(t, INNER):
            alone = (s.v.kind[d], all_but(DIM_KIND, VECTOR))
            s.b.clause("blocks of one iteration", [(var, bits(AHEAD_NONE)), alone])


PHRASES = Phrases(
    "prefetch_distance",
    "loads",
    {
        "ONE": "prefetches blocks one iteration ahead",
        "TWO": "prefetches blocks two iterations ahead",
        "FOUR": "prefetches blocks four iterations ahead",
    },
    {"ONE": "blocks one ahead", "TWO": "blocks two ahead", "FOUR": "blocks four ahead"},
)

FAMILY = Family("prefetch_distance", {CPU: (blocks_are_there,)}, declare, (PHRASES,))
