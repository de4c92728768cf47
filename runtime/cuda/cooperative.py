"""Cooperative launches, of kernels whose blocks wait for each other: the driver refuses blocks that are not resident at once.

PyCUDA has no such launches; the driver is called directly, in PyCUDA's context. CUDA Driver API, "cuLaunchCooperativeKernel".
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

from .driver import driver, library

_MOST_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT


class CooperativeKernel:
    """A kernel of a `CooperativeModule`, with the offsets of its parameters in packed arguments."""

    def __init__(self, function: ctypes.c_void_p, offsets: Sequence[int]) -> None:
        self._function, self._offsets = function, tuple(offsets)

    def allow_shared_bytes(self, n_bytes: int) -> None:
        """Allows launches so much dynamic shared memory. Raises the driver's Error."""
        _call("cuFuncSetAttribute", self._function, _MOST_SHARED, n_bytes)

    def most_blocks(self, block: Sequence[int], shared_bytes: int) -> int:
        """Returns the number of blocks that the first GPU holds at once. Raises the driver's Error."""
        each, n = ctypes.c_int(0), ctypes.c_int(0)
        name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        bytes_of_block = ctypes.c_size_t(shared_bytes)
        _call(name, ctypes.byref(each), self._function, prod(block), bytes_of_block)
        _call("cuDeviceGetAttribute", ctypes.byref(n), _MULTIPROCESSORS, 0)
        return each.value * n.value

    def _launch_kernel(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        packed: bytes,
        shared_bytes: int,
        stream: Any,
    ) -> None:
        """Launches it on a stream, as PyCUDA's method of this name does. Raises the driver's Error."""
        raw = ctypes.create_string_buffer(packed, len(packed))
        first = ctypes.addressof(raw)
        places = (ctypes.c_void_p * len(self._offsets))(*(first + k for k in self._offsets))
        sizes = (ctypes.c_uint(n) for n in (*grid, *block, shared_bytes))
        on = ctypes.c_void_p(stream.handle)
        _call("cuLaunchCooperativeKernel", self._function, *sizes, on, places)


class CooperativeModule:
    """A cubin that the driver has loaded. Raises its Error where it does not."""

    def __init__(self, cubin: bytes) -> None:
        self._module = ctypes.c_void_p()
        _call("cuModuleLoadData", ctypes.byref(self._module), cubin)

    def kernel(self, name: str, offsets: Sequence[int]) -> CooperativeKernel:
        """Returns a kernel by its name; `offsets`: those of its parameters. Raises the driver's Error."""
        found = ctypes.c_void_p()
        _call("cuModuleGetFunction", ctypes.byref(found), self._module, name.encode())
        return CooperativeKernel(found, offsets)

    def close(self) -> None:
        """Unloads the cubin; its kernels must not be launched afterwards."""
        library().cuModuleUnload(self._module)


def _call(name: str, *arguments: Any) -> None:
    """Calls a function of the driver. Raises PyCUDA's Error with the driver's sentence where it fails."""
    status = getattr(library(), name)(*arguments)
    if status != 0:
        said = ctypes.c_char_p()
        library().cuGetErrorString(status, ctypes.byref(said))
        words = (said.value or b"").decode() or f"error {status}"
        raise driver().Error(f"{name} failed: {words}")
