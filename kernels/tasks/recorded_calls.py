"""Tasks of recorded calls: each call is rewritten to the sequence's arrays and scalars, and cut into nests.

Nests share no locals.
Each nest is distributed into affine tasks (distribute, legality, reductions) or becomes the body of one non-affine task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from ..analysis.effects import are_independent
from ..ir.body import Closure, Reason
from ..ir.domain import Loop
from ..ir.kernel import ArrayParam, Expr, For, LoopIndex, Stmt
from ..ir.task import Task, WholeCall
from ..ir.walk import (
    Renaming,
    written_in,
)
from ..sparse.redundancy import Derived
from ..transforms.dead_stores import without_unread
from .borders import split_at_borders
from .distribute import (
    NotStructuredError,
    constant_extent,
    first_branch,
    flatten,
)
from .entry_facts import derived_calls
from .interleaved_stores import in_turn
from .non_affine import LISTING, PRINTED, SETTLING, closed_task, with_trees
from .parts import Parts, TakenList, parts_of
from .reductions import Split, split
from .segments import in_terms_of_sequence, segments_of
from .splitting import split_at_steps
from .taken import TakenLists
from .triangles import boxed, first_range
from .unfolding import may_share_loops, short_repeats, unfolded
from .unsplit import whole_calls

if TYPE_CHECKING:
    from ..frontend.recorder import Recording

_MOST_STEPS = 1 << 16  # of a loop of a kernel: launches of a GPU are listed one by one


def calls_of(recording: Recording) -> tuple[Recording, RecordedCalls]:
    """Returns the recording and its calls as tasks.

    Short repeats of the recording are unfolded if their steps may share a loop.
    """
    while True:
        calls = RecordedCalls(recording)
        sharing = [k for k in short_repeats(recording) if calls.may_share_loops(k)]
        if not sharing:
            return recording, calls
        recording = unfolded(recording, sharing)


class RecordedCalls:
    """Calls of a recording as tasks, before the clean-up across calls.

    `known`: all arrays by name. `temps`: the temporaries that calls need. `labels`: the name of each call. `derived`: its redundant
    operations on trees, None for a kernel on plain arrays.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._around = _loops_around(recording)
        self.known = {a.name: a for a in (*recording.arrays, *recording.temps, PRINTED)}
        sections = (x for t in recording.trees for x in t.sections)
        for name in (array for key, array in sections if key.startswith("list")):
            self.known[name] = replace(self.known[name], is_list=True)
        self.tasks: list[Task] = []
        self.temps: list[ArrayParam] = []
        self._first: list[int] = []  # task of each call
        self.labels = labels_of(recording)
        self.derived = derived_calls(recording)
        self._add_all()

    def _add_all(self) -> None:
        recording = self._recording
        taken = TakenLists()
        found: dict[_Key, _Normalised] = {}
        for call, label, derived, around in zip(
            recording.calls, self.labels, self.derived, self._around, strict=True
        ):
            key = id(call.ir), id(call.logical), call.arrays, call.scalars, derived, around
            same = found.get(key)
            if same is None or not same.is_movable:
                parts = parts_of(call, label, recording, derived)
                new, temps = _tasks_of_call(parts, label, self.known, around)
                is_movable = not temps and all(t.repeats == around for t in new)
                same = found[key] = _Normalised(label, new, temps, parts.lists, is_movable)
            self._first.append(len(self.tasks))
            self.tasks.extend(same.tasks_of(label))
            taken.add(self.tasks, len(same.tasks), same.lists, label)
            self.temps.extend(same.temps)
            self.known.update((t.name, t) for t in same.temps)

    def as_written(self) -> tuple[WholeCall, ...]:
        """Returns the calls without any splitting into tasks; () if each is one affine task, or if they have no such form."""
        n_tasks = [end - first for first, end in pairwise((*self._first, len(self.tasks)))]
        if max(n_tasks, default=0) <= 1 and all(t.is_structured for t in self.tasks):
            return ()
        return whole_calls(self._recording, self.known, self.labels, self._around)

    def may_share_loops(self, number: int) -> bool:
        """True if loops of two steps of repeat `number` may be fused into one loop."""
        r = self._recording.repeats[number]
        ends = [*self._first, len(self.tasks)]
        return may_share_loops(self.tasks[ends[r.first] : ends[r.stop]], tuple(self.known.values()))


