"""Intrinsics of the kernel language, which the frontend recognises by identity.

Outside a kernel they are ordinary Python on numbers and NumPy arrays, so that the undecorated function (`Kernel.fn`) runs.
"""

from __future__ import annotations

import builtins
import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ..fields import compound
from ..fields.caller_location import fail
from ..fields.quantised import quant
from ..ir.errors import ProgramValueError
from ..ir.kernel import DType
from .complex_numbers import ComplexType, complex_annotation
from .errors import KernelError, KernelSyntaxError

T = TypeVar("T")

f16 = DType.f16
f32 = DType.f32
f64 = DType.f64
i8 = DType.i8
i16 = DType.i16
i32 = DType.i32
i64 = DType.i64
u1 = DType.bool_  # true or false
u8 = DType.u8
u16 = DType.u16
u32 = DType.u32
u64 = DType.u64
ELEMENT_TYPES = (f32, f64, i32, i64, f16, i8, i16, u8, u16, u32, u64)
ARRAY_TYPES = (*ELEMENT_TYPES, u1)
_BOUNDARIES = ("unsafe", "clamp")


@dataclass(frozen=True)
class NdarrayAnnotation:
    """`ks.types.ndarray(dtype=, ndim=, needs_grad=, boundary=)`: annotates an array; None accepts any value.

    `needs_grad` False: derivatives with respect to the argument are zero.
    `clamps`: an index outside of the array means its nearest element.
    `element_dim`: number of last axes that are those of a vector or matrix element.
    """

    dtype: (
        DType
        | type[float]
        | type[int]
        | compound.MatrixType
        | compound.ElementPattern
        | ComplexType
        | None
    ) = None
    ndim: int | None = None
    needs_grad: bool | None = None
    clamps: bool = False
    element_dim: int = 0


@dataclass(frozen=True)
class TemplateAnnotation:
    """`ks.template()`: annotation of an argument that is a compile-time constant, part of the signature."""


def template() -> TemplateAnnotation:
    """Annotates an argument whose value is a compile-time constant; the kernel is compiled once for each value."""
    return TemplateAnnotation()


def ref(dtype: Any) -> TemplateAnnotation:
    """Annotates a `ks.func` argument of type `dtype` that is an alias of the caller's place.

    Assigning the argument assigns the place.
    """
    return TemplateAnnotation()


class types:  # noqa: N801 - `ks.types.ndarray()` is Taichi's spelling
    """Annotations of kernel arguments, and types of vectors, matrices and structs."""

    vector = staticmethod(compound.vector)
    matrix = staticmethod(compound.matrix)
    struct = staticmethod(compound.struct)
    quant = quant

    @staticmethod
    def argpack(**members: Any) -> Any:
        """Returns the type of packs: several arguments, the `members`, that a call passes as one."""
        from .packs import argpack

        return argpack(**members)

    @staticmethod
    def sparse_matrix_builder() -> Any:
        """An argument that is a builder of a sparse matrix: `A[i, j] += v` and `-=` append to it."""
        from .packs import PackType

        whole, number = NdarrayAnnotation(i32, 1), NdarrayAnnotation(None, 1)
        members = (("count", whole), ("rows", whole), ("columns", whole), ("values", number))
        return PackType(members, "ks.types.sparse_matrix_builder()")

    @staticmethod
    def is_integral(dtype: DType) -> bool:
        """True for integer types and the type of truth values."""
        return not dtype.is_float

    @staticmethod
    def is_real(dtype: DType) -> bool:
        """True for floating-point types."""
        return dtype.is_float

    @staticmethod
    def is_signed(dtype: DType) -> bool:
        """True for types that represent negative integers."""
        return dtype.is_integer and dtype.is_signed

    @staticmethod
    def ndarray(
        dtype: Any = None,
        ndim: int | None = None,
        needs_grad: bool | None = None,
        *,
        boundary: str = "unsafe",
        element_dim: int | None = None,
        element_shape: tuple[int, ...] | None = None,
    ) -> Any:
        """Annotates an argument that is a NumPy array or a view of one, read and written in place.

        With `needs_grad=False` it has no derivative, even if the array has a gradient. With `boundary="clamp"` an index outside of
        the array means its nearest element. With `element_dim` (0, 1 or 2), or the length of `element_shape`, elements are numbers,
        vectors or matrices, of the size that the last axes have.
        """
        axes = len(element_shape) if element_dim is None and element_shape else element_dim or 0
        if axes not in range(3) or (element_shape and len(element_shape) != axes):
            fail(
                f"element_dim={element_dim}, element_shape={element_shape}: elements are numbers (0), vectors (1) or matrices (2)",
                ProgramValueError,
            )
        if axes and isinstance(dtype, compound.MatrixType):
            fail(
                f"elements are {dtype} by their type already: leave element_dim and element_shape out"
            )
        if boundary not in _BOUNDARIES:
            fail(
                f"boundary={boundary!r}: an array has the boundary 'unsafe' or 'clamp'",
                ProgramValueError,
            )
        return NdarrayAnnotation(_element_type(dtype), ndim, needs_grad, boundary == "clamp", axes)

    @staticmethod
    def template() -> Any:
        """Annotates a compile-time constant, like `ks.template`."""
        return TemplateAnnotation()


