"""Calls a built text with arguments made to show mistakes, in a child.

Arrays lie between guards (values that no result survives) at a line of memory or a few elements behind it; those that are written
before they are read hold poison, and the workspace holds garbage.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..codegen.text.source import Source
from ..runtime.cpu.guarded_arrays import CpuArray
from ..runtime.worker.verify import Expected, find_mismatch

Arrays = dict[str, np.ndarray[Any, Any]]
Judge = Callable[[Arrays], str]
"""The fault of the arrays that a call left, "" for none."""

GUARD_BYTES = 192  # before and after each array: more than the widest vector
GARBAGE_BYTE = 0xAB  # of the workspace; also the bytes of the guards of integer arrays


@dataclass(frozen=True)
class InputSet:
    """Arguments, and what the sequence makes of them in float64."""

    arrays: Arrays
    scalars: Mapping[str, Any]
    want: Arrays
    factor: float  # of the tolerance, in units of eps * magnitude
    magnitude: float
    kept: Mapping[str, int] = field(default_factory=dict)
    """The number of first elements of each row that nobody may write, by array."""


def mismatch(got: np.ndarray[Any, Any], inputs: InputSet, name: str) -> str | None:
    """The first difference between an array and its expected values, or None."""
    expected = Expected(inputs.want[name], inputs.factor, inputs.magnitude)
    found = find_mismatch(got, expected)
    return None if found is None else f"{name}{found}"


def set_team_size(library: ctypes.CDLL, n: int) -> None:
    """Launches get n threads: of the team of this process, where it has one, which runs the launches of all libraries."""
    of_process = getattr(ctypes.CDLL(None), "ks_team_size", None)
    (of_process or library.ks_team_size)(n)


class _Guarded:
    """An array between guards, at an offset of a few elements from any alignment."""

    def __init__(self, array: np.ndarray[Any, Any], shift: int) -> None:
        size, item = array.nbytes, array.itemsize
        self.raw = np.full(size + 2 * GUARD_BYTES + 64, GARBAGE_BYTE, np.uint8)
        if array.dtype.kind == "f":
            n = len(self.raw) // item
            self.raw[: n * item] = np.full(n, np.nan, array.dtype).view(np.uint8)
        self.begin = GUARD_BYTES + (-(self.raw.ctypes.data + GUARD_BYTES)) % 64 + shift * item
        self.begin -= self.begin % item if array.dtype.kind == "f" else 0
        self.view = self.raw[self.begin : self.begin + size].view(array.dtype).reshape(array.shape)
        self.view[...] = array
        self.before = self.raw[: self.begin].copy()
        self.after = self.raw[self.begin + size :].copy()

    row_bytes = kept_bytes = 0

    def is_intact(self) -> bool:
        end = self.begin + self.view.nbytes
        return bool(
            (self.raw[: self.begin] == self.before).all() and (self.raw[end:] == self.after).all()
        )


class _Kept:
    """An array whose rows have first elements that nobody may write: who does crashes, or is told by the emulator."""

    def __init__(self, array: np.ndarray[Any, Any], n_kept: int, border: int | None) -> None:
        self.memory = CpuArray(array.shape, array.dtype, border=border)
        self.memory.upload(array)
        self.memory.keep(n_kept)
        self.view = self.memory.host

    @property
    def row_bytes(self) -> int:
        return self.memory.row_bytes

    @property
    def kept_bytes(self) -> int:
        return self.memory.kept_bytes

    def is_intact(self) -> bool:
        return self.memory.trespass() is None


def call_once(
    entry: Callable[..., None],
    source: Source,
    inputs: InputSet,
    shift: int,
    judge: Judge | None = None,
    keep: Callable[[int, int, int], None] | None = None,
) -> str | None:
    """Calls on fresh copies; what is wrong, or None. `judge` says it of the values, in place of a comparison with `inputs.want`.

    `keep` is told where rows begin, how long they are, and how many of their first bytes nobody may write.
    """
    guarded: dict[str, _Guarded | _Kept] = {}
    pointers = (ctypes.c_void_p * len(source.arguments))()
    kept: list[Any] = []
    for k, a in enumerate(source.arguments):
        if a.kind == "array":
            array, n_kept = inputs.arrays[a.name], inputs.kept.get(a.name, 0)
            border = n_kept if keep is None else None  # on a device arrays are aligned
            g = _Kept(array, n_kept, border) if n_kept else _Guarded(array, shift)
            guarded[a.name] = g
            pointers[k] = g.view.ctypes.data
            if keep is not None and n_kept:
                keep(g.view.ctypes.data, g.row_bytes, g.kept_bytes)
        elif a.kind == "scalar":
            kept.append(np.array(inputs.scalars[a.name], dtype=a.dtype))
            pointers[k] = kept[-1].ctypes.data
        else:
            raw = np.full(a.shape[0] + 64 + 2 * GUARD_BYTES, GARBAGE_BYTE, np.uint8)
            kept.append(raw)
            start = GUARD_BYTES + (-(raw.ctypes.data + GUARD_BYTES)) % 64
            # NaN as f32 and as f64: an accumulator that nobody set spoils the result.
            raw[start : start + a.shape[0]] = 0xFF
            pointers[k] = raw.ctypes.data + start
            kept.append((start, a.shape[0]))
    entry(pointers)
    for k, item in enumerate(kept):
        if isinstance(item, tuple):
            raw, (start, size) = kept[k - 1], item
            if (raw[:start] != GARBAGE_BYTE).any() or (raw[start + size :] != GARBAGE_BYTE).any():
                return "the workspace was overrun"
    for name, g in guarded.items():
        if not g.is_intact():
            return f"{name} was overrun"
        found = None if judge is not None else mismatch(g.view, inputs, name)
        if found is not None:
            return found
    if judge is not None:
        return judge({name: g.view for name, g in guarded.items()}) or None
    return None


def in_child(work: Callable[[], str], seconds: float) -> str:
    """Returns the result of `work`, run in a child, or the end of the child in words."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        found = "the child failed"
        try:
            found = work()
        except BaseException as e:  # nothing may return into the parent's stack
            found = f"{type(e).__name__}: {e}"
        finally:
            os.write(writer, b"." + found.encode()[:4000])
            os._exit(0)
    os.close(writer)
    deadline = time.monotonic() + seconds
    ready, _, _ = select.select([reader], [], [], seconds)
    answer = os.read(reader, 8000) if ready else b""
    os.close(reader)
    if not ready or time.monotonic() > deadline:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if not ready:
        return f"ran past {seconds:g} s"
    if not answer:
        return f"crashed with signal {os.waitstatus_to_exitcode(status)}"
    return answer[1:].decode()


def first_fault(runs: Sequence[Callable[[], str]], seconds: float) -> tuple[int, str] | None:
    """The number of the first of some runs that says something, with what it says; None where none does.

    They share a child, as starting one costs as much as a run. Where it ends, each is in one of its own; `seconds` are of each.
    """

    def run_all() -> str:
        said = ((k, run()) for k, run in enumerate(runs))
        return next((f"{k}: {what}" for k, what in said if what), "")

    said = in_child(run_all, seconds * len(runs))
    if not said:
        return None
    number, _, what = said.partition(": ")
    if number.isdigit():
        return int(number), what
    alone = ((k, in_child(run, seconds)) for k, run in enumerate(runs))
    return next(((k, what) for k, what in alone if what), (0, said))
