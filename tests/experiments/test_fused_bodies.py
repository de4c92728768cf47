"""The table of fused bodies: a small program is searched, run as it was found and as it is, and its page compares them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from kernelscape.experiments import fused_bodies
from kernelscape.experiments.conditions import stamp


@pytest.mark.compiler
def test_a_program_is_searched_and_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = "chain_copy 2 M"
    small = fused_bodies.PROGRAMS[name].replace("N = 2 * 1024 * 1024", "N = 512")
    monkeypatch.setattr(fused_bodies, "PROGRAMS", {name: small})
    found = fused_bodies.search(name, 60.0, tmp_path, most=1)
    assert found["launches"] >= 1
    row = fused_bodies.make_row(name, "ours", sys.executable, tmp_path)
    assert row["checksum"] == pytest.approx((255.5 + 256.5 + 260.5) / 3)
    values = {"rows": [row], "found": {name: found}, "stamp": stamp(), "versions": {}}
    assert f"| {name} | " in fused_bodies.report(values)


def test_a_program_that_fails_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fused_bodies, "PROGRAMS", {"none": "raise ValueError('no sizes')"})
    row = fused_bodies.make_row("none", "ours", sys.executable, tmp_path)
    assert row["why"] == "ValueError: no sizes"
