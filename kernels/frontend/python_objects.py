"""Python objects as values in a kernel: numbers become literals, fields become arrays of the kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..fields.compound import MatrixType
from ..fields.element_fields import ScalarField
from ..fields.field import AbstractLeaf
from ..fields.matrix import Matrix
from ..fields.quantised import QuantField, QuantMatrixField
from ..fields.struct_field import StructField
from ..fields.structs import Struct
from ..ir.kernel import ArrayParam, DType, Placed
from . import values
from .scopes import Pass
from .typing_rules import lift, strong


def lifted(state: Pass, x: object, name: str = "") -> values.Value:
    """Returns the value that the Python object `x` has in the kernel; `name` is its name in the program."""
    match x:
        case QuantField():
            return _packed(state, x, name)
        case QuantMatrixField():
            arrays = [
                ("_".join(map(str, at)), _packed(state, c, "")) for at, c in x.components.items()
            ]
            return values.StructArray(tuple(arrays), MatrixType(x.element_shape, x.kind.compute), x)
        case AbstractLeaf():
            return _field(state, x, name)
        case StructField():
            members = tuple(
                (n, lifted(state, m, f"{name or x.name}_{n}")) for n, m in x.members.items()
            )
            return values.StructArray(members, x.kind, x)  # type: ignore[arg-type]
        case Matrix():
            numbers = [lifted(state, n) for n in np.asarray(x).ravel().tolist()]
            return values.MatrixValue(x.get_shape(), tuple(numbers))  # type: ignore[arg-type]
        case Struct():
            parts = tuple((n, lifted(state, getattr(x, n))) for n in x.keys)
            return values.StructValue(parts, x.kind)
        case np.ndarray(shape=()):
            return lifted(state, x[()])
        case tuple() | list():
            return values.TupleValue(tuple(lifted(state, item) for item in x))
    value = lift(x)
    return strong(value, state.rules) if isinstance(value, values.Typed) else value


def _packed(state: Pass, x: QuantField, name: str) -> values.ArrayRef:
    """The array of words of a field of a quantised type."""
    words = x.packed()
    found = _field(state, words.field, name)
    parts = words.parts() if words.split else ()
    packed = values.Packed(words.layout, x.member, words.shape, parts)
    is_single = found.is_single and not parts
    return replace(found, is_single=is_single, source=x, packed=packed)


def _field(state: Pass, x: AbstractLeaf, name: str) -> values.ArrayRef:
    """Returns the kernel's array for a field, the same one at each use.

    For a component of a vector field it is that component of the whole field's array.
    """
    if isinstance(x, ScalarField) and x.whole is not None:
        whole = _field(state, x.whole, name)
        return replace(whole, element=(), component=x.component, source=x)
    known = state.captured.get(id(x))
    if known is None:
        cells = x.cells
        if cells is not None:
            shape = (*x.element_shape, *x.shape)
        else:
            shape = x.memory_shape
        param = ArrayParam(state.fresh(x.name or name or "field"), x.dtype.stored, shape)
        known = state.captured[id(x)] = (param, x)
        if cells is not None:
            tree = cells.structure.tree.name
            state.structures[tree] = cells.structure
            state.placed[param.name] = Placed(param.name, tree, cells.node)
    return values.ArrayRef(
        known[0],
        x.element_shape,
        is_single=not x.shape,
        offset=x.offset,
        source=x,
        is_truth=x.dtype is DType.bool_,
    )


def python_object(x: values.Value) -> Any:
    """Returns the Python object that a value stands for; None for numbers and arrays."""
    return x.python if isinstance(x, values.Static) else None
