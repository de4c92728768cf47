"""The first candidates are timed against each other in fresh processes, and what is noise is told."""

from __future__ import annotations

import pytest
from kernelscape.experiments import first_times
from kernelscape.experiments.first_times import summary
from kernelscape.experiments.writing import read_results


def found(**times):
    """Rounds of processes by candidate, where a copy moves 10 bytes a ns and the roofline is 5 ns."""
    n_processes, n_rounds = len(times["a"]), len(times["a"][0])
    copies = [[10.0] * n_rounds] * n_processes
    return {"times_ns": times, "copies": copies, "bytes": 100.0, "roof_ns": 5.0}


def test_candidates_are_ranked_by_the_median_of_processes():
    made = summary(found(a=[[10, 12, 11], [11, 11, 11], [90, 90, 90]], b=[[10.0] * 3] * 3))
    assert [c["tag"] for c in made] == ["b", "a"]
    assert [c["median_ns"] for c in made] == [10.0, 11.0]
    assert [c["over_copy"] for c in made] == pytest.approx([1.0, 10 / 11])
    assert [c["roof_share"] for c in made] == pytest.approx([0.5, 5 / 11])


def test_spreads_of_rounds_and_of_processes_are_told_apart():
    steady, restless = summary(found(a=[[10, 10], [20, 20]], b=[[20, 40], [20, 40]]))
    assert (steady["rounds_spread"], steady["processes_spread"]) == (0.0, pytest.approx(1 / 3))
    assert (restless["rounds_spread"], restless["processes_spread"]) == (pytest.approx(1 / 6), 0.0)


def test_ratios_are_formed_inside_a_round():
    _, slower = summary(found(a=[[10, 100, 1000]], b=[[20, 200, 2000]]))
    assert (slower["over_best"], slower["over_best_spread"]) == (2.0, 0.0)


def test_all_are_compared_with_the_fastest_of_the_experts_variants():
    times = {"expert": [[90.0, 90]], "expert TILE=12": [[20.0, 40]], "a": [[10.0, 20]]}
    assert [c["over_expert"] for c in summary(found(**times))] == [0.5, 1.0, 3.375]
    (alone,) = summary(found(a=[[10.0, 20]]))
    assert alone["over_expert"] is None


@pytest.mark.compiler
@pytest.mark.slow
def test_a_row_is_made_in_processes_kept_and_written(tmp_path, in_this_process, monkeypatch, capfd):
    few = ["--processes", "2", "--rounds", "1", "--budget-ms", "2", "--no-calibrate"]
    few += [
        "--results",
        str(tmp_path),
        "--tags",
        "default",
        "rows4",
        "--only",
        "axpydot:n=1009:f64",
    ]
    assert first_times.main(few) == 0
    [row] = read_results("first_times", tmp_path)["rows"]
    assert {"default", "rows4 vectors2, sums together, one thread", "expert"} <= row[
        "times_ns"
    ].keys()
    assert any(tag.startswith("expert LAST_CACHE=") for tag in row["times_ns"])
    assert all(len(ns) == 1 for ns in [*row["times_ns"]["default"], *row["copies"]])
    assert not row["failed"]
    assert 0 < row["candidates"][0]["roof_share"] < 1
    text = (tmp_path / "first_times.md").read_text()
    assert "## axpydot 1009 f64" in text
    assert "| default | " in text
    monkeypatch.setattr(first_times, "run_row", lambda *_: pytest.fail("made again"))
    assert first_times.main(few) == 0


@pytest.mark.compiler
def test_a_row_without_such_a_candidate_fails_and_says_so(tmp_path, in_this_process, capfd):
    few = ["--results", str(tmp_path), "--no-calibrate", "--tags", "nosuch", "--only", "axpy:n=64"]
    assert first_times.main(few) == 1
    assert "no first candidate is called nosuch" in (tmp_path / "first_times.md").read_text()


@pytest.mark.parametrize("few", [[], ["--only", "nosuch:n=4"], ["--only", "axpy"]])
def test_rows_must_be_named_in_full(few, capfd):
    with pytest.raises(SystemExit) as caught:
        first_times.main(few)
    assert caught.value.code == 2
