"""The C by hand that sequences of bodies are compared with computes what they do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernelscape.experiments.bodies import SEQUENCES
from kernelscape.experiments.expert import body_source
from kernelscape.experiments.rows import Job
from kernelscape.testing import checking
from kernelscape.testing.checking import Way

pytestmark = [pytest.mark.compiler]


@pytest.mark.parametrize("n", [19, 32])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_red_black_by_hand(n: int, dtype: str, tmp_path: Path) -> None:
    workload = SEQUENCES["red_black"].workload(Job("red_black", {"n": n}, dtype), seed=1)
    recording = workload.recording
    rng = np.random.default_rng(0)
    arrays = {a.name: rng.standard_normal(a.shape).astype(a.dtype.numpy) for a in recording.arrays}
    inputs = checking.make_inputs(recording, workload.problem, arrays, {})
    made = checking.build(body_source(recording, n), tmp_path / "red_black")
    assert made.library is not None, made.log
    assert checking.check(made, inputs, Way(repeats=len(inputs))) == ""


def test_there_is_no_expert_for_the_others() -> None:
    workload = SEQUENCES["upwind"].workload(Job("upwind", {"n": 9}), seed=1)
    with pytest.raises(KeyError):
        body_source(workload.recording, 9)
