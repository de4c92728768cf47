"""Loops over triangles: what they compute in random candidates, what they leave out, and that they are open."""

from __future__ import annotations

import shutil
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernelscape.codegen.loops.ir import loops_in
from kernelscape.codegen.passes.pipeline import launches_of, verifying
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text import csyntax as c
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.non_affine import non_affine_tasks
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.cpu.compiler import FEWER_PASSES
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.proposals import default_sketch, sketches
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking
from kernelscape.testing.legality import illegal
from kernelscape.testing.syntax import nodes, program_of

CANDIDATES = 3  # drawn at random
SKETCHES = 3  # of the most promising
pytestmark = [pytest.mark.compiler]
nd: Any = types.ndarray()


@kernel
def lower_product(x: nd, y: nd):
    for i in range(x.shape[0]):
        for j in range(i + 1):
            acc = 0.0
            for k in range(y.shape[1]):
                acc += y[i, k] * y[j, k]
            x[i, j] = 0.5 * x[i, j] + acc


def rank_k(x, y, z):
    lower_product(x, y)


@kernel
def upper_product(x: nd, y: nd):
    for j in range(y.shape[1]):
        for i in range(y.shape[0]):
            acc = y[i, j]
            for k in range(i + 1, y.shape[0]):
                acc += x[k, i] * y[k, j]
            y[i, j] = 0.25 * acc


def triangle_by_square(x, y, z):
    upper_product(x, y)


@kernel
def products(x: nd, y: nd):
    for i in range(y.shape[0]):
        for j in range(i, y.shape[0]):
            acc = 0.0
            for k in range(x.shape[0]):
                acc += x[k, i] * x[k, j]
            y[i, j] = acc


@kernel
def mirror(y: nd):
    for i in range(y.shape[0]):
        for j in range(i + 1, y.shape[0]):
            y[j, i] = y[i, j]


def mirrored(x, y, z):
    products(x, y)
    mirror(y)


@kernel
def band(x: nd, y: nd, z: nd):
    for i in range(x.shape[0]):
        for j in range(2 * i + 1):
            if j < x.shape[1]:
                z[i, j] = x[i, j] + y[i, j]
    for i in range(x.shape[0]):
        for j in range(x.shape[1] - i):
            z[i, j] += 2.0 * x[i, j]


def bands(x, y, z):
    band(x, y, z)


@kernel
def sums(x: nd, y: nd, z: nd):
    for i in range(x.shape[0]):
        acc = 0.0
        for j in range(i, x.shape[1]):
            for k in range(j):
                acc += x[i, k] * y[j, k]
        z[i, 0] = acc


def sums_of_triangles(x, y, z):
    sums(x, y, z)


@kernel
def tails(x: nd, z: nd):
    for i in range(x.shape[0]):
        acc = 0.0
        for j in range(i + 1, x.shape[1]):
            acc += x[i, j]
        z[i, 0] = 2.0 * acc


def sums_of_tails(x, y, z):
    """The last one is of nothing."""
    tails(x, z)


@kernel
def shorter(x: nd, k: int):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            x[i, j] = min(x[i, j], x[i, k] + x[k, j])


def shortest_paths(x, y, z):
    """Rows and columns before and behind that of the step, each apart: two constraints, of two loops."""
    for k in range(x.shape[0]):
        shorter(x, k)


SEQUENCES = (rank_k, triangle_by_square, mirrored, bands, sums_of_triangles, sums_of_tails)


@pytest.fixture(scope="module")
def folder():
    made = Path(tempfile.mkdtemp(prefix="triangles-"))
    yield made
    shutil.rmtree(made)


def opened(sequence: Any, n: int, dtype: Any, width: int) -> Any:
    """A sequence on square arrays: its recording, arrays, problem and the root of its space."""
    rng = np.random.default_rng(n)
    arrays = {name: rng.standard_normal((n, n)).astype(dtype) for name in "xyz"}
    recording = record_sequence(sequence, tuple(arrays.values()), name="triangles")
    problem = normalise(recording)
    root = build_space(problem, checking.target(2, width)).root()
    assert isinstance(root, Candidate)
    return recording, arrays, problem, root


def drawn(root: Candidate, seed: int, n: int = CANDIDATES) -> list[Candidate]:
    rng = np.random.default_rng(seed)
    found = (checking.random_candidate(root, rng) for _ in range(n))
    return [c for c in found if isinstance(c, Candidate)]


