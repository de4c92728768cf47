"""The journal contract; torn, hand-edited and contested journals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import msgspec
import pytest
from kernelscape.runtime.records.journal import FileJournal, read_journal
from kernelscape.runtime.records.record import RecordError, TallyRecord
from kernelscape.testing.memory_journal import MemoryJournal

from ...contracts.journal import RECORDS, JournalContract, evaluation


class TestMemoryJournal(JournalContract):
    @pytest.fixture
    def journal(self):
        return MemoryJournal()


class TestFileJournal(JournalContract):
    @pytest.fixture
    def journal(self, tmp_path):
        with FileJournal(tmp_path / "run" / "journal.jsonl") as journal:
            yield journal


@pytest.fixture
def path(tmp_path):
    with FileJournal(tmp_path / "journal.jsonl") as journal:
        for r in RECORDS:
            journal.append(r)
    return tmp_path / "journal.jsonl"


def test_a_journal_of_a_version_without_tallies_can_be_read(path):
    lines = path.read_text().splitlines(keepends=True)
    older = [line for line in lines if '"event":"tally"' not in line]
    assert len(older) == len(lines) - 1
    older = [re.sub(r',"crc":"\w+"', "", line) for line in older]
    path.write_text("".join(older).replace(',"stopped_early":false', ""))
    assert read_journal(path) == tuple(r for r in RECORDS if not isinstance(r, TallyRecord))


OLD_LINE = (
    b'{"event":"evaluation","at_s":0.5,"decisions":[["order(a,b)","BEFORE"]],"source_key":"k",'
    b'"status":"ok","time_ns":100.0,"spread":0.01,"min_ns":99.0,"bound_ns":50.0,"detail":"",'
    b'"stopped_early":false,"slowness":1.0}\n'
    b'{"event":"bound","at_s":0.7,"bound_ns":60.0,"limiting":""}\n'
)


def test_lines_of_schema_1_and_of_schema_2_may_follow_one_another(tmp_path):
    """A run that an older version began goes on: each record is read by what it holds."""
    path = tmp_path / "journal.jsonl"
    path.write_bytes(OLD_LINE)
    with FileJournal(path) as journal:
        for r in RECORDS:
            journal.append(r)
    old, bound, *new = read_journal(path)
    assert (old.time_ns, old.origin, old.place, old.timing) == (100.0, None, None, None)
    assert bound.limiting == ""
    assert tuple(new) == RECORDS


def test_every_torn_end_loses_only_what_was_not_acknowledged(path):
    whole = path.read_bytes()
    last = len(whole[:-1].rsplit(b"\n", 1)[1]) + 1
    for missing in range(last + 1):
        path.write_bytes(whole[: len(whole) - missing])
        kept = RECORDS if missing <= 1 else RECORDS[:-1]
        assert read_journal(path) == kept
        with FileJournal(path) as journal:
            assert journal.records() == kept
            journal.append(evaluation(9))
        assert read_journal(path) == (*kept, evaluation(9))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"source_key":"key0"', b'"source_key":"key1"'),
        (b'"at_s":0.5', b'"at_s":1.5'),
        (b'"crc":"', b'"src":"'),
        (b'"status":"ok"', b'"status":"good"'),
        (b'"status":"ok"', b'"status":"wrong"'),
        (b'"time_ns":100.0', b'"time_ns":-100.0'),
        (b'"time_ns":100.0', b'"time_ns":"fast"'),
        (b'"time_ns":100.0', b'"time_ns":null'),
        (b'"spread"', b'"spreed"'),
        (b'"event":"evaluation",', b""),
        (b"{", b""),
        (b'"bound_ns":50.0', b"\xff\xfe"),
        (b'"order(a,b)"', b'"size(i.0)"'),
    ],
)
def test_edits_are_named_by_line(path, old, new):
    lines = path.read_bytes().split(b"\n")
    assert old in lines[1]
    lines[1] = lines[1].replace(old, new, 1)
    path.write_bytes(b"\n".join(lines))
    for read in (read_journal, FileJournal):
        with pytest.raises(RecordError, match=r"journal\.jsonl, line 2 ") as e:
            read(path)
        assert "\n" not in str(e.value)


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("number", [0, 1, 7, len(RECORDS) - 1])
def test_no_flipped_bit_gives_another_record(path, number):
    """Of a kind are all changes that leave a line well formed: it is refused by its number, or was never acknowledged."""
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    first = len(b"".join(lines[:number]))
    with path.open("r+b", buffering=0) as file:
        for bit in range(8 * first, 8 * (first + len(lines[number]))):
            os.pwrite(file.fileno(), flipped(whole, bit)[bit // 8 : bit // 8 + 1], bit // 8)
            try:
                records = read_journal(path)
            except RecordError as e:
                found = int(str(e).partition("line ")[2].partition(" ")[0])
                assert found in (number + 1, number + 2)
            else:  # without its line break the last one looks torn
                assert records == RECORDS[:-1]
                assert number == len(RECORDS) - 1
                assert bit // 8 == len(whole) - 1
            os.pwrite(file.fileno(), whole[bit // 8 : bit // 8 + 1], bit // 8)


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [lines[0], *lines[2:]],
        lambda lines: [*lines[:3], lines[2], *lines[3:]],
        lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
    ],
)
def test_lines_that_are_lost_moved_or_said_twice_are_found(path, change):
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(RecordError, match=r"line \d+ was damaged"):
        read_journal(path)


def without_checksum(line: bytes) -> bytes:
    return re.sub(rb',"crc":"\w+"', b"", line)


@pytest.mark.parametrize("number", [0, 1, len(RECORDS) - 1])
def test_a_line_that_lost_its_checksum_is_no_older_one(path, number):
    lines = path.read_bytes().splitlines(keepends=True)
    lines[number] = without_checksum(lines[number])
    path.write_bytes(b"".join(lines))
    for read in (read_journal, FileJournal):
        with pytest.raises(RecordError, match=f"line {max(2, number + 1)} was damaged"):
            read(path)


def test_the_header_says_whether_lines_without_checksums_are_older(path):
    """Where none has one any more."""
    path.write_bytes(b"".join(map(without_checksum, path.read_bytes().splitlines(keepends=True))))
    for schema, is_read in ((1, True), (2, True), (3, False)):
        path.with_name("run.json").write_text(f'{{"other":[1],"schema":{schema}}}')
        if is_read:
            assert read_journal(path) == RECORDS
        else:
            with pytest.raises(RecordError, match=r"line 1 was damaged.* no checksum"):
                read_journal(path)


def test_an_older_part_is_covered_by_what_follows_it(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(OLD_LINE)
    with FileJournal(path) as journal:
        journal.append(RECORDS[0])
    path.write_bytes(path.read_bytes().replace(b'"time_ns":100.0', b'"time_ns":109.0'))
    with pytest.raises(RecordError, match="line 3 was damaged"):
        read_journal(path)


def test_an_edited_last_line_is_not_taken_for_a_torn_one(path):
    content = path.read_bytes().replace(b'"status":"wrong"', b'"status":"bad"')
    path.write_bytes(content)
    with pytest.raises(RecordError, match=f"line {len(RECORDS)}"):
        read_journal(path)
    path.write_bytes(content[:-1])
    with pytest.raises(RecordError, match=f"line {len(RECORDS)}"):
        read_journal(path)


def test_a_second_writer_is_refused_and_a_reader_is_not(path):
    with FileJournal(path), pytest.raises(RecordError, match="another search is writing"):
        FileJournal(path)
    with FileJournal(path):
        assert read_journal(path) == RECORDS


def test_missing_journal_is_a_sentence(tmp_path):
    with pytest.raises(RecordError, match="cannot be read"):
        read_journal(tmp_path / "none.jsonl")


def test_killed_writer_loses_nothing_acknowledged(tmp_path):
    """The child prints a number only after the record of that number was appended."""
    path = tmp_path / "journal.jsonl"
    script = f"""
import sys
from pathlib import Path
from kernelscape.runtime.records.journal import FileJournal
from kernelscape.runtime.records.record import NoteRecord
journal = FileJournal(Path({os.fspath(path)!r}))
k = len(journal.records())
while True:
    journal.append(NoteRecord(at_s=float(k), kind="x" * 200))
    k += 1
    print(k, flush=True)
"""
    total = 0
    for n_lines in (1, 7, 20):
        child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for _ in range(n_lines):
            total = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        child.wait()
        total = max([total, *map(int, child.stdout.read().split())])
        child.stdout.close()
        records = read_journal(path)
        assert len(records) >= total
        assert [r.at_s for r in records] == [float(k) for k in range(len(records))]


def test_decisions_stay_tuples(path):
    record = read_journal(path)[1]
    assert msgspec.json.encode(record) == msgspec.json.encode(RECORDS[1])
    assert record == RECORDS[1]
