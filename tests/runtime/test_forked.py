"""Results of children, and the end of those that somebody ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from kernelscape.runtime.forked import DiedError, Forked, run_apart, shared_empty


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


def test_works_of_one_child_have_their_results_in_turn():
    """The second goes on from the first; a child that somebody kills does both again, and gives the second."""
    n_begun, kept = shared_empty((2,), np.int64), np.arange(3)
    state = [kept]

    def first():
        n_begun[0] += 1
        state.append(state[-1] + 1)
        return state[-2:]

    def second():
        n_begun[1] += 1
        if n_begun[1] == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return [state[0], state[-1] + 1]

    forked = Forked(first, second, kept=[kept])
    same, found = forked.result()
    assert same is kept
    assert found.tolist() == [1, 2, 3]
    same, found = forked.result()
    assert same is kept
    assert found.tolist() == [2, 3, 4]
    assert n_begun.tolist() == [2, 2]
    forked.end()


def test_after_an_error_no_further_work_is_done():
    n_begun = shared_empty((1,), np.int64)

    def fail():
        raise ValueError("first")

    def second():
        n_begun[0] += 1

    forked = Forked(fail, second)
    with pytest.raises(ValueError, match="first"):
        forked.result()
    forked.end()
    assert n_begun[0] == 0


def test_a_child_stands_still_while_it_is_paused():
    n_steps = shared_empty((1,), np.int64)

    def work():
        while n_steps[0] >= 0:
            n_steps[0] += 1

    def state(forked):
        return Path(f"/proc/{forked._pid}/stat").read_text().rpartition(")")[2].split()[0]

    forked = Forked(work)
    while n_steps[0] == 0:
        os.sched_yield()
    with forked.paused():
        while state(forked) != "T":
            os.sched_yield()
        n_before = int(n_steps[0])
        assert n_steps[0] == n_before
    while n_steps[0] == n_before:
        os.sched_yield()
    with forked.paused():
        forked.end()
    with forked.paused():
        pass  # there is none


class AwkwardError(Exception):
    """One that pickle cannot make again."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} {b}")


def test_errors_that_cannot_be_sent_come_as_their_lines():
    def fail() -> None:
        raise AwkwardError(1, 2)

    with pytest.raises(RuntimeError, match="AwkwardError: 1 2"):
        run_apart(fail)
