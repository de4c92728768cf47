"""The words of the kernel language that the frontend recognises by identity.

Outside a kernel they are ordinary Python on numbers and NumPy arrays, so that the undecorated
function (`Kernel.fn`) runs.
"""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ..fields import compound
from ..ir.kernel import DType
from .errors import LanguageError

T = TypeVar("T")

f32 = DType.f32
f64 = DType.f64
i32 = DType.i32
i64 = DType.i64


@dataclass(frozen=True)
class NdarrayAnnotation:
    """`ks.types.ndarray(dtype=, ndim=)`: an array argument; None accepts any."""

    dtype: DType | None = None
    ndim: int | None = None


@dataclass(frozen=True)
class TemplateAnnotation:
    """`ks.template()`: a compile-time constant, part of the template signature."""


def template() -> TemplateAnnotation:
    """Annotates an argument whose value is known when the kernel is compiled: each value is its own
    instance.
    """
    return TemplateAnnotation()


class types:  # noqa: N801 - `ks.types.ndarray()` is Taichi's spelling
    """Annotations of kernel arguments, and types of vectors, matrices and structs."""

    vector = staticmethod(compound.vector)
    matrix = staticmethod(compound.matrix)
    struct = staticmethod(compound.struct)

    @staticmethod
    def ndarray(dtype: Any = None, ndim: int | None = None) -> Any:
        """An argument that is a NumPy array, C order and contiguous, read and written in place."""
        return NdarrayAnnotation(None if dtype is None else as_dtype(dtype), ndim)

    @staticmethod
    def template() -> Any:
        """See `template`."""
        return TemplateAnnotation()


def as_dtype(x: Any) -> DType:
    """`x` (a DType, `float`, `int`, or anything NumPy takes for a dtype) as a DType of the
    language; TypeError otherwise.
    """
    if isinstance(x, DType):
        return x
    try:
        dtype = DType(np.dtype(x).name)
    except (TypeError, ValueError):
        dtype = DType.bool_
    if dtype is DType.bool_:
        raise TypeError(f"{x!r} is no element type of the language: use f32, f64, i32 or i64")
    return dtype


def static(x: T) -> T:
    """Marks a condition, a value or a loop that is evaluated (or unrolled) when the kernel is
    compiled.
    """
    return x


def ndrange(*bounds: int | tuple[int, int]) -> Iterator[tuple[int, ...]]:
    """All index tuples of a box; each bound is an extent or `(low, high)`. The last index runs
    fastest.
    """
    return itertools.product(*(range(*b) if isinstance(b, tuple) else range(b) for b in bounds))


def cast(x: Any, dtype: Any) -> Any:
    """`x` converted to `dtype`; floats are truncated towards zero."""
    return as_dtype(dtype)(x)


def _atomic(name: str) -> Callable[[Any, Any], None]:
    def only_in_kernels(target: Any, value: Any) -> None:
        raise LanguageError(
            f"{name} was called outside a kernel, where it has no place to write to: "
            "call the kernel itself, it runs without being compiled"
        )

    only_in_kernels.__name__ = name
    only_in_kernels.__doc__ = (
        f"`{name}(a[i], value)`: a[i] {name[7:]}= value, atomic between iterations."
    )
    return only_in_kernels


atomic_add = _atomic("atomic_add")
atomic_max = _atomic("atomic_max")
atomic_min = _atomic("atomic_min")


# What a kernel may call, found by identity of the object the name resolves to.
ATOMIC_CALLS: dict[Any, str] = {atomic_add: "add", atomic_max: "max", atomic_min: "min"}
MINMAX_CALLS: dict[Any, str] = {
    builtins.min: "min",
    builtins.max: "max",
    np.minimum: "min",
    np.maximum: "max",
}
