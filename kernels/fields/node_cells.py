"""Cells of sparse nodes, accessed from Python: the kernel functions on sparse fields, called outside of a kernel.

Indices are those of the node's cells, without the offsets of fields, as in kernels.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.errors import ProgramIndexError, ProgramTypeError, ProgramValueError
from .caller_location import fail
from .field import AbstractField, indices
from .matrix import Matrix
from .storage import Indices
from .structs import Struct
from .tree import SNode, Structure


def activate(node: Any, at: Any) -> None:
    """Makes a cell of a node active; a newly active cell is zero."""
    found = _node(node, "activate")
    places = _places(found, at, "activate")
    structure = found.structure
    if structure is not None:
        structure.writable.activate(_number(structure, found), places)


def deactivate(node: Any, at: Any) -> None:
    """Makes a cell of a node inactive, with all cells in it; for a dynamic node all cells of one list."""
    found = _node(node, "deactivate")
    if found.has is None or not found.has.is_sparse:
        fail(f"ks.deactivate: cells of a {found.kind} node are always active")
    places = _places(_owner(found), at, "deactivate")
    structure = found.structure
    assert structure is not None
    structure.writable.deactivate(_number(structure, found), places)


def is_active(node: Any, at: Any) -> int:
    """Returns 1 if the cell of a node is active, else 0."""
    found = _node(node, "is_active")
    places = _places(found, at, "is_active")
    structure = found.structure
    if structure is None:
        return 1
    return int(structure.storage.find(_number(structure, found), places)[1][0])


def length(node: Any, at: Any) -> int:
    """Returns the number of cells in one list of a dynamic node."""
    found = _list(node, "length")
    places = _places(_owner(found), at, "length")
    structure = found.structure
    assert structure is not None
    return structure.storage.length(_number(structure, found), places)


def append(node: Any, at: Any, value: Any) -> int:
    """Adds a cell to a dynamic node and returns its index.

    With several fields the value is a struct, or a list, with one value for each. In kernels the order of several appends is
    undefined.
    """
    found = _list(node, "append")
    places = _places(_owner(found), at, "append")
    fields = [x.leaf for x in found.below if x.leaf is not None]
    values = [value] if len(fields) == 1 else _values(value)
    if len(values) != len(fields):
        fail(
            f"ks.append gives {len(values)} values to a cell that has {len(fields)}",
            ProgramValueError,
        )
    structure = found.structure
    assert structure is not None
    _, new = structure.writable.append(_number(structure, found), places)
    own = dict(zip(_axes(_owner(found)), (int(x[0]) for x in places), strict=True))
    own[found.axes[0]] = new
    for field, value in zip(fields, values, strict=True):
        offset = field.place.offset or (0,) * len(own)
        field[tuple(own[a] + o for a, o in zip(sorted(own), offset, strict=True))] = value
    return new


def rescale_index(a: Any, b: Any, at: Any) -> Matrix:
    """Returns the index of the cell of `b` that corresponds to the index `at` of `a`; both are fields or nodes.

    Each index is scaled by the ratio of the extents.
    """
    shapes = [x.shape if isinstance(x, AbstractField | SNode) else None for x in (a, b)]
    if None in shapes:
        fail("ks.rescale_index takes fields or nodes", ProgramTypeError)
    found = list(indices(at))
    for k, (n, m) in enumerate(zip(*shapes, strict=False)):
        if k < len(found):
            found[k] = found[k] // (n // m) if n > m else found[k] * (m // n)
    return Matrix(found)


def _node(x: Any, name: str) -> SNode:
    """Returns the node that an argument of the function `name` denotes: a node, or the one above a field."""
    found = x.snode if isinstance(x, AbstractField | SNode) else None
    if found is not None and found.kind == "place":
        found = found.parent()
    if found is None or found.kind == "root":
        fail(f"ks.{name} takes a node of a tree, or a field in one, not {x!r}", ProgramTypeError)
    return found


def _values(x: Any) -> list[Any]:
    """Returns the values for several fields, given as a struct, list or vector; any other value as a list of one."""
    if isinstance(x, Struct | list | tuple | Matrix):
        return [y for item in x for y in (_values(item) if isinstance(item, Struct) else [item])]
    return [x]


def _list(x: Any, name: str) -> SNode:
    found = _node(x, name)
    if found.has is None or not found.has.length:
        fail(f"ks.{name} takes a dynamic node, not a {found.kind} one", ProgramTypeError)
    return found


def _owner(node: SNode) -> SNode | None:
    """Returns the node that `at` indexes: `node`, for a dynamic node the one above; None for the root."""
    if node.has is None or not node.has.length:
        return node
    above = node.parent()
    return None if above is None or above.kind == "root" else above


def _places(node: SNode | None, at: Any, name: str) -> Indices:
    """Returns an index of a node's cells as arrays of one element. LanguageError for an index outside."""
    shape = node.shape if node is not None else ()
    given = indices(at)
    if len(given) != len(shape):
        fail(
            f"ks.{name} takes {n_indices(len(shape))} of that node, not {len(given)}",
            ProgramIndexError,
        )
    found = []
    for axis, (i, extent) in enumerate(zip(given, shape, strict=True)):
        try:
            number = operator.index(i)
        except TypeError:
            fail(f"ks.{name} takes whole numbers as indices, not {i!r}", ProgramTypeError)
        if not 0 <= number < extent:
            fail(
                f"ks.{name}: that node has indices 0 to {extent - 1} along axis {axis}, not {i}",
                ProgramIndexError,
            )
        found.append(np.asarray([number]))
    return found


def n_indices(n: int) -> str:
    """Returns "1 index" or "n indices", for messages."""
    return "1 index" if n == 1 else f"{n} indices"


def _axes(node: SNode | None) -> Sequence[int]:
    found: set[int] = set()
    while node is not None:
        found |= set(node.axes)
        node = node.parent()
    return sorted(found)


def _number(structure: Structure, node: SNode) -> int:
    return structure.numbers[id(node)]
