"""What every journal must do. Subclass, and give the fixture `journal`."""

from __future__ import annotations

import pytest
from kernelscape.runtime.records import (
    BoundRecord,
    EvaluationRecord,
    IncumbentRecord,
    NoteRecord,
    RecordError,
    TallyRecord,
)


def evaluation(k: int = 0, **changes: object) -> EvaluationRecord:
    fields = {
        "at_s": 0.5 + k,
        "decisions": (("order(a,b)", "BEFORE"), ("size(i.0)", str(k))),
        "source_key": f"key{k}",
        "status": "ok",
        "time_ns": 100.0 + k,
        "spread": 0.01,
        "bound_ns": 50.0,
        "detail": 'quotes " and\nline breaks and é',
    }
    return EvaluationRecord(**(fields | changes))


RECORDS = (
    NoteRecord(at_s=0.0, kind="session", text="begins"),
    evaluation(0),
    IncumbentRecord(at_s=0.6, source_key="key0", time_ns=100.0),
    BoundRecord(at_s=0.7, bound_ns=60.0, limiting="memory"),
    TallyRecord(at_s=0.8, counts={"rollouts": 3}, refused={"'sizes' leaves no value": 2}),
    evaluation(1, status="wrong", time_ns=None),
)


class JournalContract:
    def test_records_come_back_in_order(self, journal):
        for r in RECORDS:
            journal.append(r)
        assert journal.records() == RECORDS

    def test_empty(self, journal):
        assert journal.records() == ()

    def test_closing_twice_is_fine_and_appending_then_is_not(self, journal):
        journal.append(RECORDS[0])
        journal.close()
        journal.close()
        with pytest.raises(RecordError, match="closed"):
            journal.append(RECORDS[1])

    def test_a_record_that_could_not_be_read_back_is_refused(self, journal):
        for bad in (
            evaluation(time_ns=None),
            evaluation(time_ns=float("nan")),
            evaluation(spread=float("inf")),
            evaluation(status="splendid"),
        ):
            with pytest.raises(ValueError, match=r".+"):
                journal.append(bad)
        assert journal.records() == ()
