"""Cache hints of a GPU's loads: the caches that hold a loaded line."""

from __future__ import annotations

from ...kernels.analysis.effects import arrays_written, task_reads
from ...kernels.ir.access import index_loops
from ...kernels.ir.task import Task
from ..draft import Draft, Family, all_but, bits
from ..targets.kind import GPU
from .fusion import SEPARATE
from .memory import GLOBAL
from .packing import COPY, DIRECT

CA, CG, READ_ONLY, STREAM_LOAD = range(4)
LOAD_CACHE = (
    "CA",  # an ordinary load: both caches of a GPU keep it
    "CG",  # only the cache of all multiprocessors keeps it
    "READ_ONLY",  # through the path for what the launch does not write
    "STREAM",  # the first to leave the caches
)


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        for array in hinted_loads(task):
            name = (f"{array}->{task.name}",)
            s.v.load_cache[t, array] = s.b.add("load_cache", name, LOAD_CACHE)


def hinted_loads(task: Task) -> list[str]:
    """Returns the arrays of which a structured task reads more than one element."""
    if not task.is_structured:
        return []
    return list(dict.fromkeys(a.array for a, _ in task_reads(task) if index_loops(a)))


def hint_of_memory(hint: int, space: int) -> bool:
    return hint == CA or space == GLOBAL


def hint_of_copy(hint: int, staged: int) -> bool:
    """False for a hint on a copy in several stages: asynchronous copies bypass L1 by themselves."""
    return hint == CA or staged in (DIRECT, COPY)


def hints(s: Draft) -> None:
    """Hardware: hints are for loads from memory.

    The read-only path is for arrays that no task of the launch writes.
    """
    b, v = s.b, s.v
    for (t, array), var in v.load_cache.items():
        for f, space in v.mem_space.items():
            if f.consumer == t and f.array == array:
                rule = hint_of_memory
                b.table2("hints of loads from memory", var, space, rule, share=rule)
        for o, staged in v.staged.items():
            if (o.task, o.access.array) == (t, array):
                b.table2("hints of copies", var, staged, hint_of_copy, share=hint_of_copy)
        others = (var, all_but(LOAD_CACHE, READ_ONLY))
        for u in s.backbone.neighbours[t]:
            if array in arrays_written(s.problem.tasks[u]):
                apart = [] if u == t else [(v.fused[min(t, u), max(t, u)], bits(SEPARATE))]
                b.clause("read-only arrays", [others, *apart])


FAMILY = Family("load_hints", {GPU: (hints,)}, declare)
