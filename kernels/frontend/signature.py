"""Signature of a kernel call: the types, shapes and template values that select the compiled instance.

It also gives the numbers and arrays of a call.
"""

from __future__ import annotations

import inspect
import math
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..fields.compound import ElementPattern, MatrixType, StructType
from ..fields.dlpack import way_out
from ..fields.field import AbstractField
from ..fields.matrix import Matrix
from ..fields.ndarray import Ndarray
from ..fields.program import current_program, element_dtype
from ..fields.structs import Struct
from ..fields.structs import members_of as struct_members
from ..ir.kernel import DType, Location
from .complex_numbers import COMPLEX, ComplexType, Pairs, complex_annotation
from .errors import (
    KernelArgumentError,
    KernelSyntaxError,
    LanguageError,
    ProgramTypeError,
    ProgramValueError,
)
from .intrinsics import ARRAY_TYPES, ELEMENT_TYPES, NdarrayAnnotation, TemplateAnnotation, i64
from .layout import ViewLayout
from .symbols import SymbolicArray, SymbolicScalar
from .views import View


@dataclass(frozen=True)
class ScalarArgument:
    """Signature entry of a number.

    `dtype` None: a Python float without annotation, of the default float type.
    """

    dtype: DType | None


@dataclass(frozen=True)
class ArrayArgument:
    """Signature entry of an array.

    `shape`: shape of the array in memory; with vectors or matrices as elements its last axes are those of `element`. `layout`:
    affine layout, for a view. An array of truth values (`bool_`) is an array of bytes, 0 and 1, in the IR.
    """

    dtype: DType
    shape: tuple[int, ...]
    element: tuple[int, ...] = ()
    layout: ViewLayout | None = None
    is_complex: bool = False  # the last axis has the parts of a number
    clamps: bool = False  # an index outside means the nearest element


@dataclass(frozen=True)
class CompoundArgument:
    """Signature entry of a vector, matrix or struct, passed as one scalar parameter for each of its numbers.

    A vector or matrix of many numbers is passed as one array.
    """

    kind: MatrixType | StructType | ComplexType

    @property
    def is_array(self) -> bool:
        return isinstance(self.kind, MatrixType) and math.prod(self.kind.shape) > _MOST_SCALARS


_MOST_SCALARS = 32  # components of a vector that are parameters


@dataclass(frozen=True)
class TemplateArgument:
    """Signature entry of a template value, compared by `key`.

    True, 1 and 1.0 are equal but have different keys, so they select different instances.
    """

    value: object = field(compare=False)
    key: object


def reference(x: Any) -> Callable[[], Any]:
    """Returns a function that returns the object `x`, or None once `x` no longer exists.

    An object that has no weak references is kept alive.
    """
    try:
        return weakref.ref(x)
    except TypeError:
        return lambda: x


class ObjectArgument:
    """Signature entry of a template object (a field, an object of a class), compared by identity, not kept alive."""

    __slots__ = ("_number", "_reference")

    def __init__(self, value: Any) -> None:
        self._number, self._reference = id(value), reference(value)

    @property
    def value(self) -> Any:
        """The object; None if it no longer exists."""
        return self._reference()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, ObjectArgument) and self.value is other.value is not None

    def __hash__(self) -> int:
        return self._number


Argument = ArrayArgument | ScalarArgument | CompoundArgument | TemplateArgument | ObjectArgument
Signature = tuple[tuple[str, Argument], ...]


def argument_of(name: str, annotation: Any, value: Any, kernel: str, where: Location) -> Argument:
    """Returns the signature entry for one argument of a call.

    LanguageError if a kernel cannot take the value.
    """
    label = f"the argument {name} of the kernel {kernel}"
    if isinstance(annotation, TemplateAnnotation):
        return _template(value, label, where)
    if isinstance(annotation, NdarrayAnnotation):
        found = _checked_array(annotation, array_argument(value, label, where), value, label, where)
        return replace(found, clamps=True) if annotation.clamps else found
    kind = complex_annotation(annotation)
    if kind is None and annotation in (None, inspect.Parameter.empty):
        kind = complex_annotation(type(value))
    if kind is not None:
        return CompoundArgument(kind)
    if isinstance(annotation, MatrixType | StructType):
        return CompoundArgument(annotation)
    if isinstance(value, (np.ndarray, SymbolicArray)):
        raise KernelArgumentError(
            f"{label} is an array: annotate it with ks.types.ndarray()", where
        )
    return ScalarArgument(scalar_dtype(annotation, value, label, where))


