"""Arrays handed to a child without a copy: files in memory, which vanish with the parent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .input_sets import InputSet
from .messages import BranchFiles, ExpectedFiles, SetFiles
from .verify import Expected

Array = NDArray[Any]


class MemoryFiles:
    """.npy files that have no name on any disk; others open them through /proc/PID/fd."""

    def __init__(self) -> None:
        self._fds: list[int] = []

    def write(self, name: str, array: Array) -> str:
        """A path that a child of this process can open while this is not closed."""
        fd = os.memfd_create(name)
        self._fds.append(fd)
        with open(fd, "wb", closefd=False) as f:
            np.save(f, array, allow_pickle=False)
        return f"/proc/{os.getpid()}/fd/{fd}"

    def reserve(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
        """The same for an array of zeros, which takes no memory."""
        fd = os.memfd_create(name)
        self._fds.append(fd)
        with open(fd, "wb", closefd=False) as f:
            form = {"descr": dtype.str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(f, form)
            f.truncate(f.tell() + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        return f"/proc/{os.getpid()}/fd/{fd}"

    def close(self) -> None:
        """Free them, once no child maps them any more."""
        for fd in self._fds:
            os.close(fd)
        self._fds = []


def write_set(files: MemoryFiles, s: InputSet, roles: Mapping[str, str]) -> SetFiles:
    """The arrays of a set in such files."""
    arrays = {
        name: files.reserve(name, a.shape, a.dtype)  # its contents are not used
        if roles[name] == "output"
        else files.write(name, _in_order(a))
        for name, a in s.arrays.items()
    }
    wanted = {n: files.write(f"{n}.want", e.want) for n, e in s.expected.items()}
    return SetFiles(arrays, dict(s.scalars), write_expected(files, s.expected, wanted))


def write_expected(
    files: MemoryFiles, expected: Mapping[str, Expected], wanted: Mapping[str, str]
) -> dict[str, ExpectedFiles]:
    """The files of what is expected, whose values are in the files `wanted` already."""
    found = {}
    for name, e in expected.items():
        size, b = e.magnitude, e.branches
        kept = files.write(f"{name}.size", size) if isinstance(size, np.ndarray) else size
        branches = None
        if b is not None:
            at, values = files.write(f"{name}.at", b.at), files.write(f"{name}.values", b.values)
            reach = files.write(f"{name}.reach", b.reach)
            branches = BranchFiles(at, values, reach, b.n_allowed)
        found[name] = ExpectedFiles(wanted[name], e.factor, kept, branches)
    return found


def _in_order(array: Array) -> Array:
    """The same in C order; a scalar stays one, which NumPy's own function makes an array of."""
    return np.ascontiguousarray(array).reshape(array.shape)
