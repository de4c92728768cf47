"""Arrays of the program that kernels take as arguments: `ks.ndarray`, with the operations of a field."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from ..ir.errors import (
    KernelArgumentError,
    KernelIndexError,
    ProgramIndexError,
    ProgramTypeError,
    ProgramValueError,
)
from ..ir.kernel import DType
from . import field_memory
from .caller_location import fail
from .compound import MatrixType
from .conversion import element_values, number
from .field import indices, torch_tensor
from .matrix import Matrix, python_number
from .program import element_dtype
from .tree import extents_of


@dataclass(frozen=True)
class TensorType:
    """Type of elements that are vectors or matrices, as `Ndarray.element_type` gives it."""

    dtype: DType
    extents: tuple[int, ...]

    def element_type(self) -> DType:
        """Returns the type of the components."""
        return self.dtype

    def shape(self) -> list[int]:
        """Returns the number of components along each axis."""
        return list(self.extents)


class Ndarray:
    """Array of numbers, or of vectors and matrices of shape `element_shape`.

    `array` is its memory: NumPy, C order, shape (*shape, *element_shape). It is zero at first. `grad` is the ndarray of its
    gradient, None without `needs_grad`.
    """

    def __init__(
        self,
        dtype: Any,
        shape: Any,
        element_shape: tuple[int, ...] = (),
        needs_grad: bool = False,
    ) -> None:
        if isinstance(dtype, MatrixType):
            dtype, element_shape = dtype.dtype, dtype.shape
        self.dtype: DType = element_dtype(dtype)
        self.shape = extents_of(shape, "an ndarray")
        self.element_shape = extents_of(element_shape, "an ndarray of vectors")
        try:
            self.array: NDArray[Any] = field_memory.zeros(
                (*self.shape, *self.element_shape), self.dtype
            )
        except MemoryError:
            fail(f"there is no memory for an ndarray of shape {self.shape}")
        self.grad: Ndarray | None = None
        if needs_grad:
            if not self.dtype.is_float:
                fail(
                    f"needs_grad=True: {self.dtype.name} is not supported for ndarrays that have a gradient, whose elements are"
                    " floats",
                    KernelArgumentError,
                )
            self.grad = Ndarray(self.dtype, self.shape, self.element_shape)
            _with_gradient[id(self.array)] = self

    @classmethod
    def of_array(cls, array: NDArray[Any], gradient: Ndarray | None = None) -> Ndarray:
        """Returns an ndarray of numbers that shares the memory of a NumPy array; `gradient` is its gradient."""
        made = cls.__new__(cls)
        made.dtype, made.shape, made.element_shape = element_dtype(array.dtype), array.shape, ()
        made.array, made.grad = array, gradient
        if gradient is not None:
            _with_gradient[id(array)] = made
        return made

    @property
    def n(self) -> int:
        """Number of components of vector elements, or of rows of matrix elements."""
        return self.element_shape[0]

    @property
    def m(self) -> int:
        return self.element_shape[1] if len(self.element_shape) == 2 else 1

    @property
    def element_type(self) -> DType | TensorType:
        """Type of the elements: that of numbers, or one with the shape of vectors and matrices."""
        return TensorType(self.dtype, self.element_shape) if self.element_shape else self.dtype

    def _get_nelement(self) -> int:
        """Returns the number of elements, under Taichi's name."""
        return math.prod(self.shape)

    def _get_element_size(self) -> int:
        """Returns the number of bytes of one element, under Taichi's name."""
        return self.array.itemsize * math.prod(self.element_shape)

    def to_numpy(self) -> NDArray[Any]:
        """Returns a copy of the elements."""
        return self.array.copy()

    def from_numpy(self, arr: Any) -> None:
        """Sets the elements from an array of the same shape, converted to the type of this ndarray."""
        if not isinstance(arr, np.ndarray | np.generic):
            fail(f"from_numpy takes a NumPy array, not {type(arr).__name__}", ProgramTypeError)
        if arr.shape != self.array.shape or arr.dtype.kind not in "biuf":
            fail(
                f"this ndarray takes numbers of shape {self.array.shape}, not {arr.dtype} of {arr.shape}",
                ProgramValueError,
            )
        with np.errstate(all="ignore"):
            self.array[...] = arr.astype(self.dtype.numpy, copy=False)

    def to_torch(self, device: Any = None) -> Any:
        """Returns a copy as a tensor on `device`. LanguageError if torch is not installed."""
        return torch_tensor(self.to_numpy(), device)

    def from_torch(self, arr: Any) -> None:
        """Sets the elements like `from_numpy`, from a tensor on any device."""
        self.from_numpy(arr.detach().cpu().numpy())

    def fill(self, val: Any) -> None:
        """Sets every element to `val`."""
        if self.element_shape and not isinstance(val, (int, float, np.number)):
            self.array[...] = element_values(val, self.dtype.numpy, self.element_shape, "fill")
            return
        if self.dtype.is_integer and isinstance(val, (float, np.floating)):
            val = int(val)
        self.array[...] = number(val, self.dtype, "fill")

    def copy_from(self, other: Any) -> None:
        """Copies the elements of another ndarray of the same shape to this one."""
        if not isinstance(other, Ndarray):
            fail(f"copy_from takes an ndarray, not {type(other).__name__}", ProgramTypeError)
        self.from_numpy(other.array)

    def __getitem__(self, key: Any) -> Any:
        element = self.array[self._index(key)]
        return Matrix.of_element(element) if self.element_shape else python_number(element)

    def __setitem__(self, key: Any, value: Any) -> None:
        at = self._index(key)
        if self.element_shape:
            self.array[at] = element_values(
                value,
                self.dtype.numpy,
                self.element_shape,
                "an element of this ndarray",
                is_exact=True,
            )
        else:
            self.array[at] = number(value, self.dtype, "an element of this ndarray")

    def _index(self, key: Any) -> tuple[int, ...]:
        given = indices(key)
        if len(given) != len(self.shape):
            fail(
                f"this ndarray takes {len(self.shape)} indices, not {len(given)}", KernelIndexError
            )
        for axis, (i, extent) in enumerate(zip(given, self.shape, strict=True)):
            try:
                at = operator.index(i)
            except TypeError:
                fail(f"an ndarray takes whole numbers as indices, not {i!r}", ProgramTypeError)
            if not 0 <= at < extent:
                fail(
                    f"this ndarray has indices 0 to {extent - 1} along axis {axis}, not {i}",
                    ProgramIndexError,
                )
        return tuple(given)

    def __iter__(self) -> Iterator[Any]:
        fail("only kernels loop over an ndarray: outside of them loop over its indices")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.array, dtype=dtype)

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __repr__(self) -> str:
        inner = " of " + " x ".join(map(str, self.element_shape)) if self.element_shape else ""
        return f"<ks.ndarray {self.dtype.name}{inner}, shape {self.shape}>"


