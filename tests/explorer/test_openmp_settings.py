"""Settings of OpenMP change nothing: with `OMP_PROC_BIND` it bound the caller to a core, a second replay saw another machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.library import load
from kernelscape.runtime.records.loading import load_best

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs"),
]
N = 1 << 14
SCRIPT = f"""
import os, sys
import kernelscape as ks, numpy as np
from kernelscape.kernels.library import load
before = os.sched_getaffinity(0)
for _ in range(2):
    f = ks.replay(sys.argv[1])
    w, y, z, x = load("vadd").make_arguments({{"n": {N}}}, np.float32, np.random.default_rng(1))
    f(w, y, z, x)
    assert np.allclose(x, w + y + z)
    assert os.sched_getaffinity(0) == before
"""


@pytest.fixture(scope="module")
def best(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default of a sum, on all cores."""
    folder = tmp_path_factory.mktemp("made") / "run"
    arguments = load("vadd").make_arguments({"n": N}, np.float32, np.random.default_rng(1))
    ks.explore(load("vadd").sequence, *arguments, max_evals=1, time_limit=5, directory=folder)
    best = folder / "best.json"
    kinds = dict(load_best(best).decisions)
    assert kinds["dim_kind(add0.i.outer)"] == "PARALLEL"
    return best


@pytest.mark.parametrize(
    "settings",
    [{"OMP_PROC_BIND": "true", "OMP_PLACES": "cores"}, {"OMP_NUM_THREADS": "1"}],
    ids=["bound", "one thread"],
)
def test_a_second_replay_is_of_the_same_machine(best: Path, settings: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(best)],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
