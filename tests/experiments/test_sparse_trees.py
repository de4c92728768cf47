from pathlib import Path

import pytest
from kernelscape.experiments import sparse_trees
from kernelscape.testing import sparse_trees as trees


def test_programs_are_counted_by_the_way_they_run(tmp_path: Path) -> None:
    given = ["--examples", "4", "--trees", "2", "--results", str(tmp_path)]
    for way in ("interpreted", "lowered"):
        assert sparse_trees.main([*given, "--way", way]) == 0
    page = (tmp_path / "sparse_trees.md").read_text()
    assert "| interpreted | 4 | 2 |" in page and "| lowered | 4 | 2 |" in page


def test_what_goes_wrong_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees.Model, "cells", lambda self, level: {(0, 0)})
    given = ["--examples", "3", "--trees", "3", "--way", "interpreted", "--results", str(tmp_path)]
    assert sparse_trees.main(given) == 1
    assert "AssertionError" in (tmp_path / "sparse_trees.md").read_text()


def test_fewer_examples_than_trees_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        sparse_trees.main(["--examples", "1", "--trees", "2"])
    assert "as many examples as trees" in capsys.readouterr().err
