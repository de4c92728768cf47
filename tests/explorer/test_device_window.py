"""Windows of a program on a device: deferred calls run in order, before Python uses what they change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.explorer.device_executor import executor_on
from kernelscape.kernels.ir.errors import KernelAssertionError, KernelRuntimeError
from kernelscape.runtime.api.backend import CallsInTurn, WindowCall

from .test_device_executor import steps_of_a_program

ABSENT = executor_on("emulator")
pytestmark = pytest.mark.skipif(isinstance(ABSENT, str), reason=str(ABSENT))


@pytest.fixture(autouse=True)
def _no_program_afterwards() -> Iterator[None]:
    yield
    ks.reset()


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The windows that ran, each as its number of calls."""
    said: list[int] = []
    run = CallsInTurn.run

    def noted(self: CallsInTurn, calls: Sequence[WindowCall]) -> None:
        said.append(len(calls))
        run(self, calls)

    monkeypatch.setattr(CallsInTurn, "run", noted)
    return said


def test_programs_compute_what_they_do_without_windows(windows: list[int]) -> None:
    ks.init()
    with ks.interpret():
        wanted = steps_of_a_program()
    ks.init(arch=ks.emulator, async_mode=True)
    found = steps_of_a_program()
    for a, b in zip(found, wanted, strict=True):
        assert np.allclose(a, b, rtol=1e-6)
    assert len(windows) > 1 and max(windows) > 1
    stats = ks.engine.stats()
    assert (stats.n_windows, stats.n_calls) == (len(windows), sum(windows)) and stats.n_at_once


def test_calls_wait_until_python_uses_what_they_change(windows: list[int]) -> None:
    ks.init(arch=ks.emulator, async_mode=True, async_flush_every=4)
    x, y, z = ks.field(ks.i32, 3), ks.field(ks.i32, 3), ks.field(ks.i32, 3)

    @ks.kernel
    def add():
        for i in x:
            x[i] = 2 * x[i] + y[i]

    y.fill(1)
    add()
    add()
    assert y[0] == 1 and z[1] == 0 and not windows  # what they do not write
    z[1] = 5
    assert not windows
    assert x[0] == 3 and windows == [2]
    add()
    y[2] = 10  # they read it
    assert windows == [2, 1]
    for _ in range(5):
        add()
    assert windows == [2, 1, 4]
    ks.sync()
    assert windows == [2, 1, 4, 1]
    assert x.to_numpy().tolist() == [255, 255, 7 * 32 + 310]
    add()
    seen = np.from_dlpack(x)
    assert windows[4:] == [1] and seen[0] == 511
    add()
    assert len(windows) == 5 and seen[0] == 1023  # at once, since others see it


def test_operations_on_whole_fields_wait_too(windows: list[int]) -> None:
    """From the third time on a period is one window, however it empties its fields."""
    ks.init(arch=ks.emulator, async_mode=True)
    x, y = ks.field(ks.i32, 4), ks.field(ks.i32, 4)

    @ks.kernel
    def add():
        for i in x:
            y[i] += x[i] + 1

    for k in range(5):
        x.fill(k)
        add()
    windows.clear()
    assert y.to_numpy().tolist() == [15] * 4 and windows == [7]


def test_one_window_serves_while_cells_become_active(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its modules and arguments are the same: kernels read the lengths of lists on the device."""
    said: list[list[tuple[int, ...]]] = []
    run = CallsInTurn.run

    def noted(self: CallsInTurn, calls: Sequence[WindowCall]) -> None:
        said.append([(id(c.module), *map(id, c.values)) for c in calls])
        run(self, calls)

    monkeypatch.setattr(CallsInTurn, "run", noted)
    ks.init(arch=ks.emulator, async_mode=True)
    s, n = ks.field(ks.i32), ks.field(ks.i32, ())
    ks.root.pointer(ks.i, 16).dense(ks.i, 4).place(s)

    @ks.kernel
    def grow():
        for _ in range(1):
            s[4 * n[None]] = 1
            n[None] += 1

    @ks.kernel
    def add():
        for i in s:
            s[i] += 1

    for k in range(3):
        grow()
        add()
        assert s[4 * k] == 2
    assert len(said) == 3 and said[0] == said[1] == said[2] and len(said[0]) == 2
    values = s.to_numpy()
    assert values[:12].tolist() == [4, 3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1] and not values[12:].any()


def test_errors_are_raised_where_the_window_runs() -> None:
    ks.init(arch=ks.emulator, async_mode=True)
    s, x = ks.field(ks.i32), ks.field(ks.i32, 4)
    ks.root.dynamic(ks.i, 4, chunk_size=4).place(s)

    @ks.kernel
    def put(i: ks.i32):
        s[i] = 1

    @ks.kernel
    def scatter(at: ks.i32):
        for i in x:
            x[i + at] = i

    @ks.kernel
    def put_next(i: ks.i32):
        s[i + 1] = 1

    put(4)
    put(1)
    put_next(3)
    with pytest.raises(KernelAssertionError, match="outside"):
        s[2]
    put_next(2)
    put(2)
    assert s[2] == 1  # of this call, and no other
    scatter(1 << 20)
    with pytest.raises(KernelRuntimeError, match="kernels scatter on the emulator: launch_0, "):
        ks.sync()
    scatter(0)
    assert x[3] == 3
