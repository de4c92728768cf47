"""Replay: regenerates the source of a stored best implementation, verifies it and times it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
from msgspec import UnsetType

from ...codegen.bodies.index_checks import index_checks
from ...codegen.by_component import EvaluatedSources
from ...codegen.text.dialect import Dialect
from ...codegen.text.header import header_text
from ...codegen.text.source import Argument, Source
from ...kernels.frontend.recorder import Recording
from ...kernels.ir.errors import LanguageError
from ...kernels.ir.kernel import Print
from ...kernels.ir.task import Problem
from ...kernels.ir.walk import nested_statements
from ...kernels.tasks.archive import ArchiveError
from ...kernels.tasks.pipeline import normalise
from ...space.build import build_space, widened
from ...space.candidate import Candidate, DeadEnd, Space
from ...space.catalogue import KINDS
from ...space.decisions import DecisionError, fix, restore
from ...space.targets.target import Target
from ..api.backend import AbstractBuilder, AbstractCaller, AbstractDevice, AbstractModule
from ..api.outcome import FINAL, Failure, Measurement
from ..host import flush_stdout
from ..worker.forked_inputs import ForkedInputs
from ..worker.inputs import ArgumentsError
from ..worker.worker import AbstractWorker
from .record import BestFile, RunHeader
from .signature import Signature
from .stored import StoredParameter, StoredSequence

_UNCHANGING = (type(None), bool, int, float, str, FunctionType)


class StaleError(Exception):
    """Stored content is not valid for this version or machine. The message is one sentence."""


@dataclass(frozen=True)
class RebuiltRecord:
    """A stored implementation, lowered again by this version of the package.

    `notes`: sentences on differences from the stored run that do not change the code.
    """

    recording: Recording
    problem: Problem
    space: Space
    candidate: Candidate
    source: Source
    notes: tuple[str, ...]


def dialect_of(device: AbstractDevice) -> Dialect:
    """Returns the dialect of source texts for the device."""
    return device.builder.dialect()


def rebuild_problem(stored: StoredSequence, key: str) -> tuple[Recording, Problem]:
    """Returns the stored recording and its tasks. Raises StaleError if the tasks do not have the key `key`."""
    try:
        recording = stored.recorded()
        problem = normalise(recording, stored.formula)
    except (ArchiveError, LanguageError) as e:
        raise StaleError(f"the stored sequence cannot be read: {e}") from e
    if not problem.tasks:
        raise StaleError("the stored sequence computes nothing")
    if problem.key != key:
        raise StaleError(
            f"the stored sequence now splits into other tasks ({problem.key[:8]}) than when it was"
            f" stored ({key[:8]}): explore it again"
        )
    return recording, problem


def space_of(problem: Problem, target: Target, stored: BestFile | RunHeader) -> Space:
    """Returns the space of a stored run: with its threads, its fixed decisions and its execution profile.

    Raises StaleError if these are invalid for this version.
    """
    target = target.of_threads(stored.threads)
    try:
        space = fix(build_space(problem, target), stored.fixed)
    except DecisionError as e:
        raise StaleError(f"the fixed decisions do not fit the space any more: {e}") from e
    if isinstance(stored.profile, UnsetType):
        return space
    if why := stored.profile.why_wrong(problem):
        raise StaleError(f"the stored profile does not fit the sequence: {why}")
    return space.profiled(stored.profile)


def restore_complete(space: Space, decisions: Sequence[tuple[str, str]]) -> Candidate:
    """Returns the complete candidate that the decisions describe. Raises StaleError if there is none.

    On a GPU it may belong to a variant of the space that allows more registers.
    """
    try:
        return _restore_here(space, decisions)
    except StaleError:
        for room in KINDS[space.target.kind].register_rooms[1:]:
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
    """Returns the candidate of `restore_complete`, also from a file without some newer kinds of choices.

    A choice without a decision takes its first possible value (space/choices.py). Only the source key can show that the code is
    the intended one.
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


def rebuild(best: BestFile, target: Target, dialect: Dialect) -> RebuiltRecord:
    """Returns a stored implementation, lowered again. Raises StaleError unless its source text is unchanged."""
    recording, problem = rebuild_problem(best.stored, best.problem_key)
    space = space_of(problem, target, best)
    candidate = restore_older(space, best.decisions)
    source = EvaluatedSources(dialect).whole(candidate)
    if source.key != best.source_key:
        raise StaleError(
            f"the decisions now give another source ({source.key[:8]}) than the one that was"
            f" stored ({best.source_key[:8]}), made on {best.conditions.cpu}: explore it again"
        )
    notes = list(best.stored.changes())
    if space.key != best.space_key:
        notes.append("the space has changed since, the source has not")
    return RebuiltRecord(recording, problem, space, candidate, source, tuple(notes))


def check_again(
    best: BestFile,
    rebuilt: RebuiltRecord,
    builder: AbstractBuilder,
    worker: AbstractWorker,
    n_sets: int,
    known: Mapping[str, Any],
) -> tuple[Measurement | Failure, int]:
    """Builds a stored implementation, verifies it on fresh inputs, and times it.

    Inputs are drawn from the stored ranges, except arrays in `known`. Returns the outcome, and the number of verified input sets.
    Raises WorkerError and SlowReferenceError.
    """
    artifact = builder.build(rebuilt.source)
    if isinstance(artifact, Failure):
        return artifact, 0
    rng = np.random.default_rng(best.seed)
    first = best.stored.draw(rebuilt.recording, rng, known)
    try:
        begun = ForkedInputs(rebuilt.recording, rebuilt.problem, first, rng, n_sets)
        input_sets = begun.result(undecided=best.undecided)
    except ArgumentsError as e:
        raise StaleError(f"the stored sequence cannot be verified: {e}") from e
    worker.prepare(input_sets)
    return worker.evaluate(artifact, FINAL), sum(bool(s.expected) for s in input_sets.sets)


