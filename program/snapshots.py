"""Checkpointing of a tape: its calls run again from snapshots, before their adjoints.

A segment has a number of consecutive calls. Its snapshot has copies of the arrays that these calls write, from before the first
write. The reverse sweep takes the last segment first. It restores the snapshot and runs the calls again, with a copy of each array
before each call that writes it. Then the adjoints run, the last call first. Behind each adjoint the copies of its call are
restored, so each adjoint reads all arrays as its call left them. The memory is a snapshot a segment and the copies of one segment
(Griewank and Walther, Evaluating Derivatives, 2008, section 12.1).

Each call runs once more with any length of segments, so the length decides about memory only. With n calls of one state it is least
at the square root of n, and n is unknown before the end. Automatic lengths begin with one call. They double as soon as there are
more than twice as many segments as calls in each, and neighbours are joined: the earlier snapshot serves both.
That takes at most 2.13 sqrt(n) copies, plus the last one; 2 sqrt(n) is the least.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from ..kernels.fields.caller_location import fail
from ..kernels.fields.field import AbstractLeaf
from ..kernels.fields.ndarray import Ndarray
from ..kernels.frontend.adjoint_calls import run_adjoint
from ..kernels.frontend.derivatives import (
    copy_call,
    equality_call,
    overwritten_arrays,
    restore_call,
)
from ..kernels.frontend.dispatch import current
from ..kernels.frontend.instance import KernelCall
from ..kernels.frontend.recorder import ndarray
from ..kernels.ir.errors import ProgramRuntimeError
from ..kernels.ir.kernel import DType, SetLocal, Update
from ..kernels.ir.walk import nested_statements, written_in


@dataclass(frozen=True)
class _Saved:
    """Copy of an array of a call."""

    call: KernelCall
    name: str
    copy: Any

    @property
    def label(self) -> str:
        """The name of the array in messages."""
        fields = dict(self.call.instance.fields)
        return str(getattr(fields.get(self.name), "label", self.name))


_State = dict[Hashable, _Saved]
"""Copies of arrays, by the identity of each (`_key`)."""


@dataclass
class _Segment:
    calls: list[KernelCall] = field(default_factory=list)
    begin: _State = field(default_factory=dict)


class Snapshots:
    """The calls of a tape in segments of `n_calls`; of automatic length if that is None."""

    def __init__(self, n_calls: int | None) -> None:
        self.n_calls, self._is_automatic = n_calls or 1, n_calls is None
        self._segments: list[_Segment] = []
        self._free: dict[tuple[DType, tuple[int, ...]], list[Any]] = {}

    def before(self, call: KernelCall) -> None:
        """Adds the next call, and copies the arrays that it is the first of its segment to write."""
        _refuse(call)
        if not self._segments or len(self._segments[-1].calls) == self.n_calls:
            self._open()
        segment = self._segments[-1]
        _refuse_overlap(segment, call)
        segment.calls.append(call)
        for name in _written(call):
            if _key(call, name) not in segment.begin:
                segment.begin[_key(call, name)] = self._copied(call, name)

    def _open(self) -> None:
        """Adds a segment. Joins the others two by two if automatic segments are too many."""
        if self._is_automatic and len(self._segments) == 2 * self.n_calls:
            pairs = zip(self._segments[::2], self._segments[1::2], strict=True)
            self._segments = [self._joined(first, second) for first, second in pairs]
            self.n_calls *= 2
        self._segments.append(_Segment())

    def _joined(self, first: _Segment, second: _Segment) -> _Segment:
        """Returns both segments as one.

        Arrays that the first one does not write are at its begin as at the begin of the second.
        """
        for call in second.calls:
            _refuse_overlap(first, call)
        for key in first.begin.keys() & second.begin.keys():
            self._release(second.begin.pop(key))
        return _Segment(first.calls + second.calls, first.begin | second.begin)

    def reverse(self) -> None:
        """Runs the adjoints of the calls, the last call first, and leaves all arrays but gradients as they are."""
        every = {key: x for segment in self._segments for key, x in segment.begin.items()}
        last = [self._copied(x.call, x.name) for x in every.values()]
        try:
            for segment in reversed(self._segments):
                self._reverse(segment)
        finally:
            self._restore(last)

    def _reverse(self, segment: _Segment) -> None:
        ends = [self._copied(x.call, x.name) for x in segment.begin.values()]
        self._restore(segment.begin.values())
        befores: list[dict[str, _Saved]] = []
        for call in segment.calls:
            befores.append({name: self._copied(call, name) for name in _written(call)})
            current().run(call)
        is_exact = not any(_sums_in_any_order(call) for call in segment.calls)
        for x in ends:
            current().run(equality_call(x.call, x.name, x.copy, x.label, is_exact=is_exact))
            self._release(x)
        for call, saved in zip(reversed(segment.calls), reversed(befores), strict=True):
            copies = {name: saved[name].copy for name in overwritten_arrays(call)}
            run_adjoint(call, copies)
            self._restore(saved.values())

    # --- copies

    def _copied(self, call: KernelCall, name: str) -> _Saved:
        """Copies an array into memory that is free again, or new."""
        kind = _kind(call, name)
        free = self._free.get(kind, [])
        made = free.pop() if free else ndarray(*kind)
        copy = made.array if isinstance(made, Ndarray) else made
        current().run(copy_call(call, name, copy))
        return _Saved(call, name, copy)

    def _restore(self, state: Iterable[_Saved]) -> None:
        for x in state:
            current().run(restore_call(x.call, x.name, x.copy))
            self._release(x)

    def _release(self, x: _Saved) -> None:
        self._free.setdefault(_kind(x.call, x.name), []).append(x.copy)


def _kind(call: KernelCall, name: str) -> tuple[DType, tuple[int, ...]]:
    """The type and shape of an array of a call."""
    found = next(p for p in call.instance.ir.arrays if p.name == name)
    return found.dtype, found.shape


def _sums_in_any_order(call: KernelCall) -> bool:
    """True if a call may give other bits when it runs again: threads add floats up in any order."""
    body = call.instance.ir.body
    return any(isinstance(s, SetLocal) for s in body) or any(
        isinstance(s, Update) and s.value.dtype.is_float for s in nested_statements(body)
    )


def _written(call: KernelCall) -> Iterator[str]:
    """Yields the arrays that a call writes."""
    written = written_in(call.instance.ir.body)
    yield from (p.name for p in call.instance.ir.arrays if p.name in written)


def _key(call: KernelCall, name: str) -> Hashable:
    """The identity of an array of a call: its field, its memory, or its symbol in a recording."""
    fields, array = dict(call.instance.fields), call.arrays[name]
    if name in fields:
        return id(fields[name])
    if isinstance(array, np.ndarray):
        return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype
    return id(array)


def _refuse(call: KernelCall) -> None:
    if call.instance.is_on_trees or call.instance.views:
        fail(
            f"a tape with snapshots runs kernels on dense fields and ndarrays: {call.instance.ir.name} has a sparse field",
            ProgramRuntimeError,
        )
    leaves = (x for _, x in call.instance.fields if isinstance(x, AbstractLeaf))
    gradient = next((x for x in leaves if x.dtype.is_float and not x.is_differentiable), None)
    if gradient is not None:
        fail(
            f"a tape with snapshots runs its kernels again between their adjoints: {call.instance.ir.name} uses {gradient.label},"
            " a gradient, so call it outside of the tape",
            ProgramRuntimeError,
        )


def _refuse_overlap(segment: _Segment, call: KernelCall) -> None:
    """Raises LanguageError if a call and those before it have arrays that overlap in memory and are not the same one."""
    before = [(c, n) for c in segment.calls for n in c.arrays]
    for name, other in product(call.arrays, before):
        a, b = call.arrays[name], other[0].arrays[other[1]]
        if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
            continue
        if np.may_share_memory(a, b) and _key(call, name) != _key(*other):
            fail(
                f"a tape with snapshots runs kernels on arrays that do not overlap: {call.instance.ir.name} has another view of"
                f" memory that {other[0].instance.ir.name} has",
                ProgramRuntimeError,
            )
