"""Results of a search for the components of its sequence, each by itself, as the tuned store has them.

A component's calls are a sequence of their own. It is stored if the decisions about the component make the same text of it alone:
then it was verified and timed with the whole.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod

from msgspec import UNSET, structs

from ..codegen.by_component import EvaluatedSources
from ..codegen.text.dialect import Dialect
from ..kernels.frontend.recorder import Call, Recording
from ..kernels.ir.errors import LanguageError
from ..kernels.ir.kernel import Param
from ..kernels.ir.task import Problem, Task
from ..kernels.ir.walk import walk
from ..kernels.sparse.recorded import UsedTree
from ..kernels.tasks.archive import to_values
from ..kernels.tasks.entry_facts import assuming
from ..kernels.tasks.pipeline import normalise
from ..kernels.tasks.recorded_calls import calls_of, labels_of
from ..kernels.tasks.residues import by_residue
from ..runtime.engine.component_keys import key_of, key_of_recording, keyed_calls
from ..runtime.engine.stored_components import why_not_stored
from ..runtime.records.kept import structure_of
from ..runtime.records.record import BestFile, ComponentRecord, Decisions
from ..runtime.records.replay import StaleError, restore_complete
from ..runtime.records.stored import StoredParameter, StoredSequence
from ..space.build import build_space
from ..space.candidate import Candidate
from ..space.components import components_of, coupling_of
from ..space.targets.kind import CPU
from .evaluation import open_decisions
from .workload import dtype_of, sizes_of

_LONGEST_S = 2.0  # for the components of one result; the most expensive come first


@dataclass(frozen=True)
class _Group:
    """Components that share calls: their numbers, and their calls as a range. `time_ns`: of all of them together."""

    components: range
    calls: range
    time_ns: float
    spread: float


def component_results(
    recording: Recording,
    candidate: Candidate,
    best: BestFile,
    rows: Sequence[ComponentRecord],
    dialect: Dialect,
) -> Iterator[tuple[str, BestFile]]:
    """Yields the key and the result of each component of a sequence whose calls are a sequence of their own.

    `candidate`: the best implementation, of which `best` is the record and `rows` has the times of the components, if it has
    several. Of repeats they are the components of a step.
    """
    if candidate.space.target.kind != CPU:
        return
    recording = as_split(recording, candidate.space.problem)
    until_s = time.monotonic() + _LONGEST_S
    whole, known, content = EvaluatedSources(dialect), set[str](), keyed_calls(recording)
    for group in sorted(_groups(recording, candidate, best, rows), key=lambda x: -x.time_ns):
        key = key_of(content[group.calls.start : group.calls.stop])
        part = None if key in known else part_of(recording, group.calls, key)
        if part is None:
            continue
        if time.monotonic() > until_s:
            return
        known.add(key)
        with suppress(StaleError, LanguageError):
            alone = _alone(part, recording, candidate, group)
            own = EvaluatedSources(dialect)
            n_own = len(alone.space.backbone.components)
            texts = _texts(own, alone, range(n_own))
            if "" not in texts and texts == _texts(whole, candidate, group.components):
                once = replace(group, time_ns=group.time_ns / _n_steps(recording, group.calls))
                yield key, _record(part, alone, best, once, own.whole(alone).key)


def as_split(recording: Recording, problem: Problem) -> Recording:
    """Returns the recording with whose calls the tasks of `problem` are named: some of its repeats are written out in them."""
    if not recording.repeats:
        return recording
    labels = set(labels_of(recording))
    if all(task.name.partition(".")[0] in labels for task in problem.tasks):
        return recording
    return calls_of(by_residue(recording))[0]


def _n_steps(recording: Recording, at: range) -> int:
    """Returns how often some calls surely run: the number of steps of the repeats around them."""
    return prod(r.least for r in recording.repeats if at.start in r.members)


def _texts(sources: EvaluatedSources, candidate: Candidate, components: range) -> list[str]:
    """Returns the keys of the texts of some components, "" for none; calls that are not split have one text."""
    if candidate.is_apart:
        return [sources.whole(candidate).key]
    return [sources.component_key(candidate, k) or "" for k in components]


def _groups(
    recording: Recording,
    candidate: Candidate,
    best: BestFile,
    rows: Sequence[ComponentRecord],
) -> Iterator[_Group]:
    """Yields the components in groups, each of which has all tasks of consecutive calls.

    A call without a task, such as one that stores where a later sum begins, goes to the group of the calls behind it.
    A task without a call stores the zeros of a temporary: it goes to the first call that uses it.
    """
    numbers = {label: k for k, label in enumerate(labels_of(recording))}
    users = {name: k for k, c in reversed(list(enumerate(recording.calls))) for name in c.arrays}
    tasks, runs = candidate.space.problem.tasks, candidate.space.backbone.components
    if candidate.is_apart:
        every = range(len(recording.calls))
        yield _Group(range(len(runs)), every, best.time_ns, best.spread)
        return

    def call_of(task: Task) -> int:
        label = task.name.partition(".")[0]
        return numbers[label] if label in numbers else users.get(task.target.array, -1)

    calls = [{call_of(tasks[t]) for t in run} for run in runs]
    others = set(range(len(recording.calls))).difference(*calls)
    first = 0
    for k in range(1, len(runs) + 1):
        if k < len(runs) and max(map(max, calls[first:k])) >= min(map(min, calls[k:])):
            continue
        used = set[int]().union(*calls[first:k])
        begin = min(used)
        while begin - 1 in others:
            begin -= 1
        at = range(begin, max(used) + 1)
        if len(rows) == len(runs):
            time_ns = sum(row.time_ns for row in rows[first:k])
            spread = max(row.spread for row in rows[first:k])
        else:
            time_ns, spread = best.time_ns, best.spread
        is_timed = len(rows) == len(runs) or len(runs) == k - first
        if is_timed and begin >= 0 and used.union(others).issuperset(at):
            yield _Group(range(first, k), at, time_ns, spread)
        first = k


def part_of(recording: Recording, at: range, key: str) -> Recording | None:
    """Returns the calls `at` of a recording as a recording of their own, which has the key `key`; None if they are no component.

    Temporaries that no other call uses are its own. They stay temporaries, also those that are unseen arrays of the whole.
    It assumes the lists and active cells that earlier calls leave in the whole. Those must be all that it leaves itself, or none.
    Calls of a repeat are a step of it, or a part of one: without temporaries, which may hold values of the step before.
    """
    calls = recording.calls[at.start : at.stop]
    around = [r for r in recording.repeats if not {*r.members}.isdisjoint(at)]
    if not all({*r.members}.issuperset(at) for r in around):
        return None
    others = (*recording.calls[: at.start], *recording.calls[at.stop :])
    arrays = {name for call in calls for name in call.arrays}
    scalars = {
        x.name for call in calls for e in call.scalars for x in walk(e) if isinstance(x, Param)
    }
    temps = tuple(p for p in recording.temps if p.name in arrays)
    elsewhere = {name for call in others for name in call.arrays}
    if any(p.name in elsewhere or around for p in temps):
        return None
    part = Recording(
        recording.name,
        tuple(p for p in recording.arrays if p.name in arrays),
        temps,
        tuple(p for p in recording.scalars if p.name in scalars),
        calls,
        tuple(_trees_of(recording, calls)),
    )
    if why_not_stored(part):
        return None
    if not part.trees:
        return part
    forms = (part, assuming(part, ()))
    return next((x for x in forms if key_of_recording(x) == key), None)


def _trees_of(recording: Recording, calls: Sequence[Call]) -> Iterator[UsedTree]:
    """Yields the trees of some calls as a sequence of these calls alone has them."""
    known = {t.tree.name: replace(t, sections=(), appended=()) for t in recording.trees}
    used = dict[str, UsedTree]()
    for call in calls:
        if call.logical is not None:
            for name in (t.name for t in call.logical.ir.trees):
                before = used.get(name, known[name])
                used[name] = before.used_by(call.ir, call.logical, call.arrays)
    yield from used.values()


def _alone(part: Recording, recording: Recording, candidate: Candidate, group: _Group) -> Candidate:
    """Returns the implementation of some calls alone that has the decisions about them. Raises StaleError and LanguageError."""
    target = candidate.space.target
    space = build_space(normalise(part), target)
    labels = labels_of(recording)[group.calls.start : group.calls.stop]
    names = dict(zip(labels, labels_of(part), strict=True))
    known, coupling = (
        space.model.positions,
        {candidate.space.choices[var].name for var in coupling_of(candidate.space)},
    )
    decisions = relabelled(_decisions_about(candidate, group), names)
    # Parts of trees that only other calls access have no choices here.
    own = [(name, value) for name, value in decisions if name in known or name not in coupling]
    return restore_complete(space, own)


def _decisions_about(candidate: Candidate, group: _Group) -> Decisions:
    space = candidate.space
    if candidate.is_apart:
        return open_decisions(candidate)
    about = {
        space.choices[var].name
        for k, x in enumerate(components_of(space))
        if k in group.components
        for var in x.choices
    } | {space.choices[var].name for var in coupling_of(space)}
    return tuple((name, value) for name, value in open_decisions(candidate) if name in about)


def relabelled(decisions: Decisions, names: Mapping[str, str]) -> Decisions:
    """Returns decisions with the labels of calls replaced: those in a whole sequence by those alone, or the other way round."""
    of_call = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, names))})(?!\w)")
    return tuple((of_call.sub(lambda x: names[x[1]], name), value) for name, value in decisions)


def _record(
    part: Recording, alone: Candidate, best: BestFile, group: _Group, source_key: str
) -> BestFile:
    """Returns the result of some calls alone."""
    space, s = alone.space, best.stored
    arrays, scalars = [p.name for p in part.arrays], [p.name for p in part.scalars]
    stored = StoredSequence(
        formula="",
        recording=json.dumps(to_values(part), separators=(",", ":")),
        parameters=(
            *(StoredParameter(name, "array") for name in arrays),
            *(StoredParameter(name, "scalar") for name in scalars),
        ),
        ranges={name: s.ranges[name] for name in arrays},
        scalars={name: s.scalars[name] for name in scalars},
        states={name: s.states[name] for name in structure_of(part)},
    )
    return structs.replace(
        best,
        sizes=sizes_of(part),
        dtype=dtype_of(part),
        problem_key=space.problem.key,
        space_key=space.key,
        decisions=open_decisions(alone),
        source_key=source_key,
        time_ns=group.time_ns,
        spread=group.spread,
        bound_ns=0.0,
        gap=1.0,
        bound_now_ns=None,
        baseline_ns=None,
        numpy_ns=None,
        stored=stored,
        library=UNSET,
        fixed=(),
        profile=UNSET,
    )
