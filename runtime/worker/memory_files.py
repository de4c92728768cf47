"""Transfer of arrays to a child process without copies: memory-backed files, freed when the parent ends."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .input_sets import InputSet
from .messages import BranchFiles, ExpectedFiles, SetFiles
from .verify import Expected

Array = NDArray[Any]


class AbstractFiles(ABC):
    """.npy files of arrays, under names that requests refer to."""

    @abstractmethod
    def write(self, name: str, array: Array) -> str:
        """Writes an array to a file and returns the file's name; `name` is for debugging."""

    @abstractmethod
    def reserve(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
        """Creates a file with an array of zeros and returns the file's name."""

    @abstractmethod
    def close(self) -> None:
        """Frees the files, as soon as no child maps them."""


class MemoryFiles(AbstractFiles):
    """Anonymous .npy files in memory. Other processes open them through /proc/PID/fd."""

    def __init__(self) -> None:
        self._fds: list[int] = []

    def write(self, name: str, array: Array) -> str:
        """Writes an array and returns its path, which a child of this process can open until `close`."""
        fd = os.memfd_create(name)
        self._fds.append(fd)
        with open(fd, "wb", closefd=False) as f:
            np.save(f, array, allow_pickle=False)
        return f"/proc/{os.getpid()}/fd/{fd}"

    def reserve(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
        """Creates an array of zeros, which occupies no memory, and returns its path."""
        fd = os.memfd_create(name)
        self._fds.append(fd)
        with open(fd, "wb", closefd=False) as f:
            form = {"descr": dtype.str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(f, form)
            f.truncate(f.tell() + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        return f"/proc/{os.getpid()}/fd/{fd}"

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds = []


def write_set(files: AbstractFiles, s: InputSet, roles: Mapping[str, str]) -> SetFiles:
    """Writes an input set to files, and returns their names.

    There are files of inputs, of expected results, and of room for arrays whose role in `roles` is "output".
    """
    arrays = {
        name: files.reserve(name, a.shape, a.dtype)  # its contents are not used
        if roles[name] == "output"
        else files.write(name, _in_order(a))
        for name, a in s.arrays.items()
    }
    wanted = {n: files.write(f"{n}.want", e.want) for n, e in s.expected.items()}
    return SetFiles(arrays, dict(s.scalars), write_expected(files, s.expected, wanted))


def write_expected(
    files: AbstractFiles, expected: Mapping[str, Expected], wanted: Mapping[str, str]
) -> dict[str, ExpectedFiles]:
    """Writes expected results to files; `wanted` names the existing files with their values."""
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
    """Returns the array in C order; a zero-dimensional one stays so, unlike in np.ascontiguousarray."""
    return np.ascontiguousarray(array).reshape(array.shape)