def _template(value: Any, label: str, where: Location) -> Argument:
    if isinstance(value, (np.ndarray, SymbolicArray, SymbolicScalar)):
        raise ProgramTypeError(f"{label} is a template and needs a compile-time constant", where)
    if isinstance(value, Matrix):
        numbers = value.to_numpy()
        return TemplateArgument(
            Matrix(numbers), (numbers.shape, numbers.dtype.str, numbers.tobytes())
        )
    if isinstance(value, AbstractField | Ndarray) or not isinstance(
        value, int | float | str | tuple | type | None
    ):
        return ObjectArgument(value)
    return TemplateArgument(value, exact_key(value))


def exact_key(value: Any) -> object:
    """Returns a key that two values share only if no kernel can tell them apart, types and zero signs included."""
    if isinstance(value, tuple):
        return type(value), tuple(map(exact_key, value))
    if isinstance(value, float):
        return type(value), value.hex()  # 0.0 is not -0.0
    return type(value), value


def refuse_more_than_numbers(value: Any, label: str, where: Location) -> None:
    """Raises LanguageError for subclasses of NumPy arrays, with a mask, a unit or other operators.

    A kernel would use the numbers alone.
    """
    if isinstance(value, np.ndarray) and type(value) not in (np.ndarray, np.memmap):
        kind = type(value).__name__
        raise LanguageError(
            f"{label} is a {kind}, of which only the numbers would be used: pass np.asarray of it",
            where,
        )


def array_argument(value: Any, label: str, where: Location) -> ArrayArgument:
    """Returns the signature entry of an array. LanguageError if a kernel cannot use the array in place."""
    if isinstance(value, SymbolicArray):
        return ArrayArgument(value.element, value.shape)
    if isinstance(value, Pairs):
        return replace(array_argument(value.array, label, where), is_complex=True)
    if isinstance(value, View):
        return ArrayArgument(value.element, value.layout.shape, layout=value.layout)
    if isinstance(value, Ndarray):
        return ArrayArgument(value.dtype, value.array.shape, value.element_shape)
    if not isinstance(value, np.ndarray):
        raise KernelArgumentError(
            f"{label} must be a NumPy array, not {type(value).__name__}{way_out(value)}", where
        )
    dtype = next((d for d in ARRAY_TYPES if value.dtype == d.numpy), None)
    if dtype is None:
        raise ProgramTypeError(
            f"{label} has elements of type {value.dtype}: convert it to bools, integers of 8 to 64 bits or floats of 16 to 64",
            where,
        )
    return ArrayArgument(dtype, value.shape)


def _checked_array(
    annotation: NdarrayAnnotation, found: ArrayArgument, value: Any, label: str, where: Location
) -> ArrayArgument:
    """Returns the signature entry `found` of an array, completed by its annotation.

    LanguageError if they differ. In a program a NumPy array keeps its own type where the annotation names vectors or matrices, as
    in Taichi.
    """
    dtype, n = annotation.dtype, len(found.shape) - len(found.element) - found.is_complex
    if found.is_complex != isinstance(dtype, ComplexType) and dtype is not None:
        kinds = ("real", "complex")
        raise ProgramTypeError(
            f"{label} is annotated with {kinds[not found.is_complex]} elements, those of this array are {kinds[found.is_complex]}",
            where,
        )
    if isinstance(dtype, ComplexType):
        dtype = None if dtype == COMPLEX else dtype.part
    if annotation.element_dim and not found.element:
        if n <= annotation.element_dim:
            raise ProgramValueError(
                f"{label} is annotated with element_dim={annotation.element_dim}, this array has {n} dimensions",
                where,
            )
        found = replace(found, element=found.shape[-annotation.element_dim :])
        n -= annotation.element_dim
    if isinstance(dtype, ElementPattern):
        if not dtype.fits(found.element):
            shown = " x ".join(map(str, found.element)) or "numbers"
            raise ProgramValueError(
                f"{label} is annotated with elements {dtype}, those of this array are {shown}",
                where,
            )
        dtype = None if dtype.element is None else element_dtype(dtype.element)
    if isinstance(dtype, MatrixType):
        element = dtype.shape
        if not found.element:
            if found.shape[len(found.shape) - len(element) :] != element:
                raise ProgramValueError(
                    f"{label} is annotated with elements {dtype}, the last axes of this array of shape {found.shape} are not that",
                    where,
                )
            found = replace(found, element=element)
            n -= len(element)
        elif found.element != element:
            shown = " x ".join(map(str, found.element))
            raise ProgramValueError(
                f"{label} is annotated with elements {dtype}, those of this array are {shown}",
                where,
            )
        is_external = current_program() is not None and isinstance(value, np.ndarray)
        dtype = None if is_external else dtype.dtype
    if isinstance(dtype, DType) and dtype is not found.dtype:
        raise ProgramTypeError(
            f"{label} is annotated {dtype.name}, this array is {found.dtype.name}", where
        )
    if annotation.ndim not in (None, n):
        raise ProgramValueError(
            f"{label} is annotated with {annotation.ndim} dimensions, this array has {n}",
            where,
        )
    return found


