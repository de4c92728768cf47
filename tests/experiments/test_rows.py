"""Tables keep their rows, in order, and make what is missing."""

from __future__ import annotations

import pytest
from kernelscape.experiments.rows import Job, Table, parse_jobs, title
from kernelscape.experiments.writing import read_results

ORDER = [Job("axpy", {"n": 8}), Job("vadd", {"n": 8}), Job("vadd", {"n": 8}, "f64")]


def row(job, status="ok", **found):
    return {"status": status, **job._asdict(), **found}


@pytest.fixture
def table(tmp_path):
    return Table("some", ORDER, lambda made: f"{len(made['rows'])} rows\n", tmp_path)


def test_rows_are_written_in_order_and_others_behind_them(table, tmp_path):
    other = Job("sscal", {"n": 3})
    made = table.make([ORDER[2], other, ORDER[0]], row, lambda r: "made", beside=7)
    assert [Job.of(r) for r in made["rows"]] == [ORDER[0], ORDER[2], other]
    assert read_results("some", tmp_path) == made == table.stored()
    assert (tmp_path / "some.md").read_text() == "3 rows\n"
    assert made["beside"] == 7
    assert table.make([], row, lambda r: "made") == made


def test_only_rows_that_are_missing_or_failed_are_made(table, capfd):
    table.make([ORDER[0]], row, lambda r: "made")
    table.make([ORDER[1]], lambda job: row(job, "failed", why="no luck"), lambda r: "made")
    assert table.missing(ORDER, again=False) == ORDER[1:]
    assert table.missing(ORDER, again=True) == ORDER
    table.make([ORDER[0]], lambda job: row(job, stamp={"taken": "2026"}), lambda r: "made")
    assert table.missing(ORDER, again=True) == [*ORDER[1:], ORDER[0]]
    assert [line.split(" (")[0] for line in capfd.readouterr().out.splitlines()] == [
        "axpy:n=8: made",
        "vadd:n=8: failed: no luck",
        "axpy:n=8: made",
    ]


def test_a_table_stops_where_there_is_no_more_time(table):
    made = table.make(ORDER, lambda job: None if job == ORDER[1] else row(job), lambda r: "made")
    assert [Job.of(r) for r in made["rows"]] == ORDER[:1]


def test_jobs_are_named_by_sequence_sizes_and_type():
    assert parse_jobs("AXPYDOT:n=2^20") == [Job("axpydot", {"n": 1 << 20})]
    assert parse_jobs("bicgk:n=64") == [Job("bicgk", {"m": 64, "n": 64})]
    assert parse_jobs("vadd", ORDER) == ORDER[1:]
    types = ("f32", "f64")
    assert all(parse_jobs(job.key, dtypes=types) == [job] for job in ORDER)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nosuch", "no sequence 'nosuch'"),
        ("heat", "no row 'heat'"),
        ("vadd:n=8:f64", "'f64' is not f32"),
        ("vadd:n=8:f32:f32", "'f32:f32' is not f32"),
        ("vadd:q=8", "no size 'q'"),
        ("vadd:n=many", "'n=many' is not a size"),
        ("vadd:n=0", "must be at least 1"),
    ],
)
def test_what_names_no_row_is_a_sentence(text, said):
    with pytest.raises(ValueError, match=said):
        parse_jobs(text, ORDER)


def test_titles_are_short():
    names = [title(row(Job("x", sizes))) for sizes in ({"n": 8}, {"n": 9}, {"m": 3, "n": 3}, {"m": 3, "n": 5})]  # fmt: skip
    assert names == ["x 2^3", "x 9", "x 3^2", "x 3x5"]
