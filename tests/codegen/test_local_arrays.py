"""Local arrays on the stack or in registers, with loops over them written out, against the interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.kernel import For, LocalArray
from kernelscape.kernels.ir.walk import nested_statements
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.kernels.transforms.local_elements import in_locals
from kernelscape.space.backbone import INNER
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.families.local_arrays import IN_REGISTERS, ON_STACK
from kernelscape.space.families.tiling import ABSENT, VECTOR
from kernelscape.testing import checking

nd: Any = types.ndarray()
N = 29  # no multiple of lanes


@kernel
def solve(a: nd, x: nd):
    """Elimination: triangles of loops, an index that is a local, and a pivot that differs from lane to lane."""
    for n in range(a.shape[0]):
        m = np.zeros((4, 5), a.dtype)
        for i in range(4):
            for j in range(5):
                m[i, j] = a[n, i, j]
        for c in range(4):
            p = c
            for i in range(c + 1, 4):
                if abs(m[i, c]) > abs(m[p, c]):
                    p = i
            for j in range(5):
                held = m[c, j]
                m[c, j] = m[p, j]
                m[p, j] = held
            for i in range(c + 1, 4):
                f = m[i, c] / (abs(m[c, c]) + 1.0)
                for j in range(c, 5):
                    m[i, j] -= f * m[c, j]
        for b in range(4):
            i = 3 - b
            total = m[i, 4]
            for j in range(i + 1, 4):
                total -= m[i, j] * x[n, j]
            x[n, i] = total / (abs(m[i, i]) + 1.0)


@kernel
def counted(a: nd, x: nd):
    """An array with an index of data, one without, and loops that stay in those that are written out."""
    for n in range(a.shape[0]):
        near = np.zeros((1, 1, 8), np.int32)
        sums = np.full((1, 3, 1), 0.5, a.dtype)
        for i in range(3):
            near[0, 0, int(abs(a[n, i, 0]) * 3.0) % 8] += 1
            for k in range(40):
                sums[0, i, 0] += a[n, i, k % 5] * x[n, k % 4]
        x[n, 0] = sums[0, 0, 0] + sums[0, 1, 0] * near[0, 0, 0]
        x[n, 1] = sums[0, 2, 0] - near[0, 0, 1]


@kernel
def long(a: nd, x: nd):
    for n in range(a.shape[0]):
        ring = np.zeros(9, a.dtype)
        for k in range(4000):
            ring[k % 9] = ring[(k + 1) % 9] + x[n, 0]
        x[n, 0] = ring[0]


def arrays(dtype: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        "a": rng.standard_normal((N, 4, 5)).astype(dtype),
        "x": rng.standard_normal((N, 4)).astype(dtype),
    }


def recorded(tested: Any, given: dict[str, np.ndarray]) -> Any:
    def sequence(a: Any, x: Any) -> None:
        tested(a, x)

    return record_sequence(sequence, tuple(given.values()), name="one")


def kept(body: Any) -> tuple[int, int]:
    """Numbers of local arrays and of loops in statements."""
    every = list(nested_statements(body))
    return tuple(sum(isinstance(s, kind) for s in every) for kind in (LocalArray, For))


@pytest.mark.parametrize(("tested", "left"), [(solve, (0, 0)), (counted, (1, 3)), (long, None)])
def test_loops_on_which_indices_depend_are_written_out(tested: Any, left: Any) -> None:
    (task,) = normalise(recorded(tested, arrays("float32"))).tasks
    assert task.body is not None
    found = in_locals(task.body.statements)
    assert (None if found is None else kept(found)) == left


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("tested", "width", "dtype"),
    [
        (solve, 32, "float32"),
        (solve, 16, "float64"),
        (counted, 32, "float32"),
        (counted, 64, "float32"),
    ],
)
def test_registers_give_what_the_interpreter_gives(
    tested: Any, width: int, dtype: str, tmp_path: Path
) -> None:
    given = arrays(dtype)
    recording = recorded(tested, given)
    problem = normalise(recording)
    space = build_space(problem, checking.target(2, width))
    ((t, var),) = space.variables.of_tasks["local_arrays"].items()
    dim = space.variables.kind[space.backbone.dim(t, "n", INNER)]
    rng, made = np.random.default_rng(width), list[Candidate]()
    for how, kind in ((ON_STACK, VECTOR), (IN_REGISTERS, VECTOR), (IN_REGISTERS, ABSENT)):
        c: Any = space.root().decide(dim, 1 << kind).decide(var, 1 << how)
        made.append(checking.random_candidate(c, rng))
    bodies = [plan_of(c).tasks[t].task.body for c in made]
    n_arrays = [kept(body.statements)[0] for body in bodies if body is not None]
    assert n_arrays[0] > n_arrays[1]
    inputs = checking.make_inputs(recording, problem, given, {})
    sources = [checking.source_of(c) for c in made]
    assert not checking.fault(sources, inputs, tmp_path, may_warn=True)