_Key = tuple[int, int, tuple[str, ...], tuple[Expr, ...], Derived | None, tuple[Loop, ...]]
"""Kernel before and after lowering, arguments, redundant operations and time loops of a call: what its tasks depend on."""


@dataclass(frozen=True)
class _Normalised:
    """Call as tasks: its label, tasks and temporaries, and the lists that it uses.

    `is_movable`: no array and no loop is named after the call, so that equal calls have the same tasks.
    """

    label: str
    tasks: Sequence[Task]
    temps: Sequence[ArrayParam]
    lists: tuple[TakenList, ...]
    is_movable: bool

    def tasks_of(self, label: str) -> Iterator[Task]:
        """Yields the tasks of an equal call that has this label."""
        for task in self.tasks:
            yield task if label == self.label else self._moved(task, label)

    def _moved(self, task: Task, label: str) -> Task:
        name = label + task.name.removeprefix(self.label)
        if task.body is None or not task.body.trees.tiles:
            return replace(task, name=name)
        trees = task.body.trees
        tiles = (replace(x, name=label + x.name.removeprefix(self.label)) for x in trees.tiles)
        body = replace(task.body, trees=replace(trees, tiles=tuple(tiles)))
        return replace(task, name=name, body=body)


def labels_of(recording: Recording) -> list[str]:
    """Returns the label of each call: the kernel's name and a number, such as `gemv0`, `gemv1`."""
    counts: dict[str, int] = {}
    labels = []
    for call in recording.calls:
        n = counts.get(call.ir.name, 0)
        counts[call.ir.name] = n + 1
        labels.append(f"{call.ir.name}{n}")
    return labels


def _loops_around(recording: Recording) -> list[tuple[Loop, ...]]:
    """Returns for each call the time loops (repeats) around it, outermost first."""
    loops = [
        (r, Loop(r.index or f"/{n}", r.count, False, is_step=True, until=r.until))
        for n, r in enumerate(recording.repeats)
    ]
    return [tuple(loop for r, loop in loops if k in r.members) for k in range(len(recording.calls))]


def _tasks_of_call(
    parts: Parts, label: str, known: Mapping[str, ArrayParam], steps: tuple[Loop, ...]
) -> tuple[list[Task], list[ArrayParam]]:
    """Returns the tasks of one call inside of the time loops `steps`, and their temporaries."""
    ir, arrays = parts.ir, parts.arrays
    tasks: list[Task] = []
    temps: list[ArrayParam] = []
    if parts.settling:
        settled = in_terms_of_sequence(parts.settling, ir, arrays, parts.scalars)
        reason = Reason(Closure.CARRIED, SETTLING, ir.where)
        settling = closed_task(
            settled, ir.name, known, ir.fast_math, reason, serial=True, steps=steps
        )
        tasks += [settling] if settling is not None else []
    whole = without_unread(in_terms_of_sequence(parts.body, ir, arrays, parts.scalars))
    for body in segments_of(whole):
        here = {**known, **{t.name: t for t in temps}}
        if any(here[name].is_list for name in written_in(body) if name in here):
            reason = Reason(Closure.CARRIED, LISTING, ir.where)
            listing = closed_task(
                body, ir.name, known, ir.fast_math, reason, serial=True, steps=steps
            )
            tasks += [listing] if listing is not None else []
            continue
        loops = [parts.loops[s.uid] for s in body if s.uid in parts.loops]
        found = _segment_tasks(
            body, label, ir.name, here, ir.fast_math, steps, has_borders=not loops
        )
        if len(loops) == len(found.tasks) == 1:
            tasks.append(with_trees(found.tasks[0], loops[0], steps, is_alone=len(body) == 1))
        else:
            tasks.extend(found.tasks)
        temps.extend(found.temps)
    shown = {name: param for param, name in arrays.items()}
    return [_marked(t, label, shown) for t in tasks], temps


