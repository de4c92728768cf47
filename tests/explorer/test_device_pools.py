"""Arrays of sparse trees on a device: memory grows ahead of the calls that need it, and only what is in use is copied."""

from __future__ import annotations

import ctypes
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.explorer import device_pools
from kernelscape.explorer.device_executor import executor_on
from kernelscape.kernels.ir.errors import KernelRuntimeError
from kernelscape.runtime.cpu.guarded_arrays import CpuArray
from kernelscape.runtime.device import open_device

ABSENT = executor_on("emulator")
pytestmark = pytest.mark.skipif(isinstance(ABSENT, str), reason=str(ABSENT))
PAGE = 4096


class HeldArray(CpuArray):
    """An array whose pages fault unless they were held; `most` bounds the bytes held by all together."""

    made: ClassVar[list[HeldArray]] = []
    most: ClassVar[int] = 1 << 60

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        super().__init__(shape, dtype)
        self.held: list[int] = []
        first, end = self.span
        assert first % PAGE == 0
        self._allow(first, end // PAGE * PAGE, 0)
        self.made.append(self)

    def hold(self, n_first: int) -> None:
        n_bytes = min(n_first, self.shape[-1]) * self.dtype.itemsize
        others = sum(x.held[-1] for x in self.made if x.held and x is not self)
        if others + n_bytes > self.most:
            raise MemoryError("none left")
        first, end = self.span
        for row in range(first, end, self.row_bytes):
            behind = -(-(row + n_bytes) // PAGE) * PAGE
            self._allow(row // PAGE * PAGE, min(behind, end // PAGE * PAGE), 3)
        self.held.append(n_bytes)

    def _allow(self, first: int, end: int, protection: int) -> None:
        if first < end:
            libc = ctypes.CDLL(None)
            assert (
                libc.mprotect(ctypes.c_void_p(first), ctypes.c_size_t(end - first), protection) == 0
            )


def in_child(function: Callable[[], None]) -> str:
    """Runs a function of this file in a process of its own, which a fault ends; returns its output."""
    code = f"from {__name__} import {function.__name__}; {function.__name__}()"
    name = __name__ if __name__.startswith("kernelscape.") else f"kernelscape.{__name__}"
    code = code.replace(f"from {__name__} ", f"from {name} ")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
    return done.stdout


def hold_pages() -> None:
    runner: Any = type(open_device("emulator").runner)
    plain = runner.allocate

    def allocate(self: Any, shape: Any, dtype: Any, *, grows: bool = False, **given: Any) -> Any:
        return HeldArray(shape, dtype) if grows else plain(self, shape, dtype, **given)

    runner.allocate = allocate


def steps() -> list[Any]:
    """Cells that kernels and Python activate, pass on, add to and make inactive, in turn."""
    x, y = ks.field(ks.f32), ks.Vector.field(2, ks.f32)
    block = ks.root.pointer(ks.ij, 128)
    block.dense(ks.ij, 8).place(x)
    block.dense(ks.ij, 8).place(y)

    @ks.kernel
    def put(begin: ks.i32):
        for i in range(40):
            at = begin + 8 * i
            x[at, at] = i
            y[at, at] += ks.Vector([begin, i])

    @ks.kernel
    def spread():
        for i, j in x:
            if x[i, j] > 30 and i + 8 < 1024:
                x[i + 8, j] += 1

    @ks.kernel
    def drop(k: ks.i32):
        ks.deactivate(block, [k, k])

    seen: list[Any] = []
    for begin in range(0, 640, 160):
        put(begin)
        spread()
        seen.append(x.to_numpy().sum())
        x[begin, 1000] = 5
        drop(begin // 8)
    block.deactivate_all()
    put(3)
    return [*seen, x.to_numpy(), y.to_numpy()]


def grow() -> None:
    hold_pages()
    device_pools._CALLS_AHEAD = 1
    ks.init()
    with ks.interpret():
        wanted = steps()
    ks.init(arch=ks.emulator)
    for a, b in zip(steps(), wanted, strict=True):
        assert np.array_equal(a, b)
    fields = [x for x in HeldArray.made if x.dtype == np.float32]
    assert len(fields) == 2 and ks.engine.stats().backend == "emulator"
    for field in fields:
        assert len(field.held) > 1 and field.held == sorted(field.held)
        assert field.held[-1] < field.row_bytes


def test_memory_grows_ahead_of_the_calls_that_need_it() -> None:
    """Elements that are not held fault, and results are those of the interpreter."""
    in_child(grow)


def fill_up() -> None:
    hold_pages()
    HeldArray.most = 1 << 20
    ks.init(arch=ks.emulator)
    x = ks.field(ks.f32)
    ks.root.pointer(ks.i, 1 << 14).dense(ks.i, 64).place(x)

    @ks.kernel
    def put(first: ks.i32):
        for i in range(400):
            x[first + 64 * i] = i + 1

    def fill() -> None:
        for n in range(40):
            put(n * 64 * 400)
            done.append(n)

    done: list[int] = []
    with pytest.raises(KernelRuntimeError) as told:
        fill()
    assert len(done) > 4
    print(told.value)
    assert x[64 * 3] == 4


def test_the_limit_is_one_sentence_after_as_many_cells_as_there_is_room_for() -> None:
    """Room for later calls is not insisted on."""
    said = in_child(fill_up)
    assert said.startswith("kernel put on the emulator: there is no room for an array of ")
    assert said.count("\n") == 1 and "none left" in said


def touch_little() -> None:
    ks.init(arch=ks.emulator)
    x = ks.field(ks.f32)
    ks.root.pointer(ks.ij, 1024).dense(ks.ij, 8).place(x)

    @ks.kernel
    def put():
        for i in range(9):
            x[900 * i, i] = i

    put()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    put()
    assert x[900 * 3, 3] == 3
    x[5, 5] = 1
    put()
    assert x[5, 5] == 1
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


def test_only_what_is_in_use_is_copied() -> None:
    """The field has room for 512 MiB, on the host and on the device."""
    assert int(in_child(touch_little)) < 64 << 10
