"""Ranges of random numbers add up on a page, each number once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from kernelscape.experiments import correctness
from kernelscape.experiments.counted import Counted, keep
from kernelscape.experiments.writing import read_results


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


def test_ranges_that_overlap_in_part_are_refused_before_they_are_made(
    tmp_path, capsys, monkeypatch
):
    keep(made(0, 10, 60), tmp_path)
    kind, _ = correctness.RANGES["--bounds"]

    def never(first=0, end=1000):
        raise AssertionError("it was made")

    monkeypatch.setattr(correctness, "RANGES", {"--bounds": (kind, never)})
    for numbers, sentence in (
        (["5", "15"], "descents 5 to 15 overlap 0 to 10"),
        (["1", "2", "3"], "--bounds takes FIRST and END"),
    ):
        with pytest.raises(SystemExit):
            correctness.main(["--bounds", *numbers, "-o", str(tmp_path)])
        assert sentence in capsys.readouterr().err
    assert len(read_results("counted", tmp_path)["ranges"]) == 1


def test_ranges_that_end_at_the_same_time_are_all_kept(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda k: keep(made(k, k + 1, 6), tmp_path), range(12))) == {0}
    assert len(read_results("counted", tmp_path)["ranges"]) == 12


def test_what_is_wrong_stays_in_its_cell(tmp_path):
    keep(made(0, 10, 60, ["one | two\nthree"]), tmp_path)
    assert "| one / two three |" in (tmp_path / "counted.md").read_text()
