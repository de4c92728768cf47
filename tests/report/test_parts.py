"""Columns, effects of decisions, and what was measured below each node: by hand-made runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import get_args

import kernelscape
import pytest
from kernelscape.report.contents import best_record
from kernelscape.report.frame import frame
from kernelscape.report.pairs import measured_effects
from kernelscape.report.run_data import folder_of, load_run
from kernelscape.report.still import SOURCES
from kernelscape.report.trees import columns_of, depths, find_below, widths
from kernelscape.runtime.records.record import EvaluationRecord, RecordError
from kernelscape.runtime.records.tree_file import StoredTree
from kernelscape.search.events import Tag


def timed(ns: float | None, slowness: float = 1.0, **decisions: str) -> EvaluationRecord:
    return EvaluationRecord(
        at_s=1.0,
        decisions=tuple(decisions.items()),
        source_key=str(ns),
        status="ok" if ns is not None else "wrong",
        time_ns=ns,
        slowness=slowness,
    )


def test_pictures_name_every_source_of_candidates() -> None:
    """The kind: candidates of a way of searching that is new, drawn as if their source had not been kept."""
    script = (Path(kernelscape.__file__).parent / "report" / "draw.js").read_text()
    assert set(get_args(Tag)) < SOURCES.keys()
    assert all(f'{tag}: ["{SOURCES[tag][0]}",' in script for tag in get_args(Tag))


def test_pairs_that_differ_in_one_decision_are_found() -> None:
    found = measured_effects(
        [
            timed(100, size="8", order="IN"),
            timed(200, size="16", order="IN"),
            timed(400, size="16", order="OUT"),
            timed(150, size="8", order="OUT"),
            timed(None, size="4", order="IN"),
        ]
    )
    single = {e.changes: e.ratios for e in found if len(e.changes) == 1}
    assert single[(("size", "16", "8"),)] == (pytest.approx(150 / 400), pytest.approx(0.5))
    assert single[(("order", "OUT", "IN"),)] == (pytest.approx(0.5), pytest.approx(100 / 150))
    assert all(e.median <= 1 for e in found)
    assert [e.median for e in found] == sorted(e.median for e in found)
    assert sum(len(e.changes) == 2 for e in found) == 2


def test_pairs_of_two_states_of_the_machine_are_not_compared() -> None:
    assert measured_effects([timed(100, size="8"), timed(200, slowness=2.0, size="16")]) == []
    assert len(measured_effects([timed(100, size="8"), timed(200, slowness=1.01, size="16")])) == 1


def test_more_than_two_differences_are_no_pair() -> None:
    assert measured_effects([timed(1, a="0", b="0", c="0"), timed(2, a="1", b="1", c="1")]) == []


@pytest.fixture
def tree() -> StoredTree:
    """The root asks a (x, y); x asks b (x, y, z); the last child of x is forbidden."""
    tree = StoredTree(1, 0, 10.0)
    tree.names = ["a", "b", "x", "y", "z", "why"]
    tree.expand(0, 0, "M", 0.0, 1, [2, 0, 3, 20])
    tree.expand(1, 1, "D", 0.0, 3, [2, 0, 3, -50, 4, "5"])
    return tree


def test_times_are_known_above_what_was_measured(tree: StoredTree) -> None:
    found = find_below(
        tree,
        [
            timed(30.0, a="x", b="x"),
            timed(25.0, a="x", b="y", c="q"),
            timed(40.0, a="y", b="y"),
            timed(None, a="x", b="z"),
            timed(99.0, a="nothing"),
        ],
    )
    assert found.best_ns.tolist() == [25, 25, 40, 30, 25, math.inf]
    assert found.row.tolist() == [3, 4, 2, 5, 0]
    columns = columns_of(tree, found)
    assert columns["best"].tolist() == [25, 25, 40, 30, 25, 0]
    assert columns["name"].tolist() == [0, 1, 65535, 65535, 65535, 5]
    assert [tree.names[v] for v in columns["value"][1:]] == ["x", "y", "x", "y", "z"]


def test_cells_are_as_wide_as_their_leaves(tree: StoredTree) -> None:
    left, width = widths(tree)
    assert depths(tree).tolist() == [0, 1, 1, 2, 2, 2]
    assert width.tolist() == [1, 0.75, 0.25, 0.25, 0.25, 0.25]
    assert left.tolist() == [0, 0, 0.75, 0, 0.25, 0.5]


def test_a_frame_has_a_row_an_evaluation(run) -> None:
    columns = run.frame()
    assert {len(column) for column in columns.values()} == {40}
    assert columns == frame(run.directory)
    best = [b for b in columns["best_ns"] if b is not None]
    assert best == sorted(best, reverse=True)
    assert best[-1] == run.best.time_ns
    decided = [name for name in columns if name.startswith("decision:")]
    assert dict(run.best.file.decisions) == {
        name.removeprefix("decision:"): columns[name][columns["time_ns"].index(best[-1])]
        for name in decided
    }
    assert columns["tag"].count("U") == 1 and set(columns["session"]) == {1}


def test_a_frame_is_what_pandas_takes(run) -> None:
    pandas = pytest.importorskip("pandas")
    found = pandas.DataFrame(run.frame())
    assert len(found) == 40
    assert found["time_ns"].min() == run.best.time_ns


def test_a_run_without_evaluations_is_an_empty_frame(run, tmp_path) -> None:
    (tmp_path / "run.json").write_bytes((run.directory / "run.json").read_bytes())
    (tmp_path / "journal.jsonl").write_bytes(b"")
    assert frame(tmp_path) == {}
    assert best_record(load_run(tmp_path)) is None


def test_a_best_without_its_run_is_a_sentence(run, tmp_path) -> None:
    import kernelscape as ks

    alone = ks.load(run.best.save(tmp_path / "best.json"))
    with pytest.raises(RecordError, match="name the directory"):
        folder_of(alone)
