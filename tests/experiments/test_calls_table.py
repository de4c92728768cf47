"""The table of calls, with the smallest effort: every way is timed and counted, and none is wrong that must not be."""

from __future__ import annotations

import pytest
from kernelscape.experiments import calls
from kernelscape.experiments.writing import read_results


@pytest.mark.compiler
def test_calls_are_timed_in_turn_and_counted(tmp_path):
    calls.main(["--rounds", "2", "--calls", "20", "--rows", "50", "--results", str(tmp_path)])
    found = read_results("calls", tmp_path)
    assert set(found["calls"]) >= {"numba", "tuned", "former"}
    assert all(len(times) == 2 and min(times) > 0 for times in found["calls"].values())
    assert set(found["sparse"]) == {"numba", "tuned", "tuned, indices not looked at"}
    assert found["threads"]["calls"] == 80
    assert found["threads"]["tuned"] == found["threads"]["tuned, without Python.h"] == 0
    text = (tmp_path / "calls.md").read_text()
    assert text.count("| numba | ") == 2 and "| former | " in text
