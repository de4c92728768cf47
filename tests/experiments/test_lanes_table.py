"""The table of bodies in lanes: a small program by both ways, and its page."""

from __future__ import annotations

import sys

import pytest
from kernelscape.experiments import lanes
from kernelscape.experiments.conditions import moment, stamp


@pytest.mark.compiler
def test_programs_run_both_ways_and_their_page_compares_them(monkeypatch) -> None:
    small = lanes.PROGRAMS["mandelbrot"].replace("N = 1024", "N = 64")
    monkeypatch.setattr(lanes, "PROGRAMS", {"mandelbrot": small})
    pythons = {"in lanes": sys.executable, lanes.SCALAR: sys.executable}
    found = lanes.measure(pythons, ["mandelbrot"], 1)
    sums = [found["mandelbrot"][way][0]["checksum"] for way in pythons]
    assert sums[0] == pytest.approx(sums[1], rel=1e-2) and sums[0] > 1
    values = {"stamp": stamp(), "versions": {}, "libraries": list(pythons), "rounds": 1}
    text = lanes.report(values | {"found": found, "ended": moment()})
    assert "| mandelbrot | " in text and "against one at a time" in text
