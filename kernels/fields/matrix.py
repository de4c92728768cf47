"""Vectors and matrices outside of kernels: independent values, or views of an element of a field."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from ..ir.errors import (
    KernelTypeError,
    LanguageError,
    ProgramIndexError,
    ProgramTypeError,
    ProgramValueError,
)
from ..ir.ops import OPS
from . import methods
from .accessed_memory import AbstractMemory
from .caller_location import fail
from .conversion import array_of, element_values
from .host_access import settle_for
from .program import element_dtype


def _method(name: str) -> Callable[..., Any]:
    """Returns the method of `Matrix` that applies the definition `name` of methods.py."""
    definition = methods.METHODS[name]

    @wraps(definition)
    def method(self: Matrix, *args: Any, **kwargs: Any) -> Any:
        given = [_components(x) for x in args]
        try:
            return _value(methods.call(python_do, name, _components(self), *given, **kwargs))
        except LanguageError as error:
            fail(error.sentence, type(error))

    return method


def _maker(name: str) -> Any:
    """Returns the static method of `Matrix` that applies the constructor `name` of methods.py."""
    definition = methods.MAKERS[name]

    @wraps(definition)
    def maker(*args: Any, **kwargs: Any) -> Any:
        given = [
            [_components(x) for x in arg] if isinstance(arg, (list, tuple)) else arg for arg in args
        ]
        try:
            return _value(methods.make(python_do, name, *given, **kwargs))
        except LanguageError as error:
            fail(error.sentence, type(error))

    return staticmethod(maker)


class Matrix(NDArrayOperatorsMixin):
    """Matrix of n rows and m columns, or vector of n components (`ks.Vector`).

    Operators apply component by component, also with numbers, lists and NumPy arrays; `@` is the product of matrices. Components
    are `a[i]`, `a[i, j]`, and by name `a.x`, `a.xy`, `a.rgb`. `dt` is the type of the components. Without it they have the type of
    the given values: i64, f64 or truth values for Python's numbers.
    """

    __slots__ = ("_begin", "_data", "_is_element", "_joined", "_memory")
    _data: NDArray[Any]
    _is_element: bool
    _begin: (
        Callable[[], NDArray[Any]] | None
    )  # gives the components where they are before they are written
    _joined: Callable[..., Any] | None  # makes one truth value of those of `v == w` and `v != w`
    _memory: AbstractMemory | None  # that the components are in, which deferred kernels may use

    def __init__(self, items: Any, dt: Any = None) -> None:
        if not isinstance(items, (list, tuple, np.ndarray, Matrix)):
            fail(
                f"a vector or matrix is made of a list of numbers or of rows, not of {items!r}",
                KernelTypeError,
            )
        data = array_of(items, "a vector or matrix")
        if data.ndim not in (1, 2):
            fail(
                f"a vector or matrix has one or two dimensions, this list has {data.ndim}",
                ProgramValueError,
            )
        self._data = np.array(data, dtype=None if dt is None else element_dtype(dt).numpy)
        self._is_element = False
        self._begin = self._joined = self._memory = None

    @classmethod
    def of_element(
        cls,
        view: NDArray[Any],
        begin: Callable[[], NDArray[Any]] | None = None,
        memory: AbstractMemory | None = None,
    ) -> Matrix:
        """Returns the matrix that is a view of an element; `view`: its components.

        `begin`: called before a write, returns the array to write to. `memory`: the field of the program with the element.
        """
        made = cls.__new__(cls)
        made._data, made._is_element, made._begin, made._joined = view, True, begin, None
        made._memory = memory
        return made

    @property
    def entries(self) -> NDArray[Any]:
        """Components as an array; those of a field are widened to f64 or i64, and u64 stays u64."""
        data = self._settled
        if not self._is_element:
            return data
        wide = {
            "f": np.float64,
            "i": np.int64,
            "u": np.uint64 if data.dtype.itemsize == 8 else np.int64,
        }
        return data.astype(wide.get(data.dtype.kind, data.dtype))

    @property
    def _settled(self) -> NDArray[Any]:
        """Components after the kernels called so far that write them have run."""
        if self._memory is not None:
            settle_for(self._memory)
        return self._data

    def get_shape(self) -> tuple[int, ...]:
        """Returns (n,) for a vector, (n, m) for a matrix."""
        return self._data.shape

    @property
    def n(self) -> int:
        return len(self._data)

    @property
    def m(self) -> int:
        return int(self._data.shape[1]) if self._data.ndim == 2 else 1

    @property
    def ndim(self) -> int:
        return self._data.ndim

    # --- components

    def __getitem__(self, indices: Any) -> Any:
        return self._read(self._settled[self._checked(indices)])

    def __setitem__(self, indices: Any, value: Any) -> None:
        place = self._checked(indices)
        self._write(place, value)

    def __getattr__(self, name: str) -> Any:
        pattern = self._pattern(name)
        return self._read(self._settled[pattern[0] if len(pattern) == 1 else list(pattern)])

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Matrix.__slots__:
            object.__setattr__(self, name, value)
            return
        pattern = self._pattern(name)
        self._write(pattern[0] if len(pattern) == 1 else list(pattern), value)

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[Any]:
        """Yields the components of a vector, or the rows of a matrix as lists."""
        if self._data.ndim == 1:
            return (self[k] for k in range(len(self)))
        return iter([[self[k, c] for c in range(self.m)] for k in range(self.n)])

    def _read(self, part: Any) -> Any:
        if isinstance(part, np.ndarray):
            return Matrix.of_element(part).copy() if self._is_element else Matrix(part)
        return python_number(part) if self._is_element else part

    def _write(self, place: Any, value: Any) -> None:
        shape = np.shape(self._data[place]) if np.ndim(value) else ()
        what = "this part of a vector or matrix"
        if self._begin is not None:
            self._data = self._begin()
        self._data[place] = element_values(
            value, self._data.dtype, shape, what, is_exact=self._is_element
        )

    def _checked(self, indices: Any) -> Any:
        given = indices if isinstance(indices, tuple) else (indices,)
        if len(given) != self._data.ndim:
            fail(
                f"a value of {self._data.ndim} dimensions is given {len(given)} indices",
                ProgramIndexError,
            )
        for index, extent in zip(given, self._data.shape, strict=True):
            if isinstance(index, slice):
                continue
            if not isinstance(index, (int, np.integer)):
                fail(f"{index!r} is no index of a vector or matrix", ProgramTypeError)
            if not -extent <= index < extent:
                fail(f"there is no component {index}: there are {extent}", ProgramIndexError)
        return given

    def _pattern(self, name: str) -> tuple[int, ...]:
        pattern = None if name.startswith("_") else methods.swizzle(name)
        if pattern is None:
            raise AttributeError(f"vectors and matrices have no attribute {name!r}")
        if self._data.ndim != 1 or max(pattern) >= len(self._data):
            raise AttributeError(f"a {_shown(self._data.shape)} has no attribute {name!r}")
        return pattern

    # --- as other things

    def copy(self) -> Matrix:
        """Returns an independent copy."""
        return Matrix(self.entries)

    def fill(self, value: Any) -> None:
        """Sets every component to `value`."""
        self._write(..., value)

    def to_list(self) -> list[Any]:
        """Returns the components as nested lists of Python numbers."""
        listed: list[Any] = self._settled.tolist()
        return listed

    def to_numpy(self) -> NDArray[Any]:
        """Returns a copy of the components as an array."""
        return np.array(self.entries)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.entries, dtype=dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Applies operators, and NumPy's functions, component by component."""
        if method != "__call__":
            return NotImplemented
        kwargs.pop("out", None)  # `a += b` makes a new value, as it does in Taichi
        arrays = [_operand(x, ufunc.__name__) for x in inputs]
        shapes = {np.shape(a) for a in arrays if np.ndim(a)}
        if len(shapes) > 1 and not _fit(ufunc, shapes):
            fail(
                f"{' and '.join(sorted(map(_shown, shapes)))} do not fit together",
                ProgramValueError,
            )
        try:
            with np.errstate(all="ignore"):
                result = ufunc(*arrays, **kwargs)
        except (TypeError, ValueError) as error:
            fail(
                f"{ufunc.__name__} of {' and '.join(_shown(np.shape(a)) for a in arrays)}: {error}",
                ProgramTypeError,
            )
        if isinstance(result, tuple):
            return tuple(Matrix(r) for r in result)
        if not np.ndim(result):
            return result
        made = Matrix(result)
        made._joined = _joined(ufunc, inputs, arrays)
        return made

    def __bool__(self) -> bool:
        """True for `v == w` if all components are equal, for `v != w` if some are not: in the type of an element of a field.

        LanguageError for other vectors and matrices of truth values; True for all others.
        """
        if self._joined is not None:
            return bool(self._joined(self._data))
        if self._data.dtype.kind == "b":
            fail("several truth values are neither true nor false: use .all() or .any()")
        return True

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return str(self.entries)

    __repr__ = __str__

    # --- methods

    dot = _method("dot")
    cross = _method("cross")
    outer_product = _method("outer_product")
    norm_sqr = _method("norm_sqr")
    norm = _method("norm")
    norm_inv = _method("norm_inv")
    normalized = _method("normalized")
    sum = _method("sum")
    max = _method("max")
    min = _method("min")
    any = _method("any")
    all = _method("all")
    trace = _method("trace")
    determinant = _method("determinant")
    inverse = _method("inverse")
    transpose = _method("transpose")
    cast = _method("cast")

    zero = _maker("zero")
    one = _maker("one")
    unit = _maker("unit")
    identity = _maker("identity")
    diag = _maker("diag")
    rows = _maker("rows")
    cols = _maker("cols")
    rotation2d = _maker("rotation2d")

    @staticmethod
    def field(n: int, m: int, dtype: Any, shape: Any = None, **options: Any) -> Any:
        """Creates a field of matrices; the options are those of `ks.field`."""
        from .factories import matrix_field

        return matrix_field((n, m), dtype, shape, **options)

    @staticmethod
    def ndarray(n: int, m: int, dtype: Any, shape: Any) -> Any:
        """Creates an `Ndarray` of matrices, which kernels take as an argument."""
        from .ndarray import Ndarray

        return Ndarray(dtype, shape, (n, m))


