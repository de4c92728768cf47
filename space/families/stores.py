"""Stores of task results: dead store elimination, and streaming stores around the caches."""

from __future__ import annotations

from ...kernels.ir.task import Task
from ...kernels.tasks.dependence import written_over
from ..backbone import INNER
from ..draft import Draft, Family, bits
from ..targets.kind import CPU, GPU
from .memory import GLOBAL
from .tiling import VECTOR, vector_loops

CACHED, STREAM = range(2)
CACHE = (
    "DEFAULT",  # an ordinary store
    "STREAM",  # a store of what is not needed again soon: around the caches of a CPU, first to leave those of a GPU
)

KEEP, ELIDED = range(2)
STORE = (
    "KEEP",  # the array is written
    "ELIDED",  # the array is not written: every reader gets the value on chip, and nobody sees it afterwards
)


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        if may_stream(s, task):
            s.v.cache[t] = s.b.add("cache", (f"{task.name}.{task.target.array}",), CACHE)
    unseen = written_over(s.problem)
    for t, task in enumerate(s.problem.tasks):
        is_unseen = s.array(task.target.array).role == "temp" or t in unseen
        if task.is_structured and is_unseen:
            s.v.store[t] = s.b.add("store", (f"{task.name}.{task.target.array}",), STORE)


def may_stream(s: Draft, task: Task) -> bool:
    """True if the stores of a task can bypass the caches: on a CPU, vectors of elements that are stored once."""
    if task.is_guarded:
        return False
    if not s.kind.streams_vectors_only:
        return task.is_structured
    return task.is_structured and not task.is_reduction and bool(vector_loops(s, task))


def elided(store: int, space: int) -> bool:
    return store != ELIDED or space != GLOBAL


def stream_kept(cache: int, store: int) -> bool:
    return cache != STREAM or store == KEEP


def elided_stores(s: Draft) -> None:
    """Semantics: a value that does not outlive the sequence is stored exactly if some reader takes it from memory.

    Such a value is in a temporary, or a later task overwrites it (dead store elimination).
    """
    b, v = s.b, s.v
    spaces_from: dict[int, list[int]] = {}
    for f in s.backbone.near_flows:
        spaces_from.setdefault(f.producer, []).append(v.mem_space[f])
    read_far_away = {f.producer for f in s.backbone.far_flows}
    for t, var in v.store.items():
        spaces = spaces_from.get(t, [])
        if t in read_far_away:
            b.restrict(var, bits(KEEP))
            continue
        for space in spaces:
            b.table2("elided store", var, space, elided, share=elided)
        b.clause("needless store", [(var, bits(ELIDED)), *((x, bits(GLOBAL)) for x in spaces)])
        if t in v.cache:
            b.table2("streams are kept", v.cache[t], var, stream_kept, share=stream_kept)


def streamed_vectors(s: Draft) -> None:
    """Hardware: a CPU streams only whole, contiguous vectors."""
    for t, var in s.v.cache.items():
        along = vector_loops(s, s.problem.tasks[t])
        inner = [d for d in s.dims_at(t, INNER) if d.loop.name in along]
        vectors = [(s.v.kind[d], bits(VECTOR)) for d in inner]
        s.b.clause("streams are vectors", [(var, bits(CACHED)), *vectors])


FAMILY = Family("stores", {CPU: (elided_stores, streamed_vectors), GPU: (elided_stores,)}, declare)
