"""The smallest row: three kinds of moments, three that are called in them."""

from __future__ import annotations

import json

import pytest
from kernelscape.experiments import threads


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


def test_no_rounds_are_a_usage_error(capfd):
    with pytest.raises(SystemExit) as caught:
        threads.main(["--rounds", "0"])
    assert caught.value.code == 2
    assert "must be positive" in capfd.readouterr().err
