"""Late tasks in generated code: what they compute at any shape, and what the text looks like."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.codegen.loops.ir import Late
from kernelscape.codegen.passes.pipeline import launches_of
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.library import load
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space import choices as ch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking
from kernelscape.testing.checking import Way

pytestmark = [pytest.mark.compiler]
CANDIDATES = 4


def late_candidates(recording, cores, vector_bytes, seed):
    space = build_space(normalise(recording), checking.target(cores, vector_bytes))
    ((_, var),) = space.variables.shift.items()
    root = space.root().decide(var, 1 << ch.LATE)
    rng = np.random.default_rng(seed)
    ends = [checking.random_candidate(root, rng) for _ in range(CANDIDATES)]
    return [c for c in ends if isinstance(c, Candidate)]


def inside(nodes):
    """Nodes of loops with all that they hold."""
    for node in nodes:
        yield node
        yield from inside(getattr(node, "children", ()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "m", "n", "cores"),
    [
        ("atax", 2, 3, 4),
        ("atax", 64, 48, 3),
        ("atax", 7, 130, 2),
        ("gemver", 33, 17, 2),
        ("gemver", 64, 48, 3),
        ("sgemvt", 7, 130, 4),
    ],
)
def test_late_tasks_compute_the_same(tmp_path, name, m, n, cores):
    """Fewer tiles than threads, one tile a thread, partial tiles; teams smaller than planned; called twice."""
    entry = load(name)
    rng = np.random.default_rng(m * n)
    args = entry.make_arguments({"m": m, "n": n}, np.dtype(np.float32), rng)
    recording = record_sequence(entry.sequence, args, name)
    problem = normalise(recording)
    n_arrays = len(recording.arrays)
    arrays = dict(zip((a.name for a in recording.arrays), args, strict=False))
    scalars = dict(zip((s.name for s in recording.scalars), args[n_arrays:], strict=True))
    inputs = checking.make_inputs(recording, problem, arrays, scalars)
    candidates = late_candidates(recording, cores, 32, m + n)
    assert len(candidates) >= CANDIDATES - 1
    for candidate in candidates:
        launches = launches_of(plan_of(candidate), candidate.space.target)
        assert any(isinstance(x, Late) for launch in launches for x in inside(launch.nodes))
    sources = [checking.crowded_source_of(c) for c in candidates]
    ways = Way(), Way(repeats=2, thread_limit=1)
    assert not checking.fault(sources, inputs, tmp_path, *ways)
