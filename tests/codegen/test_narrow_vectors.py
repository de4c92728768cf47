"""Vectors narrower than a register, along rows of many that are shorter than one: against the interpreter and NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.task import Problem
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.starts.complete import first_candidates
from kernelscape.space.backbone import INNER
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, Space
from kernelscape.space.families.tiling import VECTOR
from kernelscape.testing import checking

nd: Any = types.ndarray()
N = 7


@kernel
def products(a: nd, b: nd, c: nd):
    for h in range(c.shape[0]):
        for i in range(c.shape[1]):
            for j in range(c.shape[2]):
                total = 0.0
                for k in range(a.shape[2]):
                    total += a[h, i, k] * b[h, k, j]
                c[h, i, j] = total


@kernel
def activated(a: nd, b: nd, c: nd):
    for h in range(c.shape[0]):
        for i in range(c.shape[1]):
            for j in range(c.shape[2]):
                if a[h, i, j] > b[h, i, j]:
                    c[h, i, j] = ks.exp(a[h, i, j] - b[h, i, j]) + j
                else:
                    c[h, i, j] = ks.sqrt(abs(b[h, i, j]))


@kernel
def swept(a: nd, b: nd, c: nd):
    for h in range(1, c.shape[0]):
        for i in range(c.shape[1]):
            for j in range(c.shape[2] - 1):
                c[h, i, j] = 0.5 * c[h - 1, i, j] + a[h, i, j] * b[h, i, j + 1]


def problem_of(
    one: Any, m: int, dtype: str
) -> tuple[Any, Problem, dict[str, np.ndarray[Any, Any]]]:
    rng = np.random.default_rng(m)
    given = {x: rng.standard_normal((N, m, m)).astype(dtype) for x in "abc"}
    recording = record_sequence(one, tuple(given.values()), name="rows")
    return recording, normalise(recording), given


def rows_in_vectors(space: Space) -> Candidate:
    c: Any = space.root()
    for t in range(len(space.problem.tasks)):
        c = c.decide(space.variables.kind[space.backbone.dim(t, "j", INNER)], 1 << VECTOR)
    return c


def widths(c: Candidate) -> set[int]:
    dims = (d for d in c.space.backbone.dims if d.level == INNER)
    v = c.space.variables
    return {
        v.universe[d][c.value(v.size[d])]
        for d in dims
        if d.loop.name == "j" and c.value(v.kind[d]) == VECTOR
    }


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("tested", "m", "width", "dtype"),
    [
        (products, 4, 32, "float32"),
        (products, 7, 32, "float32"),
        (products, 13, 64, "float32"),
        (products, 3, 32, "float64"),
        (products, 6, 64, "float64"),
        (activated, 5, 32, "float32"),
        (activated, 9, 64, "float32"),
        (activated, 3, 64, "float64"),
        (activated, 18, 64, "uint8"),
        (swept, 6, 32, "float32"),
        (swept, 5, 64, "float64"),
    ],
)
def test_short_rows_in_vectors_give_what_the_interpreter_gives(
    tested: Any, m: int, width: int, dtype: str, tmp_path: Path
) -> None:
    recording, problem, given = problem_of(tested, m, dtype)
    space = build_space(problem, checking.target(2, width))
    rng = np.random.default_rng(m)
    root = rows_in_vectors(space)
    made = [checking.random_candidate(root, rng) for _ in range(6)]
    inputs = checking.make_inputs(recording, problem, given, {})
    if tested is products:
        np.testing.assert_allclose(
            inputs[0].want["c"], given["a"].astype("f8") @ given["b"], rtol=1e-12, atol=1e-12
        )
    sources = [checking.source_of(c) for c in made if isinstance(c, Candidate)]
    assert len(sources) > 3
    assert not checking.fault(sources, inputs, tmp_path, may_warn=True)


@pytest.mark.parametrize(
    ("m", "width", "dtype", "found"),
    [
        (4, 32, "float32", {4}),
        (3, 32, "float32", set()),
        (12, 64, "float32", {8}),
        (3, 32, "float64", {2}),
        (6, 64, "float64", {4}),
        (8, 32, "float32", {8}),
    ],
)
def test_first_candidates_of_products_have_the_widest_vectors_that_rows_hold(
    m: int, width: int, dtype: str, found: set[int]
) -> None:
    _, problem, _ = problem_of(products, m, dtype)
    space = build_space(problem, checking.target(2, width))
    seen = set().union(*(widths(c) for _, c in first_candidates(space)))
    assert seen >= found if found else not seen
