"""Arithmetic on integers of 8 and 16 bits: structured, in vectors, and NumPy's to the last bit.

The kind: what people do with pixels is left to one closed task that knows no vectors, since it is not of 4 or 8 bytes.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.kernel import DType
from kernelscape.kernels.ir.task import Problem
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.bound.bounder import Bounder
from kernelscape.space import choices as ch
from kernelscape.space.backbone import INNER, OUTER
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking
from kernelscape.testing.calling import InputSet
from kernelscape.testing.checking import Way
from kernelscape.testing.legality import illegal
from kernelscape.testing.machines import round_target
from kernelscape.testing.syntax import calls, program_of

from . import pixel_cases

nd: Any = ks.types.ndarray()
WIDTHS = (16, 32, 64)  # SSE, AVX2, AVX-512


def loads_of(candidate: Candidate, dtype: DType) -> list[Any]:
    """The loads of vectors of small integers."""
    return calls(program_of(candidate), f"load_{dtype.name}x")


def in_vectors(problem: Problem, width: int, rng: Any) -> Candidate:
    """A random candidate of which each task is in vectors, where it can be."""
    space = build_space(problem, checking.target(2, width))
    made: Any = space.root()
    for t, task in enumerate(problem.tasks):
        kind = space.variables.kind[space.backbone.dim(t, task.loops[-1].name, INNER)]
        further = made.decide(kind, 1 << ch.VECTOR)
        made = further if isinstance(further, Candidate) else made
    found = checking.random_candidate(made, rng)
    assert isinstance(found, Candidate)
    return found


@pytest.mark.parametrize("dtype", pixel_cases.TYPES)
@pytest.mark.parametrize("name", pixel_cases.PROGRAMS)
def test_programs_on_pixels_are_structured(name: str, dtype: Any) -> None:
    problem = pixel_cases.recorded(name, dtype)[0]
    assert [t.body.reason.text for t in problem.tasks if t.body is not None] == []


@pytest.mark.compiler
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("dtype", pixel_cases.TYPES)
def test_vectors_of_pixels_compute_what_numpy_does(
    dtype: Any, compiler: str, tmp_path: Path
) -> None:
    """All edge values; one width of vectors a program, so that each pair of type and compiler meets every width."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    rng = np.random.default_rng([pixel_cases.TYPES.index(dtype), len(compiler)])
    works = []
    for k, name in enumerate(pixel_cases.PROGRAMS):
        problem, inputs = pixel_cases.recorded(name, dtype)
        candidate = in_vectors(
            problem, WIDTHS[(k + pixel_cases.TYPES.index(dtype)) % len(WIDTHS)], rng
        )
        assert loads_of(candidate, problem.array("a").dtype), name
        works.append((checking.source_of(candidate), inputs))
    options = {"compiler": compiler, "more_flags": checking.PLAINLY}
    assert not checking.fault_of_any(works, tmp_path, Way(repeats=2), **options)


def test_sums_are_as_wide_as_what_they_add_up() -> None:
    """Nine bytes are a number of 16 bits: twice as many lanes as those of i32."""
    problem = normalise(record_sequence(pixel_cases.pipeline, pixel_cases.picture(), "pipeline"))
    assert [t.lane_bytes for t in problem.tasks] == [2, 2, 1]
    assert [t.is_structured for t in problem.tasks] == [True] * 3


def random_candidates(problem: Problem, width: int, n: int) -> list[Candidate]:
    root = build_space(problem, checking.target(2, width)).root()
    assert isinstance(root, Candidate)
    rng = np.random.default_rng(width)
    drawn = (checking.random_candidate(root, rng) for _ in range(n))
    return [x for x in drawn if isinstance(x, Candidate)]


@pytest.mark.compiler
def test_candidates_of_a_pipeline_are_numpys(tmp_path: Path) -> None:
    """Tasks of one loop with other lanes, values handed over, borders of blocks."""
    problem, inputs = pixel_cases.recorded_pipeline()
    found = [x for width in WIDTHS for x in random_candidates(problem, width, 3)]
    sources = [checking.source_of(x) for x in found]
    way, flags = Way(repeats=2), checking.PLAINLY
    assert not checking.fault(sources, inputs, tmp_path, way, more_flags=flags)


def test_a_judge_finds_nothing_in_candidates_of_a_pipeline() -> None:
    problem = normalise(
        record_sequence(pixel_cases.pipeline, pixel_cases.picture(6, 34), "pipeline")
    )
    assert [illegal(x) for x in random_candidates(problem, 16, 3)] == [""] * 3


def test_what_small_numbers_take_of_memory_is_their_bytes() -> None:
    """The bound counts bytes: an array of u8 is a quarter of one of i32."""

    @ks.kernel
    def doubled(x: nd, y: nd):
        for i in range(x.shape[0]):
            y[i] = x[i] + x[i]

    def least_ns(dtype: Any) -> float:
        x = np.ones(1 << 24, dtype)
        problem = normalise(record_sequence(doubled, (x, x.copy()), "doubled"))
        assert problem.tasks[0].is_structured
        space = build_space(problem, round_target())
        root = space.root()
        assert isinstance(root, Candidate)
        return Bounder(space).ns(root)

    byte, word = least_ns(np.uint8), least_ns(np.int32)
    assert 0 < byte < 0.3 * word
    assert least_ns(np.int16) < 0.55 * word


