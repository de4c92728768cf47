"""Results of functions and kernels: each returned number has one type, common to all return statements.

Results of a kernel are elements of hidden arrays, one array for each type.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..fields.matrix import Matrix
from ..fields.structs import Struct
from ..ir.kernel import ArrayParam, Const, DType, Location, SetLocal, Stmt, Store
from ..ir.simplify import const
from ..ir.walk import with_blocks
from .typing_rules import adopt, common_dtype, promote, settle
from .values import (
    Element,
    LocalVar,
    MatrixValue,
    Place,
    StructValue,
    TupleValue,
    Typed,
    Value,
    leaves,
    loaded_leaf,
    rebuilt,
)


def name_of(dtype: DType) -> str:
    """Returns the name of the hidden array for results of this type."""
    return f"return_{dtype.name.rstrip('_')}"


@dataclass
class Returns:
    """Values of all return statements of a function, with one type for each number.

    Until all types are known, each number is stored in a local of its own type. `place`: these locals, in the structure of the
    result, with the types of the first return statement.
    """

    place: Value
    given: dict[str, list[Typed]] = field(default_factory=dict)  # by local, in the order of `place`

    def give(self, name: str, x: Typed, where: Location) -> Stmt:
        """Returns the statement that stores one returned number in the local `name`."""
        self.given.setdefault(name, []).append(x)
        return SetLocal(name, x.expr, where)

    @staticmethod
    def of_kernel(x: Value) -> Returns:
        """Returns an empty record for the return statements of a kernel; results have the structure of `x`.

        Their locals are temporary: `in_arrays` replaces them by elements of hidden arrays.
        """
        names = (f".returned_{k}" for k in count())
        return Returns(rebuilt(x, lambda n: LocalVar(next(names), loaded_leaf(n).dtype)))

    def in_locals(
        self, statements: Sequence[Stmt], default_float: DType
    ) -> tuple[Value, tuple[Stmt, ...]]:
        """Returns the result as locals, and the function's statements with values converted to the common types."""
        types = self._types(default_float)

        def typed(s: SetLocal) -> Stmt:
            return replace(s, value=adopt(s.value, types[s.name]))

        place = rebuilt(self.place, lambda n: LocalVar(n.name, types[n.name]))  # type: ignore[union-attr]
        return place, _with_returns(statements, types, typed)

    def in_arrays(
        self, statements: Sequence[Stmt], default_float: DType
    ) -> tuple[Results, tuple[Stmt, ...]]:
        """Returns the places of a kernel's results in hidden arrays, and the statements that store there."""
        types = self._types(default_float)
        names = [n.name for n in leaves(self.place) if isinstance(n, LocalVar)]
        results = Results.of(self.place, [types[n] for n in names])
        elements = dict(zip(names, leaves(results.place), strict=True))

        def stored(s: SetLocal) -> Stmt:
            element = elements[s.name]
            assert isinstance(element, Element)
            value = adopt(adopt(s.value, element.dtype), element.array.dtype)
            return Store(element.array.name, element.indices, value, s.where)

        return results, _with_returns(statements, types, stored)

    def _types(self, default_float: DType) -> dict[str, DType]:
        """Returns the common type of the values of each local, by name."""
        return {name: _common(numbers, default_float) for name, numbers in self.given.items()}


def _common(numbers: Sequence[Typed], default_float: DType) -> DType:
    """Returns the common type of these numbers; literals take the type of the others."""
    settled = [settle(x, default_float).dtype for x in numbers if not x.weak]
    if not settled:
        return reduce(promote, (settle(x, default_float).dtype for x in numbers))
    dtype = reduce(promote, settled)
    for literal in (x for x in numbers if x.weak):
        dtype = common_dtype(Typed(const(0, dtype)), literal, default_float)
    return dtype


def _with_returns(
    statements: Iterable[Stmt], names: Container[str], change: Callable[[SetLocal], Stmt]
) -> tuple[Stmt, ...]:
    """Returns the statements, with `change` applied to each assignment to a local in `names`."""
    return tuple(
        change(s)
        if isinstance(s, SetLocal) and s.name in names
        else with_blocks(s, lambda block: _with_returns(block, names, change))
        for s in statements
    )


@dataclass(frozen=True)
class Results:
    """Result of a kernel: the array element for each of its numbers, and the hidden arrays of these elements."""

    place: Value
    arrays: tuple[ArrayParam, ...]

    @staticmethod
    def of(value: Value, types: Sequence[DType]) -> Results:
        """Assigns an element of a hidden array to each number of `value`; `types` are the types of the numbers."""
        arrays = {
            d: ArrayParam(name_of(d), d.stored, (types.count(d),)) for d in dict.fromkeys(types)
        }
        taken = dict.fromkeys(types, 0)
        order = iter(types)

        def leaf(_: Typed | Place) -> Element:
            dtype = next(order)
            taken[dtype] += 1
            at = (const(taken[dtype] - 1, DType.i64),)
            return Element(arrays[dtype], at, is_truth=dtype is DType.bool_)

        return Results(rebuilt(value, leaf), tuple(arrays.values()))

    def allocated(self) -> dict[str, NDArray[Any]]:
        """Allocates the hidden arrays for one call, by name."""
        return {a.name: np.zeros(a.shape, a.dtype.numpy) for a in self.arrays}

    def read(self, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """Returns the result of a call from its hidden arrays, as Python numbers, vectors, structs and tuples."""
        return _python(self.place, arrays)


def _python(x: Value, arrays: Mapping[str, NDArray[Any]]) -> Any:
    match x:
        case Element(array, (Const(value=k),)):
            return arrays[array.name][int(k)].item()
        case MatrixValue(shape, items):
            numbers = [_python(i, arrays) for i in items]
            dtype = next(n.array.dtype for n in items if isinstance(n, Element))
            return Matrix(np.array(numbers, dtype.numpy).reshape(shape), dtype)
        case StructValue(members, kind):
            values = {n: _python(m, arrays) for n, m in members}
            return Struct(values) if kind is None else kind(values)
        case TupleValue(items=parts):
            return tuple(_python(p, arrays) for p in parts)
    raise AssertionError(x)
