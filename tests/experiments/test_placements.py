"""The smallest run of the convolution on arrays that lie elsewhere."""

from __future__ import annotations

import pytest
from kernelscape.experiments import placements
from kernelscape.experiments.writing import read_results


@pytest.mark.compiler
@pytest.mark.slow
def test_all_placements_are_timed_beside_what_was_said(tmp_path, capfd):
    given = ["--seconds", "1", "--rounds", "1", "--images", "1", "--results", str(tmp_path)]
    assert placements.main(given) == 0
    values = read_results("placements", tmp_path)
    assert values["said_ns"] > 0
    assert [len(ns) for ns in values["found_ns"].values()] == [5, 5, 5]
    assert "| odd offsets |" in (tmp_path / "placements.md").read_text()


def test_arrays_are_as_far_behind_a_line_as_asked():
    array = placements._behind_a_line((3, 5), 20)
    assert array.ctypes.data % 64 == 20
    assert array.shape == (3, 5)
