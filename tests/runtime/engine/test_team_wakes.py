"""Wakes of the team's threads by the launches of a window."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import kernelscape as ks
import pytest
from kernelscape.kernels.fields.program import current_program
from kernelscape.kernels.tasks import window_kernels, work
from kernelscape.runtime import engine as engine_room
from kernelscape.runtime.engine.engine import Engine, EngineOptions

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs"),
]
N, N_STEPS = 1 << 14, 50
PAUSE_S = 0.002  # ten times as long as a thread of the team spins
MOST_WINDOWS = 1000


@pytest.fixture(autouse=True)
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    made = Engine(EngineOptions(folder=tmp_path / "kernels"))
    monkeypatch.setattr(engine_room, "_engine", made)
    yield made
    ks.reset()
    made.close()


def test_a_window_of_short_launches_wakes_each_thread_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a pause, in which threads fall asleep. Short kernels of one thread are between the launches.

    On a busy machine threads lose their cores within a window: then there is another one.
    """
    monkeypatch.setattr(work, "TEAM_PAYS_NS", 0.0)
    monkeypatch.setattr(window_kernels, "MOST_STATEMENTS", 0)  # each loop is a kernel
    ks.init(async_mode=True)
    x = [ks.field(ks.i32, N) for _ in range(N_STEPS + 1)]
    number = ks.field(ks.i32, ())

    @ks.kernel
    def spread(before: ks.template(), after: ks.template()):
        for i in range(1, N - 1):
            after[i] = (before[i - 1] + before[i + 1]) // 2

    @ks.kernel
    def count():
        for _ in range(1):
            n = number[None]
            for j in range(1000):
                n = (3 * n + j) % 1009
            number[None] = n

    def window() -> list[int]:
        """Runs all kernels; returns the number of calls by plans, of launches, and of threads that they woke."""
        time.sleep(PAUSE_S)
        before = ks.engine.stats()
        for k in range(N_STEPS):
            spread(x[k], x[k + 1])
            count()
        ks.sync()
        now = ks.engine.stats()
        names = ("n_planned", "n_launches", "n_wakes")
        return [getattr(now, name) - getattr(before, name) for name in names]

    for _ in range(3):
        window()
        current_program().follower.plans.complete()
    n_threads = len(os.sched_getaffinity(0))
    counts = list[int]()
    while not counts or not 0 < counts[-1] <= n_threads:
        assert len(counts) < MOST_WINDOWS, sorted(counts)[::20]
        *by_plan, n_wakes = window()
        assert by_plan == [2 * N_STEPS, 2 * N_STEPS]
        counts.append(n_wakes)
