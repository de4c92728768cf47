"""The journal: the truth about a run, one JSON object a line, appended and on disk before the
search goes on.

A search that is killed leaves at most one torn line at the end, which was never acknowledged; it
is passed over when reading and cut off before the next append. Anything else that cannot be read
was not written by a journal and is a `RecordError`.
"""

from __future__ import annotations

import fcntl
import os
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType

import msgspec

from ..files import sync_folder
from .record import Record, RecordError, check_record

_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


class AbstractJournal(ABC):
    """An append-only list of records."""

    spent_s: float = 0.0  # seconds that appending has taken

    @abstractmethod
    def append(self, record: Record) -> None:
        """Keep the record; it outlives the process once this returns.

        Raises ValueError for one that could not be read back (a bug of the caller: NaN, say).
        """

    @abstractmethod
    def records(self) -> tuple[Record, ...]:
        """All records, oldest first."""

    @abstractmethod
    def close(self) -> None:
        """Let others write. Safe to call twice; nothing may be appended afterwards."""

    def __enter__(self) -> AbstractJournal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, t: TracebackType | None
    ) -> None:
        self.close()


class MemoryJournal(AbstractJournal):
    """A journal that lives as long as the process: for tests and for searches nobody resumes."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._is_closed = False

    def append(self, record: Record) -> None:
        if self._is_closed:
            raise RecordError("the journal is closed")
        _encode(record)
        self._records.append(record)

    def records(self) -> tuple[Record, ...]:
        return tuple(self._records)

    def close(self) -> None:
        self._is_closed = True


class FileJournal(AbstractJournal):
    """A journal in a file, held exclusively while it is open.

    Raises RecordError on opening when another process is writing it, and when a line before the
    last is not a record.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        is_new = not path.exists()
        self._fd: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._lock()
            if is_new:
                sync_folder(path.parent)
            records, end, complete = _parse(path, _read_all(self._fd))
            self._records = list(records)
            os.ftruncate(self._fd, end)
            os.lseek(self._fd, end, os.SEEK_SET)
            if not complete:
                os.write(self._fd, b"\n")
        except BaseException:
            self.close()
            raise

    def append(self, record: Record) -> None:
        if self._fd is None:
            raise RecordError(f"the journal {self._path} is closed")
        started_s = time.monotonic()
        line = memoryview(_encode(record))
        while line:
            line = line[os.write(self._fd, line) :]
        os.fsync(self._fd)
        self._records.append(record)
        self.spent_s += time.monotonic() - started_s

    def records(self) -> tuple[Record, ...]:
        return tuple(self._records)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)  # and with it the lock
            self._fd = None

    def _lock(self) -> None:
        assert self._fd is not None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            raise RecordError(
                f"another search is writing {self._path}: wait for it, or name another folder"
            ) from e


def read_journal(path: Path) -> tuple[Record, ...]:
    """The records of a journal that may be being written; takes no lock. Raises RecordError."""
    try:
        content = path.read_bytes()
    except OSError as e:
        raise RecordError(f"{path} cannot be read: {e.strerror}") from e
    return _parse(path, content)[0]


def _encode(record: Record) -> bytes:
    line = msgspec.json.encode(record)
    problem = check_record(_decoder.decode(line))
    if problem is not None:
        raise ValueError(f"this record could not be read back: {problem}")
    return line + b"\n"


def _parse(path: Path, content: bytes) -> tuple[tuple[Record, ...], int, bool]:
    """The records, where they end in the file, and whether a line break follows the last."""
    records: list[Record] = []
    start = 0
    for number, line in enumerate(content.split(b"\n"), 1):
        end = start + len(line)
        is_last = end == len(content)
        if is_last and not line:
            break
        try:
            record = _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
            # A valid object with wrong contents is an edit, wherever it stands: a torn one never
            # parses.
            if is_last and not isinstance(e, msgspec.ValidationError):
                return tuple(records), start, True
            raise RecordError(f"{path}, line {number} is no record: {e}") from e
        problem = check_record(record)
        if problem is not None:
            raise RecordError(f"{path}, line {number} was changed by hand: {problem}")
        records.append(record)
        if is_last:
            return tuple(records), end, False
        start = end + 1
    return tuple(records), start, True


def _read_all(fd: int) -> bytes:
    parts = []
    while part := os.read(fd, 1 << 20):
        parts.append(part)
    return b"".join(parts)