@pytest.mark.compiler
def test_a_pipeline_is_explored_and_verified(tmp_path: Path) -> None:
    args = pixel_cases.picture(40, 200)
    run = ks.explore(
        pixel_cases.pipeline,
        *args,
        max_evals=4,
        directory=tmp_path / "run",
        reference=pixel_cases.pipeline_in_numpy,
    )
    assert run.best is not None
    tuned, want = pixel_cases.picture(40, 200), pixel_cases.picture(40, 200)
    run.best.compile()(*tuned)
    pixel_cases.pipeline_in_numpy(*want)
    for got, wanted in zip(tuned, want, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.compiler
def test_masks_of_rests_hold_their_numbers(tmp_path: Path) -> None:
    """The kind: a mask as narrow as a byte, compared with numbers that a byte does not hold."""

    @ks.kernel
    def every(x: nd, y: nd):
        for i in range(x.shape[0]):
            if i % 200 == 150:
                y[i] = x[i]

    x = np.arange(1000).astype(np.uint8)
    y, want = np.zeros(1000, np.uint8), np.zeros(1000, np.uint8)
    want[150::200] = x[150::200]
    problem = normalise(record_sequence(every, (x, y), "every"))
    (task,) = problem.tasks
    assert task.is_structured and task.dtype is DType.u8
    inputs = [InputSet({"x": x, "y": y}, {}, {"x": x, "y": want}, 0.0, 1.0)]
    source = checking.source_of(in_vectors(problem, 32, np.random.default_rng(2)))
    built = checking.build(source, tmp_path / "every", checking.PLAINLY)
    assert checking.check(built, inputs, Way(repeats=2)) == ""


def test_registers_are_filled() -> None:
    """Bytes that are compared come a register at a time, those that are added up in 16 bits half of one."""
    problem = normalise(
        record_sequence(pixel_cases.pipeline, pixel_cases.picture(24, 256), "pipeline")
    )
    program = program_of(in_vectors(problem, 64, np.random.default_rng(1)))
    assert calls(program, "select_u8x64")
    assert calls(program, "convert_i16x32_from_u8") and not calls(program, "convert_i32")


def test_scalar_code_is_as_slow_as_the_numbers_it_computes_with() -> None:
    """The kind: a task that stores bytes or f32, and computes with wider floats, taken for one that loses all lanes of what it
    stores.
    """

    @ks.kernel
    def curve(x: nd, y: nd):
        for i in range(x.shape[0]):
            t = x[i] * 1.5
            for _ in ks.static(range(40)):
                t = t * 1.25 + 0.5
            y[i] = t

    def slowdown(computed: Any, stored: Any) -> float:
        x = np.ones(1 << 12, computed)
        problem = normalise(record_sequence(curve, (x, np.ones(1 << 12, stored)), "curve"))
        space = build_space(problem, round_target())
        root: Any = space.root()
        kind = space.variables.kind[space.backbone.dim(0, "i", INNER)]
        ways = [root.decide(kind, mask) for mask in (1 << ch.VECTOR, 1 << ch.UNROLL)]
        vectors, scalars = (Bounder(space).ns(way) for way in ways)
        return scalars / vectors

    assert slowdown(np.float32, np.float32) == pytest.approx(
        slowdown(np.float32, np.uint8), rel=0.1
    )
    assert slowdown(np.float64, np.float64) == pytest.approx(
        slowdown(np.float64, np.float32), rel=0.1
    )


def test_rests_of_rows_are_whole_vectors_too() -> None:
    """The kind: a row that no register tile divides is left to up to 127 single elements."""
    problem = normalise(record_sequence(pixel_cases.blur, pixel_cases.picture(24, 300)[:2], "blur"))
    space = build_space(problem, checking.target(1, 64))
    v, made = space.variables, space.root()
    inner, outer = (space.backbone.dim(0, "j", level) for level in (INNER, OUTER))
    decided = [
        (v.size[inner], v.universe[inner].index(64)),
        (v.kind[inner], ch.VECTOR),
        (v.kind[outer], ch.LOOP),
        (v.kind[space.backbone.dim(0, "i", INNER)], ch.ABSENT),
        *((var, ch.DIRECT) for var in v.staged.values()),
    ]
    for var, value in decided:
        assert isinstance(made, Candidate)
        made = made.decide(var, 1 << value)
    assert isinstance(made, Candidate)
    found = checking.random_candidate(made, np.random.default_rng(1))
    assert isinstance(found, Candidate)
    assert not {x.function for x in calls(program_of(found), "")} & {"add_i16", "floordiv_i16"}
