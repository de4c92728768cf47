"""File of tuned implementations of one sequence, one per shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec

from .loading import check_best, read_json, write_record
from .record import BestFile, RecordError

SCHEMA = 1


class FamilyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """File of `explore tune`: one best.json entry per shape, in the order in which shapes were requested."""

    tuned_schema: int
    sequence: str
    dtype: str
    target: str
    entries: tuple[BestFile, ...]

    def with_entry(self, entry: BestFile) -> FamilyFile:
        """Returns the file with an entry added; it replaces an entry with equal sizes."""
        kept = [e for e in self.entries if e.sizes != entry.sizes]
        at = next((k for k, e in enumerate(self.entries) if e.sizes == entry.sizes), len(kept))
        entries = (*kept[:at], entry, *kept[at:])
        return msgspec.structs.replace(self, entries=entries)


def load_family(path: Path) -> FamilyFile:
    """Reads a file of `explore tune`. Raises RecordError, one sentence."""
    found = read_json(path, follow=True)  # it is no file of a run: the user names it
    schema = found.get("tuned_schema") if isinstance(found, dict) else None
    if schema != SCHEMA:
        raise RecordError(f"{path} is no file of `explore tune` that this version reads")
    try:
        family = msgspec.convert(found, FamilyFile)
    except msgspec.ValidationError as e:
        raise RecordError(f"{path} does not hold what it should: {e}") from e
    for entry in family.entries:
        check_best(path, entry)
    return family


def save_family(path: Path, family: FamilyFile) -> None:
    """Writes the file in one step: it is complete or absent, even after a crash."""
    write_record(path, family)


def distance(shapes: Sequence[tuple[int, ...]], others: Sequence[tuple[int, ...]]) -> float:
    """Returns the largest |log2| ratio of two extents; infinite for different ranks or an extent of 0."""
    if [len(s) for s in shapes] != [len(s) for s in others]:
        return math.inf
    pairs = [(m, n) for a, b in zip(shapes, others, strict=True) for m, n in zip(a, b, strict=True)]
    if any((m == 0 or n == 0) and m != n for m, n in pairs):
        return math.inf
    return max((abs(math.log2(m / n)) for m, n in pairs if m != n), default=0.0)
