"""A journal that lives as long as the process, for tests and for searches that nobody resumes."""

from __future__ import annotations

from ..runtime.records.journal import AbstractJournal, encoded
from ..runtime.records.record import Record, RecordError


class MemoryJournal(AbstractJournal):
    """Records in a list."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._is_closed = False

    def append(self, record: Record) -> None:
        if self._is_closed:
            raise RecordError("the journal is closed")
        encoded(record)
        self._records.append(record)

    def records(self) -> tuple[Record, ...]:
        return tuple(self._records)

    def close(self) -> None:
        self._is_closed = True
