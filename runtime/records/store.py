"""The tuned store: the best implementation known per sequence, dtype, shape and device, in one
SQLite file.

It is derived from runs and can be deleted. Write-ahead logging and a busy timeout let several
searches write at once; the file must be on a local disk.
"""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

import msgspec

from .record import READ, BestFile, RecordError

_BUSY_S = 20.0
_VERSION = 1
_TABLE = """
create table if not exists tuned (
    family text not null,
    dtype text not null,
    shape text not null,
    device text not null,
    time_ns real not null,
    problem_key text not null,
    best text not null,
    primary key (family, dtype, shape, device)
) without rowid
"""
_PUT = """
insert into tuned values (?, ?, ?, ?, ?, ?, ?)
on conflict do update set
    time_ns = excluded.time_ns, problem_key = excluded.problem_key, best = excluded.best
where excluded.time_ns < tuned.time_ns or excluded.problem_key <> tuned.problem_key
"""


@dataclass(frozen=True)
class TunedKey:
    """Key of a tuned implementation. `shape` holds the sizes in the sequence's own order."""

    family: str  # the sequence, whatever its sizes
    dtype: str
    shape: tuple[int, ...]
    device: str  # `Machine.key`


@dataclass(frozen=True)
class Match:
    """Result of a lookup.

    "exact": tuned for this shape. "nearest": tuned for the shape at `distance`, the largest |log2| ratio of a size. It is to be
    measured again before its time is trusted.
    """

    level: Literal["exact", "nearest"]
    best: BestFile
    shape: tuple[int, ...]
    distance: float


class TunedStore:
    """SQLite store of tuned implementations. Raises RecordError when the file is no store of this version."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or default_store()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
            self._connection.execute("pragma journal_mode = wal")
            self._connection.execute("pragma synchronous = normal")
            (version,) = self._connection.execute("pragma user_version").fetchone()
            if version not in (0, _VERSION):
                raise RecordError(
                    f"{self._path} is a tuned store of version {version}, not {_VERSION}"
                )
            self._connection.execute(_TABLE)
            self._connection.execute(f"pragma user_version = {_VERSION}")
        except sqlite3.Error as e:
            raise RecordError(f"{self._path} is no tuned store: {e}") from e

    def put(self, key: TunedKey, best: BestFile) -> bool:
        """Store an implementation unless a faster one for the same problem is known. True if it was stored."""
        row = (key.family, key.dtype, _text(key.shape), key.device, best.time_ns, best.problem_key)
        with closing(
            self._connection.execute(_PUT, (*row, msgspec.json.encode(best).decode()))
        ) as cursor:
            return cursor.rowcount > 0

    def lookup(self, key: TunedKey) -> Match | None:
        """The entry for the exact shape, else for the nearest one of the same sequence, dtype and
        device.
        """
        rows = self._connection.execute(
            "select shape, best from tuned where family = ? and dtype = ? and device = ?",
            (key.family, key.dtype, key.device),
        ).fetchall()
        near = [(d, s, b) for s, b in rows if (d := _distance(key.shape, _shape(s))) < math.inf]
        if not near:
            return None
        distance, shape, content = min(near)
        level: Literal["exact", "nearest"] = "exact" if distance == 0 else "nearest"
        return Match(level, self._decode(content), _shape(shape), distance)

    def of_file(self, stem: str, device: str) -> tuple[BestFile | RecordError, ...]:
        """The entries of all functions of a user's file on a device, whatever their shapes. `stem` is its name without .py.

        An unreadable entry is replaced by its error.
        """
        rows = self._connection.execute(
            "select family, best from tuned where device = ? order by family, shape", (device,)
        ).fetchall()
        return tuple(self._read(x) for family, x in rows if family.partition(":")[0] == stem)

    def close(self) -> None:
        """Close the store. Safe to call twice."""
        self._connection.close()

    def __enter__(self) -> TunedStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, t: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, content: str) -> BestFile | RecordError:
        try:
            return self._decode(content)
        except RecordError as e:
            return e

    def _decode(self, content: str) -> BestFile:
        try:
            best = msgspec.json.decode(content, type=BestFile)
        except msgspec.DecodeError as e:
            raise RecordError(f"{self._path} holds an entry that cannot be read: {e}") from e
        if best.schema not in READ:
            known = " or ".join(map(str, READ))
            raise RecordError(f"{self._path} holds an entry of schema {best.schema}, not {known}")
        return best


def default_store() -> Path:
    """Path of the user's store."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "kernelscape" / "tuned.sqlite"


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split("x") if n)


def _distance(a: tuple[int, ...], b: tuple[int, ...]) -> float:
    if len(a) != len(b):
        return math.inf
    if a == b:
        return 0.0
    if not all(n > 0 for n in (*a, *b)):
        return math.inf
    return max(abs(math.log2(m / n)) for m, n in zip(a, b, strict=True))
