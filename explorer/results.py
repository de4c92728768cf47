"""Stored results: loads, replays and re-measures an implementation from its file, and writes its source text."""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec import UnsetType

from ..codegen.by_component import EvaluatedSources
from ..runtime.api.backend import AbstractDevice
from ..runtime.api.errors import DeviceError
from ..runtime.api.outcome import FINAL, Failure, Measurement
from ..runtime.cpu.compiler import compiler_named
from ..runtime.device import DeviceOptions, open_device
from ..runtime.files import LIBRARY_BYTES, is_there, read_regular, write_atomically
from ..runtime.records.folder import BEST, HEADER, SOURCE, check_named
from ..runtime.records.known_inputs import copy_kept, drawn_notes, known_arrays
from ..runtime.records.libraries import library_beside, usable_library
from ..runtime.records.loading import load_best, write_record
from ..runtime.records.record import BestFile, RecordError
from ..runtime.records.replay import (
    RebuiltRecord,
    Tuned,
    check_again,
    dialect_of,
    open_tuned,
    rebuild,
)
from ..runtime.worker.rounding import branch_notes
from ..runtime.worker.worker import AbstractWorker
from ..search.starts.complete import first_candidates
from .machine import open_worker


@dataclass(frozen=True)
class Best:
    """A stored implementation: its decisions, times and source text."""

    file: BestFile
    device: AbstractDevice
    directory: Path | None = None  # of its run, where it was loaded from one
    place: Path | None = None  # the file itself
    trust_library: bool = False  # that lies beside it, though it was not built here

    def __repr__(self) -> str:
        return f"Best({self.file.sequence} on {self.file.target}, {self.time_ns:.0f} ns)"

    @property
    def time_ns(self) -> float:
        """Nanoseconds of one call of the whole sequence, caches warm."""
        return self.file.time_ns

    @property
    def decisions(self) -> dict[str, str]:
        """Value of every choice that was open in the search, by name of the choice."""
        return dict(self.file.decisions)

    @property
    def source(self) -> str:
        """The source text (C or CUDA). Raises StaleError if this version generates another one."""
        return rebuild(
            self.file, self.device.machine.facts(), dialect_of(self.device)
        ).source.file_text

    def compile(self, *, check_indices: bool = True) -> Tuned:
        """Returns the implementation as a function with the parameters of the sequence.

        It computes in place on NumPy arrays of the shapes and dtypes that it was tuned for. Arrays of indices are checked before
        each call, which reads them once more; without `check_indices` an index out of range reads or writes arbitrary memory.
        Raises StaleError, also for a window of a program that assumes the active cells of its run before.
        """
        return self._compiled(check_indices=check_indices, is_assured=False)

    def compile_for_program(self) -> Tuned:
        """Returns the implementation as `compile`, also one that assumes the active cells that its run before has left.

        The caller must know that no active cell of these trees has changed since. Raises StaleError.
        """
        return self._compiled(check_indices=True, is_assured=True)

    def _compiled(self, *, check_indices: bool, is_assured: bool) -> Tuned:
        note = self.adopt_library()
        if note:
            logging.getLogger("kernelscape").warning(note)
        rebuilt = rebuild(self.file, self.device.machine.facts(), dialect_of(self.device))
        return open_tuned(
            self.file,
            rebuilt,
            self.device,
            check_indices=check_indices,
            is_assured=is_assured,
        )

    def adopt_library(self) -> str:
        """Uses the shared library beside the file instead of building, if runtime/records/libraries.py allows it.

        Returns "" if it is used or if there is none; otherwise a sentence with the reason.
        """
        if self.place is None:
            return ""
        library, note = usable_library(self.file, self.place, trust=self.trust_library)
        if library is not None and not self.device.builder.adopt(self.file.source_key, library):
            return f"{library_beside(self.place)} cannot be loaded here: it is built again"
        return note

    def known_arrays(self, rebuilt: RebuiltRecord, inputs: Path | None) -> dict[str, Any]:
        """Returns the arrays that are stored or given, not drawn (runtime/records/known_inputs.py).

        Raises RecordError.
        """
        place = self.place or Path(BEST)
        return known_arrays(self.file.stored, rebuilt.recording, rebuilt.problem, place, inputs)

    def save(self, path: str | Path) -> Path:
        """Writes the implementation as a best.json, which suffices for `replay`.

        Files beside the original are copied along.
        """
        if self.place is not None:
            copy_kept(self.file.stored, self.place, Path(path).parent)
        if self.place is not None and not isinstance(self.file.library, UnsetType):
            with suppress(OSError):  # it is built again then
                content = read_regular(library_beside(self.place), LIBRARY_BYTES)
                write_atomically(library_beside(Path(path)), content)
        write_record(Path(path), self.file)
        return Path(path)


