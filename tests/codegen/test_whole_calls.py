"""Calls that are not split into tasks: one implementation beside the tree of a search, with the results of any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.by_component import EvaluatedSources
from kernelscape.codegen.describe import describe
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.plan.nest_plan import has_team
from kernelscape.codegen.starts import count_starts
from kernelscape.kernels.frontend.functions import exp
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.cpu.dialect import C_TEAM
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.learn.neighbourhood import Neighbourhood
from kernelscape.search.learn.surrogate import KernelRidge
from kernelscape.search.starts.complete import sketched_candidates
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, Space
from kernelscape.space.decisions import DecisionError, fix, restore, to_names
from kernelscape.testing import checking
from kernelscape.testing.cases import Case
from kernelscape.testing.corpus import Drawn, corpus, machine, wrong
from kernelscape.testing.generator.features import MIXED, OPEN, SMALL_BODIES
from kernelscape.testing.syntax import program_of

nd: Any = types.ndarray()
NAME = "splitting(calls)"


@kernel
def weighted_means(x: nd, y: nd) -> None:
    """Two sums over one window, as of a bilateral filter."""
    for i in range(2, x.shape[0] - 2):
        for j in range(2, x.shape[1] - 2):
            total = 0.0
            weights = 0.0
            for a in range(5):
                for b in range(5):
                    d = x[i + a - 2, j + b - 2] - x[i, j]
                    w = exp(-d * d)
                    total += w * x[i + a - 2, j + b - 2]
                    weights += w
            y[i, j] = total / weights


@kernel
def add_scaled(x: nd, y: nd, by: float) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] += by * x[i, j]


@kernel
def march(x: nd, y: nd, step: int) -> None:
    for i in range(1, x.shape[0]):
        for j in range(x.shape[1]):
            x[i, j] = 0.5 * x[i - 1, j] + y[i, (i + step) % x.shape[1]]
            y[i, j] = 0.25 * x[i, j]


def smoothed(x: Any, y: Any, z: Any) -> None:
    weighted_means(x, y)
    add_scaled(x, y, 0.5)
    weighted_means(y, z)


def stepping(x: Any, y: Any) -> None:
    for step in range(6):
        weighted_means(x, y)
        add_scaled(y, x, 0.01 * step)


def marching(x: Any, y: Any) -> None:
    add_scaled(x, y, 0.5)
    for step in range(40):
        march(x, y, step)


def with_a_temporary(x: Any, y: Any) -> None:
    between = ks.ndarray(np.float32, x.shape)
    add_scaled(x, between, 0.5)
    weighted_means(between, y)


def scaled_alone(x: Any, y: Any) -> None:
    add_scaled(x, y, 2.0)


def case(sequence: Any, n_arrays: int) -> Case:
    rng = np.random.default_rng(1)
    args = [rng.uniform(-1, 1, (16, 17)).astype(np.float32) for _ in range(n_arrays)]
    recording = record_sequence(sequence, tuple(args), name=sequence.__name__)
    given = dict(zip((p.name for p in recording.arrays), args, strict=True))
    return Case(sequence.__name__, recording, normalise(recording), given, {})


def space_of(example: Case) -> Space:
    return build_space(example.problem, checking.target(2, 32))


def whole(space: Space) -> Candidate:
    """The implementation whose calls are not split."""
    (_, default), *_ = sketched_candidates(space)
    (made,) = space.apart(default)
    return made


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("sequence", "n"), [(smoothed, 3), (stepping, 2), (marching, 2), (with_a_temporary, 2)]
)
def test_it_computes_what_the_interpreter_does(sequence: Any, n: int, tmp_path: Path) -> None:
    example = case(sequence, n)
    inputs = checking.make_inputs(example.recording, example.problem, example.arrays, {})
    assert inputs
    candidate = whole(space_of(example))
    (built,) = checking.build_all([checking.source_of(candidate)], tmp_path, "whole")
    assert built.library is not None and not built.log, built.log
    ways = (checking.Way(), checking.Way(repeats=2, thread_limit=1))
    assert not checking.check(built, inputs, *ways)


@kernel
def running_maximum(x: nd, y: nd) -> None:
    """Iterations that take so long that a team would share them, and need the one before."""
    for i in range(1, x.shape[0]):
        total = 0.0
        for j in range(x.shape[1]):
            total += exp(x[i, j])
        y[i, 0] = max(y[i - 1, 0], total)


@kernel
def histogram(x: nd, y: nd) -> None:
    for i in range(x.shape[0]):
        total = 0.0
        for j in range(x.shape[1]):
            total += exp(x[i, j])
        y[i % 3, 0] += total
        y[i % 3, 1] += 1.0


@kernel
def neighbour_sums(x: nd, y: nd) -> None:
    """Updates of what other iterations read."""
    for i in range(1, x.shape[0]):
        total = 0.0
        for j in range(x.shape[1]):
            total += exp(x[i, j])
        y[i, 0] += total * y[i - 1, 0]


@pytest.mark.parametrize(
    ("call", "is_shared"),
    [(running_maximum, False), (neighbour_sums, False), (histogram, True), (weighted_means, True)],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_iterations_that_need_an_order_have_it(call: Any, is_shared: bool) -> None:
    """Kind: a rule of standalone calls, whose outermost loop is parallel by definition, in a sequence."""

    def sequence(x: Any, y: Any) -> None:
        call(x, y)
        add_scaled(x, y, 0.5)

    shape = np.zeros((512, 512), np.float32)
    problem = normalise(record_sequence(sequence, (shape, shape.copy())))
    space = build_space(problem, machine(0))
    (first, *_) = (c for _, c in sketched_candidates(space))
    (made,) = space.apart(first)
    plan = plan_of(made)
    assert any(map(has_team, plan.tasks[0].steps)) is is_shared


@pytest.mark.compiler
@pytest.mark.parametrize("features", [SMALL_BODIES, OPEN, MIXED], ids=lambda f: f.name)
def test_random_programs_compute_what_the_interpreter_does(features: Any, tmp_path: Path) -> None:
    some = []
    for d in corpus(features, range(400, 440), 1):
        space = build_space(d.program.problem, machine(d.program.number))
        some += [Drawn(d.program, x, d.inputs) for x in space.apart(d.candidate)]
    assert len(some) > 10
    found = wrong(some, tmp_path / "c", ("-fopenmp-simd", "-O0", "-w"))
    assert not found, found[0]


def test_steps_of_a_loop_around_calls_are_a_loop_of_its_text() -> None:
    program = program_of(whole(space_of(case(marching, 2))))
    assert [(r.first, r.stop, r.count) for r in program.repeats] == [(1, 2, 40)]
    assert len(program.calls) == 2


def test_a_search_has_it_beside_its_tree() -> None:
    """Its decisions name it, its bound says nothing, and what is drawn near it is of the tree."""
    space = space_of(case(smoothed, 3))
    root, made = space.root(), whole(space)
    assert isinstance(root, Candidate)
    assert not root.is_apart and made.is_apart and made.is_complete
    assert dict(to_names(made))[NAME] == "WHOLE"
    assert NAME not in dict(to_names(root.random_completion(np.random.default_rng(1))))
    again = restore(space, to_names(made))
    assert isinstance(again, Candidate) and again.key == made.key
    bounder = Bounder(space)
    assert bounder.ns(made) == 0 < bounder.ns(root)
    near = Neighbourhood(space)(made, np.random.default_rng(2))
    assert not isinstance(near, Candidate) or not near.is_apart
    surrogate = KernelRidge(space)
    for _ in range(200):
        surrogate.learn(made, 1.0)
    surrogate.recall(root, to_names(made), 1.0)
    assert not surrogate.is_ready


def test_its_text_has_a_function_for_each_call() -> None:
    """Also where candidates of the tree have a text for each component."""
    example = case(stepping, 2)
    made = whole(space_of(example))
    source = EvaluatedSources(C_TEAM).source(made)
    assert source.key == checking.source_of(made).key and not source.units
    called = program_of(made).calls
    assert len(called) == 12 and len(set(called)) == 7  # equal calls share one
    words = describe(made)
    assert words["launches"][0] == "calls are as the program makes them, none split into tasks"
    assert any("threads" in x for x in words["threads"])
    assert count_starts(made).n_launches == 12


def test_a_user_may_fix_it_or_leave_it_out() -> None:
    space = space_of(case(smoothed, 3))
    (_, only), *_ = sketched_candidates(fix(space, [("splitting", "WHOLE")]))
    assert only.is_apart
    (_, split), *_ = sketched_candidates(fix(space, [("splitting", "SPLIT")]))
    assert split.space.apart(split) == []


def test_calls_that_are_tasks_have_no_such_choice() -> None:
    with pytest.raises(DecisionError, match="no choice 'splitting'"):
        fix(space_of(case(scaled_alone, 2)), [("splitting", "WHOLE")])