def scalar_dtype(annotation: Any, value: Any, label: str, where: Location) -> DType | None:
    """Returns the type of a scalar argument; None stands for the default float."""
    given = _number_dtype(value)
    if annotation is bool:
        annotation = DType.bool_
    if given is DType.bool_ and isinstance(value, np.number):
        raise KernelArgumentError(
            f"{label} is a {type(value).__name__}, which is no type of the language: give int(...) or float(...) of it",
            where,
        )
    if not isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating, SymbolicScalar)):
        raise KernelArgumentError(
            f"{label} must be a number, not {type(value).__name__}: use ks.template() for other "
            f"constants",
            where,
        )
    takes_float = annotation is float or (isinstance(annotation, DType) and annotation.is_float)
    if isinstance(value, (int, np.integer)) and not takes_float:
        held = annotation if isinstance(annotation, DType) and annotation.is_integer else given
        if held is not None and held.is_integer and not _is_held(int(value), held):
            raise KernelArgumentError(f"{label} is {value}, which {held.name} cannot hold", where)
    if annotation is inspect.Parameter.empty or annotation is None:
        return given
    wanted = {float: None, int: DType.i64}.get(annotation, annotation)
    if wanted is not None and not isinstance(wanted, DType):
        raise KernelSyntaxError(
            f"{label} is annotated {annotation!r}: use ks.types.ndarray(), ks.template(), or a "
            f"scalar type",
            where,
        )
    is_float = given is None or given.is_float
    if wanted is not None and wanted.is_integer and is_float:
        raise KernelArgumentError(
            f"{label} is annotated {wanted.name} but this call gives a float: convert it with "
            f"int(...)",
            where,
        )
    return wanted


def _is_held(value: int, dtype: DType) -> bool:
    """True if an integer can be passed as a `dtype`: the type represents it.

    In a program an integer of as many bits, signed or unsigned, can be passed, too, such as 255 as an i8.
    """
    if dtype.holds(value):
        return True
    n_bits = 8 * dtype.size_bytes
    return current_program() is not None and -(1 << n_bits - 1) <= value < 1 << n_bits


def _number_dtype(value: Any) -> DType | None:
    if isinstance(value, (bool, np.bool_)):
        return DType.bool_
    if isinstance(value, SymbolicScalar):
        return None if value.dtype.is_float else value.dtype
    if isinstance(value, np.generic) and not isinstance(value, float):
        return next((d for d in ELEMENT_TYPES if value.dtype == d.numpy), DType.bool_)
    return i64 if isinstance(value, int) else None


def members_of(kind: Any, stem: str) -> Iterator[tuple[str, Any]]:
    """Yields name and element type of each scalar parameter for an argument of type `kind`; `stem` is its name."""
    if isinstance(kind, StructType | ComplexType):
        for name, member in kind.members.items():
            yield from members_of(member, f"{stem}_{name}")
    elif isinstance(kind, MatrixType):
        count = int(np.prod(kind.shape))
        for k in range(count):
            yield f"{stem}_{k}", kind.dtype
    else:
        yield stem, kind


def flattened(kind: Any, value: Any, label: str, where: Location) -> list[Any]:
    """Returns the numbers of an argument, in the order of `members_of`.

    LanguageError if it is no value of `kind`.
    """
    if isinstance(kind, ComplexType):
        if isinstance(value, bool | np.bool_) or not isinstance(
            value, int | float | complex | np.number
        ):
            raise KernelArgumentError(
                f"{label} must be a complex number, not {type(value).__name__}", where
            )
        return [float(value.real), float(value.imag)]
    if isinstance(kind, StructType):
        given = struct_members(value) if isinstance(value, Struct) else value
        if not isinstance(given, dict) or given.keys() != kind.members.keys():
            raise KernelArgumentError(f"{label} takes a struct of {', '.join(kind.members)}", where)
        return [
            n for name, m in kind.members.items() for n in flattened(m, given[name], label, where)
        ]
    if isinstance(kind, MatrixType):
        try:
            numbers = np.asarray(value.to_numpy() if isinstance(value, Matrix) else value)
        except (TypeError, ValueError):
            numbers = np.asarray(None)
        is_other = isinstance(value, Matrix) and value.get_shape() != kind.shape
        if is_other or numbers.dtype.kind not in "biuf" or numbers.size != int(np.prod(kind.shape)):
            raise ProgramTypeError(f"{label} takes {kind}, not {value!r}", where)
        convert = float if kind.dtype.is_float else int
        return [convert(n) for n in numbers.ravel().tolist()]
    return [value]
