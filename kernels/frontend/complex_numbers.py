"""Complex numbers as pairs of real numbers: values are structs (`real`, `imag`), arrays have pairs as last axis.

The IR has real numbers only. So its reductions, vectors and fusion hold for complex numbers, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from ..ir.kernel import DType
from .values import StructValue, Value

PARTS: Final = ("real", "imag")
_TYPES = {DType.f32: np.complex64, DType.f64: np.complex128}


@dataclass(frozen=True)
class ComplexType:
    """Type of complex numbers whose parts have the real type `part`; `float` is the kernel's default float."""

    part: Any

    @property
    def members(self) -> dict[str, Any]:
        """Returns the names of the two parts and their types, in the form of a struct's members."""
        return dict.fromkeys(PARTS, self.part)

    @property
    def methods(self) -> dict[str, Any]:
        return {}

    def __call__(self, parts: dict[str, Any]) -> complex:
        """Returns the Python complex number with these parts."""
        return complex(*(parts[n] for n in PARTS))


COMPLEX: Final = ComplexType(float)


def complex_annotation(x: Any) -> ComplexType | None:
    """Returns the complex type that an annotation or a NumPy dtype denotes; None if it denotes another type."""
    if x is complex:
        return COMPLEX
    if isinstance(x, ComplexType):
        return x
    try:
        dtype = np.dtype(x) if isinstance(x, type | np.dtype) else None
    except TypeError:
        return None
    return next((ComplexType(d) for d, t in _TYPES.items() if dtype == t), None)


def complex_dtype(kind: ComplexType) -> type[np.complexfloating[Any, Any]]:
    """Returns the NumPy dtype of a complex type; complex128 for the default float."""
    return _TYPES.get(kind.part, np.complex128)


def is_complex(x: Value) -> bool:
    return isinstance(x, StructValue) and isinstance(x.kind, ComplexType)


def complex_value(real: Value, imag: Value) -> StructValue:
    return StructValue(((PARTS[0], real), (PARTS[1], imag)), COMPLEX)


# --- arrays


@dataclass(frozen=True, eq=False)
class Pairs:
    """Array argument of complex numbers, as an array of real numbers whose last axis is (real, imaginary)."""

    array: Any


def pairs_of(x: NDArray[Any]) -> NDArray[Any]:
    """Returns a view of a complex array as real numbers: one more axis at the end, (real, imaginary)."""
    part = x.itemsize // 2
    return as_strided(x.real, (*x.shape, 2), (*x.strides, part))


def complex_of(pairs: NDArray[Any]) -> NDArray[Any]:
    """Returns a view of contiguous (real, imaginary) pairs as complex numbers."""
    return pairs.view(np.complex64 if pairs.dtype == np.float32 else np.complex128)[..., 0]


def is_complex_array(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype in (np.complex64, np.complex128)
