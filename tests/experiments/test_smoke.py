"""Each experiment runs, with the smallest options that mean anything, and writes its results."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from kernelscape.experiments import (
    autodiff,
    derivatives,
    gradients,
    kill_resume,
    paper_rows,
    paper_tables,
    paper_text,
    run_table,
    think_speed,
    tree_shape,
)
from kernelscape.experiments.rows import Job
from kernelscape.experiments.writing import read_results
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.tree.ordering import NextChoice
from kernelscape.space.build import build_space
from kernelscape.space.components import components_of
from kernelscape.space.engine import cpsat
from kernelscape.testing.machines import round_target


def test_think_speed_writes_a_row_for_each_sequence(tmp_path):
    think_speed.run(["axpy", "bicgk"], 5, 10, 1, tmp_path)
    rows = read_results("think_speed", tmp_path)["rows"]
    assert [r["name"] for r in rows] == ["axpy", "bicgk"]
    assert all(r["descent_ms"]["median"] > 0 and r["n_open"] > 0 for r in rows)
    assert "| bicgk | " in (tmp_path / "think_speed.md").read_text()


def test_a_window_of_components_has_a_row_and_a_goal_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(think_speed, "_N_COMPONENTS", 8)
    think_speed.run([think_speed.WINDOW], 3, 3, 1, tmp_path)
    (made,) = read_results("think_speed", tmp_path)["rows"]
    assert (made["name"], made["sizes"]) == ("window", {"components": 8})
    assert made["text_ms"]["median"] > 0
    row = msgspec.convert(made, think_speed.Row)
    slow, too_slow = (
        replace(row, bound_us=think_speed.Quartiles(us, us, us)) for us in (100.0, 300.0)
    )
    told = [think_speed.failures([r]) for r in (slow, replace(slow, name="axpy"), too_slow)]
    assert [sum("a bound takes" in line for line in lines) for lines in told] == [0, 1, 1]


def test_each_kernel_of_a_window_is_a_component():
    """Kind: a row that says 100 components and has one."""
    space = build_space(think_speed.window(25), round_target())
    assert [len(c.tasks) for c in components_of(space)] == [1] * 25


def test_pieces_of_random_bodies_stand_beside_one_another(tmp_path):
    for first, end in ((0, 4), (4, 7), (0, 4)):
        assert derivatives.main([str(first), str(end), "--results", str(tmp_path)]) == 0
    pieces = read_results("derivatives", tmp_path)["pieces"]
    assert [(p["first"], p["end"], p["n_drawn"], p["wrong"]) for p in pieces] == [
        (0, 4, 4, []),
        (4, 7, 3, []),
    ]
    assert 0 < pieces[0]["n_compared"] <= 4
    assert "| **all** |  | 7 |" in (tmp_path / "derivatives.md").read_text()


@pytest.mark.compiler
def test_gradients_are_timed_and_summed(tmp_path):
    gradients.main(["--only", "stencil", "--rounds", "1", "--results", str(tmp_path)])
    (found,) = read_results("gradients", tmp_path)["found"]["stencil"]["ours"]
    assert found["function"] > 0 and found["gradient"] > 0 and found["sums"]["x"] > 0
    assert "| stencil | " in (tmp_path / "gradients.md").read_text()


@pytest.mark.slow
def test_energy_that_nobody_sees_is_stored_by_no_candidate(tmp_path):
    autodiff.main(["--shrink", "20", "--results", str(tmp_path)])
    counts = read_results("autodiff", tmp_path)["counts"]
    assert counts["seen"]["stores"] and not counts["unseen"]["stores"]
    assert counts["unseen"]["tasks"] < counts["seen"]["tasks"]
    assert all(0 < x["fewest"] <= x["first"] for x in counts.values())


@pytest.mark.compiler
@pytest.mark.slow
def test_paper_tables_are_made_quickly_and_kept(tmp_path, in_this_process, monkeypatch):
    few = replace(paper_tables.QUICK, sample=2, descents=10, runs=1, rounds=1, evaluations=2)
    fused = (Job("sscal", {"n": 64}), Job("axpydot", {"n": 64}))
    monkeypatch.setattr(paper_tables, "QUICK", few)
    monkeypatch.setitem(paper_tables.QUICK_WORK, "fusion", fused)
    paper_tables.run(True, paper_tables.TABLES, 1, tmp_path)
    made = read_results("paper_tables", tmp_path)["tables"]
    assert set(made) == set(paper_tables.TABLES)
    tables = {kind: table["rows"] for kind, table in made.items()}
    sscal = tables["fusion"][0]
    assert sscal["size"]["method"] == "exact"
    assert sscal["all_texts"]["is_measured"]
    assert 0 < sscal["all_texts"]["distinct"] <= sscal["size"]["implementations"]["mean"]
    for r in tables["fusion"]:
        low, high = r["rank"]
        assert 1 <= low <= high <= r["measured"]
        assert 0 < r["worst_share"] <= 1
        assert 0 < r["first_share"] <= 1
        assert 0 < r["first_by_bound_share"] <= 1
        assert 0 < r["first_text_s"] <= r["first_built_s"]
    assert [r["status"] for r in tables["telamon"]] == ["ok"]
    assert all(0 <= r["kept"] <= r["nodes"] for r in (*tables["pruning"], *tables["orders"]))
    text = (tmp_path / "paper_tables.md").read_text()
    assert text.count("\n## ") == 5
    endless = {
        kind: table | {"effort": table["effort"] | {"evaluations": None}}
        for kind, table in made.items()
    }
    assert "evaluations" not in paper_text.report(
        {"tables": endless}
    )  # budgets that FULL does not have
    paper_tables.run(True, ["orders"], 2, tmp_path)
    again = read_results("paper_tables", tmp_path)["tables"]
    assert again["fusion"] == made["fusion"]
    assert (made["orders"]["effort"]["seed"], again["orders"]["effort"]["seed"]) == (1, 2)


@pytest.fixture(scope="module")
def small_space():
    return paper_rows.whole_space(Job("axpy", {"n": 64}), 1)[2]


def test_levels_of_a_small_tree_are_those_of_every_order(small_space):
    n, is_all = cpsat.count(small_space.model, small_space.root().domains, 10_000)
    assert is_all
    for _, choose in tree_shape.orders(small_space, 2, 1):
        whole = tree_shape.walk_levels(small_space, choose, np.inf, limit=10_000)
        assert whole.is_whole
        assert whole.n_nodes == whole.n_kept
        # A tree of at least two children a node has fewer inner nodes than leaves.
        assert n <= sum(whole.n_nodes) < 2 * n
        nothing = tree_shape.walk_levels(small_space, choose, 0.0, limit=10_000)
        assert set(nothing.n_kept) == {0}
        assert nothing.n_nodes == whole.n_nodes
        first = tree_shape.walk_levels(small_space, choose, np.inf, depth=1, limit=10_000)
        below = tree_shape.estimate_below(first.kept, choose, np.random.default_rng(1), 2000)
        assert below.low * 0.9 <= n <= below.high * 1.1


def test_shares_of_kept_nodes_are_those_that_are_counted(small_space):
    choose, rng, depth = NextChoice(small_space), np.random.default_rng(1), 3
    cut_ns = 1.5 * Bounder(small_space).ns(small_space.root())
    levels = tree_shape.walk_levels(small_space, choose, cut_ns, depth=depth, limit=10_000)
    drawn = tree_shape.drawn_nodes(small_space, choose, rng, depth=depth, n=2000)
    assert tree_shape.share_kept(drawn, 0.0).mean == 0
    assert tree_shape.share_kept(drawn, np.inf).mean == 1
    some = tree_shape.share_kept(drawn, cut_ns)
    assert some.low * 0.9 <= levels.n_kept[-1] / levels.n_nodes[-1] <= some.high * 1.1
    assert 0 < some.mean < 1


def test_kept_nodes_are_tight_where_an_implementation_is_kept(small_space):
    choose, rng = NextChoice(small_space), np.random.default_rng(1)
    drawn = tree_shape.drawn_nodes(small_space, choose, rng, depth=2, n=100)

    def tight(cut_ns):
        return tree_shape.share_tight(drawn, cut_ns, choose, rng, n=10, most_expansions=1000)

    assert tight(np.inf) == 1
    assert np.isnan(tight(0.0))
    least = tree_shape.raise_bound(small_space.root(), choose, 10_000).bound_ns
    assert not tight(least) > 0


def test_a_level_that_is_too_large_ends_the_walk_above_it(small_space):
    found = tree_shape.walk_levels(small_space, NextChoice(small_space), np.inf, limit=20)
    assert not found.is_whole
    assert max(found.n_nodes) <= 20


def test_the_bound_rises_to_that_of_the_best_leaf(small_space):
    bounder, choose = Bounder(small_space), NextChoice(small_space)
    at_once = tree_shape.raise_bound(small_space.root(), choose, 0)
    settled = tree_shape.raise_bound(small_space.root(), choose, 10_000)
    assert at_once.bound_ns == bounder.ns(small_space.root())
    assert not at_once.is_settled
    assert settled.is_settled
    rng = np.random.default_rng(1)
    leaves = [small_space.root().random_completion(rng) for _ in range(200)]
    assert at_once.bound_ns <= settled.bound_ns <= min(bounder.ns(leaf) for leaf in leaves)


def test_intervals_of_a_few_samples():
    found = paper_rows.student([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.high - found.mean == pytest.approx(4.303 / 3**0.5)


@pytest.mark.compiler
@pytest.mark.slow
def test_run_table_makes_rows_keeps_them_and_survives_a_failing_one(tmp_path, machine):
    options = run_table.RowOptions(rounds=1, calibrate=False, evaluations=2)
    wanted = [Job("axpydot", {"n": 1000}), Job("bicgk", {"nosuch": 1})]
    first = run_table.QUESTION.table(wanted, options, folder=tmp_path)
    assert [r["status"] for r in first] == ["ok", "failed"]
    assert "nosuch" in first[1]["why"]
    assert first[0]["best_ns"] > 0
    assert first[0]["evaluations"] >= 1
    assert len(first[0]["rounds_ns"]) == 1
    kept = run_table.QUESTION.table(wanted[:1], options, folder=tmp_path)
    assert kept[0] == first[0]
    text = (tmp_path / "run_table.md").read_text()
    assert "axpydot 1000" in text
    assert "failed: " in text


def test_the_table_has_two_sizes_of_a_sequence_that_is_no_blas():
    keys = [job.key for job in run_table.all_jobs()]
    assert len(keys) == len(set(keys))
    assert {"heat:m=8192,n=8192", "heat:m=1024,n=1024", "matmul:m=2048,n=2048,k=2048"} <= set(keys)
    assert "heat:m=4096,n=4096" not in keys


@pytest.mark.parametrize(
    ("read", "written", "in_place", "kind"),
    [
        (64, 1, 0, "memory_read"),
        (3, 1, 0, "memory_read3_write_nt"),
        (2, 1, 0, "memory_triad_nt"),
        (1, 1, 0, "memory_copy_nt"),
        (1, 1, 1, "memory_scale"),
        (0, 1, 0, "memory_write_nt"),
    ],
)
def test_the_roofline_has_the_mix_of_the_sequence(read, written, in_place, kind):
    assert run_table.nearest_mix(read, written, in_place) == kind


@pytest.mark.compiler
@pytest.mark.slow
def test_kill_resume_counts_what_is_lost(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(kill_resume, "SESSIONS", 1)
    assert kill_resume.main(["1", "--results", str(tmp_path)]) == 0
    found = read_results("kill_resume", tmp_path)
    assert found["kills"] == len(found["rounds"]) == 1
    assert [found[x] for x in ("lost", "repeated", "blamed", "torn")] == [0, 0, 0, 0]
    assert "| the command | 1 |" in (tmp_path / "kill_resume.md").read_text()
