"""Sums that share the loop of the maximum in their terms: online softmax, positions of maxima, and all with the same algebra."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np
import pytest
from kernelscape.codegen.describe import describe
from kernelscape.codegen.loops.ir import RescaleSums, loops_in, phases_of
from kernelscape.codegen.passes.pipeline import launches_of, verifying
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.analysis import rescaling as analysis
from kernelscape.kernels.analysis.rescaling import Rescaling
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.kernel import Binary
from kernelscape.kernels.ir.walk import loads
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.sketches import Fusion, Sketch, TileSizes
from kernelscape.space.backbone import build_backbone
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking
from kernelscape.testing.checking import Way
from kernelscape.testing.corrections import is_about_mean, is_correctable, restores
from kernelscape.testing.legality import illegal

from .rescaling_cases import (
    CASES,
    in_one_pass,
    in_order,
    means_that_wait,
    recorded,
    terms_that_wait,
    weights_that_cancel,
)


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("name", "m", "n", "cores"),
    [
        ("softmax", 5, 37, 2),
        ("masked", 3, 67, 1),
        ("double", 7, 20, 2),
        ("least", 4, 11, 2),
        ("variance", 6, 43, 2),
        ("weighted", 5, 39, 2),
        ("infinite", 5, 65, 2),
        ("attention", 21, 9, 2),
        ("position", 5, 41, 2),
        ("integers", 4, 33, 1),
        ("labels", 9, 21, 2),
        ("greatest", 6, 29, 2),
    ],
)
def test_sums_are_corrected_whenever_results_in_their_terms_change(tmp_path, name, m, n, cores):
    """At any tile sizes, with register tiles that ends of loops cut; where the first tiles have no finite value, or no weight."""
    recording, arrays = recorded(name, m, n)
    problem = normalise(recording)
    inputs = checking.make_inputs(recording, problem, arrays, {})
    root = in_one_pass(build_space(problem, checking.target(cores, 32)).root())
    rng = np.random.default_rng(n)
    drawn = [checking.random_candidate(root, rng) for _ in range(4)]
    candidates = [c for c in drawn if isinstance(c, Candidate)]
    assert len(candidates) >= 3
    with verifying():
        for c in candidates:
            nodes = [x for launch in launches_of(plan_of(c), c.space.target) for x in launch.nodes]
            phases = [p for node in nodes for p in phases_of(node)]
            assert sum(isinstance(p, RescaleSums) for p in phases) == len(CASES[name][2])
    assert [illegal(c, max(cores, 2)) for c in candidates] == [""] * len(candidates)
    sources = [checking.crowded_source_of(c) for c in candidates]
    assert not checking.fault(sources, inputs, tmp_path, Way(), Way(repeats=2, thread_limit=1))


@pytest.mark.parametrize("name", CASES)
def test_which_sums_may_be_rescaled(name):
    problem = normalise(recorded(name, 6, 8)[0])
    found = [problem.tasks[r.task] for r in build_backbone(problem).rescaled]
    assert [t.name.rpartition(".")[2] for t in found] == CASES[name][2]


@pytest.mark.parametrize("rescaled", [False, True])
def test_a_style_corrects_sums_or_waits(rescaled):
    problem = normalise(recorded("masked", 64, 1000)[0])
    space = build_space(problem, checking.target(2, 32))
    tile = TileSizes(1, 2, panel=256)
    made = complete_sketch(space.root(), Sketch(fusion=Fusion(rescaled=rescaled), tile=tile))
    shared = [n for x in launches_of(plan_of(made), space.target) for n in loops_in(x.nodes)]
    names = [sorted({m.task for m in n.members}) for n in shared if n.members[0].loop == "j"]
    assert names == ([[0, 1], [0], [1]] if rescaled else [[0], [0], [1], [1]])
    told = "y is summed in the loop of a result in its terms, and rescaled when that changes"
    assert any(told in x for x in describe(made)["reductions"]) == rescaled


@pytest.mark.parametrize("name", CASES)
def test_a_judge_runs_the_corrections_and_sees_faults_in_them(name):
    """Numbers are infinite, far apart and 0 among others, so that sums without weight and maxima that stay infinite occur."""
    problem = normalise(recorded(name, 5, 6)[0])
    for made in build_backbone(problem).rescaled:
        assert restores(made, problem.tasks, {}, 300)
        planted = list(_faults_in(made.action, name))
        assert planted
        for action in planted:
            assert not restores(replace(made, action=action), problem.tasks, {}, 300), action


def _faults_in(action: Rescaling, name: str) -> Iterator[Rescaling]:
    """Corrections with a part left out, or with a part of the condition for sums that are lost."""
    if action.factor is not None:
        yield replace(action, factor=None)
    if action.added is not None:
        yield replace(action, added=None)
    if action.is_lost is None:
        return
    if action.added is None and name not in ("least", "attention"):  # these begin at a number
        yield replace(action, is_lost=None)
    if (
        isinstance(action.is_lost, Binary) and name == "infinite"
    ):  # elsewhere later terms are no numbers, either
        yield replace(action, is_lost=action.is_lost.b)  # also while the maximum stays at infinity


@pytest.mark.parametrize(("tested", "n_results"), [("terms", 13), ("means", 5), ("weights", 1)])
def test_a_judge_refuses_sums_that_nothing_corrects(tested, n_results):
    called = {"terms": terms_that_wait, "means": means_that_wait, "weights": weights_that_cancel}
    args = [np.zeros(shape, np.float32) for shape in ((4, 9), (4, 9), (n_results, 4))]
    tasks = normalise(record_sequence(partial(_called, called[tested]), args, "terms")).tasks
    sums = [t for t in tasks if t.is_reduction]
    for first, second in combinations(sums, 2):
        if first.target.array in {x.array for x in loads(second.value)}:
            # Exponentials of other values, and others of these: only their range is too small.
            is_exponential = tested == "terms" and second.target.axes[0].const in (0, 1, 2, 5, 7)
            assert is_exponential or not is_correctable(first, second, {}, 300)
            assert not is_about_mean([first], second, {})
            assert not any(is_about_mean([first, x], second, {}) for x in sums)


def test_a_judge_sees_that_weights_cancel(monkeypatch):
    """The fault that was found once: a mean of weights whose sum so far is 0 beside terms that count."""
    monkeypatch.setattr(analysis, "_is_never_negative", lambda _: True)
    args = [np.zeros(shape, np.float32) for shape in ((4, 9), (4, 9), (1, 4))]
    problem = normalise(record_sequence(partial(_called, weights_that_cancel), args, "terms"))
    (made,) = build_backbone(problem).rescaled
    assert not restores(made, problem.tasks, {}, 300)


def _called(tested, *arrays):
    tested(*arrays)


def test_terms_without_a_correction_wait():
    """The kind of fault: the form of a term looks as if its maximum, or its mean, could still change."""
    for tested, n_sums, n_results in (
        (terms_that_wait, 14, 13),
        (means_that_wait, 8, 5),
        (weights_that_cancel, 3, 1),
    ):
        args = [np.zeros(shape, np.float32) for shape in ((4, 9), (4, 9), (n_results, 4))]
        problem = normalise(record_sequence(partial(_called, tested), args, "terms"))
        assert sum(task.is_reduction for task in problem.tasks) == n_sums
        assert build_backbone(problem).rescaled == ()


def test_sums_in_order_wait():
    """A corrected sum is rounded in another way, which fast_math=False forbids; a position is not."""
    args = [np.zeros(shape, np.float32) for shape in ((4, 9), (2, 4))]
    problem = normalise(record_sequence(lambda *a: in_order(*a), args, "in_order"))
    found = [problem.tasks[r.task] for r in build_backbone(problem).rescaled]
    assert [t.op for t in found] == ["min"]
