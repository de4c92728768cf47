"""Software prefetch on a CPU: cache level and prefetch distance of reads, and prefetch of accumulators."""

from __future__ import annotations

from itertools import product

from ...kernels.ir.task import Task
from ..backbone import INNER, MID, OUTER, Prefetch
from ..draft import Draft, Family, bits
from ..targets.kind import CPU
from .memory import GLOBAL
from .order import OUTSIDE
from .packing import DIRECT
from .tiling import VECTOR

NO_PREFETCH, NEXT, NEAR, FAR = range(4)
PREFETCH = (
    "NONE",  # the hardware finds out by itself
    "NEXT",  # the first cache is asked for lines of the next register tile of the loop between lines
    "NEAR",  # the second cache is asked for lines PREFETCH_ITERATIONS[NEAR] iterations of that loop ahead
    "FAR",
)
PREFETCH_ITERATIONS = {NEAR: 12, FAR: 24}

NO_SUMS_AHEAD, SUMS_AHEAD = range(2)
PREFETCH_ACCUMULATORS = (
    "NONE",  # sums in memory are loaded when a register tile is added to them
    "AHEAD",  # the first cache is asked for them before the register tile is computed
)


# --- sites -----------------------------------------------------------------------------------


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        if prefetched(s, t):
            s.v.prefetch[t] = s.b.add("prefetch", (task.name,), PREFETCH)
    for t, task in enumerate(s.problem.tasks):
        if may_ask_for_sums(s, task):
            name = (f"{task.name}.{task.target.array}",)
            s.v.prefetch_accumulators[t] = s.b.add(
                "prefetch_accumulators", name, PREFETCH_ACCUMULATORS
            )


def prefetched(s: Draft, t: int) -> tuple[Prefetch, ...]:
    """Returns the reads of a task that may be prefetched: inputs beyond the cache, in vectors, with a loop over rows."""
    return tuple(
        p for p in s.backbone.prefetches if p.task == t and s.is_beyond_own_cache(p.access.array)
    )


def may_ask_for_sums(s: Draft, task: Task) -> bool:
    """True if accumulators can be in memory, pass through registers part by part, and exceed a core's private cache."""
    n_free = sum(not loop.is_reduction for loop in task.loops)
    is_in_parts = task.is_reduction and task.fast_math and n_free > 0
    return is_in_parts and s.is_beyond_own_cache(task.target.array)


# --- constraints -----------------------------------------------------------------------------


def sums_pass_by(s: Draft) -> None:
    """Only accumulators that are in memory and pass through registers are prefetched.

    Accumulators are in memory if a loop of the result is inside a reduction loop. They pass through
    registers if a reduction loop is inside all loops of the result. A mid dim without a loop counts
    as at its outer dim.
    """
    for t, var in s.v.prefetch_accumulators.items():
        never = (var, bits(NO_SUMS_AHEAD))
        outer, mid = s.dims_at(t, OUTER), s.dims_at(t, MID)
        free = [d for d in mid if not d.loop.is_reduction]
        around = [d for d in outer if d.loop.is_reduction]
        inside = [d for d in mid if d.loop.is_reduction]
        for pairs in (product(around, free), *(product([f], inside) for f in free)):
            orders = [(s.order(d, e), bits(OUTSIDE)) for d, e in pairs]
            s.b.clause("sums in memory", [never, *orders])


def vectors_in_memory(s: Draft) -> None:
    """Only vectors that are read from the array itself are prefetched.

    Single elements would prefetch each line many times. Packed operands, and values stored by an
    earlier task, are in a cache.
    """
    kept = [(f, x) for f, x in s.v.mem_space.items() if f.is_read]
    unkept = {(f.consumer, f.array): (x, bits(GLOBAL)) for f, x in kept}
    for t, var in s.v.prefetch.items():
        # What each read needs; one of them needs to have it all, so that of each some part is there.
        needs = []
        for p in prefetched(s, t):
            vector = (s.v.kind[s.backbone.dim(t, p.along, INNER)], bits(VECTOR))
            unpacked = [
                (x, bits(DIRECT))
                for o, x in s.v.staged.items()
                if o.task == t and o.holds(p.access)
            ]
            key = (t, p.access.array)
            needs.append([vector, *unpacked, *([unkept[key]] if key in unkept else [])])
        for parts in product(*needs):
            literals = [(var, bits(NO_PREFETCH)), *dict.fromkeys(parts)]
            s.b.clause("prefetches are vectors", literals)


FAMILY = Family("prefetching", {CPU: (sums_pass_by, vectors_in_memory)}, declare)
