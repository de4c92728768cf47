"""Streaming bound: minimal time for data that a sequence traverses once a call, in the same order every time.

Loops only count upwards, and threads take the same tiles in every call. So all other elements pass
through the caches between two uses of an element of such an array. The remaining cache hits are
those that a machine showed when arrays of that size were read repeatedly (`Target.streams`). Among
several mixes of reads and writes, none is faster than the best combination of the measured ones (a
roofline with several slopes). The rate for an array is that of the largest measured arrays that are
no larger.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...kernels.analysis.effects import task_reads, task_writes
from ...kernels.ir.task import Problem, Task, extents
from ...space.candidate import Elsewhere
from ...space.engine.jit import jit_flat, jit_flat_internal
from ...space.targets.target import StreamCurve, Target
from .columns import Floats, Ints, Table, table
from .traffic import distinct_elements

Int = int | np.int64

# Access pattern of a sequence on an array. ANYHOW: a task uses some elements more than once. ONCE: one task uses each element at
# one moment of the call. BY_EACH: several tasks do so.
ANYHOW, ONCE, BY_EACH = 0, 1, 2
# Columns of the streaming traffic of a phase, in bytes: read by one task, by several; written likewise; and written likewise to
# lines that nothing has read.
READ_ONCE, READ_BY_EACH, WRITTEN_ONCE, WRITTEN_BY_EACH, FRESH_ONCE, FRESH_BY_EACH = range(6)
N_COLUMNS = 6
READ, WRITTEN = range(2)  # rows of rates, in bytes a ns

_UNKNOWN = 1e30  # bytes a ns where nothing as small was measured


def passes(problem: Problem, elsewhere: Elsewhere) -> Ints:
    """Returns [n_arrays]: the way in which the sequence traverses each array: ONCE, BY_EACH or ANYHOW.

    ONCE: one task uses each element at one moment of a call. BY_EACH: several tasks do so. ANYHOW:
    a task uses some elements more than once, or a larger sequence uses the array elsewhere.
    """
    found = []
    used = elsewhere.reads | elsewhere.writes
    for array in problem.arrays:
        touching = [t for t in problem.tasks if _touches(t, array.name)]
        is_once = all(_goes_through(t, array.name) for t in touching)
        is_once = bool(touching) and array.name not in used and is_once
        found.append((ONCE if len(touching) == 1 else BY_EACH) if is_once else ANYHOW)
    return np.array(found, np.int64)


def is_fresh(problem: Problem, t: int, array: str) -> bool:
    """True if no task up to `t` reads the array in a call, so that `t` writes it before any read."""
    readers = (access.array for task in problem.tasks[: t + 1] for access, _ in task_reads(task))
    return array not in readers


def _touches(task: Task, array: str) -> bool:
    accesses = (*(access for access, _ in task_reads(task)), *task_writes(task))
    return any(access.array == array for access in accesses)


def _goes_through(task: Task, array: str) -> bool:
    """True if every iteration of the task accesses a different element of the array."""
    reads = {(access, is_late) for access, is_late in task_reads(task) if access.array == array}
    accesses = {access for access, _ in reads} | {w for w in task_writes(task) if w.array == array}
    # What a reduction adds to, and what it is finished with, may be touched in any iteration.
    is_late = any(late for _, late in reads) or task.target.array == array
    if (
        not task.is_structured
        or task.is_guarded
        or len(accesses) != 1
        or (is_late and task.is_reduction)
    ):
        return False
    loops = extents(task)
    n_iterations = int(np.prod(list(loops.values()), dtype=np.int64))
    return distinct_elements(next(iter(accesses)), loops) == n_iterations


def stream_tables(target: Target) -> dict[str, Any]:
    """Returns the tables of `BoundTables` for streaming curves."""
    kinds: list[tuple[int, ...]] = []
    points: list[tuple[float, float, float, float]] = []
    for curve, rates in at_best(target):
        first = len(points)
        for read, written, rate in zip(curve.read_bytes, curve.written_bytes, rates, strict=True):
            share = read / (read + written)
            points.append((read, written, float(rate) * share, float(rate) * (1 - share)))
        # In place a line that is written has been read: of arrays that are not, nothing can be written that way.
        kinds.append((curve.cores, int(curve.kind == "scale"), first, len(points)))
    return {
        "stream": table(kinds, "cores is_in_place first end"),
        "stream_point": table(points, "", "read_bytes written_bytes read_rate written_rate"),
    }


def at_best(target: Target) -> Iterator[tuple[StreamCurve, Floats]]:
    """Yields each bandwidth curve of a target with its optimistic rates, in bytes per ns, point by point.

    A curve may have been measured in a slow state of the machine. Its time spent on memory counts
    as if memory delivered its highest rate ever seen. A rate for an array holds for smaller ones,
    too.
    """
    boost = _boost(target)
    for curve in target.streams:
        rates = _boosted(curve, boost, target.last_cache_bytes)
        yield curve, np.maximum.accumulate(rates[::-1])[::-1]


def _boost(target: Target) -> float:
    """Returns the ratio of the highest memory rates ever seen to the rates at the far ends of the curves.

    At least 1.
    """
    most_cores = max((c.cores for c in target.streams), default=0)  # a call may have fewer
    far = {c.kind: c.bytes_per_ns[-1] for c in target.streams if c.cores == most_cores}
    writes = [rate for kind, rate in far.items() if kind in ("write", "write_nt")]
    seen = (
        (target.memory_read_bytes_per_ns, far.get("read", 0.0)),
        (target.memory_write_bytes_per_ns, max(writes, default=0.0)),
        (target.memory_mixed_bytes_per_ns, max(far.values(), default=0.0)),
    )
    return max([1.0, *(most / rate for most, rate in seen if rate > 0)])


def _boosted(curve: StreamCurve, boost: float, last_cache_bytes: int) -> Floats:
    """Returns the rates of the curve, in bytes per ns, if memory were `boost` times as fast."""
    rates = np.array(curve.bytes_per_ns, np.float64)
    if curve.kind.endswith("_nt"):  # stores around the caches go to memory, whatever the size
        return rates * boost
    touched = np.maximum(curve.read_bytes, curve.written_bytes)
    if curve.kind != "scale":
        touched = np.add(curve.read_bytes, curve.written_bytes)
    is_inside = touched <= last_cache_bytes / 2
    if not is_inside.any():
        return rates * boost
    inside_ns = 1 / rates[is_inside].max()
    missing_ns = np.maximum(1 / rates - inside_ns, 0.0)
    faster = 1 / (np.minimum(1 / rates, inside_ns) + missing_ns / boost)
    return np.asarray(np.where(is_inside, rates, faster), np.float64)


@jit_flat
def least_time(rates: Floats, n: int, read: float, written: float) -> float:
    """Returns a lower bound on the ns for so many bytes read and written, by the best combination of `n` measured mixes."""
    least = np.inf
    for k in range(n):
        x, y = rates[READ, k], rates[WRITTEN, k]
        if (x > 0 or read <= 0) and (y > 0 or written <= 0):
            by_read = read / x if read > 0 else 0.0
            by_written = written / y if written > 0 else 0.0
            least = min(least, max(by_read, by_written))
        for i in range(k):
            area = rates[READ, i] * y - x * rates[WRITTEN, i]
            if area != 0.0:
                first = (read * y - x * written) / area
                second = (rates[READ, i] * written - read * rates[WRITTEN, i]) / area
                if first >= 0.0 and second >= 0.0:
                    least = min(least, first + second)
    return least


@jit_flat_internal
def _rates(
    kinds: Table, points: Table, cores: Int, read: float, written: float, rates: Floats
) -> int:
    """Fills in the bytes per ns of each measured mix, then of pure reads and pure writes.

    Returns the number of mixes.
    """
    most_x, most_y = 0.0, 0.0
    n = 0
    for k in range(kinds.shape[0]):
        if kinds[k].cores != cores:
            continue
        first, by_read, by_written = kinds[k].first, -1, -1
        for i in range(first, kinds[k].end):
            if points[i].read_bytes <= read:
                by_read = i
            if points[i].written_bytes <= written:
                by_written = i
        if points[first].read_rate > 0:
            most_x = max(most_x, points[by_read].read_rate if by_read >= 0 else _UNKNOWN)
        if points[first].written_rate > 0:
            most_y = max(most_y, points[by_written].written_rate if by_written >= 0 else _UNKNOWN)
        both = min(by_read, by_written)
        rates[READ, n] = points[both].read_rate if both >= 0 else _UNKNOWN
        rates[WRITTEN, n] = points[both].written_rate if both >= 0 else _UNKNOWN
        if points[first].read_rate == 0:
            rates[READ, n] = 0.0
        if points[first].written_rate == 0:
            rates[WRITTEN, n] = 0.0
        n += 1
    for k in range(n):
        rates[READ, k], rates[WRITTEN, k] = (
            min(rates[READ, k], most_x),
            min(rates[WRITTEN, k], most_y),
        )
    rates[READ, n], rates[WRITTEN, n] = most_x, 0.0
    rates[READ, n + 1], rates[WRITTEN, n + 1] = 0.0, most_y
    return n


@jit_flat_internal
def streaming_ns(
    kinds: Table,
    points: Table,
    cores: Int,
    through: Floats,
    held: float,
    leaving: float,
    rates: Floats,
) -> float:
    """Returns a lower bound on the ns in which `cores` cores move the bytes in the columns of `through`.

    `held`: bytes that caches and registers hold. `leaving`: written bytes that may leave them
    later. `rates` ([2, n_kinds + 2]) is scratch space.
    """
    # What several tasks go through is used by all of them while it is near, or by each in a pass of its own; then
    # each pass misses all but `held` bytes. Near means that at most half of what the caches hold lies between.
    each = through[READ_BY_EACH]
    read = through[READ_ONCE] + min(each, 2 * max(0.0, each - held))
    read_far = through[READ_ONCE] + max(0.0, each - held / 2)
    each = through[WRITTEN_BY_EACH]
    # A pass of its own that reads what was written costs about as much as what it saves, once that is large beside the caches.
    missed = each if each >= 4 * held else max(0.0, each - held)
    written = through[WRITTEN_ONCE] + missed
    written_far = through[WRITTEN_ONCE] + max(0.0, each - held)
    fresh = max(0.0, through[FRESH_ONCE] + min(missed, through[FRESH_BY_EACH]) - leaving)
    written = max(0.0, written - leaving)
    n = _rates(kinds, points, cores, read_far, written_far, rates)
    if n == 0 or read + written == 0:
        return 0.0
    ns = 0.0
    if fresh < written or written == 0:
        ns = least_time(rates, n + 2, read, written)
    if fresh > 0:
        at = 0
        for k in range(kinds.shape[0]):
            if kinds[k].cores == cores:
                if kinds[k].is_in_place:
                    rates[WRITTEN, at] = 0.0
                at += 1
        ns = max(ns, least_time(rates, n + 2, read, fresh))
    return ns
