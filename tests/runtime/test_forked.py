"""Results of children, and the end of those that somebody ends."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from kernelscape.runtime.forked import DiedError, run_apart, shared_empty


def test_arrays_come_back_as_they_are():
    """Those that the parent has are the very same ones; one element seen everywhere takes no memory; others may be written to."""
    kept = np.arange(5.0)

    def work():
        return {
            "kept": kept,
            "new": np.arange(100_000, dtype=np.int16).reshape(4, -1),
            "turned": np.arange(6.0).reshape(2, 3).T,
            "parts": np.arange(10)[::2],
            "seen": np.broadcast_to(np.float32(7), (1 << 20, 1 << 10)),
            "empty": np.zeros((0, 3)),
            "one": np.array(3, np.uint8),
        }

    found = run_apart(work, kept=[kept])
    assert found["kept"] is kept
    assert found["seen"].strides == (0, 0)
    assert found["seen"][5, 5] == 7
    made = work()
    for name in ("new", "turned", "parts", "empty", "one"):
        np.testing.assert_array_equal(found[name], made[name])
        assert found[name].dtype == made[name].dtype
    found["new"][0, 0] = 9
    assert found["new"][0, 0] == 9


def test_a_child_that_somebody_kills_is_made_again():
    """The kind: what others do to a child is not taken for a lack of memory."""
    n_begun = shared_empty((1,), np.int64)

    def work() -> int:
        n_begun[0] += 1
        if n_begun[0] == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return 5

    assert run_apart(work) == 5
    assert n_begun[0] == 2


@pytest.mark.parametrize(
    ("end", "said"),
    [(lambda: os.kill(os.getpid(), signal.SIGUSR1), "SIGUSR1"), (lambda: os._exit(3), "status 3")],
)
def test_a_child_that_ends_itself_says_how(end, said):
    with pytest.raises(DiedError, match=said):
        run_apart(end)


class AwkwardError(Exception):
    """One that pickle cannot make again."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} {b}")


def test_errors_that_cannot_be_sent_come_as_their_lines():
    def fail() -> None:
        raise AwkwardError(1, 2)

    with pytest.raises(RuntimeError, match="AwkwardError: 1 2"):
        run_apart(fail)
