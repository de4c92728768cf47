"""Sequences longer than a launch: their random candidates compute what the interpreter does."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space import choices as ch
from kernelscape.space.backbone import launch_width
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking
from kernelscape.testing.checking import Way
from kernelscape.testing.components import add_up, scale

pytestmark = [pytest.mark.compiler]


def maps(x, y, z, s):
    for t in range(50):
        scale(*((x, y) if t % 2 == 0 else (y, x)))


def runs(x, y, z, s):
    """Ten maps of one length, then nine in place of another one and their sum, and so on."""
    for t in range(50):
        if t // 10 % 2 == 0:
            scale(*((x, y) if t % 2 == 0 else (y, x)))
        elif t % 10 == 9:
            add_up(z, s)
        else:
            scale(z, z)


@pytest.mark.parametrize(("sequence", "n_components"), [(maps, 1), (runs, 5)])
def test_random_candidates_of_fifty_tasks(tmp_path, sequence, n_components):
    rng = np.random.default_rng(5)
    arrays = {
        name: rng.uniform(-1, 1, n).astype(np.float32)
        for name, n in (("x", 67), ("y", 67), ("z", 33), ("s", 1))
    }
    recording = record_sequence(sequence, list(arrays.values()), "long").unrolled()
    problem = normalise(recording)
    assert len(problem.tasks) == 50
    root = build_space(problem, checking.target(2, 32)).root()
    assert isinstance(root, Candidate)
    backbone = root.space.backbone
    assert len(backbone.components) == n_components
    drawn = [checking.random_candidate(root, rng) for _ in range(3)]
    candidates = [c for c in drawn if isinstance(c, Candidate)]
    assert candidates
    fused = root.space.variables.fused
    width = max(launch_width(problem.tasks[c.start : c.stop]) for c in backbone.components)
    for made in candidates:
        together = [pair for pair, var in fused.items() if made.value(var) == ch.SAME_LAUNCH]
        assert together and all(u - t < width for t, u in together)
    inputs = checking.make_inputs(recording, problem, arrays, {})
    assert inputs
    sources = [checking.source_of(c) for c in candidates]
    assert not checking.fault(sources, inputs, tmp_path, Way(repeats=4), may_warn=True)
