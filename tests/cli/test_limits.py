"""A limit or a signal before anything is measured ends the run, with a sentence."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from .command import objects, start

pytestmark = pytest.mark.compiler

# No reference of it is ever complete; LONG is known only at run time, so nobody can say so before.
ENDLESS = """
import kernelscape as ks
import numpy as np

nd = ks.types.ndarray()

@ks.kernel
def endless(n: nd, x: nd):
    for _ in range(1):
        for i in range(n[0]):
            for j in range(x.shape[0]):
                x[j] = 0.5 * x[j - 1 if j > 0 else 0] + 1.0

def run(n, x):
    endless(n, x)

def make_arguments(sizes, dtype, rng):
    return np.array([1 << 50]), np.ones(2000, dtype)
"""


@pytest.fixture
def endless(tmp_path: Path) -> str:
    file = tmp_path / "user.py"
    file.write_text(ENDLESS)
    return f"{file}:run"


def test_a_reference_that_takes_longer_than_the_limit(explore, endless, tmp_path):
    code, out, err = explore("run", endless, "--time-limit", "1s", "--json", "-o", tmp_path / "run")
    told = objects(out)
    assert code == 4
    assert "the time limit of 1 s passed while " in err
    assert "Traceback" not in err
    assert told[-1]["status"] == "time_limit"
    assert (told[-2]["event"], told[-2]["limit_s"]) == ("out_of_time", 1.0)


def test_a_signal_ends_the_reference(endless, tmp_path):
    """SIGINT; tests/cli/test_endless.py sends SIGTERM."""
    running = start("run", endless, "--json", "-o", tmp_path / "run")
    assert running.stdout is not None
    for line in running.stdout:
        if json.loads(line)["event"] == "root_bound":
            break
    time.sleep(0.2)  # so that it is most likely the reference that is met
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert objects(out)[-1]["status"] == "interrupted"
    assert "Traceback" not in err
