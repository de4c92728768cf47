"""The smallest run of experiments/first_results.py."""

from pathlib import Path

import pytest
from kernelscape.experiments import first_results
from kernelscape.experiments.writing import read_results


@pytest.mark.compiler
def test_what_a_search_shows_first(tmp_path: Path) -> None:
    arguments = ["--only", "axpydot:n=1000", "--seconds", "6", "--results", str(tmp_path)]
    assert first_results.main(arguments) == 0
    [row] = read_results("first_results", tmp_path)["rows"]
    assert row["first_s"] > 0
    assert row["best_ns"] > 0
    assert len(row["after_ns"]) == len(first_results.AFTER_S)
    assert "axpydot:n=1000" in (tmp_path / "first_results.md").read_text()
