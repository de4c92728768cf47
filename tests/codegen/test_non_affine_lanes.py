"""Non-affine bodies with dims of their own: nests of two loops, in lanes or not, against the interpreter."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.bodies.c_vectors import CHelpers
from kernelscape.codegen.bodies.lanes_masks import LaneMasks
from kernelscape.codegen.bodies.lanes_operations import LaneOperations
from kernelscape.codegen.bodies.vectors import Prelude
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.kernel import DType
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.starts.complete import first_candidates
from kernelscape.space import choices as ch
from kernelscape.space.backbone import INNER
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking
from kernelscape.testing.checking import Way
from kernelscape.testing.syntax import calls, program_of

pytestmark = [pytest.mark.compiler]
nd: Any = types.ndarray()


@kernel
def escape(c: nd, out: nd):
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            z = c[i, j]
            n = 0.0
            while z < 2.0 and n < 20.0:
                z = z * z + c[i, j]
                n += 1.0
            out[i, j] = n


@kernel
def advect(q: nd, u: nd, new: nd):
    for i in range(q.shape[0]):
        for j in range(q.shape[1]):
            k = int(u[i, j] * 3.0) + j
            new[i, j] = q[i, min(max(k, 0), q.shape[1] - 1)]


@kernel
def sampled(q: nd, u: nd, new: nd):
    for i in range(q.shape[0]):
        for j in range(q.shape[1]):
            k = min(max(int(u[i, j] * 9.0) + j, 0), q.shape[1] - 4)
            new[i, j] = q[i, k] * 0.5 + q[i, k + 1] * 0.25 + q[i, k + 3] * 0.125


@kernel
def in_place(q: nd):
    for i in range(q.shape[0]):
        for j in range(1, q.shape[1]):
            n = 0.0
            while n < 2.0:
                n += 1.0
            q[i, j] = q[i, j - 1] + n


@kernel
def colours(q: nd):
    for i in range(q.shape[0]):
        for j in range(q.shape[1]):
            q[i, j, 0] = ks.sin(i * 0.3) + j
            q[i, j, 1] = ks.sin(j * 0.7)
            q[i, j, 2] = i - j


@kernel
def shrunk(q: nd, new: nd):
    for i in range(q.shape[0]):
        for j in range(q.shape[1]):
            for c in ks.static(range(3)):
                new[i, j, c] = q[int(i * 0.7), int(j * 0.6), c] + q[i, j, c]


def sequence(x, y, z):
    escape(x, y)
    advect(y, x, z)


def problem_of(fn: Any, n_arrays: int, shape: tuple[int, int] = (5, 37)) -> Any:
    rng = np.random.default_rng(1)
    arrays = {n: rng.standard_normal(shape).astype(np.float32) for n in "xyz"[:n_arrays]}
    recording = record_sequence(fn, tuple(arrays.values()), name="one")
    return recording, normalise(recording), arrays


def test_loops_of_a_nest_are_the_tasks_as_far_as_they_are_independent() -> None:
    _, problem, _ = problem_of(sequence, 3)
    assert [[x.name for x in t.loops] for t in problem.tasks] == [["i", "j"], ["i", "j"]]
    _, problem, _ = problem_of(lambda x: in_place(x), 1)
    assert [[x.name for x in t.loops] for t in problem.tasks] == [["i"]]


@pytest.mark.parametrize(("width", "compiler"), [(32, "gcc"), (16, "clang")])
def test_bodies_in_lanes_compute_what_the_interpreter_does(
    width: int, compiler: str, tmp_path: Path
) -> None:
    compiler = compiler if shutil.which(compiler) else "gcc"
    recording, problem, arrays = problem_of(sequence, 3)
    inputs = checking.make_inputs(recording, problem, arrays, {})
    space = build_space(problem, checking.target(2, width))
    root = space.root()
    assert isinstance(root, Candidate)
    rng = np.random.default_rng(2)
    candidates = []
    for kinds in ((ch.VECTOR, ch.VECTOR), (ch.VECTOR, ch.ABSENT), (ch.ABSENT, ch.ABSENT)):
        made: Any = root
        for t, kind in enumerate(kinds):
            made = made.decide(space.variables.kind[space.backbone.dim(t, "j", INNER)], 1 << kind)
            assert isinstance(made, Candidate)
        candidates.append(checking.random_candidate(made, rng))
    sources = [checking.source_of(c) for c in candidates if isinstance(c, Candidate)]
    assert len(sources) == len(candidates)
    asked = [bool(calls(program_of(c), "lane_first")) for c in candidates]
    assert asked == [True, True, False]  # which lanes are left
    flags = ("-Wno-unused-function",)
    given = (sources, inputs, tmp_path)
    assert not checking.fault(*given, compiler=compiler, more_flags=flags, may_warn=True)


@pytest.mark.parametrize(("extent", "asks"), [(32, False), (37, True)])
def test_only_tiles_that_may_be_cut_ask_which_lanes_are_left(extent: int, asks: bool) -> None:
    _, problem, _ = problem_of(lambda x, y: escape(x, y), 2, (5, extent))
    space = build_space(problem, checking.target(2, 32))
    made: Any = space.root()
    kind = space.variables.kind[space.backbone.dim(0, "j", INNER)]
    made = checking.random_candidate(made.decide(kind, 1 << ch.VECTOR), np.random.default_rng(2))
    assert isinstance(made, Candidate)
    program = program_of(made)
    assert calls(program, "load_")  # whole tiles, without a mask
    assert bool(calls(program, "lane_load_")) == bool(calls(program, "lane_store_")) == asks


@pytest.mark.parametrize("width", [32, 16])
def test_elements_near_one_another_are_gathered_either_way(width: int, tmp_path: Path) -> None:
    recording, problem, arrays = problem_of(lambda x, y, z: sampled(x, y, z), 3)
    inputs = checking.make_inputs(recording, problem, arrays, {})
    space = build_space(problem, checking.target(2, width))
    root: Any = space.root()
    (var,) = space.variables.of_tasks["gathers"].values()
    inner = space.variables.kind[space.backbone.dim(0, "j", INNER)]
    alone = root.decide(inner, 1 << ch.ABSENT)
    assert alone.value(var) == ch.ONE_BY_ONE  # iterations one at a time gather nothing
    rng = np.random.default_rng(3)
    vectors = root.decide(inner, 1 << ch.VECTOR)
    made = [vectors.decide(var, 1 << x) for x in (ch.ONE_BY_ONE, ch.TRANSPOSED)]
    candidates = [checking.random_candidate(c, rng) for c in made]
    transposed = [bool(calls(program_of(c), "lane_row4")) for c in candidates]
    assert transposed == [False, True]
    sources = [checking.source_of(c) for c in candidates]
    assert not checking.fault(sources, inputs, tmp_path, may_warn=True)


def test_colours_of_a_pixel_are_stored_by_one_body(tmp_path: Path) -> None:
    arrays = {n: np.zeros((5, 37, 3), np.float32) for n in "xy"}

    def both(x: Any, y: Any) -> None:
        colours(x)
        shrunk(x, y)

    recording = record_sequence(both, tuple(arrays.values()), name="one")
    problem = normalise(recording)
    assert [t.name for t in problem.tasks] == ["colours0", "shrunk0"]
    space = build_space(problem, checking.target(2, 32))
    assert set(space.variables.of_tasks["gathers"]) == {1}
    rng = np.random.default_rng(4)
    candidates = []
    for kind, how in ((ch.VECTOR, ch.ONE_BY_ONE), (ch.VECTOR, ch.TRANSPOSED), (ch.ABSENT, 0)):
        made: Any = space.root()
        for t in range(2):
            made = made.decide(space.variables.kind[space.backbone.dim(t, "j", INNER)], 1 << kind)
        made = made.decide(space.variables.of_tasks["gathers"][1], 1 << how)
        candidates.append(checking.random_candidate(made, rng))
    programs = [program_of(c) for c in candidates]
    assert [bool(calls(p, "lane_row")) for p in programs] == [False, True, False]
    assert [bool(calls(p, "sin_f")) for p in programs] == [True, True, False]
    inputs = checking.make_inputs(recording, problem, arrays, {})
    sources = [checking.source_of(c) for c in candidates]
    for built in checking.build_all(sources, tmp_path, "one"):
        assert built.library is not None, built.log
        assert checking.check(built, inputs, Way(repeats=2 * len(inputs))) == ""
    found = [
        c
        for tag, c in first_candidates(space, cpsat_seconds=0.5)
        if "in lanes" in tag and c.value(space.variables.of_tasks["gathers"][1]) == ch.TRANSPOSED
    ]
    assert found  # although nothing lies side by side


def test_values_of_two_registers_are_no_vectors() -> None:
    """Another loop of the text may have vectors of as many elements, and a compiler that halves them itself."""
    prelude = Prelude(CHelpers())
    masks = LaneMasks(prelude, 8, 32, ulp=4.0)
    lanes = LaneOperations(masks)
    wide = {prelude.vector_type(DType.i64, 8), prelude.use("convert", DType.f32, 8, DType.i64)}
    wide |= {prelude.use("splat", DType.i64, 8), prelude.use("convert", DType.i64, 8, DType.i32)}
    names = {masks.type(DType.i64), lanes.convert(DType.f32, DType.i64), lanes.splat(DType.i64)}
    names |= {lanes.convert(DType.i64, DType.i32)}
    assert not names & wide
    assert len(names) == len(wide) == 4
