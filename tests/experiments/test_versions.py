"""Two versions are compared by what each finds, and a version with itself is equal to itself in decisions."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernelscape.experiments import versions
from kernelscape.experiments.writing import read_results

ROOT = Path(versions.__file__).resolve().parent.parent


def row(again, searched):
    """A row whose earlier version takes 10 ns in each of as many rounds."""
    times = {"before": [10.0] * len(again), "again": again, "searched": searched}
    both = {"numpy": times, "aligned": times | {"again": times["before"]}}
    stamped = versions.stamp()
    return {
        "status": "ok",
        "name": "axpy",
        "sizes": {"n": 1024},
        "dtype": "f32",
        "times_ns": both,
        "said_ns": {"before": 10.0, "searched": 4.0},
        "stamp": stamped,
    }


def test_ratios_are_formed_within_rounds_and_summed_up_by_their_geometric_mean():
    how = {"before": "v1", "seconds": 1, "rounds": 3}
    rows = [row([10.0, 20.0, 30.0], [5.0] * 3), row([5.0] * 3, [20.0] * 3)]
    text = versions.report({"rows": rows, "how": how})
    assert "again, numpy: geometric mean 1.000, largest 2.00" in text
    assert "searched, numpy: geometric mean 1.000, largest 2.00" in text
    assert "again, aligned: geometric mean 1.000, largest 1.00" in text
    assert "2.00 ± 25 % | 0.50 ± 0 % | 1.00 ± 0 % | 0.50 ± 0 % | 1.00 | 1.25" in text


def test_an_earlier_version_that_is_not_there_is_a_sentence(capsys):
    with pytest.raises(RuntimeError, match="git worktree failed"), versions.checkout("no-such-rev"):
        pass
    with pytest.raises(SystemExit) as ended:
        versions.main([])
    assert ended.value.code == 2
    assert "--before names the version" in capsys.readouterr().err


@pytest.mark.compiler
@pytest.mark.slow
def test_a_row_is_made_kept_and_written(tmp_path):
    few = ["--before", str(ROOT), "--seconds", "60", "--evaluations", "1", "--rounds", "1"]
    few += ["--results", str(tmp_path), "--only", "axpydot:n=1009:f64"]
    assert versions.main(few) == 0
    [made] = read_results("versions", tmp_path)["rows"]
    assert set(made["times_ns"]) == {"numpy", "aligned"}
    for times in made["times_ns"].values():
        assert {k: len(v) for k, v in times.items()} == {"before": 1, "again": 1, "searched": 1}
        assert all(ns > 0 for each in times.values() for ns in each)
