"""Types of vectors, matrices and structs, such as `ks.types.vector(3, float)`.

Calling a type returns a value; its methods create fields and arrays. Types are compared by structure, so they can be part of the
signature of a kernel.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..ir.errors import ProgramKeyError, ProgramTypeError
from ..ir.kernel import DType
from .caller_location import fail
from .matrix import Matrix
from .program import element_dtype
from .structs import Struct, members_of


@dataclasses.dataclass(frozen=True)
class MatrixType:
    """Type of vectors, shape (n,), or matrices, shape (n, m).

    `element` is the component type as written: `float` and `int` are the program's defaults.
    """

    shape: tuple[int, ...]
    element: Any

    @property
    def dtype(self) -> DType:
        return element_dtype(self.element)

    @property
    def n(self) -> int:
        return self.shape[0]

    @property
    def m(self) -> int:
        return self.shape[1] if self.ndim == 2 else 1

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def get_shape(self) -> tuple[int, ...]:
        return self.shape

    def __call__(self, *args: Any) -> Matrix:
        """Returns a value of this type from numbers, vectors and lists, in order; one number sets all components."""
        numbers = [x for arg in args for x in _flat(arg)]
        count = int(np.prod(self.shape))
        if len(args) == 1 and len(numbers) == 1:
            numbers *= count
        if len(numbers) != count:
            fail(f"{self} takes {count} numbers, not {len(numbers)}", ProgramTypeError)
        if self.dtype.is_integer:  # one by one: NumPy makes floats of numbers on both sides of 2^63
            numbers = [self.dtype(n) for n in numbers]
        return Matrix(np.array(numbers).reshape(self.shape), self.dtype)

    def field(self, shape: Any = None, **options: Any) -> Any:
        """Creates a field of this type; the options are those of `ks.field`."""
        from .factories import matrix_field

        return matrix_field(self.shape, self.dtype, shape, **options)

    def ndarray(self, shape: Any) -> Any:
        """Creates an array of this type, which kernels take as an argument."""
        from .ndarray import Ndarray

        return Ndarray(self.dtype, shape, self.shape)

    def __str__(self) -> str:
        name = "vector" if self.ndim == 1 else "matrix"
        return f"{name}({', '.join(map(str, self.shape))}, {type_name(self.element)})"


@dataclasses.dataclass(frozen=True)
class StructType:
    """Type of structs.

    `members`: an element type, a MatrixType or a StructType by name. `methods`: Python functions by name.
    """

    members: Mapping[str, Any]
    methods: Mapping[str, Callable[..., Any]] = dataclasses.field(default_factory=dict)
    name: str = "struct"

    def __hash__(self) -> int:
        return hash((self.name, tuple(self.members.items())))

    def __call__(self, *args: Any, **kwargs: Any) -> Struct:
        """Returns a struct of this type from members in order or by name; omitted members are zero."""
        if len(args) == 1 and not kwargs and isinstance(args[0], Mapping):
            given = dict(args[0])
        elif len(args) == 1 and not kwargs and self._is_like(args[0]):
            given = dict(members_of(args[0]))
        else:
            given = dict(zip(self.members, args, strict=False))
            for key in given.keys() & kwargs.keys():
                fail(f"{self} is given the member {key} twice")
            given |= kwargs
        if len(args) > len(self.members):
            fail(f"{self} takes {len(self.members)} members, not {len(args)}", ProgramTypeError)
        for key in given:
            if key not in self.members:
                fail(f"{self} has no member {key}", ProgramKeyError)
        return Struct.of_type(
            self,
            {key: member_value(member, given.get(key, 0)) for key, member in self.members.items()},
        )

    def _is_like(self, x: Any) -> bool:
        """True if `x` is a struct whose members all belong to this type.

        Any other struct is a value for the first member.
        """
        return isinstance(x, Struct) and members_of(x).keys() <= self.members.keys()

    def field(self, shape: Any = None, **options: Any) -> Any:
        """Creates a field of this type; the options are those of `ks.field`."""
        from .factories import struct_field

        return struct_field(self, shape, **options)

    def __str__(self) -> str:
        shown = ", ".join(f"{key}: {type_name(member)}" for key, member in self.members.items())
        return f"{self.name}({shown})"


@dataclasses.dataclass(frozen=True)
class ElementPattern:
    """Types of vectors, shape (n,), or matrices, shape (n, m), of which some extents or the component type are open: None."""

    shape: tuple[int | None, ...]
    element: Any

    def fits(self, shape: tuple[int, ...]) -> bool:
        """True for an extent of each axis."""
        pairs = zip(self.shape, shape, strict=False)
        return len(shape) == len(self.shape) and all(a in (None, b) for a, b in pairs)

    def __str__(self) -> str:
        name = "vector" if len(self.shape) == 1 else "matrix"
        kind = "any" if self.element is None else type_name(self.element)
        return f"{name}({', '.join('any' if n is None else str(n) for n in self.shape)}, {kind})"


def vector(n: int | None = None, dtype: Any = None) -> Any:
    """Returns the type of vectors of n components; without n or dtype an annotation that takes arrays of any of these."""
    return _of_shape((n,), dtype)


def matrix(n: int | None = None, m: int | None = None, dtype: Any = None) -> Any:
    """Returns the type of matrices of n rows and m columns; without some of these an annotation that takes arrays of any."""
    return _of_shape((n, m), dtype)


def _of_shape(shape: tuple[int | None, ...], dtype: Any) -> MatrixType | ElementPattern:
    known = [_extent(n) for n in shape if n is not None]
    kind = None if dtype is None else _checked(dtype)
    if kind is None or len(known) < len(shape):
        return ElementPattern(shape, kind)
    return MatrixType(tuple(known), kind)


def struct(**members: Any) -> StructType:
    """Returns the type of structs with these members, given by name as element or compound types."""
    methods = members.pop("__struct_methods", {})
    return StructType({key: _member(key, member) for key, member in members.items()}, methods)


def dataclass(cls: type) -> StructType:
    """`@ks.dataclass`: makes a struct type of a class: its annotations are the members, its functions the methods.

    Methods are functions of the program, as in any class. Those that kernels call are decorated with `@ks.func`.
    """
    frame = sys._getframe(1)
    try:
        annotations = inspect.get_annotations(cls, locals=dict(frame.f_locals), eval_str=True)
    except NameError as error:
        fail(f"the annotations of {cls.__name__} cannot be evaluated: {error}")
    methods = {
        name: value
        for name, value in vars(cls).items()
        if callable(value) and not name.startswith("__")
    }
    for name in vars(cls):
        if name in annotations:
            fail(f"the member {name} of {cls.__name__} has a value: members of structs have none")
    members = {key: _member(key, member) for key, member in annotations.items()}
    return StructType(members, methods, cls.__name__)


def member_value(member: Any, x: Any) -> Any:
    """Returns `x` converted to the type of a struct's member; 0 sets all numbers of a vector or struct to zero."""
    if isinstance(member, StructType):
        if isinstance(x, Struct) and set(x.keys) != member.members.keys():
            fail(
                f"a struct of {', '.join(x.keys)} is given where {member} is wanted: both must have one shape"
            )
        return member() if isinstance(x, int) and x == 0 else member(x)
    if isinstance(member, MatrixType):
        return member(x)
    try:
        return element_dtype(member)(x).item()
    except (TypeError, ValueError):
        return fail(f"{x!r} is given where one number is wanted, {type_name(member)}")