@pytest.mark.parametrize("sequence", SEQUENCES, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("n", "dtype", "width", "compiler"),
    [(37, np.float32, 32, "gcc"), (21, np.float64, 16, "gcc")],
    ids=["f32", "f64"],
)
def test_triangles_compute_what_the_interpreter_does(
    sequence: Any, n: int, dtype: Any, width: int, compiler: str, folder: Path
) -> None:
    recording, arrays, problem, root = opened(sequence, n, dtype, width)
    assert not non_affine_tasks(problem), str(non_affine_tasks(problem))
    inputs = checking.make_inputs(recording, problem, arrays, {})
    assert inputs
    default = complete_sketch(root, default_sketch(root.space))
    assert default is not None
    shown = (complete_sketch(root, x) for x in islice(sketches(root.space), SKETCHES))
    candidates = [default, *(c for c in shown if c is not None), *drawn(root, 5)]
    sources = [checking.source_of(c) for c in candidates]
    flags = FEWER_PASSES if compiler == "gcc" else ()
    flags = (*flags, *checking.PLAINLY) if dtype is np.float32 else flags
    stem = f"{sequence.__name__}_{width}"
    assert not checking.fault(
        sources, inputs, folder, stem=stem, compiler=compiler, more_flags=flags
    )


@pytest.mark.parametrize("sequence", SEQUENCES, ids=lambda f: f.__name__)
def test_a_judge_finds_nothing_in_candidates_of_triangles(sequence: Any) -> None:
    _, _, _, root = opened(sequence, 6, np.float32, 16)
    candidates = drawn(root, 3)
    assert candidates
    with verifying():
        for candidate in candidates:
            launches_of(plan_of(candidate), candidate.space.target)
    assert [illegal(c) for c in candidates] == [""] * len(candidates)


def test_a_sum_of_no_terms_is_a_result() -> None:
    """Results are in a loop that holds all of their terms: none of its iterations is left out, in whatever tiles."""
    _, _, problem, root = opened(sums_of_tails, 37, np.float32, 32)
    (task,) = problem.tasks
    terms = next(loop.name for loop in task.loops if loop.is_reduction)
    n_tiles = 0
    for candidate in drawn(root, 3, 40):
        (launch,) = launches_of(plan_of(candidate), root.space.target)
        parts = [x for x in loops_in(launch.nodes) if x.members[0].loop == terms]
        in_parts = {id(x) for part in parts for x in loops_in(part.children)}
        for loop in loops_in(launch.nodes):
            if loop.members[0].loop != terms and id(loop) not in in_parts:
                n_tiles += loop.level > 0
                assert loop.within is None
    assert n_tiles


def test_tiles_wholly_outside_are_left_out() -> None:
    _, _, _, root = opened(rank_k, 37, np.float32, 32)
    with verifying():
        found = {}
        for sketch in islice(sketches(root.space), SKETCHES):
            candidate = complete_sketch(root, sketch)
            assert candidate is not None
            (launch,) = launches_of(plan_of(candidate), root.space.target)
            for loop in loops_in(launch.nodes):
                found[loop.members[0].loop] = found.get(loop.members[0].loop) or loop.within
    assert found["j"] is not None
    assert found["k"] is None  # every term of a sum that is wanted is


def test_constraints_of_several_loops_are_decided_one_by_one(folder: Path) -> None:
    """The kind of fault: no loop decides all constraints alone, so each vector is tested and blended."""
    recording, arrays, problem, root = opened(shortest_paths, 27, np.float32, 16)
    assert not non_affine_tasks(problem)
    sources = [checking.source_of(c) for c in drawn(root, 5, 1)]
    inputs = checking.make_inputs(recording, problem, arrays, {})[:2]
    flags = checking.PLAINLY
    assert not checking.fault(sources, inputs, folder, stem="shortest", more_flags=flags)
    _, _, _, root = opened(shortest_paths, 64, np.float32, 32)
    default = complete_sketch(root, default_sketch(root.space))
    assert default is not None
    main = next(f for f in program_of(default).functions if f.name == "launch_0")
    loops = [x for x in nodes(main.body) if isinstance(x, c.For)]
    innermost = [x for x in loops if sum(isinstance(y, c.For) for y in nodes(x.body)) == 0]
    called = [
        {y.function.rsplit("_", 1)[0] for y in nodes(x.body) if isinstance(y, c.Call)}
        for x in innermost
    ]
    assert any({"min", "store"} <= names and "select" not in names for names in called)
    assert any("select" in names for names in called)  # at the edge
