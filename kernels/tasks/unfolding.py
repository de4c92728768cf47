"""Unfolding of short repeats: steps that may share a loop are written one after the other, and decided together.

A recorder folds calls that repeat as soon as there are four of them. A repeat ends all launches in each of its steps. That costs
nothing where steps can share no loop: the halves of a red-black smoother have to wait for one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..analysis.effects import arrays_read
from ..frontend.recorder import Recording
from ..ir.arrays import ArrayInfo
from ..ir.kernel import ArrayParam
from ..ir.repeats import FEW_CALLS, Repeat, times
from ..ir.task import Problem, Task
from .dependence import dependences, is_kept_apart


def short_repeats(recording: Recording) -> list[int]:
    """Returns the numbers of the repeats that make few calls, in a recording of many calls.

    [] for a recording of few calls. Repeats that a recording was given explicitly, with an index, are left out. So are those that
    an array ends, and a repeat of the same calls as such a one.
    """
    found: list[int] = []
    if sum(recording.n_made) <= FEW_CALLS:
        return found
    ended = {(r.first, r.stop) for r in recording.repeats if r.until}
    for number, r in enumerate(recording.repeats):
        inside = tuple(x for x in recording.repeats if x.is_inside(r))
        runs = times(len(recording.calls), (r, *inside))
        if (
            not r.index
            and (r.first, r.stop) not in ended
            and sum(runs[r.first : r.stop]) <= FEW_CALLS
        ):
            found.append(number)
    return found


def may_share_loops(step: Sequence[Task], arrays: Sequence[ArrayParam]) -> bool:
    """True if loops of two steps of a repeat may be fused into one. `step`: the tasks of one step."""
    tasks = tuple(replace(t, repeats=()) for t in (*step, *step))
    known = tuple(ArrayInfo(a.name, a.dtype, a.shape, "inout") for a in arrays)
    between: dict[tuple[int, int], list[set[tuple[str, str]]]] = {}
    for d in dependences(Problem("", known, (), tasks, "")):
        between.setdefault((d.source, d.sink), []).append(set(d.mapped))
    ordered = set(between)
    n = len(step)
    pairs = [(a, b) for a in range(2 * n) for b in range(a + 1, 2 * n)]
    joined = {(a, b) for a, b in pairs if _may_join(tasks[a], tasks[b], between.get((a, b)))}
    return any(a < n <= b and not is_kept_apart(a, b, ordered, joined) for a, b in joined)


def _may_join(a: Task, b: Task, mapped: list[set[tuple[str, str]]] | None) -> bool:
    """True if two tasks may share a loop.

    `mapped`: for each dependence between them, the pairs of loops that keep it in one iteration; None without dependences.
    """
    if mapped is not None and set.intersection(*mapped):
        return True
    if mapped is not None and not (a.is_reduction and b.is_reduction):
        return False
    reads_alike = not set(arrays_read(a)).isdisjoint(arrays_read(b))
    return reads_alike and any(x.extent == y.extent for x in a.loops for y in b.loops)


def unfolded(recording: Recording, numbers: Sequence[int]) -> Recording:
    """Returns the recording with the calls of these repeats written out step by step.

    Repeats inside of other chosen repeats stay.
    """
    chosen = [recording.repeats[k] for k in numbers]
    outermost = [r for r in chosen if not any(r.is_inside(x) for x in chosen)]
    for r in reversed(outermost):
        recording = _without(recording, r)
    return recording


def _without(recording: Recording, r: Repeat) -> Recording:
    n = r.stop - r.first
    more = n * (r.count - 1)
    calls = recording.calls
    repeats: list[Repeat] = []
    for x in recording.repeats:
        if x.is_inside(r):
            copies = (n * k for k in range(r.count))
            repeats += (replace(x, first=x.first + k, stop=x.stop + k) for k in copies)
        elif x != r:
            first = x.first + more * (x.first >= r.stop)
            repeats.append(replace(x, first=first, stop=x.stop + more * (x.stop >= r.stop)))
    repeats.sort(key=lambda x: (x.first, -x.stop))
    written = (*calls[: r.first], *calls[r.first : r.stop] * r.count, *calls[r.stop :])
    return replace(recording, calls=written, repeats=tuple(repeats))
