"""Journal: the authoritative record of a run, one JSON object per line, on disk before the search continues.

A search that is killed leaves at most one torn line at the end, which was never acknowledged. It is skipped when reading and cut
off before the next append. Any other unreadable content was not written by a journal and is a `RecordError`.

Each line ends in a checksum of the file up to it. Lines of versions before schema 3 have none. They are accepted if the run began
under such a version, up to the first line with a checksum.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
import zlib
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple

import msgspec

from .. import files
from .folder import HEADER
from .record import CHECKED, Record, RecordError, check_record

_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
_LINE_BYTES = 16 << 20  # fewer than that has every line
_SEAL = re.compile(rb',"crc":"([0-9a-f]{8})"\}$')


class _Begun(msgspec.Struct):
    """The fields of run.json that a journal reads."""

    schema: int = 0


class AbstractJournal(ABC):
    """An append-only list of records."""

    spent_s: float = 0.0  # seconds that appending has taken

    @abstractmethod
    def append(self, record: Record) -> None:
        """Stores the record; once this returns, it survives the end of the process.

        Raises ValueError for a record that could not be read back, for example with NaN (a bug of the caller).
        """

    @abstractmethod
    def records(self) -> tuple[Record, ...]:
        """Returns all records, oldest first."""

    @abstractmethod
    def close(self) -> None:
        """Releases the journal for other writers. Safe to call twice; nothing may be appended afterwards."""

    def __enter__(self) -> AbstractJournal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, t: TracebackType | None
    ) -> None:
        self.close()


class FileJournal(AbstractJournal):
    """A journal in a file, locked exclusively while it is open.

    Opening raises RecordError if another process writes it, if it is no regular file, or if a line before the last is not a
    record.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        is_new = not files.is_there(path)
        try:
            self._fd: int | None = files.open_to_append(path)
        except OSError as e:
            raise _unreadable(path, e) from e
        try:
            self._lock()
            if is_new:
                files.sync_folder(path.parent)
            with os.fdopen(self._fd, "rb", closefd=False) as file:
                found = _parse(path, file)
            self._records, self._end, self._sum = list(found.records), found.end, found.checksum
            os.ftruncate(self._fd, self._end)
            os.lseek(self._fd, self._end, os.SEEK_SET)
            if not found.is_ended:
                self._write(b"\n")
        except BaseException:
            self.close()
            raise

    def append(self, record: Record) -> None:
        if self._fd is None:
            raise RecordError(f"the journal {self._path} is closed")
        started_s = time.monotonic()
        line = sealed(encoded(record), self._sum)
        if self._end + len(line) > files.JOURNAL_BYTES:
            raise RecordError(
                f"{self._path} has reached its limit of {files.JOURNAL_BYTES >> 20} MiB: begin another run"
            )
        self._write(line)
        os.fsync(self._fd)
        self._records.append(record)
        self.spent_s += time.monotonic() - started_s

    def records(self) -> tuple[Record, ...]:
        return tuple(self._records)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)  # and with it the lock
            self._fd = None

    def _write(self, content: bytes) -> None:
        assert self._fd is not None
        left = memoryview(content)
        while left:
            left = left[os.write(self._fd, left) :]
        self._sum = zlib.crc32(content, self._sum)
        self._end += len(content)

    def _lock(self) -> None:
        assert self._fd is not None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            raise RecordError(
                f"another search is writing {self._path}: wait for it, or name another folder"
            ) from e


def read_journal(path: Path) -> tuple[Record, ...]:
    """Returns the records of a journal, even while it is being written; takes no lock. Raises RecordError."""
    try:
        with files.opened_regular(path) as fd, os.fdopen(fd, "rb", closefd=False) as file:
            return _parse(path, file).records
    except OSError as e:
        raise _unreadable(path, e) from e


def sealed(line: bytes, before: int) -> bytes:
    """Returns the journal line of a JSON object without line breaks: with its checksum and a line break.

    `before` is the CRC-32 of everything before it in the file: a changed, lost, moved or repeated line fails the check.
    """
    checksum = zlib.crc32(line, before)
    return b'%s,"crc":"%08x"}\n' % (line[:-1], checksum)


def _unreadable(path: Path, e: OSError) -> RecordError:
    return RecordError(f"{path} cannot be read: {e.strerror}")


def encoded(record: Record) -> bytes:
    """Returns the JSON text of a record. Raises ValueError for one that could not be read back."""
    line = msgspec.json.encode(record)
    problem = check_record(_decoder.decode(line))
    if problem is not None:
        raise ValueError(f"this record could not be read back: {problem}")
    return line


class _Parsed(NamedTuple):
    """Parsed records of a journal; end of the last one in the file, CRC-32 up to there, and if a line break follows."""

    records: tuple[Record, ...]
    end: int
    checksum: int
    is_ended: bool


def _parse(path: Path, file: BinaryIO) -> _Parsed:
    """Reads a journal from the current position of `file`. Raises RecordError."""
    records: list[Record] = []
    end = checksum = number = 0
    is_checked = _schema_beside(path) >= CHECKED
    while whole := file.readline(_LINE_BYTES):
        number += 1
        is_last = not whole.endswith(b"\n")
        if is_last and len(whole) == _LINE_BYTES:
            raise RecordError(f"{path}, line {number} is no record: it has {_LINE_BYTES >> 20} MiB")
        if end + len(whole) > files.JOURNAL_BYTES:
            raise RecordError(f"{path} is longer than {files.JOURNAL_BYTES >> 20} MiB")
        plain, said = _unsealed(whole.removesuffix(b"\n"))
        try:
            record = _decoder.decode(plain)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
            # A valid object with wrong contents is an edit, wherever it stands: a torn one never
            # parses.
            if is_last and not _is_json(whole):
                return _Parsed(tuple(records), end, checksum, True)
            raise RecordError(f"{path}, line {number} is no record: {e}") from e
        problem = check_record(record)
        if said is None and is_checked:
            problem = "it has no checksum"
        elif said is not None and said != b"%08x" % zlib.crc32(plain, checksum):
            problem = "it does not fit its checksum, or a line before it is not what it was"
        if problem is not None:
            raise RecordError(f"{path}, line {number} was damaged, or changed by hand: {problem}")
        is_checked = is_checked or said is not None
        records.append(record)
        checksum = zlib.crc32(whole, checksum)
        end += len(whole)
        if is_last:
            return _Parsed(tuple(records), end, checksum, False)
    return _Parsed(tuple(records), end, checksum, True)


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _unsealed(line: bytes) -> tuple[bytes, bytes | None]:
    """Returns the JSON text of a journal line, and its checksum; None without one, as in older journals."""
    found = _SEAL.search(line)
    return (line, None) if found is None else (line[: found.start()] + b"}", found[1])


def _schema_beside(path: Path) -> int:
    """Returns the schema number in the run.json beside a journal; 0 without that file."""
    try:
        begun = msgspec.json.decode(
            files.read_regular(path.with_name(HEADER), files.RECORD_BYTES), type=_Begun
        )
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0
    return begun.schema
