"""Ranges of random numbers add up on a page, each number once."""

from __future__ import annotations

import pytest
from kernelscape.experiments import counted
from kernelscape.experiments.counted import Counted, keep


def made(first, end, n, wrong=(), kind="descents", **more):
    return Counted(kind, first, end, {"terms": n}, list(wrong), **more)


def test_ranges_add_up_by_kind(tmp_path, capsys):
    assert keep(made(0, 10, 60), tmp_path) == 0
    assert keep(made(10, 30, 120, drawn={"fused 1": 3}), tmp_path) == 0
    assert keep(made(0, 5, 7, kind="programs in windows"), tmp_path) == 0
    text = (tmp_path / "counted.md").read_text()
    assert "| descents | 30 | 180 terms | 0 |" in text
    assert "| programs in windows | 5 | 7 terms | 0 |" in text
    assert "| fused 1 | 3 |" in text
    assert "descents 10 to 30: 120 terms, 0 wrong" in capsys.readouterr().out


def test_what_is_wrong_is_told_and_kept(tmp_path, capsys):
    assert keep(made(0, 10, 60, ["3: loads are 1.2 of their count"]), tmp_path) == 1
    assert "3: loads are 1.2 of their count" in capsys.readouterr().out
    assert "| descents | 10 | 60 terms | 1 |" in (tmp_path / "counted.md").read_text()


def test_a_range_that_is_made_again_counts_once(tmp_path):
    keep(made(0, 10, 60, ["3: loads"]), tmp_path)
    keep(made(10, 20, 60), tmp_path)
    keep(made(0, 20, 121), tmp_path)
    assert "| descents | 20 | 121 terms | 0 |" in (tmp_path / "counted.md").read_text()


def test_ranges_that_overlap_in_part_are_refused(tmp_path):
    keep(made(0, 10, 60), tmp_path)
    with pytest.raises(SystemExit, match="descents 5 to 15 overlap 0 to 10"):
        keep(made(5, 15, 60), tmp_path)
    assert len(counted.read_results("counted", tmp_path)["ranges"]) == 1
