"""Trees of nodes that define the shape of fields: `root.pointer(ij, (8, 8)).dense(ij, (4, 4)).place(x)`.

A field with only dense nodes above is one array; the layout of its elements is not observable. Any other field is sparse, and its
elements are in the storage of its tree (storage.py).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir.errors import KernelSyntaxError, ProgramRuntimeError, ProgramTypeError, ProgramValueError
from ..ir.logical import FieldPlace
from ..ir.structure import KINDS, Kind, NodeKind, StructureTree, TreeNode
from ..sparse.layout import layout_of
from .caller_location import fail
from .host_access import host_kernels, settle_for_reading, settle_for_writing
from .statistics import TreeStatistics, statistics_of
from .storage import NO_MORE, TreeStorage

if TYPE_CHECKING:
    from .field import AbstractField, AbstractLeaf, DerivativeKind

Axes = tuple[int, ...]
_MOST_ALONG = 1 << 31  # cells along an axis

i, j, k, l = (0,), (1,), (2,), (3,)  # noqa: E741 - names of Taichi's
ij, ik, il, jk, jl, kl = (0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)
ijk, ijl, ikl, jkl = (0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)
ijkl = (0, 1, 2, 3)


def axes(*numbers: int) -> Axes:
    """Returns the axes of these numbers, for methods of nodes: `axes(0, 1)` is `ij`."""
    return tuple(numbers)


class Layout(Enum):
    """Memory layout of components that a program may request; fields ignore it and store components separately."""

    AOS = 1
    SOA = 2


@dataclass
class NodeTree:
    """All nodes below one root.

    `is_final`: its fields may have memory. `is_closed`: no nodes can be added. `released`: the reason why its memory was freed, ""
    if it was not.
    """

    is_final: bool
    is_closed: bool = False
    leaves: list[AbstractLeaf] = field(default_factory=list)
    number: int = 0  # among those of the program
    tops: list[SNode] = field(default_factory=list)  # the nodes below the root
    released: str = ""


@dataclass(frozen=True)
class PlacedField:
    """Place of a field in a tree: its shape, the least index along each axis (() if all are 0), and its node."""

    shape: tuple[int, ...]
    offset: tuple[int, ...]
    snode: SNode


_MISSING = {
    "bit_struct": "a node has no bit_struct: place the fields in a ks.BitpackedFields, and that in the node",
}


class SNode:
    """Node of a tree. `kind` is root, place, or one of `KINDS`, which split each cell of the parent into cells.

    `axes`, `extents`: axes along which the parent's cell is split, and the number of cells along each. Each kind has a method of
    its name, which adds a node of that kind below: see `_adding`.
    """

    def __init__(
        self,
        kind: str,
        above: SNode | None,
        tree: NodeTree,
        cells: tuple[Axes, tuple[int, ...]] = ((), ()),
        chunk: int = 1,
    ) -> None:
        self.kind = kind
        self.axes, self.extents = cells
        self.chunk = chunk
        self.tree = tree
        self.below: list[SNode] = []
        self.leaf: AbstractLeaf | None = None
        self._above = above
        self._structure: Structure | None = None  # of a node below the root
        if above is not None:
            above.below.append(self)
            if above._above is None:
                tree.tops.append(self)

    def _node(self, kind: NodeKind, axes: Any, dimensions: Any, chunk: int = 1) -> SNode:
        self._check_open()
        what = f"{self.kind}.{kind}"
        numbers = axes_of(axes, what)
        if not numbers and KINDS[kind].is_sparse:
            fail(f"{what} is given no axes: write ks.i, ks.ij, ...")
        extents = extents_of(dimensions, what)
        if len(extents) == 1 and len(numbers) > 1:
            extents = extents * len(numbers)
        if len(extents) != len(numbers):
            fail(
                f"{kind} is given {len(numbers)} axes and {len(extents)} dimensions",
                ProgramValueError,
            )
        along, is_sparse = self._along, KINDS[kind].is_sparse or self.is_sparse
        for axis, extent in zip(numbers, extents, strict=True):
            n = along.get(axis, 1) * extent
            if is_sparse and n > _MOST_ALONG:
                fail(
                    f"{what} makes {n:,} cells along axis {axis}: indices are i32, so an axis has at most 2^31 cells"
                )
        return SNode(kind, self, self.tree, (numbers, extents), chunk)

    @property
    def has(self) -> Kind | None:
        """Parts of the node in memory that its kind implies (pool, mask, ...).

        None for the root and for places.
        """
        return KINDS.get(self.kind)

    @property
    def structure(self) -> Structure | None:
        """Sparse tree that contains the node, with its memory.

        None if the node and all nodes above are dense.
        """
        if not self.is_sparse:
            return None
        if self.tree.released:
            fail(f"a node of sparse fields is gone: {self.tree.released}", ProgramRuntimeError)
        if not self.tree.is_final:
            fail("this ks.FieldsBuilder is not finalized: call its finalize()", ProgramRuntimeError)
        top = self.top
        if top._structure is None:
            top._structure = Structure(top)
        return top._structure

    @property
    def is_unchanging(self) -> bool:
        """True if no node can be added to the node's tree, and its memory is not freed."""
        if self.tree.released or not self.tree.is_final:
            return False
        return self.tree.is_closed or self.top._structure is not None

    @property
    def top(self) -> SNode:
        """Ancestor of the node directly below the root; the root itself for the root."""
        node = self
        while node._above is not None and node._above._above is not None:
            node = node._above
        return node

    @property
    def is_sparse(self) -> bool:
        """True if the node or an ancestor has cells that may be inactive."""
        node: SNode | None = self
        while node is not None:
            if node.has is not None and node.has.is_sparse:
                return True
            node = node._above
        return False

    def deactivate_all(self) -> None:
        """Makes all cells of the node inactive; for a dense node, the cells of the nodes below."""
        is_split = self.has is not None and not self.has.is_sparse
        if self.kind != "place" and self.is_sparse and not is_split:
            kernels, structure = host_kernels(), self.structure
            assert structure is not None
            if kernels is None or not kernels.deactivate_all(self):
                structure.writable.deactivate_all(structure.numbers[id(self)])
        else:
            for node in self.below:
                node.deactivate_all()

    def stats(self) -> TreeStatistics:
        """Returns the numbers of allocated and active cells, and of bytes, for each node of the tree.

        Printed, it is a table.
        """
        if self._above is None:
            fail("ks.root has several trees: ask a node below it, or a field")
        return statistics_of(self.top)

    def place(self, *args: Any, offset: int | Sequence[int] | None = None) -> SNode:
        """Places fields, or lists of fields, below this node, whose cells give them their shape.

        `offset` is the least index along each axis.
        """
        self._check_open()
        for arg in args:
            if isinstance(arg, (list, tuple)):
                self.place(*arg, offset=offset)
            elif hasattr(arg, "leaves"):
                self._place(arg, offset)
            else:
                fail(f"place takes fields, not {arg!r}", ProgramValueError)
        return self

    def _place(self, placed: AbstractField, offset: int | Sequence[int] | None) -> None:
        shape = self.shape
        least = () if offset is None else offset_of(offset, shape)
        if not placed.leaves():
            fail(
                f"{placed.label} has a quantised type: place it in a ks.BitpackedFields, or below a quant_array node",
                ProgramRuntimeError,
            )
        for leaf in placed.leaves():
            node = SNode("place", self, self.tree)
            node.leaf = leaf
            leaf.set_place(PlacedField(shape, least, node))
            self.tree.leaves.append(leaf)

    def quant_array(self, axes: Any, dimensions: Any, max_num_bits: int) -> Any:
        """Splits each cell into elements of one word of `max_num_bits` bits, for one field of a quantised type."""
        self._check_open()
        numbers = axes_of(axes, "quant_array")
        extents = extents_of(dimensions, "quant_array")
        extents = extents * len(numbers) if len(extents) == 1 else extents
        if len(extents) != len(numbers):
            fail(
                f"quant_array is given {len(numbers)} axes and {len(extents)} dimensions",
                ProgramValueError,
            )
        return _quant_arrays[-1](self, numbers, extents, max_num_bits)

    def lazy_grad(self) -> None:
        """Places missing gradients of the fields of floats at and below this node, each beside its field."""
        self._place_derivatives("grad")

    def lazy_dual(self) -> None:
        """Places the duals (forward-mode derivatives) of fields, like `lazy_grad` places gradients."""
        self._place_derivatives("dual")

    def _place_derivatives(self, kind: DerivativeKind) -> None:
        for node in tuple(self.below):
            node._place_derivatives(kind)
            leaf = node.leaf
            if leaf is None or not leaf.is_differentiable:
                continue
            derivative = leaf.derivative(kind)
            if not derivative.is_placed:
                self._check_open()
                self._place(derivative, leaf.place.offset or None)

    def parent(self, n: int = 1) -> SNode | None:
        """Returns the n-th node above this one; None above the root."""
        node: SNode | None = self
        for _ in range(n):
            node = node._above if node is not None else None
        return node

    def _path_from_root(self) -> list[SNode]:
        """Returns the nodes from the root down to this one, under Taichi's name."""
        above = self._above
        return [self] if above is None else [*above._path_from_root(), self]

    def _get_children(self) -> list[SNode]:
        """Returns the nodes directly below, under Taichi's name."""
        return list(self.below)

    @property
    def _name(self) -> str:
        """Name of the field of a place, under Taichi's name; "" for other nodes."""
        return self.leaf.name if self.leaf is not None else ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of cells along each axis that this node and its ancestors split, in the order of the axes."""
        return tuple(extent for _, extent in sorted(self._along.items()))

    @property
    def _along(self) -> dict[int, int]:
        """Number of cells of this node by axis, over the whole tree."""
        extents: dict[int, int] = {}
        node: SNode | None = self
        while node is not None:
            for axis, extent in zip(node.axes, node.extents, strict=True):
                extents[axis] = extents.get(axis, 1) * extent
            node = node._above
        return extents

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
            fail(
                "this ks.FieldsBuilder is finalized: make another one for more fields",
                ProgramRuntimeError,
            )
        if self._above is not None and self.top._structure is not None:
            fail(
                "sparse fields of this tree are in use: place all fields of a tree before",
                ProgramRuntimeError,
            )


def _adding(kind: NodeKind) -> Callable[..., SNode]:
    """Returns the method of SNode that adds a node of this kind."""

    def splitting(
        self: SNode, axes: Axes | Sequence[int], dimensions: int | Sequence[int]
    ) -> SNode:
        return self._node(kind, axes, dimensions)

    def listing(
        self: SNode, axis: Axes | Sequence[int], dimension: int, chunk_size: int | None = None
    ) -> SNode:
        what = f"{self.kind}.{kind}"
        if len(axes_of(axis, what)) != 1:
            fail(f"a {kind} node has one axis")
        (n,) = extents_of(dimension, what)
        (chunk,) = extents_of(min(n, 1024) if chunk_size is None else chunk_size, "chunk_size")
        return self._node(kind, axis, n, min(chunk, n))

    made = listing if KINDS[kind].length else splitting
    made.__name__, made.__qualname__, made.__doc__ = kind, f"SNode.{kind}", KINDS[kind].says
    return made


for _kind in KINDS:
    setattr(SNode, _kind, _adding(_kind))


_quant_arrays: list[Callable[..., Any]] = []


def make_quant_arrays(make: Callable[..., Any]) -> None:
    """Has nodes of quantised elements made by `make`: of the node above, its axes, their extents, and the bits of a word."""
    _quant_arrays.append(make)


class Structure:
    """Sparse tree in use: numbers of its nodes and fields, and its memory."""

    def __init__(self, top: SNode) -> None:
        nodes: list[TreeNode] = []
        self.numbers: dict[int, int] = {}  # of nodes, by identity; of fields, those of their place
        fields: list[FieldPlace] = []
        self.fields: dict[int, int] = {}
        self._top = top

        def visit(node: SNode, parent: int) -> None:
            number = len(nodes)
            assert node.kind in KINDS
            nodes.append(TreeNode(node.kind, parent, node.axes, node.extents, node.chunk))
            self.numbers[id(node)] = number
            for below in node.below:
                if below.kind != "place":
                    visit(below, number)
                elif below.is_sparse and below.leaf is not None:
                    self.fields[id(below)] = len(fields)
                    leaf = below.leaf
                    fields.append(FieldPlace(leaf.dtype.stored, leaf.element_shape, number))

        visit(top, -1)
        name = f"tree{top.tree.number}_{top.tree.tops.index(top)}"
        self.tree = StructureTree(name, tuple(nodes))
        self.layout = layout_of(self.tree, tuple(fields))
        try:
            self.memory = TreeStorage(self.layout)  # as kernels that wait have left it
        except MemoryError as error:
            fail(f"there is no memory for a tree of sparse fields: {error}")

    def leaf(self, number: int) -> AbstractLeaf:
        """Returns the field with this number in the tree."""
        return next(
            x for x in self._top.tree.leaves if self.fields.get(id(x.place.snode)) == number
        )

    @property
    def storage(self) -> TreeStorage:
        """Storage of the tree for reads from Python, after deferred kernels have run."""
        settle_for_reading(self)
        return self.memory

    @property
    def writable(self) -> TreeStorage:
        """Storage of the tree for writes from Python, after deferred kernels have run."""
        settle_for_writing(self)
        return self.memory

    @property
    def label(self) -> str:
        """The name of the tree in messages."""
        return "cells of a sparse tree"

    def arrays(self) -> Iterable[Any]:
        """Returns the arrays of the tree; deferred kernels are not run first."""
        return self.memory.arrays.values()

    @property
    def released(self) -> str:
        """Reason why the tree's memory was freed; "" if it was not."""
        return self._top.tree.released

    def section(self, key: str) -> SectionSource:
        """Returns a handle to one array of the storage, as calls of kernels take it."""
        return SectionSource(self, key)


