"""Runs of several machines on one page: side by side, and never of two problems."""

from __future__ import annotations

import re

import pytest

from ..cli.command import SMALL


@pytest.fixture
def runs(explore, tmp_path):
    for name, more in (("one", ("--seed", 1)), ("two", ("--seed", 2, "--device", "fake"))):
        given = ("run", *SMALL, "--target", "fake", "--max-evals", 3, "-q", *more)
        code, _, err = explore(*given, "-o", tmp_path / name)
        assert code == 0, err
    return tmp_path / "one", tmp_path / "two"


def test_runs_of_one_problem_are_one_page(explore, runs, tmp_path) -> None:
    page = tmp_path / "page.html"
    code, out, err = explore("report", *runs, "-o", page)
    assert (code, out.strip()) == (0, f"{page}  2 runs of axpydot, 6 evaluations"), err
    text = page.read_text()
    rows = re.findall(r"<tr><td>(.*)</td></tr>", text)
    assert [row.split("</td><td>")[::4][:2] for row in rows] == [["one", "-"], ["two", "fake"]]
    assert text.count("<iframe sandbox=") == 2
    assert "<script>" not in text  # but in the frames, as text of an attribute
    assert explore("report", *runs)[0] == 2
    other = ("run", "axpydot", "--size", "n=77", "--target", "fake", "--max-evals", 2, "-q")
    assert explore(*other, "-o", tmp_path / "three")[0] == 0
    code, _, err = explore("report", runs[0], tmp_path / "three", "-o", page)
    assert (code, "different problems" in err) == (2, True)
