"""What a task reads and writes, and where."""

from __future__ import annotations

from .access import Access, Region, access_of, region
from .task import Problem, Task, extents
from .walk import loads


def task_reads(task: Task) -> tuple[tuple[Access, bool], ...]:
    """Every distinct read of the task with whether it happens in `finish` (after the reduction)."""
    if task.body is not None:
        return tuple(dict.fromkeys((a, False) for a in task.body.reads))
    value = loads(task.value) if task.value is not None else ()
    finish = loads(task.finish) if task.finish is not None else ()
    pairs = [(access_of(x), False) for x in value] + [(access_of(x), True) for x in finish]
    return tuple(dict.fromkeys(pairs))


def task_writes(task: Task) -> tuple[Access, ...]:
    """Every distinct write of the task: one, unless it has a body."""
    if task.body is not None:
        return tuple(dict.fromkeys(task.body.writes))
    return (task.target,)


def arrays_read(task: Task) -> tuple[str, ...]:
    """Names of arrays read, without repeats."""
    return tuple(dict.fromkeys(access.array for access, _ in task_reads(task)))


def arrays_written(task: Task) -> tuple[str, ...]:
    """Names of arrays written, without repeats."""
    return tuple(dict.fromkeys(access.array for access in task_writes(task)))


def written_region(task: Task, array: str, shape: tuple[int, ...]) -> Region | None:
    """What of `array` the task surely writes (exact) or may write (inexact); None when it does not
    write it.
    """
    regions = [region(a, extents(task), shape) for a in task_writes(task) if a.array == array]
    if not regions:
        return None
    if task.is_structured and len(regions) == 1:
        return regions[0]
    return _hull(regions)


def read_region(task: Task, array: str, shape: tuple[int, ...]) -> Region | None:
    """A box around what the task reads of `array`; None when it does not read it."""
    regions = [region(a, extents(task), shape) for a, _ in task_reads(task) if a.array == array]
    if not regions:
        return None
    return regions[0] if len(regions) == 1 else _hull(regions)


def _hull(regions: list[Region]) -> Region:
    """A box around several regions; never exact, for a union of boxes may have gaps."""
    axes = zip(*(r.bounds for r in regions), strict=True)
    return Region(tuple((min(b[0] for b in a), max(b[1] for b in a)) for a in axes), False)


def overwrites_all(task: Task, problem: Problem, array: str) -> bool:
    """Whether the task writes every element of `array` (it may read it as well)."""
    shape = problem.array(array).shape
    return overwrites(task, array, shape)


def overwrites(task: Task, array: str, shape: tuple[int, ...]) -> bool:
    """Whether the task surely writes every element of an array of this shape."""
    written = written_region(task, array, shape)
    return (
        written is not None
        and written.is_exact
        and written.bounds == tuple((0, n - 1) for n in shape)
    )