class SectionSource:
    """Handle to one array of a tree's storage, with the interface that fields have for kernels."""

    is_lent = False

    def __init__(self, structure: Structure, key: str) -> None:
        self._structure, self._key = structure, key

    @property
    def array(self) -> Any:
        return self.storage

    @property
    def is_gone(self) -> bool:
        """True if the memory of the tree was freed."""
        return bool(self._structure.released)

    @property
    def tree(self) -> str:
        """The name of the tree."""
        return self._structure.tree.name

    @property
    def counters(self) -> Any:
        """The array of the tree's storage that `n_used` reads."""
        return self._structure.memory.arrays["counters"]

    def n_used(self, more: Mapping[int, int] = NO_MORE) -> int:
        """Returns how many elements of each row may be in use, by the counters on the host.

        `more`: by node, slots that may have been taken since these were read.
        """
        return self._structure.memory.n_used(self._key, more)

    @property
    def storage(self) -> Any:
        """The array. LanguageError if the memory of the tree was freed."""
        if self._structure.released:
            fail(f"a sparse field is gone: {self._structure.released}", ProgramRuntimeError)
        return self._structure.memory.arrays[self._key]


def axes_of(axes: Any, what: str) -> Axes:
    """Returns axes as a tuple. LanguageError unless they are different numbers from 0 on.

    `what`: the caller's name for messages.
    """
    try:
        numbers = tuple(operator.index(n) for n in axes)
    except TypeError:
        fail(
            f"{what}: the axes {axes!r} are not ks.i, ks.ij, ... or ks.axes(0, 1)", ProgramTypeError
        )
    if len(set(numbers)) != len(numbers) or any(n < 0 for n in numbers):
        fail(f"{what}: the axes {numbers} are not different numbers from 0 on", ProgramValueError)
    return numbers


def extents_of(shape: Any, what: str) -> tuple[int, ...]:
    """Returns a shape, or one extent, as a tuple. LanguageError unless all extents are whole and positive."""
    given = shape if isinstance(shape, (tuple, list, np.ndarray)) else (shape,)
    try:
        extents = tuple(operator.index(n) for n in given)
    except TypeError:
        fail(f"{what}: the shape {shape!r} is not made of whole numbers", ProgramTypeError)
    if any(n <= 0 for n in extents):
        fail(f"{what}: the shape {shape!r} has an extent that is not positive", ProgramValueError)
    return extents


def offset_of(offset: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns an offset as a tuple of one number for each axis of `shape`."""
    given = offset if isinstance(offset, (tuple, list, np.ndarray)) else (offset,)
    try:
        numbers = tuple(operator.index(n) for n in given)
    except TypeError:
        fail(f"the offset {offset!r} is not made of whole numbers", ProgramTypeError)
    if len(numbers) != len(shape):
        fail(
            f"the offset {offset!r} has {len(numbers)} numbers, the shape {shape} has {len(shape)}",
            KernelSyntaxError,
        )
    return numbers
