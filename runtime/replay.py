"""Replay: from a stored best implementation back to the same source, verified and timed again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..codegen.dialect import Dialect
from ..codegen.lower import lower, print_source
from ..codegen.source import Source
from ..kernels.archive import ArchiveError
from ..kernels.normalise import normalise
from ..kernels.sequence import Recording
from ..kernels.tasks import Problem
from ..space.candidate import Candidate, DeadEnd, Space
from ..space.constraints import build_space, widened
from ..space.decisions import DecisionError, restore
from ..space.gpu_resources import REGISTER_ROOMS
from ..space.target import Target
from .device import AbstractDevice, AbstractModule
from .inputs import make_workload
from .outcome import FINAL, Failure, Measurement
from .records import BestFile
from .stored import StoredSequence, match_arguments
from .worker import AbstractWorker


class StaleError(Exception):
    """What was stored no longer means what it meant; one sentence."""


@dataclass(frozen=True)
class Rebuilt:
    """A stored implementation, lowered again. `notes` say what differs without harm."""

    recording: Recording
    problem: Problem
    space: Space
    candidate: Candidate
    source: Source
    notes: tuple[str, ...]


def dialect_of(device: AbstractDevice) -> Dialect:
    """The dialect that the device builds."""
    return device.dialect()


def rebuild_problem(stored: StoredSequence, key: str) -> tuple[Recording, Problem]:
    """The recording and its tasks. Raises StaleError when the tasks are not those of `key`."""
    try:
        recording = stored.recorded()
    except ArchiveError as e:
        raise StaleError(f"the stored sequence cannot be read: {e}") from e
    problem = normalise(recording, stored.formula)
    if problem.key != key:
        raise StaleError(
            f"the stored sequence now splits into other tasks ({problem.key[:8]}) than when it was"
            f" stored ({key[:8]}): explore it again"
        )
    return recording, problem


def restore_complete(space: Space, decisions: Sequence[tuple[str, str]]) -> Candidate:
    """The implementation that the decisions name. Raises StaleError when there is none.

    On a GPU it may be one of the same space with more room for registers.
    """
    try:
        return _restore_here(space, decisions)
    except StaleError:
        for room in REGISTER_ROOMS[1:] if space.target.is_gpu else ():
            with suppress(StaleError):
                return _restore_here(widened(space, room), decisions)
        raise


def _restore_here(space: Space, decisions: Sequence[tuple[str, str]]) -> Candidate:
    candidate = _restored(space, decisions)
    if not candidate.is_complete:
        n_open = len(candidate.open_choices())
        raise StaleError(
            f"of the choices of this space the stored decisions leave {n_open} open: explore it again"
        )
    return candidate


def _restored(space: Space, decisions: Sequence[tuple[str, str]]) -> Candidate:
    try:
        candidate = restore(space, decisions)
    except DecisionError as e:
        raise StaleError(f"the stored decisions do not fit the space: {e}") from e
    if isinstance(candidate, DeadEnd):
        raise StaleError(
            f"the stored decisions contradict the space: {candidate.choice}, {candidate.why}: explore"
            " it again"
        )
    return candidate


def restore_older(space: Space, decisions: Sequence[tuple[str, str]]) -> Candidate:
    """As `restore_complete`, of a file that may be older than some kinds of choices: what it does not name has the first value that
    is possible (space/choices.py). Only the key of the source tells whether that is the code that was meant.
    """
    try:
        return restore_complete(space, decisions)
    except StaleError:
        candidate, named = _restored(space, decisions), {name for name, _ in decisions}
        for var in map(int, candidate.open_choices()):
            if candidate.is_open(var) and space.choices[var].name not in named:
                made = (child for _, child in candidate.expand(var))
                candidate = next((c for c in made if isinstance(c, Candidate)), candidate)
        if not candidate.is_complete:
            raise
        return candidate


def rebuild(best: BestFile, target: Target, dialect: Dialect) -> Rebuilt:
    """The source of a stored implementation. Raises StaleError unless it is the same text."""
    recording, problem = rebuild_problem(best.stored, best.problem_key)
    space = build_space(problem, target)
    candidate = restore_older(space, best.decisions)
    source = print_source(lower(candidate), dialect)
    if source.key != best.source_key:
        raise StaleError(
            f"the decisions now give another source ({source.key[:8]}) than the one that was"
            f" stored ({best.source_key[:8]}), made on {best.conditions.cpu}: explore it again"
        )
    notes = []
    if space.key != best.space_key:
        notes.append("the space has changed since, the source has not")
    return Rebuilt(recording, problem, space, candidate, source, tuple(notes))


def check_again(
    best: BestFile, rebuilt: Rebuilt, device: AbstractDevice, worker: AbstractWorker, n_sets: int
) -> tuple[Measurement | Failure, int]:
    """Build, verify on fresh inputs of the stored ranges, and time; with the number of input sets
    that were verified. Raises WorkerError.
    """
    artifact = device.build(rebuilt.source)
    if isinstance(artifact, Failure):
        return artifact, 0
    rng = np.random.default_rng(best.seed)
    first = best.stored.draw(rebuilt.recording, rng)
    workload = make_workload(rebuilt.recording, rebuilt.problem, first, rng, n_sets)
    worker.prepare(workload)
    return worker.evaluate(artifact, FINAL), sum(bool(s.expected) for s in workload.sets)


class Tuned:
    """A tuned sequence, called like the function it was made from; computes in place on NumPy
    arrays.

    Arguments of another dtype, shape or layout than it was tuned for are a TypeError.
    """

    def __init__(self, stored: StoredSequence, rebuilt: Rebuilt, module: AbstractModule) -> None:
        self._parameters = stored.parameters
        self._recording = rebuilt.recording
        self._written = [a.name for a in rebuilt.problem.arrays if a.role in ("output", "inout")]
        self._module = module

    def __repr__(self) -> str:
        return f"<tuned {self._recording.name}({', '.join(p.name for p in self._parameters)})>"

    def __call__(self, *args: Any) -> None:
        values = match_arguments(self._parameters, self._recording, args)
        for p, array in zip(self._recording.arrays, values, strict=False):
            if p.name in self._written and not array.flags.writeable:
                raise TypeError(f"argument {p.name} is written and must not be read-only")
        self._module.run(values)


def open_tuned(best: BestFile, rebuilt: Rebuilt, device: AbstractDevice) -> Tuned:
    """Build the source and load it into this process. Raises StaleError when that fails."""
    artifact = device.build(rebuilt.source)
    module = artifact if isinstance(artifact, Failure) else device.load(artifact)
    if isinstance(module, Failure):
        raise StaleError(f"the stored source cannot be used: {module.advice} {module.log}".strip())
    return Tuned(best.stored, rebuilt, module)
