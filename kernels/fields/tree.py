"""Trees of dense nodes, which give fields their shape: `root.dense(ij, (8, 8)).dense(ij, (4, 4)).place(x)`.

A tree decides shapes and parents, and not where elements lie in memory: nothing that a program computes depends on that.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from .place import fail

if TYPE_CHECKING:
    from .field import AbstractField, AbstractLeaf

Axes = tuple[int, ...]

i, j, k, l = (0,), (1,), (2,), (3,)  # noqa: E741 - names of Taichi's
ij, ik, il, jk, jl, kl = (0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)
ijk, ijl, ikl, jkl = (0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)
ijkl = (0, 1, 2, 3)


def axes(*numbers: int) -> Axes:
    """The axes of these numbers: `axes(0, 1)` is `ij`."""
    return tuple(numbers)


class Layout(Enum):
    """How components lie in memory. Fields take it and keep their components apart either way."""

    AOS = 1
    SOA = 2


@dataclass
class Tree:
    """All nodes of one root. `is_final`: its fields may have memory. `is_closed`: it gets no more nodes."""

    is_final: bool
    is_closed: bool = False
    leaves: list[AbstractLeaf] = field(default_factory=list)


@dataclass(frozen=True)
class Place:
    """Where a field is: its shape, the least index along each axis (all 0 where `offset` is empty), its node."""

    shape: tuple[int, ...]
    offset: tuple[int, ...]
    snode: SNode


_SPARSE = "sparse nodes are not there yet: use dense ones"
_MISSING = {
    "pointer": _SPARSE,
    "bitmasked": _SPARSE,
    "dynamic": _SPARSE,
    "hash": _SPARSE,
    "deactivate_all": _SPARSE,
    "quant_array": "quantised types are not there yet: use fields of i8, i16 or f16",
    "bit_struct": "quantised types are not there yet: use fields of i8, i16 or f16",
    "lazy_grad": "autodiff is not there yet",
    "lazy_dual": "autodiff is not there yet",
}


class SNode:
    """A node of a tree. `kind` is root, dense or place; a dense node splits each cell of its parent along `axes` into `extents`."""

    def __init__(
        self,
        kind: str,
        above: SNode | None,
        tree: Tree,
        cells: tuple[Axes, tuple[int, ...]] = ((), ()),
    ) -> None:
        self.kind = kind
        self.axes, self.extents = cells
        self.tree = tree
        self._above = above

    def dense(self, axes: Axes | Sequence[int], dimensions: int | Sequence[int]) -> SNode:
        """Splits each cell; `dimensions` is one number for all axes, or one each."""
        self._check_open()
        numbers = tuple(axes)
        extents = extents_of(dimensions, f"{self.kind}.dense")
        if isinstance(dimensions, (int, np.integer)):
            extents = extents * len(numbers)
        if len(extents) != len(numbers):
            fail(f"dense is given {len(numbers)} axes and {len(extents)} dimensions")
        return SNode("dense", self, self.tree, (numbers, extents))

    def place(self, *args: Any, offset: int | Sequence[int] | None = None) -> SNode:
        """Gives fields, or lists of fields, their shape. `offset` is the least index along each axis."""
        self._check_open()
        for arg in args:
            if isinstance(arg, (list, tuple)):
                self.place(*arg, offset=offset)
            elif hasattr(arg, "leaves"):
                self._place(arg, offset)
            else:
                fail(f"place takes fields, not {arg!r}")
        return self

    def _place(self, placed: AbstractField, offset: int | Sequence[int] | None) -> None:
        shape = self.shape
        least = () if offset is None else offset_of(offset, shape)
        for leaf in placed.leaves():
            leaf.set_place(Place(shape, least, SNode("place", self, self.tree)))
            self.tree.leaves.append(leaf)

    def parent(self, n: int = 1) -> SNode | None:
        """The n-th node above, None above the root."""
        node: SNode | None = self
        for _ in range(n):
            node = node._above if node is not None else None
        return node

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis that this node and those above it split, in the order of the axes."""
        extents: dict[int, int] = {}
        node: SNode | None = self
        while node is not None:
            for axis, extent in zip(node.axes, node.extents, strict=True):
                extents[axis] = extents.get(axis, 1) * extent
            node = node._above
        return tuple(extents[axis] for axis in sorted(extents))

    @property
    def snode(self) -> SNode:
        return self

    def __getattr__(self, name: str) -> Any:
        if name in _MISSING:
            fail(_MISSING[name])
        raise AttributeError(f"a node of fields has no attribute {name!r}")

    def __str__(self) -> str:
        if self._above is None:
            return "ks.root"
        return f"{self._above} => {self.kind} {list(self.shape)}"

    def __repr__(self) -> str:
        return "ks.root" if self._above is None else f"<ks.SNode of type {self.kind}>"

    def _check_open(self) -> None:
        if self.tree.is_closed:
            fail("this ks.FieldsBuilder is finalized: make another one for more fields")


def extents_of(shape: Any, what: str) -> tuple[int, ...]:
    """A shape, or one extent, as a tuple; LanguageError unless all are whole and positive."""
    given = shape if isinstance(shape, (tuple, list, np.ndarray)) else (shape,)
    try:
        extents = tuple(operator.index(n) for n in given)
    except TypeError:
        fail(f"{what}: the shape {shape!r} is not made of whole numbers")
    if any(n <= 0 for n in extents):
        fail(f"{what}: the shape {shape!r} has an extent that is not positive")
    return extents


def offset_of(offset: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """An offset as a tuple, for each axis of a shape."""
    given = offset if isinstance(offset, (tuple, list, np.ndarray)) else (offset,)
    try:
        numbers = tuple(operator.index(n) for n in given)
    except TypeError:
        fail(f"the offset {offset!r} is not made of whole numbers")
    if len(numbers) != len(shape):
        fail(
            f"the offset {offset!r} has {len(numbers)} numbers, the shape {shape} has {len(shape)}"
        )
    return numbers
