"""Programs that never end, and limits that nothing may outlast: every command ends, with a status or a sentence.

The kind: work that no deadline cut, since it was expected to be short. A `while` is counted with a hundred passes.
"""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.explorer import deadlines
from kernelscape.kernels.library import load
from kernelscape.runtime.worker.forked_inputs import ForkedInputs
from kernelscape.search.tree.mcts import Mcts

from .command import objects, start

pytestmark = pytest.mark.compiler

nd = ks.types.ndarray()
# Every pass adds a step: without one it never ends.
PROGRAM = """
import kernelscape as ks
import numpy as np

nd = ks.types.ndarray()

@ks.kernel
def climb(x: nd, step: nd, y: nd):
    for i in range(y.shape[0]):
        a = x[i]
        while a < 10.0:
            a = a + step[0]
        y[i] = a

def run(x, step, y):
    climb(x, step, y)

def make_arguments(sizes, dtype, rng):
    return rng.random(50).astype(dtype), np.full(1, STEP, dtype), np.zeros(50, dtype)
"""


def program(folder: Path, step: float) -> str:
    """FILE.py:function."""
    file = folder / "climbing.py"
    file.write_text(PROGRAM.replace("STEP", repr(step)))
    return f"{file}:run"


@ks.kernel
def climb(x: nd, y: nd):
    for i in range(y.shape[0]):
        a = x[i]
        while a < 10.0:
            a = a * 1.0
        y[i] = a


def be_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a call of a reference may take 0.3 s where nobody gave a limit."""
    defaults = ForkedInputs.result.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "call_s", 0.3)


def test_a_run_ends_with_its_limit(explore, tmp_path):
    given = ("--time-limit", "500ms", "--json", "-o", tmp_path / "run")
    code, out, _ = explore("run", program(tmp_path, 0.0), *given)
    assert code == 4
    out_of_time, result = objects(out)[-2:]
    assert out_of_time["event"] == "out_of_time"
    assert result["status"] == "time_limit"


def test_explore_returns_with_a_status(tmp_path):
    run = ks.explore(climb, np.ones(20), np.zeros(20), time_limit=0.5, directory=tmp_path)
    assert (run.status, run.best) == ("time_limit", None)


def test_a_recording_that_never_ends_is_left(tmp_path, monkeypatch):
    """Nothing has begun yet: no folder is made, and the status is the same."""
    monkeypatch.setattr(deadlines, "_LATE_S", 0.0)
    monkeypatch.chdir(tmp_path)

    def sequence(x, y):
        climb(x, y)
        while True:
            pass

    told = []
    run = ks.explore(sequence, np.ones(20), np.zeros(20), time_limit=0.2, on_event=told.append)
    assert (run.status, run.best) == ("time_limit", None)
    assert told[0].during == "the sequence was recorded"
    assert not list(tmp_path.iterdir())


def test_a_shape_that_never_ends_is_none_of_those_tuned(explore, tmp_path):
    given = ("--sizes", "n=1", "--time-limit", "500ms", "-o", tmp_path / "tuned.json")
    code, out, _ = explore("tune", program(tmp_path, 0.0), *given)
    assert code == 4
    assert "nothing valid was found (time_limit)" in out


def test_a_check_says_that_the_reference_is_slow(explore, tmp_path, monkeypatch):
    be_impatient(monkeypatch)
    source = tmp_path / "climbing.c"
    source.write_text("void climb(const float *x, const float *step, float *y) { y[0] = x[0]; }")
    code, _, err = explore("check", source, "--as", program(tmp_path, 0.0))
    assert code == 4
    assert "a call of the reference of run takes longer than 0.3 s" in err


def test_stored_inputs_that_make_it_endless(explore, tmp_path, monkeypatch):
    """Replay and export draw the inputs again: those are others than the search had."""
    folder = tmp_path / "run"
    given = ("--max-evals", "1", "-q", "-o", folder)
    assert explore("run", program(tmp_path, 1.0), *given)[0] == 0
    best = json.loads((folder / "best.json").read_text())
    best["stored"]["ranges"]["step"] = [0.0, 0.0]
    del best["stored"]["kept"]  # as of files that keep nothing, or whose arrays are too large
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(best))
    be_impatient(monkeypatch)  # not before: a right reference takes its time on a busy machine
    for command in (["replay"], ["export", "-o", tmp_path / "exported"]):
        code, _, err = explore(command[0], changed, *command[1:])
        assert code == 4, err
        assert "takes longer than 0.3 s" in err
        assert "Traceback" not in err


def test_a_signal_ends_it(tmp_path):
    # 0.15 of the limit is what the profile takes, which does not end either.
    running = start(
        "run", program(tmp_path, 0.0), "--time-limit", "25s", "--json", "-o", tmp_path / "run"
    )
    assert running.stdout is not None
    for line in running.stdout:
        if json.loads(line)["event"] == "root_bound":
            break
    time.sleep(0.2)  # so that it is most likely the reference that is met
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 143
    assert objects(out)[-1]["status"] == "interrupted"
    assert "Traceback" not in err


def test_a_search_that_thinks_for_ever_is_cut(tmp_path, monkeypatch):
    """The best so far stands."""
    thinking = []

    def think(self, exploration):
        thinking.append(self)
        while True:
            pass

    monkeypatch.setattr(Mcts, "step", think)
    monkeypatch.setattr(deadlines.Deadlines, "is_past_waiting", lambda self: bool(thinking))
    run = ks.explore(load("axpydot"), target="fake", directory=tmp_path)
    assert run.status == "time_limit"
    assert run.best is not None


ENDLESS_CALL = """
import ctypes

