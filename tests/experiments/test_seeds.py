"""The table of seeds: its smallest run, and what it says of a seed that found less."""

from __future__ import annotations

import pytest
from kernelscape.experiments import seeds
from kernelscape.experiments.rows import Job


@pytest.mark.compiler
@pytest.mark.slow
def test_every_seed_is_searched_and_compared(tmp_path, in_this_process):
    wanted = [Job("axpydot", {"n": 1000}), Job("bicgk", {"nosuch": 1})]
    options = seeds.SeedOptions(seeds=2, first=3, evaluations=1, rounds=1, budget_ms=2.0)
    made = seeds.QUESTION.table(wanted, options, folder=tmp_path)
    good, failed = made
    assert [s["seed"] for s in good["searches"]] == [3, 4]
    assert len(good["shares"]) == len(good["best_ns"]) == 2
    assert all(0 < s["near_s"] <= s["nearer_s"] for s in good["searches"])
    assert "nosuch" in failed["why"]
    text = (tmp_path / "seeds.md").read_text()
    assert "| axpydot 1000 | f32 | L1 |" in text


def test_a_seed_that_found_less_is_named():
    row = {
        "status": "ok",
        "name": "bicgk",
        "sizes": {"m": 64, "n": 64},
        "dtype": "f32",
        "level": "memory",
        "searches": [{"seed": 1}, {"seed": 2}],
        "shares": [0.91, 0.90],
    }
    assert seeds.problems([row]) == ["bicgk 64^2 f32, seed 2: 0.900 of the expert, not 0.902"]
    assert seeds.problems([row | {"shares": [1.0, 0.91]}]) == []
