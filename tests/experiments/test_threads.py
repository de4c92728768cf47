"""The smallest rows: three kinds of moments and numbers of busy processes, three that are called in them."""

from __future__ import annotations

import json

import pytest
from kernelscape.experiments import busy, threads
from kernelscape.runtime.cpu.dialect import C_TEAM


@pytest.mark.compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sizes", "titled"),
    [("atax", {"m": 64, "n": 64}, "atax 64^2"), ("spmv", {"n": 64}, "spmv 2^6")],
)
def test_a_row_is_made_kept_and_written(machine, monkeypatch, name, sizes, titled):
    monkeypatch.setattr(threads, "ROUND", threads.Round(0.01, 0.001, 2))
    row = threads.make_row(threads.Job(name, sizes), threads.ThreadsOptions(rounds=1))
    row |= {"name": name, "sizes": sizes, "dtype": "f32", "status": "ok"}
    assert list(row["times_ns"]) == ["hot", "after a pause", "beside busy processes"]
    for by in row["times_ns"].values():
        assert list(by) == [threads.TEAM, threads.ALONE, threads.NUMBA]
        assert all(x["calls"] > 0 and x["median"] > 0 for x in by.values())
    text = threads.report(json.loads(json.dumps({"rows": [row]})))
    (alone,) = [line for line in text.splitlines() if line.startswith(f"| {titled} | one thread |")]
    assert alone.endswith("| 1.00 |")  # what all are compared with


@pytest.mark.compiler
@pytest.mark.slow
def test_a_work_beside_busy_processes_is_compared_call_by_call(machine, monkeypatch):
    """Rows above the bars are named, whichever library is slow."""
    monkeypatch.setattr(busy, "LOADS", (0, 1))
    monkeypatch.setattr(busy, "BLOCKS", 1)
    sizes = {"n": 64, "run": 2}
    options = threads.ThreadsOptions(calls=3, former=C_TEAM.team)
    row = threads.make_row(threads.Job("launches", sizes, "f64"), options)
    row |= {"name": "launches", "sizes": sizes, "dtype": "f64", "status": "ok"}
    assert list(row["loads"]) == ["0", "1"] and row["former"] > 0
    for by in row["loads"].values():
        assert list(by) == [busy.TUNED, busy.PLAIN, busy.SERIAL]
        assert all(x["calls"] == 3 and 0 < x["median"] <= x["sum"] for x in by.values())
    by = row["loads"]["1"]
    by[busy.TUNED] |= {"sum": 1.31 * by[busy.SERIAL]["sum"], "late": by[busy.SERIAL]["late"]}
    assert "launches run 2, load 1, tuned" in busy.missed(row)
    by[busy.TUNED]["sum"] = 1.29 * by[busy.SERIAL]["sum"]
    assert "launches run 2, load 1, tuned" not in busy.missed(row)
    text = threads.report(json.loads(json.dumps({"rows": [row]})))
    (tuned,) = [x for x in text.splitlines() if x.startswith("| launches | 2 | 1 | tuned |")]
    assert tuned.endswith("| 1.29 | 1.00 |")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--rounds", "0"], "must be positive"),
        (["--calls", "0"], "must be positive"),
        (["--former", "no-such-file.c"], "no such file"),
    ],
)
def test_what_cannot_be_measured_is_a_usage_error(capfd, given, said):
    with pytest.raises(SystemExit) as caught:
        threads.main(given)
    assert caught.value.code == 2
    assert said in capfd.readouterr().err