class _VectorClass(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Matrix) and len(instance.get_shape()) == 1

    def __call__(cls, items: Any, dt: Any = None) -> Matrix:
        return Matrix(items, dt)


class Vector(metaclass=_VectorClass):
    """`ks.Vector([1, 2, 3])` is a `ks.Matrix` of one dimension."""

    zero = Matrix.zero
    one = Matrix.one
    unit = Matrix.unit

    @staticmethod
    def field(n: int, dtype: Any, shape: Any = None, **options: Any) -> Any:
        """Creates a field of vectors of n components; the options are those of `ks.field`."""
        from .factories import matrix_field

        return matrix_field((n,), dtype, shape, **options)

    @staticmethod
    def ndarray(n: int, dtype: Any, shape: Any) -> Any:
        """Creates an `Ndarray` of vectors, which kernels take as an argument."""
        from .ndarray import Ndarray

        return Ndarray(dtype, shape, (n,))


# One truth value of those of all components, for comparisons that Python asks for one.
_JOINED: dict[str, Callable[..., Any]] = {"equal": np.all, "not_equal": np.any}


def _fit(ufunc: np.ufunc, shapes: set[tuple[int, ...]]) -> bool:
    """True if operands of different shapes have a result: those of products, and of comparisons that repeat rows, as in NumPy."""
    if ufunc.__name__ not in _JOINED:
        return ufunc is np.matmul
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def _joined(
    ufunc: np.ufunc, operands: tuple[Any, ...], arrays: list[Any]
) -> Callable[[NDArray[Any]], Any] | None:
    """Returns the function that makes one truth value of those of a comparison; None for other operators.

    `arrays`: the operands' numbers. Beside an element of a field of floats other floats are rounded to its type, as a store
    rounds them.
    """
    join = _JOINED.get(ufunc.__name__)
    kinds = {x._data.dtype for x in operands if isinstance(x, Matrix) and x._is_element}
    if join is None or len(kinds) != 1 or (kind := kinds.pop()).kind != "f":
        return join
    floats = [np.asarray(a) for a in arrays]
    rounded = [a.astype(kind) if a.dtype.kind == "f" else a for a in floats]
    with np.errstate(all="ignore"):
        truths = ufunc(*rounded)
    return lambda _: join(truths)


