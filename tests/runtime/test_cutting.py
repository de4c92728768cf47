"""Blocks that are interrupted from another thread leave nothing behind in the interpreter.

The kind: an exception for a thread that is cancelled, or raised when its block is over. CPython 3.11 looks for a cancelled one at
each call from then on, and a call that a debugger or a coverage tool traces never returns.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import pytest
from kernelscape.runtime import cutting
from kernelscape.runtime.forked import Stopped

TRACED = """
import sys
from kernelscape.runtime import cutting
from kernelscape.runtime.forked import Stopped

is_cut = sys.argv[1] == "cut"
try:
    with cutting.stopped_when(lambda: is_cut):
        while is_cut:
            pass
except Stopped:
    print("stopped")

def called():
    return "returned"

sys.settrace(lambda frame, event, argument: None)
found = called()
sys.settrace(None)
print(found)
"""


@pytest.mark.parametrize(("how", "said"), [("left", "returned"), ("cut", "stopped returned")])
def test_calls_are_traced_behind_a_block(how: str, said: str) -> None:
    command = [sys.executable, "-c", TRACED, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == said.split()


@pytest.fixture
def _busy_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def endless() -> None:
    while True:
        pass


@pytest.mark.usefixtures("_busy_threads")
def test_what_comes_too_late_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of many lengths, that end while the watcher raises in them: either they are stopped, or nothing ever is."""
    monkeypatch.setattr(cutting, "_LOOK_S", 1e-6)
    for k in range(400):
        with suppress(Stopped), cutting.stopped_when(lambda: True):
            for _ in range(k):
                sum(range(10))
        sum(range(1000))  # where a late one would be raised
    with pytest.raises(Stopped), cutting.stopped_when(lambda: True):
        endless()


@contextmanager
def nested(is_over: Callable[[], bool]) -> Iterator[None]:
    with cutting.stopped_when(is_over):
        yield


@pytest.mark.parametrize("step", ["return __enter__", "call __exit__"])
def test_nothing_is_raised_behind_a_context_manager_that_is_not_resumed(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal while a block is entered or left: its traceback, which somebody keeps, keeps the watcher."""
    monkeypatch.setattr(cutting, "_LOOK_S", 1e-3)
    is_out, looks = False, 0

    def is_over() -> bool:
        nonlocal looks
        looks += is_out
        return is_out

    def interrupt(frame: FrameType, event: str, argument: Any) -> None:
        if f"{event} {frame.f_code.co_name}" == step:
            sys.setprofile(None)
            raise KeyboardInterrupt

    def left() -> None:
        sys.setprofile(interrupt)
        with nested(is_over):
            pass

    with pytest.raises(KeyboardInterrupt) as kept:
        left()
    is_out = True
    while looks < 3:
        time.sleep(0)
    assert kept.type is KeyboardInterrupt


def test_a_condition_that_fails_ends_its_watcher_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[type[BaseException]] = []
    monkeypatch.setattr(cutting, "_LOOK_S", 1e-3)
    monkeypatch.setattr(sys, "unraisablehook", lambda found: failed.append(found.exc_type))
    with cutting.stopped_when(lambda: bool(1 / 0)):
        while not failed:
            time.sleep(0)
    assert failed == [ZeroDivisionError]
