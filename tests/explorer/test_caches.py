"""Records of the course of a run: where each candidate came from, what bounded it, and the tree. On the fake device."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernelscape.explorer.entry import explore_workload, library_workload, resume
from kernelscape.explorer.workload import Options
from kernelscape.kernels.library import load as load_library
from kernelscape.runtime.records.journal import read_journal
from kernelscape.runtime.records.record import (
    BoundRecord,
    EvaluationRecord,
    KeptRecord,
    MachineRecord,
    RemeasuredRecord,
)
from kernelscape.runtime.records.tree_file import FORBIDDEN, read_trees
from kernelscape.search import events as ev


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("kept") / "run"
    told: list[object] = []
    workload = library_workload(load_library("axpydot"), {"n": 64}, "f32", 1)
    options = Options(target="fake", max_evals=60, store=False)
    explore_workload(workload, options, directory=folder, on_event=told.append)
    return folder, told


def of(folder: Path, kind: type) -> list:
    return [r for r in read_journal(folder / "journal.jsonl") if isinstance(r, kind)]


def test_every_evaluation_says_where_it_came_from(run) -> None:
    folder, told = run
    records = of(folder, EvaluationRecord)
    events = [e for e in told if isinstance(e, ev.Evaluated) and e.origin == "measured"]
    # By their sources: what is measured before the default is told behind it.
    kept = {r.source_key: (r.origin.tag, r.origin.node) for r in records}
    assert kept == {e.outcome.key: (e.tag, e.node) for e in events}
    assert {"U", "W", "N"} <= {r.origin.tag for r in records}
    device = records[0].place.device
    assert device
    assert all((p.session, p.tree, p.worker) == (1, 0, 0) for p in (r.place for r in records))
    assert all(r.timing.run_s >= 0 for r in records)


def test_a_neighbour_names_the_implementation_that_it_was_made_of(run) -> None:
    folder, _ = run
    records = of(folder, EvaluationRecord)
    keys: set[str] = set()
    for r in records:
        assert (r.origin.parent != "") == (r.origin.tag == "N")
        assert r.origin.parent in {*keys, ""}
        keys.add(r.source_key)


def test_bounds_always_name_what_limits(run) -> None:
    folder, _ = run
    found = of(folder, BoundRecord)
    assert found
    assert all(r.limiting for r in found)


def test_the_session_names_its_machine_and_what_keeping_took(run) -> None:
    folder, _ = run
    (machine,) = of(folder, MachineRecord)
    (kept,) = of(folder, KeptRecord)
    assert machine.device == of(folder, EvaluationRecord)[0].place.device
    assert 0 < kept.journal_s + kept.tree_s < kept.session_s
    assert kept.tree_bytes == (folder / "tree.jsonl").stat().st_size


def test_the_final_comparison_is_kept(run) -> None:
    folder, told = run
    (kept,) = of(folder, RemeasuredRecord)
    (event,) = (e for e in told if type(e).__name__ == "Remeasured")
    assert [e.source_key for e in kept.entries] == [e.key for e in event.top]
    assert kept.n_ties == event.ties


def test_the_tree_is_what_the_search_told(run) -> None:
    folder, told = run
    (tree,) = read_trees(folder / "tree.jsonl").trees
    expansions = [e for e in told if isinstance(e, ev.NodeExpanded)]
    assert len(expansions) > 5
    assert len(tree) == 1 + sum(len(e.children) for e in expansions)
    row = 1
    for e in expansions:
        for child in e.children:
            assert tree.names[tree.value[row]] == child.value
            assert (tree.state[row] == FORBIDDEN) == (child.pruned == "constraint")
            if child.bound_ns is not None:
                assert tree.bound_ns[row] == pytest.approx(child.bound_ns, rel=1e-5)
            row += 1


def test_a_resumed_run_counts_its_sessions_and_begins_another_tree(run, tmp_path: Path) -> None:
    folder, _ = run
    before = (folder / "tree.jsonl").read_bytes()
    resume(folder, max_evals=5)
    assert (folder / "tree.jsonl").read_bytes().startswith(before)
    assert [t.session for t in read_trees(folder / "tree.jsonl").trees] == [1, 2]
    assert [r.place.session for r in of(folder, EvaluationRecord)[-5:]] == [2] * 5


def test_without_the_file_of_the_tree_a_run_goes_on(tmp_path: Path) -> None:
    workload = library_workload(load_library("axpydot"), {"n": 64}, "f32", 1)
    options = Options(target="fake", max_evals=5, store=False)
    explore_workload(workload, options, directory=tmp_path / "run")
    (tmp_path / "run" / "tree.jsonl").unlink()
    assert resume(tmp_path / "run", max_evals=5).ended.evaluations == 10