class Tuned:
    """A tuned sequence with the signature of the original function. It computes in place on NumPy arrays.

    Arguments are passed by position or by name. Outputs, arrays that are written before they are read, may be left out: then
    the call returns them, in the order of the parameters, in new arrays or in those of `out` (an array, or a tuple of arrays
    and None). A call with all arguments returns None. Several threads may call at once, and so may children of `os.fork`.

    Slices and transposes are copied in and out, since tuned code takes contiguous memory. Arguments of another dtype or shape
    than the tuned one raise a TypeError, and indices in arrays that are out of range an IndexError, both before anything is
    written. A GPU does not check indices.
    """

    def __init__(
        self, signature: Signature, problem: Problem, source: Source, loaded: Loaded
    ) -> None:
        self._signature, self._problem, self._source = signature, problem, source
        self._module, self._caller = loaded.module, loaded.caller
        bodies = [t.body.statements for t in problem.tasks if t.body is not None]
        self._prints = any(isinstance(s, Print) for b in bodies for s in nested_statements(b))

    def __repr__(self) -> str:
        return f"<tuned {self._problem.name}({self._signature})>"

    def __call__(self, *args: Any, **named: Any) -> Any:
        if self._prints:
            flush_stdout()
        if self._caller is not None and self._caller(*args, **named):
            return None
        given, result = self._signature.complete(args, named)
        if result is None or not self._runs(given):
            values = self._signature.values(given)
            self._remember(given)
            self._module.run(values)
            self._signature.give_back(given, values)
        return result

    def _runs(self, given: Mapping[str, Any]) -> bool:
        """Runs the call if the fast caller accepts these arguments; True if it did."""
        if self._caller is None:
            return False
        is_whole = len(given) == len(self._signature.parameters)
        return self._caller(*given.values()) if is_whole else self._caller(**given)

    @property
    def caller(self) -> AbstractCaller | None:
        """The compiled caller, if there is one: it runs positional arguments that need no conversion, else it returns False."""
        return self._caller

    @property
    def written(self) -> frozenset[str]:
        """Names of the arrays that calls may write."""
        return frozenset(a.name for a in self._problem.arrays if a.role != "input")

    @property
    def pointer(self) -> Any:
        """Returns the entry as a ctypes function, `void (void **args)`; `args[k]` points to argument k.

        The arguments are those of `arguments`; for a scalar the pointer is to its value. The function lives as long as this
        object, checks nothing, and takes a workspace for each concurrent call. Raises TypeError for a GPU.
        """
        return self._module.pointer()

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Arguments of the entry in order: arrays, scalars, and a workspace if needed (aligned to 64 bytes)."""
        return self._source.arguments

    @property
    def header(self) -> str:
        """C header for the text of `source`: a function with plain types that calls the entry.

        ValueError for a GPU.
        """
        names = [p.name for p in self._signature.parameters]
        return header_text(self._source, self._problem, names)

    def _remember(self, given: Mapping[str, Any]) -> None:
        """Stores constants and unseen arrays that passed the checks, so that these objects are not checked again."""
        for k, p in enumerate(self._signature.parameters):
            if self._caller is None or p.name not in given:
                continue
            is_constant = p.kind == "constant" and type(given[p.name]) in _UNCHANGING
            if is_constant or p.kind == "unseen":
                self._caller.accept(k, given[p.name])


@dataclass(frozen=True)
class Loaded:
    """A loaded module, with its fast caller if there is one."""

    module: AbstractModule
    caller: AbstractCaller | None


def make_tuned(
    parameters: Sequence[StoredParameter],
    rebuilt: RebuiltRecord,
    device: AbstractDevice,
    *,
    check_indices: bool = True,
) -> Tuned:
    """Builds a source and loads it into this process. Raises StaleError if that fails.

    `check_indices`: calls check indices in arrays before they run (codegen/bodies/index_checks.py).
    """
    artifact = device.builder.build(rebuilt.source)
    module = artifact if isinstance(artifact, Failure) else device.runner.load(artifact)
    if not isinstance(module, Failure) and check_indices:
        checks = index_checks(rebuilt.recording, rebuilt.source.arguments)
        module = (module.check_indices(checks) if checks is not None else None) or module
    if isinstance(module, Failure):
        raise StaleError(f"the stored source cannot be used: {module.advice} {module.log}".strip())
    signature = Signature(parameters, rebuilt.problem)
    loaded = Loaded(module, device.runner.caller(module, signature))
    return Tuned(signature, rebuilt.problem, rebuilt.source, loaded)


def open_tuned(
    best: BestFile,
    rebuilt: RebuiltRecord,
    device: AbstractDevice,
    *,
    check_indices: bool = True,
    is_assured: bool = False,
) -> Tuned:
    """Returns a stored implementation as a function. Raises StaleError if it cannot be built and loaded.

    `is_assured`: the caller runs it only where the lists and active cells that it assumes are there. Without it such an
    implementation is refused.
    """
    if rebuilt.recording.assumed and not is_assured:
        raise StaleError(
            f"{best.sequence} assumes the active cells that its run before has left, which only its program can tell:"
            " use it with ks.init(decisions=...)"
        )
    return make_tuned(best.stored.parameters, rebuilt, device, check_indices=check_indices)
