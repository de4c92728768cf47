"""Data of a run directory for pictures, also of a run that was killed or is still running."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from ..runtime.files import is_there
from ..runtime.records import record
from ..runtime.records.folder import BEST, HEADER, JOURNAL, TREE, run_folder
from ..runtime.records.journal import read_journal
from ..runtime.records.loading import load_best, load_header
from ..runtime.records.tree_file import TreeFile, read_trees


class Explored(Protocol):
    """An object with the directory of its run: the result of `explore` or of `load`."""

    @property
    def directory(self) -> Path | None: ...


Source = str | Path | Explored


@dataclass(frozen=True)
class RunData:
    """All stored data of a run.

    `best` is None while nothing was found; `notes` name the parts that are unreadable.
    """

    folder: Path
    header: record.RunHeader
    best: record.BestFile | None
    records: tuple[record.Record, ...]
    tree_file: TreeFile
    notes: tuple[str, ...] = ()

    @cached_property
    def evaluations(self) -> tuple[record.EvaluationRecord, ...]:
        return record.standing_evaluations(self.records)

    @cached_property
    def timed(self) -> tuple[record.EvaluationRecord, ...]:
        """Evaluations with a measured time."""
        return tuple(r for r in self.evaluations if r.time_ns is not None)

    @cached_property
    def status(self) -> str:
        """Reason for the end of the last session; "not ended" if it is still running or was killed."""
        found = "not ended"
        for r in self.records:
            if isinstance(r, record.NoteRecord) and r.kind in ("session", "ended"):
                found = r.text if r.kind == "ended" else "not ended"
        return found

    @property
    def is_ended(self) -> bool:
        return self.status != "not ended"

    @cached_property
    def total_s(self) -> float:
        """Seconds from the first record to the last, over all sessions."""
        return max((r.at_s for r in self.records), default=0.0)

    @cached_property
    def numpy_ns(self) -> float | None:
        if self.best is not None and self.best.numpy_ns is not None:
            return self.best.numpy_ns
        texts = [
            r.text
            for r in self.records
            if isinstance(r, record.NoteRecord) and r.kind == "numpy_ns"
        ]
        try:
            return float(texts[-1]) if texts else None
        except ValueError:
            return None

    @cached_property
    def default(self) -> record.EvaluationRecord | None:
        """Evaluation of the unfused default; None if it was not measured."""
        for r in self.evaluations:
            if r.origin is not None and r.origin.tag == "U" and r.status == "ok":
                return r
        return None

    @cached_property
    def bound_now_ns(self) -> float | None:
        """Bound in ns for the machine state during the last timing of the best; at least the proved bound.

        None if it was not measured, while the search is running, or if the gap is withdrawn.
        """
        best = self.best
        if best is None or best.bound_now_ns is None or not best.bound_ns:
            return None
        if not self.is_ended or self.is_doubted():
            return None
        return max(best.bound_now_ns, best.bound_ns)

    def is_doubted(self) -> bool:
        """True if the gap was withdrawn after a time below its bound."""
        return any(isinstance(r, record.NoteRecord) and r.kind == "alarm" for r in self.records)


def ns_of(r: record.EvaluationRecord) -> float:
    """Returns the time in ns of an evaluation, which must have one."""
    assert r.time_ns is not None
    return r.time_ns


def folder_of(run: Source) -> Path:
    """Returns the directory of a run, given by itself, by a file in it, or by the result of an exploration.

    Raises RecordError.
    """
    named = run if isinstance(run, str | Path) else run.directory
    if named is None:
        raise record.RecordError(
            "this best belongs to no run directory: name the directory of its run"
        )
    return run_folder(Path(named))


def load_run(run: Source) -> RunData:
    """Returns everything that a run has stored so far. Raises RecordError."""
    folder = folder_of(run)
    header = load_header(folder / HEADER)
    records = read_journal(folder / JOURNAL)
    notes = []
    best = None
    if is_there(folder / BEST):
        try:
            best = load_best(folder / BEST)
        except record.RecordError as e:
            notes.append(str(e))
    tree_file = read_trees(folder / TREE)
    if not tree_file.trees:
        notes.append(f"no search tree was kept: {TREE} is not there, or holds none")
    if tree_file.n_lost:
        notes.append(f"{tree_file.n_lost} lines of {TREE} could not be used")
    if tree_file.is_full:
        notes.append(f"{TREE} has reached its cap: later nodes are not in it")
    return RunData(folder, header, best, records, tree_file, tuple(notes))
