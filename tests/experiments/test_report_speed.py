"""The two experiments about what a run keeps, with the smallest that means anything."""

from __future__ import annotations

import pytest
from kernelscape.experiments import journal_cost, report_speed
from kernelscape.experiments.writing import read_results
from kernelscape.runtime.records.tree_file import read_trees
from kernelscape.testing.browser import find_browser


def test_a_made_tree_has_the_nodes_that_were_asked_for(tmp_path) -> None:
    report_speed.made_tree(tmp_path / "tree.jsonl", 5000)
    (tree,), n_lost, _ = read_trees(tmp_path / "tree.jsonl")
    assert (len(tree), n_lost) == (5000, 0)
    assert len(set(tree.state)) == 4


def test_pages_of_made_trees_are_timed(tmp_path) -> None:
    assert report_speed.main(["2000", "--results", str(tmp_path)]) == 0
    (row,) = read_results("report_speed", tmp_path)["rows"]
    assert row["nodes"] == 2000 and row["page_bytes"] > 1000
    assert ("drawn_ms" in row) == (find_browser() is not None)
    assert "| 2,000 | " in (tmp_path / "report_speed.md").read_text()


@pytest.mark.slow
def test_kills_lose_nothing_and_add_up(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(journal_cost, "_WITHIN_S", 0.5)
    small = ["--work", "axpydot", "--size", "n=64", "--target", "fake", "--results", str(tmp_path)]
    assert journal_cost.main([*small, "--kills", "1", "--seconds", "2"]) == 0
    assert journal_cost.main([*small, "--kills", "1", "--kills-only"]) == 0
    found = read_results("journal_cost", tmp_path)
    assert len(found["kills"]) == 2
    assert all(row["finished"] > 0 for row in found["kills"])
    assert all(row["lost"] == row["repeated"] == 0 for row in found["kills"])
    assert found["cost"]["evaluations"] > 0 and found["cost"]["journal_s"] > 0
