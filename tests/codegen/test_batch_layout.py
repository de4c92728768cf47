"""Batches of small matrices and signals in lanes: blocks as they are stored, or interleaved, against the interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.plan.nest_plan import NestPlan
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.interpret.kernel import run_kernel
from kernelscape.kernels.ir.task import Problem
from kernelscape.kernels.ir.walk import local_changed, nested_statements
from kernelscape.kernels.tasks.batch_blocks import batch_blocks
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.engine import building
from kernelscape.runtime.engine.engine import Engine, EngineOptions
from kernelscape.runtime.engine.planning import default_plan
from kernelscape.space.backbone import INNER
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.families.batch_layout import AS_STORED, INTERLEAVED
from kernelscape.space.families.tiling import ABSENT, VECTOR
from kernelscape.testing import checking
from kernelscape.testing.syntax import calls, program_of

nd: Any = types.ndarray()
N = 45  # no multiple of lanes


@kernel
def factorise(a: nd, x: nd, low: nd):
    """Cholesky factors: rows of triangles that wait for one another. Nothing is stored above the diagonal."""
    for n in range(a.shape[0]):
        for i in range(a.shape[1]):
            for j in range(i + 1):
                total = a[n, i, j]
                for k in range(j):
                    total -= low[n, i, k] * low[n, j, k]
                if i == j:
                    low[n, i, i] = ks.sqrt(abs(total) + 1.0)
                else:
                    low[n, i, j] = total / low[n, j, j]


@kernel
def eliminate(a: nd, x: nd, low: nd):
    """Elimination in place with a pivot that differs from lane to lane, and counts of rows."""
    for n in range(a.shape[0]):
        for c in range(a.shape[1] - 1):
            p = c
            for i in range(c + 1, a.shape[1]):
                if abs(a[n, i, c]) > abs(a[n, p, c]):
                    p = i
            x[n, p] += 1.0
            for j in range(a.shape[2]):
                held = a[n, c, j]
                a[n, c, j] = a[n, p, j]
                a[n, p, j] = held
            for i in range(c + 1, a.shape[1]):
                f = a[n, i, c] / (abs(a[n, c, c]) + 1.0)
                for j in range(a.shape[2]):
                    a[n, i, j] -= f * a[n, c, j]


@kernel
def butterflies(a: nd, x: nd, low: nd):
    """Passes over signals in place, for a part of the batch."""
    for n in range(a.shape[0]):
        if a[n, 0, 0] > 0.0:
            for _ in range(3):
                for k in range(x.shape[1] // 2):
                    u = x[n, k]
                    v = x[n, k + x.shape[1] // 2]
                    x[n, k] = 0.5 * (u + v)
                    x[n, k + x.shape[1] // 2] = 0.5 * (u - v)


@kernel
def of_neighbours(a: nd, x: nd, low: nd):
    """Blocks that have no iteration of their own."""
    for n in range(a.shape[0] - 1):
        for i in range(1, a.shape[1]):
            x[n, i] = ks.sqrt(abs(x[n, i - 1])) + a[n, i, 0] * a[n + 1, i, 0]


@kernel
def odd_ones(a: nd, x: nd, low: nd):
    for n in range(a.shape[0]):
        if a[n, 0, 0] > 0.0:
            for i in range(x.shape[1] // 2):
                x[n, 2 * i + 1] = a[n, 1, 1]


def arrays(dtype: str, m: int = 19) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        "a": rng.standard_normal((N, 5, 6)).astype(dtype),
        "x": rng.standard_normal((N, m)).astype(dtype),
        "low": np.zeros((N, 5, 5), dtype),
    }


def problem_of(*kernels: Any, dtype: str = "float32") -> tuple[Any, Problem, dict[str, np.ndarray]]:
    def sequence(a: Any, x: Any, low: Any) -> None:
        for one in kernels:
            one(a, x, low)

    given = arrays(dtype)
    recording = record_sequence(sequence, tuple(given.values()), name="batch")
    return recording, normalise(recording), given


def blocks_of(*kernels: Any) -> list[list[tuple[str, bool]]]:
    _, problem, _ = problem_of(*kernels)
    return [
        [(x.array.name, x.is_written) for x in batch_blocks(problem, task)]
        for task in problem.tasks
    ]


@pytest.mark.parametrize(
    ("kernels", "found"),
    [
        ((factorise,), [[("a", False), ("low", True)]]),
        ((eliminate,), [[("a", True), ("x", True)]]),
        ((butterflies,), [[("x", True)]]),
        ((of_neighbours,), [[("x", True)]]),
        ((butterflies, odd_ones), [[], []]),
        ((factorise, eliminate), [[("a", False), ("low", True)], [("a", True), ("x", True)]]),
    ],
)
def test_blocks_are_of_one_iteration_and_of_one_writer(kernels: Any, found: Any) -> None:
    assert blocks_of(*kernels) == found


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("tested", "width", "dtype"),
    [
        (factorise, 32, "float32"),
        (factorise, 64, "float64"),
        (eliminate, 32, "float32"),
        (eliminate, 16, "float64"),
        (butterflies, 32, "float32"),
        (butterflies, 16, "float32"),
    ],
)
def test_interleaved_blocks_give_what_the_interpreter_gives(
    tested: Any, width: int, dtype: str, tmp_path: Path
) -> None:
    recording, problem, given = problem_of(tested, dtype=dtype)
    space = build_space(problem, checking.target(2, width))
    found = space.variables.of_tasks["batch_layout"]
    assert found
    rng, made = np.random.default_rng(width), list[Candidate]()
    for how in (AS_STORED, INTERLEAVED):
        c: Any = space.root()
        for t, var in found.items():
            dim = space.variables.kind[space.backbone.dim(t, "n", INNER)]
            assert c.decide(dim, 1 << ABSENT).value(var) == AS_STORED
            c = c.decide(dim, 1 << VECTOR).decide(var, 1 << how)
        made.append(checking.random_candidate(c, rng))
    bodies = [
        [s for x in plan_of(c).tasks for s in nested_statements(x.task.body.statements)]
        for c in made
    ]
    assert [any("_block" in local_changed(s) for s in x) for x in bodies] == [False, True]
    assert calls(program_of(made[1]), "lane_store_row")
    inputs = checking.make_inputs(recording, problem, given, {})
    sources = [checking.source_of(c) for c in made]
    assert not checking.fault(sources, inputs, tmp_path, may_warn=True)


# --- plain calls


@kernel
def twice(a: nd, x: nd, low: nd):
    """Two nests whose locals and blocks have equal names, and a local around them that is named as an element."""
    m_0 = a[0, 0, 0]
    for n in range(a.shape[0]):
        m = np.zeros(3, a.dtype)
        for _ in range(4):
            for i in range(3):
                m[i] = m[i] * 0.5 + a[n, i, i] + m[(i + 1) % 3] * a[n, i, 0]
        for i in range(3):
            low[n, i, 0] = m[i] + m_0
    for n in range(a.shape[0]):
        m = np.zeros(3, a.dtype)
        for _ in range(4):
            for i in range(3):
                m[i] = m[i] * 0.25 - a[n, i, i] + m[(i + 2) % 3] * a[n, i, 1]
        for i in range(3):
            low[n, i, 1] = m[i] - m_0


@kernel
def traces(a: nd, x: nd, low: nd):
    """Passes over blocks that wait for one another, and a sum of all iterations."""
    total = 0.0
    for n in range(a.shape[0]):
        for _ in range(30):
            for i in range(1, a.shape[1]):
                low[n, i, 2] = low[n, i - 1, 2] * 0.5 + a[n, i, 1] / (abs(a[n, i - 1, 1]) + 1.0)
        total += low[n, 4, 2]
    x[0, 0] = total


@kernel
def row_by_row(a: nd, x: nd, low: nd):
    """A loop inside that compilers have in vectors."""
    for n in range(a.shape[0]):
        for j in range(a.shape[2]):
            a[n, 1, j] += 2.0 * a[n, 0, j]


@kernel
def as_many_as_stored(a: nd, x: nd, low: nd):
    """A nest whose outermost loop is as long as data say."""
    for n in range(ks.i32(abs(a[0, 0, 0]) * 100.0) % 4 + 2):
        for i in range(a.shape[0]):
            for _ in range(30):
                for k in range(1, 5):
                    low[i, n, k] = low[i, n, k - 1] * 0.5 + a[i, n, k]


def batched_nests(tested: Any, cores: int = 2) -> list[str]:
    """The loops of a plain call whose lanes have interleaved blocks."""
    ir = tested.instantiate(*arrays("float32").values())
    plan = default_plan(ir, cores, 32)
    lanes = [s.lanes for s in plan.tasks[0].steps if isinstance(s, NestPlan)]
    found = [loop for (_, loop) in plan.choices.get("batch_layout", {})]
    assert {*found} <= {x.loop for x in lanes if x is not None}
    return found


@pytest.mark.parametrize(
    ("tested", "n"),
    [
        (factorise, 1),
        (eliminate, 1),
        (twice, 2),
        (traces, 1),
        (row_by_row, 0),
        (odd_ones, 0),
        (as_many_as_stored, 0),
    ],
)
def test_plain_calls_interleave_blocks_that_iterations_work_on(tested: Any, n: int) -> None:
    assert len(batched_nests(tested)) == n


@pytest.mark.compiler
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tested", [factorise, eliminate, twice, traces, as_many_as_stored])
def test_plain_calls_give_what_the_interpreter_gives(
    tested: Any, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = arrays(dtype)
    ir = tested.instantiate(*given.values())
    monkeypatch.setattr(building, "default_plan", lambda ir, cores, _: default_plan(ir, cores, 32))
    wanted = {p.name: a.copy() for p, a in zip(ir.arrays, given.values(), strict=True)}
    run_kernel(ir, wanted, {})
    engine = Engine(EngineOptions(folder=tmp_path, cores=2))
    engine.run(ir, [*given.values()], [])
    engine.close()
    near = 1e-4 if dtype == "float32" else 1e-10
    for name, x in given.items():
        np.testing.assert_allclose(x, wanted[name], rtol=near, atol=near, err_msg=name)