mutex = ctypes.create_string_buffer(64)
ctypes.PyDLL(None).pthread_mutex_lock(mutex)  # no other thread runs yet
ctypes.CDLL(None).pthread_mutex_lock(mutex)  # nobody unlocks it, and no signal interrupts the wait
"""
TOLD_FROM_WITHIN = """
import sys
import threading

sys.setswitchinterval(1e3)  # this thread goes on until it is in the call
entered = threading.Event()
threading.Thread(target=lambda: (entered.wait(), print("begun", flush=True)), daemon=True).start()
entered.set()
"""


def test_a_call_in_the_users_file_that_does_not_come_back(tmp_path):
    """Python hears neither the clock nor a signal in it."""
    file = tmp_path / "stuck.py"
    file.write_text(TOLD_FROM_WITHIN + ENDLESS_CALL)
    running = start("run", f"{file}:run", "--time-limit", "100ms")
    _, err = running.communicate(timeout=60)
    assert running.returncode == 4
    assert "the time limit passed in the middle of a call that does not come back" in err
    running = start("run", f"{file}:run", "--time-limit", "60s")
    assert running.stdout is not None
    while "begun" not in running.stdout.readline():
        assert running.poll() is None
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "stopped in the middle of a call that does not come back" in err


BIG = """
import kernelscape as ks
import numpy as np

nd = ks.types.ndarray()

@ks.kernel
def first(x: nd, t: nd):
    for i in range(t.shape[0]):
        t[i] = x[i % 64]

@ks.kernel
def second(t: nd, y: nd):
    for i in range(y.shape[0]):
        y[i] = t[i * 64]

def run(x, y):
    t = ks.ndarray(ks.f64, (1 << 40,))
    first(x, t)
    second(t, y)

def make_arguments(sizes, dtype, rng):
    return np.ones(64), np.zeros(100)
"""


def test_temporaries_beyond_all_memory_are_a_sentence(explore, tmp_path):
    """The kind: memory that the system promises and does not have. The reference asks for it first."""
    file = tmp_path / "big.py"
    file.write_text(BIG)
    code, _, err = explore("run", f"{file}:run", "--max-evals", "1", "-o", tmp_path / "run")
    assert code == 3
    assert "there is not enough memory: Unable to allocate 8.00 TiB" in err
    assert "Traceback" not in err
