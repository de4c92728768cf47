"""The table of bounds beside the best: its smallest piece, and another that is added."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernelscape.experiments import bound_gap
from kernelscape.experiments.writing import read_results
from kernelscape.testing.machines import round_target


@pytest.mark.compiler
def test_pieces_add_up(tmp_path: Path, machine: None) -> None:
    small = {"vadd": {"n": 4096}}
    assert bound_gap.run(["vadd"], 2.0, 2, 1, tmp_path, small) == 0
    assert bound_gap.run(["vadd"], 2.0, 2, 2, tmp_path, small) == 0
    made = read_results("bound_gap", tmp_path)
    assert set(made["alarms"]) == {"vadd 1", "vadd 2"}
    assert "0 of 4 measurements" in (tmp_path / "bound_gap.md").read_text()


def test_chains_have_bounds_of_their_own() -> None:
    target = round_target()
    bounds = [
        bound_gap.root_ns(bound_gap.chain_space(n, target, 2048), target) for n in (2, 20, 50)
    ]
    one = bounds[0] / 2
    assert bounds[1] > 19 * one
    assert bounds[2] > 49 * one