def _segment_tasks(
    body: tuple[Stmt, ...],
    label: str,
    kernel: str,
    known: Mapping[str, ArrayParam],
    fast_math: bool,
    steps: tuple[Loop, ...],
    *,
    has_borders: bool = True,
) -> Split:
    """Returns the tasks of statements that share no locals with others.

    `has_borders`: a nest may be split into interior and borders.
    """
    try:
        shapes = {name: a.shape for name, a in known.items()}
        flat = flatten(boxed(body, steps), fast_math, shapes, steps)
        branch = first_branch(body) or first_range(body)
        found = split(flat, label, kernel, known, fast_math, branch)
        reason = None if found.temps else in_turn(found.tasks)
        if reason is not None:
            raise NotStructuredError(reason.kind, reason.text, reason.where)
        return replace(found, tasks=tuple(replace(t, repeats=steps) for t in found.tasks))
    except NotStructuredError as e:
        parts = split_at_steps(boxed(body, steps), steps) if steps else None
        if parts is not None and e.reason.kind is Closure.CARRIED:
            apart = [_segment_tasks(x, label, kernel, known, fast_math, steps) for x in parts]
            tasks = tuple(t for found in apart for t in found.tasks)
            if all(t.is_structured for t in tasks) and not any(found.temps for found in apart):
                return Split(tasks, ())
        task = closed_task(body, kernel, known, fast_math, e.reason, steps=steps)
        stepped = _steps(body, task, label, kernel, known, fast_math, steps)
        whole = stepped or Split((task,) if task is not None else (), ())
        if stepped is not None or task is None or not has_borders:
            return whole
        made: list[Task] = []
        temps: dict[str, ArrayParam] = {}
        for part in split_at_borders(body, task):
            here = {**known, **temps}
            found = _segment_tasks(part, label, kernel, here, fast_math, steps, has_borders=False)
            if not made and not all(t.is_structured for t in found.tasks):
                break  # not even the interior
            made += found.tasks
            temps |= {t.name: t for t in found.temps}
        if made:
            return Split(tuple(made), tuple(temps.values()))
        return whole


def _steps(
    body: tuple[Stmt, ...],
    closed: Task | None,
    label: str,
    kernel: str,
    known: Mapping[str, ArrayParam],
    fast_math: bool,
    steps: tuple[Loop, ...],
) -> Split | None:
    """Returns the tasks of a loop with dependent iterations around loops without dependences.

    The loop becomes a time loop around these tasks. None if it has no such form. `closed`: the one task of the loop otherwise.
    `steps`: the time loops around.
    """
    loop = body[0] if len(body) == 1 else None
    if (
        closed is None
        or not isinstance(loop, For)
        or not any(isinstance(s, For) for s in loop.body)
    ):
        return None
    count = constant_extent(loop.extent) or 0
    if not 1 < count <= _MOST_STEPS or _has_independent(closed):
        return None
    tasks: list[Task] = []
    temps: list[ArrayParam] = []
    # A loop per call: equal loops around neighbours would be merged.
    around = Loop(f"{label}/{loop.loop}", count, False, is_step=True)
    inside = Renaming(loops={loop.loop: LoopIndex(around.name)})
    body = tuple(inside.apply_stmt(s) for s in loop.body)
    for segment in segments_of(body):
        here = {**known, **{t.name: t for t in temps}}
        found = _segment_tasks(segment, label, kernel, here, fast_math, (*steps, around))
        tasks.extend(found.tasks)
        temps.extend(found.temps)
    if not any(map(_has_independent, tasks)):
        return None
    return Split(tuple(tasks), tuple(temps))


def _has_independent(task: Task) -> bool:
    return any(not x.is_reduction and are_independent(task, x) for x in task.loops if x.extent > 1)


def _marked(task: Task, label: str, shown: Mapping[str, str]) -> Task:
    """Returns the task with name `call/written array`, until all tasks of the call are known."""
    array = task.target.array
    written = array.removeprefix(label + ".") if array not in shown else shown[array]
    return replace(task, name=f"{label}/{written}")
