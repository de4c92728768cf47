"""The contract of journals. Subclass, and give the fixture `journal`."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from kernelscape.runtime.records import record
from kernelscape.runtime.records.journal import sealed


def evaluation(k: int = 0, **changes: object) -> record.EvaluationRecord:
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
    return record.EvaluationRecord(**(fields | changes))


RECORDS = (
    record.NoteRecord(at_s=0.0, kind="session", text="begins"),
    evaluation(0),
    record.IncumbentRecord(at_s=0.6, source_key="key0", time_ns=100.0),
    record.BoundRecord(at_s=0.7, bound_ns=60.0, limiting="memory"),
    record.TallyRecord(at_s=0.8, counts={"rollouts": 3}, refused={"'sizes' leaves no value": 2}),
    record.MachineRecord(at_s=0.9, device="cpu-1", compiler="gcc 12", ratio=1.3),
    evaluation(
        2,
        origin=record.Origin(tag="N", node=-1, parent="key0"),
        place=record.MeasurementOrigin(session=1, tree=0, worker=0, device="cpu-1"),
        components=(
            record.ComponentRecord(key="a", text="0", time_ns=60.0, spread=0.01),
            record.ComponentRecord(key="b", time_ns=42.0, spread=0.0),
        ),
        timing=record.Timing(
            build_s=0.2,
            run_s=0.1,
            n_samples=5,
            quantiles_ns=(1.0, 2.0, 3.0, 4.0, 5.0),
            compiling_s=(0.3, 0.7),
        ),
    ),
    record.RemeasuredRecord(
        at_s=1.0,
        entries=(
            record.AgainRecord(source_key="key0", time_ns=99.0, spread=0.01, search_ns=100.0),
        ),
        n_ties=1,
    ),
    record.KeptRecord(
        at_s=1.1, session_s=1.1, journal_s=0.01, tree_s=0.0, tree_children=9, tree_bytes=180
    ),
    evaluation(
        3,
        is_partly_verified=True,
        ratio=record.RatioRecord(ratio=1.5, control="key0", control_ns=100.0),
    ),
    evaluation(1, status="wrong", time_ns=None),
)


def lines_of(path: Path) -> list[str]:
    """The lines of a journal without their checksums, as older versions wrote them."""
    return [re.sub(r',"crc":"\w+"}$', "}", line) for line in path.read_text().splitlines()]


def rewrite(path: Path, change: Callable[[list[str]], Iterable[str]]) -> None:
    """Change the lines of a journal, as somebody does who can compute checksums: `change` gets and gives them without."""
    content = b""
    for line in change(lines_of(path)):
        content += sealed(line.encode(), zlib.crc32(content))
    path.write_bytes(content)


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
        with pytest.raises(record.RecordError, match="closed"):
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