def _element_type(x: Any) -> Any:
    """Returns `x` as a type of array elements; `float` and `int` stay, since the calling program defines them."""
    if x in (None, float, int) or isinstance(x, compound.MatrixType | compound.ElementPattern):
        return x
    return complex_annotation(x) or array_dtype(x)


def array_dtype(x: Any) -> DType:
    """Returns `x` as a DType of array elements, like `as_dtype`; truth values are allowed, stored as bytes."""
    return u1 if x is bool or x is np.bool_ or x == np.dtype(bool) else as_dtype(x)


def as_dtype(x: Any) -> DType:
    """Returns `x` as a DType of the language: a DType, `float`, `int`, or anything that NumPy accepts as a dtype.

    TypeError otherwise.
    """
    if isinstance(x, DType):
        return x
    try:
        dtype = DType.bool_ if x is None else DType(np.dtype(x).name)  # NumPy has None for float64
    except (TypeError, ValueError):
        dtype = DType.bool_
    if dtype is DType.bool_:
        raise TypeError(
            f"{x!r} is no element type of the language: use f16 to f64, i8 to i64 or u8 to u64"
        )
    return dtype


def static(x: T, *more: Any) -> T | tuple[Any, ...]:
    """Marks a condition, a value or a loop that is evaluated (a loop: unrolled) when the kernel is compiled.

    Several values give a tuple.
    """
    return (x, *more) if more else x


def ndrange(*bounds: int | tuple[int, int]) -> Iterator[tuple[int, ...]]:
    """All index tuples of a box; each bound is an extent or `(low, high)`. The last index varies fastest."""
    return itertools.product(*(range(*b) if isinstance(b, tuple) else range(b) for b in bounds))


def cast(x: Any, dtype: Any) -> Any:
    """`x` converted to `dtype`; floats are truncated towards zero."""
    return as_dtype(dtype)(x)


def grouped(x: Any) -> Any:
    """Marks a loop over a field, an array or `ndrange(...)` whose index is one vector of all indices."""
    from ..fields.matrix import Matrix

    if isinstance(x, Iterator):
        return (Matrix(list(i)) for i in x)
    return (Matrix(list(i)) for i in itertools.product(*map(range, x.shape)))


def select(condition: Any, a: Any, b: Any) -> Any:
    """`a` where the condition holds, else `b`; component by component for vectors. Both are evaluated."""
    from ..fields.matrix import Matrix

    if not np.ndim(condition):
        return a if condition else b
    chosen = np.where(*(np.asarray(x) for x in (condition, a, b)))
    return Matrix(chosen) if any(isinstance(x, Matrix) for x in (condition, a, b)) else chosen


def bit_cast(x: Any, dtype: Any) -> Any:
    """The bits of `x` as a number of a type of the same size."""
    return np.asarray(x).view(as_dtype(dtype).numpy)[()]


