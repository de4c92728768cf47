"""Elements near one another that lanes store: one after the other, or rows that registers transpose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.analysis.write_rows import is_free, write_rows
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.kernel import DType, If, Store
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space.backbone import INNER
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.families.row_stores import BY_ELEMENT, IN_ROWS
from kernelscape.space.families.tiling import ABSENT, VECTOR
from kernelscape.testing import checking
from kernelscape.testing.syntax import calls, program_of

nd: Any = types.ndarray()
N = 61  # no multiple of lanes


@kernel
def small_systems(a: nd, k: nd, x: nd, y: nd):
    """Solutions of systems of two equations, their products in a loop, and elements beside them under a condition."""
    for h in range(a.shape[0]):
        if a[h, 0] > 0.0:
            det = a[h, 0] * a[h, 3] - a[h, 1] * a[h, 2]
            x[h, 0] = (a[h, 3] - a[h, 1]) / (1.0 + det * det)
            x[h, 2] = ks.sqrt(a[h, 0])
            x[h, 1] = (a[h, 0] - a[h, 2]) / (1.0 + det * det)
            for j in range(4):
                y[h, j] = a[h, j] * a[h, 0] + k[h]


@kernel
def in_order(a: nd, k: nd, x: nd, y: nd):
    """Stores that keep their order: to one element, to elements whose index changes in between, and stores that loads separate."""
    for h in range(a.shape[0]):
        x[h, 0] = a[h, 0]
        x[h, k[h] % 2] = a[h, 1]
        x[h, 1] = a[h, 2]
        at = k[h] % 2
        y[h, at] = a[h, 3]
        at = 1 - at
        y[h, at + 1] = a[h, 0] if a[h, 0] > 0.0 else ks.sqrt(a[h, 1] * a[h, 1])
        y[h, 2] = a[h, 1]
        y[h, 3] = y[h, 2 * (k[h] % 2)] + a[h, 0]


def arrays(dtype: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        "a": rng.standard_normal((N, 4)).astype(dtype),
        "k": rng.integers(0, 2, N).astype(np.int32),
        "x": np.zeros((N, 5), dtype),
        "y": np.zeros((N, 4), dtype),
    }


def called(tested: Any) -> Any:
    def sequence(a: Any, k: Any, x: Any, y: Any) -> None:
        tested(a, k, x, y)

    return sequence


@pytest.mark.parametrize(("tested", "lengths"), [(small_systems, [3]), (in_order, [])])
def test_only_stores_that_may_be_delayed_are_rows(tested: Any, lengths: list[int]) -> None:
    (loop,) = tested.instantiate(*arrays("float32").values()).body
    free = is_free(loop.body)
    found: dict[int, int] = {}
    for block in (loop.body, *(s.then for s in loop.body if isinstance(s, If))):
        rows = write_rows(block, lambda s: isinstance(s, Store) and free(s), lambda _: DType.f32)
        found |= {id(r): len(r.writes) for r in rows.values()}
    assert list(found.values()) == lengths


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("tested", "width", "dtype"),
    [
        (small_systems, 32, "float32"),
        (small_systems, 16, "float64"),
        (small_systems, 64, "float32"),
        (in_order, 32, "float32"),
    ],
)
def test_lanes_store_what_the_interpreter_does(
    tested: Any, width: int, dtype: str, tmp_path: Path
) -> None:
    given = arrays(dtype)
    recording = record_sequence(called(tested), tuple(given.values()), name="one")
    problem = normalise(recording)
    space = build_space(problem, checking.target(2, width))
    found = space.variables.of_tasks["row_stores"]
    assert bool(found) == (tested is small_systems)
    rng, made = np.random.default_rng(width), list[Candidate]()
    for how in (BY_ELEMENT, IN_ROWS):
        c: Any = space.root()
        for t, var in found.items():
            dim = space.variables.kind[space.backbone.dim(t, "h", INNER)]
            scalar = c.decide(dim, 1 << ABSENT)
            assert scalar.value(var) == BY_ELEMENT
            c = c.decide(dim, 1 << VECTOR).decide(var, 1 << how)
        made.append(checking.random_candidate(c, rng))
    in_rows = [bool(calls(program_of(c), "lane_store_row")) for c in made]
    assert in_rows == [False, bool(found)]
    inputs = checking.make_inputs(recording, problem, given, {})
    sources = [checking.source_of(c) for c in made]
    assert not checking.fault(sources, inputs, tmp_path, may_warn=True)
