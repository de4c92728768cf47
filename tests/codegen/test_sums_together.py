"""Sums of several tasks in one loop, of which some need the results of others to be finished: gesummv as one would write it."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.codegen.loops.ir import loops_in
from kernelscape.codegen.passes.pipeline import launches_of
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.frontend.recorder import ndarray, record_sequence
from kernelscape.kernels.library.atax import gemv
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.sketches import Fusion, Sketch, TileSizes
from kernelscape.space.backbone import build_backbone
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.decisions import to_names
from kernelscape.testing import checking
from kernelscape.testing.checking import Way
from kernelscape.testing.legality import illegal

from .sums_cases import F32, gemv_more, gemv_over_first, recorded, together


def waiting(problem):
    """The pairs of loops of sums that may be one, though one task waits for the other."""
    return [
        (problem.tasks[m.a].name, m.loop_a, problem.tasks[m.b].name, m.loop_b)
        for m in build_backbone(problem).merges
        if m.before_finish
    ]


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("name", "m", "n", "cores"),
    [
        ("gesummv", 33, 17, 2),
        ("gesummv", 5, 130, 3),
        ("three_rows", 37, 29, 2),
        ("two_products", 11, 13, 2),
        ("two_totals", 1, 101, 2),
    ],
)
def test_sums_in_one_loop_are_finished_in_order(tmp_path, name, m, n, cores):
    """At any tile sizes, with register tiles that the end of a loop cuts, and teams that are smaller than planned."""
    recording, arrays, scalars = recorded(name, m, n)
    problem = normalise(recording)
    inputs = checking.make_inputs(recording, problem, arrays, scalars)
    root = together(build_space(problem, checking.target(cores, 32)).root())
    rng = np.random.default_rng(n)
    drawn = [checking.random_candidate(root, rng) for _ in range(5)]
    candidates = [c for c in drawn if isinstance(c, Candidate)]
    assert len(candidates) >= 4
    sources = [checking.crowded_source_of(c) for c in candidates]
    assert [illegal(c, max(cores, 2)) for c in candidates] == [""] * len(candidates)
    flags, ways = checking.PLAINLY if cores == 2 else (), (Way(), Way(repeats=2, thread_limit=1))
    assert not checking.fault(sources, inputs, tmp_path, *ways, more_flags=flags)


def test_which_sums_may_be_in_one_loop():
    def pairs(name):
        return waiting(normalise(recorded(name, 6, 8)[0]))

    assert pairs("gesummv") == [("scaled_gemv0", "j", "add_scaled_gemv0", "j")]
    assert len(pairs("three_rows")) == 3
    assert pairs("two_products") == [("product_more0", "k", "product_more1", "k")]
    # Each term of the second needs the whole sum of the first; without a dependence there is nothing to wait for.
    assert pairs("atax") == pairs("bicgk") == []


def test_not_where_the_second_overwrites_what_the_first_reads():
    """It would finish a row, and the first has yet to read its element for the next."""

    def in_place(a, x, y, s):
        gemv(a, x, s)
        gemv_more(a, y, s, s, x)

    rng = np.random.default_rng(0)
    args = [rng.uniform(-1, 1, shape).astype(F32) for shape in ((6, 6), 6, 6, 6)]
    assert waiting(normalise(record_sequence(in_place, args, "in_place"))) == []


def test_not_where_one_result_waits_for_another_one():
    """Every result of the second needs the first's of row 0."""

    def scaled(a, x, y):
        s = ndarray(F32, y.shape, name="s")
        gemv(a, x, s)
        gemv_over_first(a, x, s, y)

    rng = np.random.default_rng(0)
    args = [rng.uniform(-1, 1, shape).astype(F32) for shape in ((6, 6), 6, 6)]
    assert waiting(normalise(record_sequence(scaled, args, "scaled"))) == []


@pytest.mark.parametrize("together", [False, True])
def test_a_style_has_one_loop_or_two(together):
    problem = normalise(recorded("gesummv", 64, 64)[0])
    space = build_space(problem, checking.target(2, 32))
    candidate = complete_sketch(
        space.root(), Sketch(fusion=Fusion(sums=together), tile=TileSizes(rows=2))
    )
    plan = plan_of(candidate)
    loops = [n for x in launches_of(plan, space.target) for n in loops_in(x.nodes)]
    assert len([n for n in loops if n.members[0].loop == "j"]) == 2 - together
    # The first sums stay in registers either way.
    assert [t.task.target.array for t in plan.tasks if not t.is_stored] == ["t"]


def test_where_no_loop_would_be_left_to_threads_sums_stay_apart():
    problem = normalise(recorded("two_totals", 1, 1000)[0])
    space = build_space(problem, checking.target(2, 32))
    candidate = complete_sketch(
        space.root(), Sketch(fusion=Fusion(sums=True), tile=TileSizes(rows=2))
    )
    assert dict(to_names(candidate))["dim_kind(dot0.i.outer)"] == "PARALLEL"