def _operand(x: Any, what: str) -> Any:
    """Returns an operand for NumPy: an array, or a Python number, which takes the type of the other operand.

    `what` names the operand in messages.
    """
    if isinstance(x, (int, float)):
        return x
    return x.entries if isinstance(x, Matrix) else array_of(x, what)


def python_do(op: str, *operands: Any) -> Any:
    """Returns the result of operation `op` of `methods.py` on numbers of Python and NumPy."""
    if op == "cast":
        return element_dtype(operands[1])(operands[0])
    with np.errstate(all="ignore"):
        return OPS[op].numpy(*operands)


def _components(x: Any) -> Any:
    if isinstance(x, Matrix):
        return methods.ComponentMethods(x.get_shape(), tuple(x.entries.ravel()))
    if isinstance(x, np.ndarray) and x.ndim in (1, 2):
        return methods.ComponentMethods(x.shape, tuple(x.ravel()))
    return x


def _value(x: Any) -> Any:
    if isinstance(x, methods.ComponentMethods):
        return Matrix(np.array(x.items).reshape(x.shape))
    return x


def python_number(x: Any) -> int | float:
    """Returns a number of a field as a Python number; truth values are 0 and 1."""
    value = x.item()
    return int(value) if isinstance(value, bool) else value


def _shown(shape: tuple[int, ...]) -> str:
    if not shape:
        return "a number"
    return f"vector of {shape[0]}" if len(shape) == 1 else f"matrix of {shape[0]} x {shape[1]}"
