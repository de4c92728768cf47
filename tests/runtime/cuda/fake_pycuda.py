"""A stand-in for pycuda.driver that keeps "GPU" memory on the host and runs one kernel, that of sources.py, in NumPy.

Kernels that `models` names do nothing, and take the time that it says on a clock of their own.

It shows that the backend asks the driver for the right things; what a GPU does with them, only a GPU shows.
"""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from ..sources import N


class Error(Exception):
    pass


class MemoryError(Error):  # noqa: A001
    pass


class LogicError(Error):
    pass


LIMIT_BYTES = 1 << 30
function_attribute = SimpleNamespace(MAX_DYNAMIC_SHARED_SIZE_BYTES="most")
device_attribute = None
calls: list[str] = []
models: dict[str, Callable[[tuple[int, ...], tuple[int, ...], bytes], float]] = {}  # ns of a launch
clock_ns = [0.0]
fault: list[str] = []  # what the next synchronize raises
given: list[int] = []  # addresses of the arrays of the last launch


def init() -> None:
    pass


class Device:
    def __init__(self, k: int) -> None:
        pass

    @staticmethod
    def count() -> int:
        return 1

    def name(self) -> str:
        return "NVIDIA H200"

    def retain_primary_context(self) -> SimpleNamespace:
        return SimpleNamespace(push=lambda: None, pop=lambda: None)


class DeviceAllocation:
    def __init__(self, n_bytes: int) -> None:
        if n_bytes > LIMIT_BYTES:
            raise MemoryError("cuMemAlloc failed: out of memory")
        self._raw = (ctypes.c_uint8 * (n_bytes + 256))()

    def __int__(self) -> int:
        return -(-ctypes.addressof(self._raw) // 256) * 256

    def free(self) -> None:
        del self._raw


mem_alloc = DeviceAllocation


def memcpy_htod(address: int, host: np.ndarray) -> None:
    ctypes.memmove(address, host.ctypes.data, host.nbytes)


def memcpy_dtoh(host: np.ndarray, address: int) -> None:
    ctypes.memmove(host.ctypes.data, address, host.nbytes)


def memset_d8(address: int, value: int, n: int) -> None:
    ctypes.memset(address, value, n)


def memset_d32(address: int, value: int, n: int) -> None:
    np.frombuffer((ctypes.c_uint32 * n).from_address(address), np.uint32)[:] = value


class Stream:
    handle = 0

    def synchronize(self) -> None:
        if fault:
            raise LogicError(fault.pop())


class Event:
    def record(self, stream: Stream) -> Event:
        self.at = clock_ns[0] * 1e-9 if models else time.perf_counter()
        return self

    def synchronize(self) -> Event:
        return self

    def time_till(self, other: Event) -> float:
        return (other.at - self.at) * 1e3


class Function:
    def __init__(self, name: str) -> None:
        self.name = name

    def set_attribute(self, attribute: str, value: int) -> None:
        if value > 227 << 10:
            raise LogicError("cuFuncSetAttribute failed: invalid argument")

    def _launch_kernel(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        buffer: bytes,
        shared: int,
        stream: Stream,
    ) -> None:
        if np.prod(block) > 1024:
            raise LogicError("cuLaunchKernel failed: invalid argument")
        calls.append(self.name)
        if self.name in models:
            clock_ns[0] += models[self.name](grid, block, buffer)
            return
        *addresses, alpha = struct.unpack("PPPf", buffer)
        given[:] = addresses
        x, y, z = (
            np.frombuffer((ctypes.c_float * N).from_address(a), np.float32) for a in addresses
        )
        z[:] = np.float32(alpha) * x + y
        y[:] = z


def module_from_buffer(cubin: bytes) -> SimpleNamespace:
    assert cubin[:4] == b"\x7fELF"

    def get_function(name: str) -> Function:
        if name.encode() not in cubin:
            raise LogicError("cuModuleGetFunction failed: named symbol not found")
        return Function(name)

    return SimpleNamespace(get_function=get_function)