def stored_best(place: Path) -> BestFile:
    """Returns the content of a best.json; `place` is the file itself or the directory of its run.

    Raises RecordError.
    """
    check_named(place)
    if not place.is_dir():
        return load_best(place, follow=True)
    if is_there(place / BEST):
        return load_best(place / BEST)
    if is_there(place / HEADER):
        raise RecordError(f"the run in {place} has found nothing yet: it has no {BEST}")
    raise RecordError(f"{place} holds no run: it has no {HEADER} and no {BEST}")


def load(path: str | Path, *, trust_library: bool = False) -> Best:
    """Returns the best implementation of a run directory or a best.json.

    It is built by the compiler that built it before, if that is installed. A shared library beside the file is used if it was
    built on this machine, by this user, from the same source. With `trust_library` it is used wherever it is from: it can do
    whatever you can do. Raises RecordError.
    """
    best = stored_best(Path(path))
    compiler = compiler_named(best.conditions.compiler)
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    device = open_device(best.target, DeviceOptions(compiler=compiler))
    directory = folder if (folder / HEADER).exists() else None
    place = Path(path) / BEST if Path(path).is_dir() else Path(path)
    return Best(best, device, directory, place, trust_library)


def replay(path: str | Path, *, trust_library: bool = False) -> Tuned:
    """Returns the stored implementation of a run directory or a best.json as a function.

    It is built from the same source, or taken from the library beside it (see `load`). Raises RecordError, DeviceError and
    StaleError.
    """
    return load(path, trust_library=trust_library).compile()


@dataclass(frozen=True)
class ReplayResult:
    """Result of re-measuring a stored implementation: its new outcome, and notes on changes since.

    `machine` is the default's time now divided by its time when the implementation was stored, if that was measured: above 1
    the machine itself is slower.
    """

    file: BestFile
    outcome: Measurement | Failure
    n_input_sets: int
    notes: tuple[str, ...]
    machine: float = 1.0

    @property
    def slower_by(self) -> float | None:
        """Relative slowdown since the implementation was stored, at the machine's current speed; below 0: faster."""
        if isinstance(self.outcome, Failure):
            return None
        return self.outcome.time_ns / (self.file.time_ns * self.machine) - 1


def replay_again(
    path: str | Path,
    n_sets: int = 3,
    tolerance: float = math.inf,
    *,
    trust_library: bool = False,
    inputs: Path | None = None,
) -> ReplayResult:
    """Rebuilds, verifies and times a stored implementation, with arrays of the .npz file `inputs` where it has them.

    If it is slower by more than `tolerance` (a share), the default is timed beside it. Without a compiler, the library beside the
    file is used. Raises as `replay`, and WorkerError.
    """
    best = load(path, trust_library=trust_library)
    device = best.device
    note = "" if device.builder.can_build else best.adopt_library()
    if note:
        raise DeviceError(f"no C compiler is here, and {note}".replace(": it is built again", ""))
    rebuilt = rebuild(best.file, device.machine.facts(), dialect_of(device))
    known = best.known_arrays(rebuilt, inputs)
    with open_worker(device) as worker:
        outcome, n_verified = check_again(best.file, rebuilt, device.builder, worker, n_sets, known)
        drawn = drawn_notes(best.file.stored, rebuilt.recording, rebuilt.problem, known)
        notes = (*rebuilt.notes, *drawn, *branch_notes(worker.branches))
        again = ReplayResult(best.file, outcome, n_verified, notes)
        if again.slower_by is not None and again.slower_by > tolerance:
            again = _beside_default(again, rebuilt, device, worker)
    return again


def _beside_default(
    again: ReplayResult, rebuilt: RebuiltRecord, device: AbstractDevice, worker: AbstractWorker
) -> ReplayResult:
    """Returns the replay with a time of the default beside it, which shows if the machine itself is slower."""
    firsts = first_candidates(rebuilt.space, limit=1)
    # In another space the default may be another program than the one whose time was stored.
    is_same = rebuilt.space.key == again.file.space_key
    if again.file.baseline_ns is None or not is_same or not firsts:
        return again
    default = EvaluatedSources(dialect_of(device)).whole(firsts[0][1])
    built = [device.builder.build(source) for source in (rebuilt.source, default)]
    artifacts = [a for a in built if not isinstance(a, Failure)]
    if default.key == rebuilt.source.key or len(artifacts) < len(built):
        return again
    best, beside = worker.interleave(artifacts, FINAL)
    if isinstance(best, Failure) or isinstance(beside, Failure):
        return again
    return replace(again, outcome=best, machine=max(1.0, beside.time_ns / again.file.baseline_ns))


def write_source(path: str | Path, folder: Path) -> tuple[Path, str, str]:
    """Writes the source text of a stored implementation to `folder`.

    Returns the file, the command line that compiles it and the names of the functions that it exports. Raises as `replay`.
    """
    best = load(path)
    source = rebuild(best.file, best.device.machine.facts(), dialect_of(best.device)).source
    file = folder / f"{SOURCE}{source.suffix}"
    write_atomically(file, source.file_text.encode())
    command = best.device.reporter.command_line(source, file, best.file.conditions.compiler)
    return file, command, ", ".join(x.kernel for x in source.launches) or source.entry
