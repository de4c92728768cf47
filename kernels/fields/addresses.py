"""Addresses of field elements in the memory of this process."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ir.errors import ProgramTypeError
from .caller_location import fail
from .element_fields import ScalarField
from .field import AbstractField, AbstractLeaf
from .host_access import settle_for_sharing
from .tree import SNode


def get_addr(field: Any, at: Any) -> int:
    """Returns the address of an element in bytes; for a vector, matrix or struct that of its first number.

    `field` is a field, or its node. An inactive element of a pointer node has the address of the zeros that a read of it returns.
    In kernels the address is a u64. It is valid until the program ends. LanguageError for anything else, and for indices outside.
    """
    leaf = field_at(field)
    if leaf is None:
        fail(f"ks.get_addr takes a field, or the node of one, not {field!r}", ProgramTypeError)
    cells = leaf.cells
    settle_for_sharing(leaf if cells is None else cells)
    item: tuple[int, ...]
    if cells is None:
        item = leaf.index(at)
    else:
        places = [np.asarray([i]) for i in leaf.index(at)]
        item = (int(cells.storage.find(cells.node, places)[0][0]),)
    component: tuple[int, ...] = (0,) * len(leaf.element_shape)
    if isinstance(leaf, ScalarField) and leaf.whole is not None:
        component, leaf = leaf.component, leaf.whole
    values = memory_of(leaf)
    steps = zip((*component, *item), values.strides, strict=True)
    return values.ctypes.data + sum(i * step for i, step in steps)


def field_at(x: object) -> AbstractLeaf | None:
    """Returns the field that an argument denotes: a field, the field of a node, the first of structs; else None."""
    if isinstance(x, SNode):
        return x.leaf
    return x.leaves()[0] if isinstance(x, AbstractField) else None


def memory_of(leaf: AbstractLeaf) -> NDArray[Any]:
    """Returns the array that stores a field: (*components, *shape); for a sparse field (*components, items)."""
    return leaf.storage if leaf.cells is None else leaf.cells.values