def zero(x: Any) -> Any:
    """Zero, of the type and shape of `x`."""
    return x * 0


def one(x: Any) -> Any:
    """One, of the type and shape of `x`."""
    return x * 0 + 1


def logical_not(x: Any) -> Any:
    """True where `x` is zero, component by component."""
    from ..fields.matrix import Matrix

    found = np.logical_not(np.asarray(x))
    return Matrix(found) if isinstance(x, Matrix) else bool(found)


def stop_grad(x: Any) -> Any:
    """`x`, a number or a vector, without a derivative.

    In a kernel `x` may be a field: then loads of its elements have no derivative in the enclosing outermost loop.
    """
    return x


def assume_in_range(x: Any, base: Any, low: int, high: int) -> Any:
    """Returns `x`. The program guarantees that it lies between `base + low` and `base + high`."""
    return x


def random(dtype: Any = float) -> Any:
    """A uniformly distributed number: floats from [0, 1), integers from the whole range of the type.

    In a kernel the same seed, call, iteration and count give the same number, on every machine and in every implementation.
    """
    kind = as_dtype({float: DType.f32, int: DType.i32}.get(dtype, dtype))
    drawn = np.random.default_rng()
    if kind.is_float:
        return drawn.random()
    return int.from_bytes(drawn.bytes(kind.size_bytes), signed=kind.is_signed)


def randn(dtype: Any = float) -> Any:
    """A number of the normal distribution with mean 0 and deviation 1."""
    return float(np.random.default_rng().standard_normal())


def static_print(*args: Any) -> None:
    """Prints values when a kernel is compiled."""
    print(*args)


def static_assert(condition: Any, message: str = "") -> None:
    """Raises LanguageError when a kernel is compiled for which the condition is false."""
    if not condition:
        raise KernelError(message or "the condition of ks.static_assert is false")


def loop_config(**options: Any) -> None:
    """Options of the next loop of a kernel.

    `serialize=True` runs its iterations in order; block sizes are ignored.
    """


def _atomic(name: str) -> Callable[[Any, Any], Any]:
    def only_in_kernels(target: Any, value: Any) -> Any:
        raise KernelSyntaxError(
            f"{name} was called outside a kernel, where it has no place to write to: "
            "call the kernel itself, it runs without being compiled"
        )

    only_in_kernels.__name__ = name
    only_in_kernels.__doc__ = f"`{name}(a[i], value)`: a[i] {name[7:]}= value, atomic between iterations; gives the old value."
    return only_in_kernels


atomic_add = _atomic("atomic_add")
atomic_sub = _atomic("atomic_sub")
atomic_mul = _atomic("atomic_mul")
atomic_max = _atomic("atomic_max")
atomic_min = _atomic("atomic_min")
atomic_and = _atomic("atomic_and")
atomic_or = _atomic("atomic_or")
atomic_xor = _atomic("atomic_xor")


# What a kernel may call, found by identity of the object the name resolves to: the update, and whether its value is negated.
ATOMIC_CALLS: dict[Any, tuple[str, bool]] = {
    atomic_add: ("add", False),
    atomic_sub: ("add", True),
    atomic_mul: ("mul", False),
    atomic_max: ("max", False),
    atomic_min: ("min", False),
    atomic_and: ("bit_and", False),
    atomic_or: ("bit_or", False),
    atomic_xor: ("bit_xor", False),
}


def max(*values: Any) -> Any:  # noqa: A001 - Taichi's name
    """The greatest of several numbers, or of vectors component by component."""
    return functools.reduce(np.maximum, values)


def min(*values: Any) -> Any:  # noqa: A001 - Taichi's name
    """The least of several numbers, or of vectors component by component."""
    return functools.reduce(np.minimum, values)


MINMAX_CALLS: dict[Any, str] = {
    min: "min",
    max: "max",
    builtins.min: "min",
    builtins.max: "max",
    np.minimum: "min",
    np.maximum: "max",
}
