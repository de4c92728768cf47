"""Blocks that are interrupted from another thread leave nothing behind in the interpreter.

The kind: an exception for a thread that is cancelled, or raised when its block is over. CPython 3.11 looks for a cancelled one at
each call from then on, and a call that a debugger or a coverage tool traces never returns.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

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
