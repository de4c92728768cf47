"""Array views as arguments: affine layouts of slices and transposes in the array that the kernel receives.

A kernel is compiled for the strides of its arguments, as for their shapes. Arguments that share memory are views of one array, so
their dependences are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ir.kernel import DType, Location
from .errors import LanguageError
from .intrinsics import ARRAY_TYPES
from .layout import BROADCAST, READ_ONLY, ViewLayout
from .symbols import SymbolicArray


@dataclass(frozen=True, eq=False)
class View:
    """Array argument that is a view of `memory`: a NumPy array, or an array of a recorded sequence."""

    element: DType
    layout: ViewLayout
    memory: Any


def with_views(given: Mapping[str, Any], kernel: str, where: Location) -> dict[str, View]:
    """Returns a view for each array argument that is not contiguous, or that partly overlaps another argument.

    LanguageError if a view does not consist of whole elements, or if arguments that share memory have several types.
    """
    return dict([*_of_numpy(given, kernel, where), *_of_symbols(given)])


# --- arrays of NumPy

_KNOWN = {d.numpy: d for d in ARRAY_TYPES}


@dataclass(frozen=True)
class _ByteRange:
    """Addresses of an array argument's bytes: all its elements lie from `low` up to, but without, `high`."""

    name: str
    array: NDArray[Any]
    low: int
    high: int

    @classmethod
    def of(cls, name: str, array: NDArray[Any]) -> _ByteRange:
        low = high = _address(array)
        for n, stride in zip(array.shape, array.strides, strict=True):
            low, high = (
                (low, high + (n - 1) * stride) if stride > 0 else (low + (n - 1) * stride, high)
            )
        return cls(name, array, low, high + array.itemsize)


class _Memory:
    """NumPy array interface for the address range of several overlapping arrays, which it keeps alive."""

    def __init__(self, spans: Sequence[_ByteRange], extent: int, is_read_only: bool) -> None:
        self.spans = spans
        self.__array_interface__ = {
            "version": 3,
            "typestr": spans[0].array.dtype.str,
            "shape": (extent,),
            "data": (min(s.low for s in spans), is_read_only),
        }


def _of_numpy(given: Mapping[str, Any], kernel: str, where: Location) -> Iterator[tuple[str, View]]:
    arrays = {n: x for n, x in given.items() if isinstance(x, np.ndarray) and x.size}
    if all(x.flags.c_contiguous for x in arrays.values()) and _are_apart(arrays.values()):
        return
    spans = [_ByteRange.of(n, x) for n, x in arrays.items() if x.dtype in _KNOWN]
    for group in _meeting(spans):
        first = group[0].array
        if all(_is_same(s.array, first) and s.array.flags.c_contiguous for s in group):
            continue
        _check(group, kernel, where)
        if len(group) == 1 and (view := _transposed(group[0], _KNOWN[first.dtype])):
            yield group[0].name, view
            continue
        size = first.itemsize
        low = min(s.low for s in group)
        extent = (max(s.high for s in group) - low) // size
        is_read_only = not any(s.array.flags.writeable for s in group)
        memory = np.asarray(_Memory(group, extent, is_read_only))
        for s in group:
            layout = ViewLayout(
                s.array.shape,
                group[0].name,
                (extent,),
                ((_address(s.array) - low) // size,),
                (tuple(x // size for x in s.array.strides),),
                _fixed(s.array),
            )
            yield s.name, View(_KNOWN[first.dtype], layout, memory)


def _address(array: NDArray[Any]) -> int:
    """Returns the address of an array's first element, in half the time of `array.ctypes`."""
    place: int = array.__array_interface__["data"][0]
    return place


def _are_apart(arrays: Iterable[NDArray[Any]]) -> bool:
    """True if no two of these contiguous arrays share a byte."""
    spans = sorted((at := _address(x), at + x.nbytes) for x in arrays)
    return all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def _meeting(spans: Sequence[_ByteRange]) -> list[list[_ByteRange]]:
    """Returns the ranges in groups whose ranges overlap, each group in the order of the arguments."""
    groups: list[list[_ByteRange]] = []
    end = 0
    for s in sorted(spans, key=lambda s: s.low):
        if groups and s.low < end:
            groups[-1].append(s)
        else:
            groups.append([s])
            end = s.high
        end = max(end, s.high)
    order = {s.name: k for k, s in enumerate(spans)}
    return [sorted(g, key=lambda s: order[s.name]) for g in groups]


def _is_same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return (
        _address(a) == _address(b)
        and a.shape == b.shape
        and a.dtype == b.dtype
        and a.strides == b.strides
    )


def _check(group: Sequence[_ByteRange], kernel: str, where: Location) -> None:
    first = group[0]
    for s in group:
        if s.array.dtype != first.array.dtype:
            raise LanguageError(
                f"the arguments {first.name} and {s.name} of the kernel {kernel} share memory and have elements of different "
                f"types: pass a copy of one of them",
                where,
            )
        steps = (*s.array.strides, s.low - first.low)
        if any(step % s.array.itemsize for step in steps):
            raise LanguageError(
                f"the elements of the argument {s.name} of the kernel {kernel} lie at no multiples of their size: pass a copy",
                where,
            )


def _fixed(array: NDArray[Any]) -> str:
    if not array.flags.writeable:
        return READ_ONLY
    is_broadcast = any(n > 1 and s == 0 for n, s in zip(array.shape, array.strides, strict=True))
    return BROADCAST if is_broadcast else ""


def _transposed(span: _ByteRange, dtype: DType) -> View | None:
    """Returns an array as a view of a contiguous one with permuted axes; None if it is no such view."""
    array = span.array
    order = sorted(range(array.ndim), key=lambda k: -abs(array.strides[k]))
    memory = array.transpose(order)
    if not memory.flags.c_contiguous:
        return None
    units = tuple(tuple(int(k == m) for k in range(array.ndim)) for m in order)
    layout = ViewLayout(
        array.shape, span.name, memory.shape, (0,) * array.ndim, units, _fixed(array)
    )
    return View(dtype, layout, memory)


# --- arrays of a sequence


def _of_symbols(given: Mapping[str, Any]) -> Iterator[tuple[str, View]]:
    symbols = {n: x for n, x in given.items() if isinstance(x, SymbolicArray)}
    for name, x in symbols.items():
        of_one = [(n, s) for n, s in symbols.items() if s.whole is x.whole]
        if all(s is x.whole for _, s in of_one):
            continue
        offsets, strides = x.lies
        layout = ViewLayout(x.shape, of_one[0][0], x.whole.shape, offsets, strides)
        yield name, View(x.element, layout, x.whole)
