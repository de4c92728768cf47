from pathlib import Path

import pytest
from kernelscape.experiments import sparse_trees
from kernelscape.testing import sparse_model
from kernelscape.testing.sparse_batches import Found


def test_programs_are_counted_by_the_way_they_run(tmp_path: Path) -> None:
    given = ["--examples", "4", "--trees", "2", "--results", str(tmp_path)]
    for way in ("interpreted", "lowered"):
        assert sparse_trees.main([*given, "--way", way]) == 0
    page = (tmp_path / "sparse_trees.md").read_text()
    assert "| interpreted | 4 | 2 |" in page and "| lowered | 4 | 2 |" in page


def test_what_goes_wrong_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_model.Node, "is_active", lambda self, cell: cell == (0, 0))
    given = ["--examples", "3", "--trees", "3", "--way", "interpreted", "--results", str(tmp_path)]
    assert sparse_trees.main(given) == 1
    assert "AssertionError" in (tmp_path / "sparse_trees.md").read_text()


def test_fewer_examples_than_trees_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        sparse_trees.main(["--examples", "1", "--trees", "2"])
    assert "as many examples as trees" in capsys.readouterr().err


def test_sequences_go_on_behind_the_last_tree_and_are_counted_by_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[range] = []

    def batch(ways: tuple[str, ...], numbers: range, *_: object, **__: object) -> dict[str, Found]:
        asked.append(numbers)
        wrong = ["tree 1008: a | differs"] if len(asked) == 2 else []
        return {w: Found(programs=24, trees=8, wrong=wrong[: w == "decided"]) for w in ways}

    monkeypatch.setattr(sparse_trees, "run_batch", batch)
    given = ["--way", "sequences", "--results", str(tmp_path), "--examples"]
    assert sparse_trees.main([*given, "24"]) == 0
    assert sparse_trees.main([*given, "48"]) == 1
    assert sparse_trees.main([*given, "48"]) == 0  # nothing is left to do
    assert asked == [range(1000, 1008), range(1008, 1016)]
    page = (tmp_path / "sparse_trees.md").read_text()
    assert "| decided | 48 | 16 |" in page and "| emulated | 48 | 16 |" in page
    assert "tree 1008: a / differs" in page