# The ndarrays with gradients, by the identity of their memory: calls of kernels carry the memory.
_with_gradient: WeakValueDictionary[int, Ndarray] = WeakValueDictionary()


def gradient_of(array: object) -> Ndarray | None:
    """Returns the gradient of the ndarray whose memory is `array`.

    None if it has none, or there is no such ndarray.
    """
    found = _with_gradient.get(id(array))
    return found.grad if found is not None and found.array is array else None


class _OfElements(type):
    """Metaclass: an `Ndarray` is an instance of the class if its elements have `n_axes` axes."""

    n_axes: int

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Ndarray) and len(instance.element_shape) == cls.n_axes


class VectorNdarray(metaclass=_OfElements):
    """Class of ndarrays of vectors of n components, which `ks.VectorNdarray(n, dtype, shape)` creates."""

    n_axes = 1

    def __new__(cls, n: int, dtype: Any, shape: Any) -> Ndarray:  # type: ignore[misc]
        return Ndarray(dtype, shape, (n,))


class MatrixNdarray(metaclass=_OfElements):
    """Class of ndarrays of n x m matrices, which `ks.MatrixNdarray(n, m, dtype, shape)` creates."""

    n_axes = 2

    def __new__(cls, n: int, m: int, dtype: Any, shape: Any) -> Ndarray:  # type: ignore[misc]
        return Ndarray(dtype, shape, (n, m))
