"""What a surrogate is worth: the smallest run of the table."""

from __future__ import annotations

import pytest
from kernelscape.experiments import surrogate
from kernelscape.experiments.rows import Job
from kernelscape.experiments.writing import read_results


@pytest.mark.compiler
@pytest.mark.slow
def test_a_pair_of_searches_makes_a_row(tmp_path, in_this_process):
    wanted = [Job("bicgk", {"m": 64, "n": 64}, "f32")]
    [row] = surrogate.make_table(
        wanted, surrogate.PairOptions(seeds=2, evaluations=8), False, tmp_path
    )
    assert row["status"] == "ok", row["why"]
    assert [p["seed"] for p in row["pairs"]] == [1, 2]
    for p in row["pairs"]:
        assert min(p["evaluations"]) > 0
        assert min(p["again_ns"]) > 0
        assert p["as_good_s"] is None or p["as_good_s"] > 0
    assert read_results("surrogate", tmp_path)["rows"] == [row]
    assert "| bicgk 64^2 | f32 | " in (tmp_path / "surrogate.md").read_text()


def test_a_seed_that_never_came_as_far_is_counted():
    pair = {
        "seed": 1, "level": "L2", "evaluations": [100, 90], "near": [0.1, 0.3], "median": [1.5, None], "run_s": [5.0, 6.0],
        "again_ns": [120.0, 100.0], "best_s": 9.0, "as_good_s": 4.0,
    }  # fmt: skip
    options = {"seconds": 20.0, "seeds": 2, "first": 1}
    job = {"name": "bicgk", "sizes": {"m": 64, "n": 64}, "dtype": "f32", "options": options}
    cells = surrogate._cells(job | {"pairs": [pair, pair | {"seed": 2, "as_good_s": None}]})
    assert "4.0, 1 not" in cells
    assert "1.20 1.20" in cells
    assert "1.50 – ?" in cells
    assert "25% – 30%" in cells