def are_one_type(a: Any, b: Any) -> bool:
    """True if two types have equal numbers, in equal shapes and members; `float` and `int` are the program's defaults."""
    match a, b:
        case StructType(), StructType():
            mine, others = a.members, b.members
            return [*mine] == [*others] and all(are_one_type(mine[n], others[n]) for n in mine)
        case MatrixType(), MatrixType():
            return a.shape == b.shape and a.dtype is b.dtype
        case (StructType() | MatrixType(), _) | (_, StructType() | MatrixType()):
            return False
    return element_dtype(a) is element_dtype(b)


def type_name(x: Any) -> str:
    """Returns the name of an element type in messages, such as `f32`."""
    if isinstance(x, DType):
        return x.name.rstrip("_")
    return x.__name__ if isinstance(x, type) else str(x)


def _flat(x: Any) -> Iterator[Any]:
    if isinstance(x, Matrix):
        yield from x.entries.ravel()
    elif isinstance(x, (list, tuple, np.ndarray)):
        for inner in x:
            yield from _flat(inner)
    else:
        yield x


def _extent(n: Any) -> int:
    if not isinstance(n, (int, np.integer)) or n < 1:
        fail(
            f"a type of vectors or matrices has a positive number of components, not {n!r}",
            ProgramTypeError,
        )
    return int(n)


def _checked(dtype: Any) -> Any:
    element_dtype(dtype)
    return dtype


def _member(key: str, member: Any) -> Any:
    """Returns the type of a struct's member; a dict stands for a struct, as in Taichi."""
    if isinstance(member, Mapping):
        return struct(**member)
    if isinstance(member, (MatrixType, StructType)):
        return member
    if not key.isidentifier():
        fail(f"{key!r} is no name of a member", ProgramKeyError)
    return _checked(member)
