"""What a kernel returns: elements of hidden arrays, one array for each type of number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..fields.matrix import Matrix
from ..fields.structs import Struct
from ..ir.kernel import ArrayParam, Const, DType
from ..ir.simplify import const
from .places import loaded_leaf
from .typing_rules import settle
from .values import (
    Element,
    MatrixValue,
    Place,
    StructValue,
    TupleValue,
    Typed,
    Value,
    leaves,
    rebuilt,
)


def name_of(dtype: DType) -> str:
    """The hidden array for results of this type."""
    return f"return_{dtype.name.rstrip('_')}"


@dataclass(frozen=True)
class Results:
    """Where the parts of a returned value are, and the arrays that they are in."""

    place: Value
    arrays: tuple[ArrayParam, ...]

    @staticmethod
    def like(value: Value, default_float: DType) -> Results:
        """Room for a value of these types."""
        types = [settle(loaded_leaf(n), default_float).dtype for n in leaves(value)]
        arrays = {d: ArrayParam(name_of(d), d, (types.count(d),)) for d in dict.fromkeys(types)}
        taken = dict.fromkeys(types, 0)
        order = iter(types)

        def leaf(_: Typed | Place) -> Element:
            dtype = next(order)
            taken[dtype] += 1
            return Element(arrays[dtype], (const(taken[dtype] - 1, DType.i64),))

        return Results(rebuilt(value, leaf), tuple(arrays.values()))

    def allocated(self) -> dict[str, NDArray[Any]]:
        """The hidden arrays of one call."""
        return {a.name: np.zeros(a.shape, a.dtype.numpy) for a in self.arrays}

    def read(self, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """What a call returned, as Python has it: numbers, vectors, structs, tuples."""
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
