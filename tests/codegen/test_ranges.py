"""Bodies with ranges that only a run knows: along rows or over them, shares of threads by their work, against the interpreter."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernelscape.codegen.lower import lower
from kernelscape.codegen.passes.pipeline import verifying
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.analysis.inner_ranges import RowStarts, row_starts, widest
from kernelscape.kernels.frontend.functions import exp
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.kernel import NOWHERE, Assert, Const, DType, For, If
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.families import ranges
from kernelscape.testing import checking
from kernelscape.testing.calling import InputSet
from kernelscape.testing.interpreted import run_reference

nd: Any = types.ndarray()
FLAGS = ("-Wno-unused-function", "-Wno-unknown-pragmas")


@kernel
def rows(row: nd, col: nd, val: nd, x: nd, y: nd):
    for i in range(y.shape[0]):
        acc = 0.0
        for k in range(row[i], row[i + 1]):
            acc += val[k] * x[col[k]]
        y[i] = acc


@kernel
def neighbours(count: nd, near: nd, x: nd, y: nd):
    for i in range(y.shape[0]):
        force = 0.0
        closest = 1000.0
        for k in range(count[i]):
            d = x[near[i, k]] - x[i]
            if d * d < 30.0:
                force += d / (1.0 + d * d)
            closest = min(closest, abs(d))
        y[i] = force + closest


@kernel
def attention(count: nd, x: nd, v: nd, w: nd, y: nd):
    """Loops with sums, with stores, and one around another one; rows of which only a run knows the length."""
    for i in range(y.shape[0]):
        top = -1000.0
        for j in range(count[i]):
            top = max(top, x[i, j])
        total = 0.5
        for j in range(count[i]):
            w[i, j] = exp(x[i, j] - top)
            total += w[i, j]
        for e in range(y.shape[1]):
            a = 0.0
            for j in range(count[i]):
                a += w[i, j] * v[j, e]
            y[i, e] = a / total


def weighted_rows(count, x, v, w, y):
    attention(count, x, v, w, y)


def product_of_rows(row, col, val, x, y):
    rows(row, col, val, x, y)


def forces(count, near, x, y):
    neighbours(count, near, x, y)


def lengths(kind: str, n: int) -> np.ndarray:
    """Lengths of rows: all alike, some of them empty, one with nearly all there is, none with anything."""
    rng = np.random.default_rng(len(kind))
    match kind:
        case "even":
            return np.full(n, 9)
        case "huge":
            return np.where(np.arange(n) == n // 3, 150, rng.integers(0, 2, n))
        case "empty":
            return np.zeros(n, int)
    return rng.integers(0, 40, n) * (rng.random(n) < 0.6)


def matrix(kind: str, n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    row = np.concatenate([[0], np.cumsum(lengths(kind, n))]).astype(np.int32)
    m = 40 * n  # room for all
    return {
        "row": row,
        "col": rng.integers(0, 23, m).astype(np.int32),
        "val": rng.integers(-4, 5, m).astype(np.float32),
        "x": rng.standard_normal(23).astype(np.float32),
        "y": np.zeros(n, np.float32),
    }


def lists(kind: str, n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    count = lengths(kind, n).astype(np.int32)
    return {
        "count": count,
        "near": rng.integers(0, n, (n, 150)).astype(np.int32),
        "x": (4 * rng.standard_normal(n)).astype(np.float32),
        "y": np.zeros(n, np.float32),
    }


def weights(kind: str, n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {
        "count": np.minimum(lengths(kind, n), 40).astype(np.int32),
        "x": rng.standard_normal((n, 40)).astype(np.float32),
        "v": rng.standard_normal((40, 37)).astype(np.float32),
        "w": np.zeros((n, 40), np.float32),
        "y": np.zeros((n, 37), np.float32),
    }


def candidates_of(problem: Any, cores: int, width: int) -> list[Candidate]:
    """All that the space holds of one task with one loop."""
    space = build_space(problem, checking.target(cores, width))
    open_ = [*space.variables.schedule.values(), *space.variables.ranges.values()]
    open_ += [*space.variables.kind.values(), *space.variables.of_places["remainders"].values()]
    found: list[Any] = [space.root()]
    for var in open_:
        values = range(len(space.choices[var].values))
        decided = (c.decide(var, 1 << v) for c, v in product(found, values))
        found = [c for c in decided if isinstance(c, Candidate)]
    rng = np.random.default_rng(1)
    return [c if c.is_complete else checking.random_candidate(c, rng) for c in found]


def problem_of(fn: Any, arrays: dict[str, np.ndarray]) -> tuple[Any, Any]:
    recording = record_sequence(fn, tuple(arrays.values()), name="one")
    return recording, normalise(recording)


def test_where_rows_begin_is_not_looked_up_before_what_may_end_the_call() -> None:
    recording, _ = problem_of(product_of_rows, matrix("odd", 5))
    (loop,) = recording.calls[0].ir.body
    assert isinstance(loop, For)
    assert row_starts(loop.loop, loop.body) == RowStarts("row", 0)
    ends = Assert(Const(value=False, dtype=DType.bool_), "here it ends", (), NOWHERE)
    for first in (ends, If(Const(value=True, dtype=DType.bool_), (ends,), (), NOWHERE)):
        assert row_starts(loop.loop, (first, *loop.body)) is None


@pytest.mark.parametrize(
    ("fn", "made", "n_candidates"), [(product_of_rows, matrix, 80), (forces, lists, 32)]
)
def test_what_is_decided_of_uneven_rows(fn: Any, made: Any, n_candidates: int) -> None:
    _, problem = problem_of(fn, made("odd", 61))
    found = candidates_of(problem, 2, 32)
    assert len(found) == n_candidates
    with verifying():
        texts = {lower(plan_of(c)).decisions for c in found}
    assert len(texts) == n_candidates


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("fn", "made", "cores", "width"),
    [(product_of_rows, matrix, 2, 32), (forces, lists, 3, 16)],
)
def test_candidates_compute_what_the_interpreter_does(
    fn: Any, made: Any, cores: int, width: int, tmp_path: Path
) -> None:
    recording, problem = problem_of(fn, made("odd", 61))
    every = candidates_of(problem, cores, width)
    # All schedules, each in one way of vectors at least.
    sources = [checking.source_of(c) for c in every[1::2]]
    inputs = []
    for kind in ("odd", "even", "huge", "empty"):
        arrays = made(kind, 61)
        want = run_reference(recording, arrays, {}, dtype=np.float64)
        inputs.append(InputSet(arrays, {}, want, 100.0, float(np.abs(want["y"]).max(initial=1.0))))
    assert not checking.fault(sources, inputs, tmp_path, more_flags=FLAGS)


def test_constraints_visit_the_body_of_a_range_once(monkeypatch: pytest.MonkeyPatch) -> None:
    visited = []

    def count(body: Any) -> int:
        visited.append(body)
        return widest(body)

    monkeypatch.setattr(ranges, "widest", count)
    _, problem = problem_of(weighted_rows, weights("odd", 30))
    space = build_space(problem, checking.target(2, 32))
    assert len(space.variables.ranges) == len(visited) == len({*map(id, visited)})


@pytest.mark.compiler
@pytest.mark.parametrize(("cores", "width"), [(1, 16), (2, 32)])
def test_loops_that_store_and_lie_in_one_another_run_in_vectors(
    cores: int, width: int, tmp_path: Path
) -> None:
    recording, problem = problem_of(weighted_rows, weights("odd", 30))
    space = build_space(problem, checking.target(cores, width))
    assert len(space.variables.ranges) == 4
    rests = list(space.variables.of_places["remainders"].values())
    assert len(rests) == (4 if width == 32 else 0)  # narrower vectors have no masked loads
    rng = np.random.default_rng(width)
    found: list[Candidate] = []
    for _ in range(24):
        c: Any = space.root()
        for var in (*rng.permutation(list(space.variables.ranges.values())), *rests):
            c = c.decide(int(var), 1 << int(rng.choice(c.values(int(var)))))
        found.append(checking.random_candidate(c, rng))
    assert {c.value(v) for c in found for v in space.variables.ranges.values()} == set(range(4))
    assert {c.value(v) for c in found for v in rests} == ({0, 1} if rests else set())
    arrays = weights("odd", 30)
    want = run_reference(recording, arrays, {}, dtype=np.float64)
    inputs = [InputSet(arrays, {}, want, 100.0, float(np.abs(want["y"]).max(initial=1.0)))]
    with verifying():
        sources = [checking.source_of(c) for c in found]
    assert not checking.fault(sources, inputs, tmp_path, more_flags=FLAGS)
