"""Trees of sparse fields as sets and dictionaries of Python: the words of the language that the kernels of sparse_programs.py need.

A kernel is the function that it is written as, and Python itself runs it: nothing here is shared with how kernels are read,
lowered or interpreted. Programs run beside this model: values, lists and active cells of every level are compared behind each
call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partialmethod
from itertools import product
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from ..kernels.frontend.instance import KernelCall
from ..kernels.frontend.lowering import lowered_call
from ..kernels.interpret.kernel import run_kernel
from ..kernels.ir.kernel import KernelIR
from . import sparse_programs
from .sparse_drawn import WORDS, Call, Tree, drawn_tree
from .sparse_programs import World

Cell = tuple[int, ...]
Run = Callable[..., None]
HOST = ("clear",)  # what the host does between calls
_MOST_CALLS = 10  # of a program


class FullError(Exception):
    """A list has no room."""


class Place(tuple[int, ...]):
    """A cell as `ks.grouped` gives it."""

    def sum(self) -> int:
        return sum(self)


class Node:
    """A node of a tree: which of its cells are active, and what lies in them."""

    def __init__(self, kind: str, extents: Cell, above: Node | None = None) -> None:
        self.kind, self.above = kind, above
        self.shape: Cell = extents
        if above is not None:
            self.shape = (
                *(n * m for n, m in zip(above.shape, extents, strict=False)),
                *extents[2:],
            )
        self.active: set[Cell] = set()
        self.below: list[Node] = []
        self.fields: list[Field] = []

    def _child(self, kind: str, axes: Any, extents: Cell) -> Node:
        self.below.append(Node(kind, extents, self))
        return self.below[-1]

    dense = partialmethod(_child, "dense")
    bitmasked = partialmethod(_child, "bitmasked")
    pointer = partialmethod(_child, "pointer")
    hash = partialmethod(_child, "hash")

    def dynamic(self, axis: Any, most: int, chunk_size: int) -> Node:
        made = self._child("dynamic", axis, (1, 1))
        made.shape = (*self.shape, most)
        return made

    def place(self, *fields: Field, offset: Cell = (0, 0)) -> None:
        for field in fields:
            field.node, field.least = self, offset
            self.fields.append(field)

    def path(self) -> Iterator[Node]:
        node: Node | None = self
        while node is not None and node.above is not None:
            yield node
            node = node.above

    def cell_above(self, cell: Cell, upper: Node) -> Cell:
        """The cell of a node above that a cell is in."""
        pairs = zip(cell, self.shape, upper.shape, strict=False)
        return tuple(c // (n // m) for c, n, m in pairs)

    def activate(self, cell: Cell) -> None:
        for upper in self.path():
            upper.active.add(self.cell_above(cell, upper))

    def is_active(self, cell: Cell) -> bool:
        return all(
            n.kind == "dense" or self.cell_above(cell, n) in n.active
            for n in self.path()
            if n.kind != "dynamic"
        )

    def deactivate(self, cell: Cell) -> None:
        self._remove(lambda node, at: node.cell_above(at, self) == cell)

    def deactivate_all(self) -> None:
        """All cells of a node; of a dense one, those of the first other ones from there on."""
        if self.kind != "dense":
            self._remove(lambda node, at: True)
        else:
            for node in self.below:
                node.deactivate_all()

    def _remove(self, is_gone: Callable[[Node, Cell], bool]) -> None:
        self.active = {at for at in self.active if not is_gone(self, at)}
        for field in self.fields:
            field.values = {k: v for k, v in field.values.items() if not is_gone(self, k[:2])}
        for node in self.below:
            node._remove(lambda n, at: is_gone(n, at))

    def __iter__(self) -> Iterator[Cell]:
        return iter([at for at in product(*map(range, self.shape)) if self.is_active(at)])


class Field:
    """A field: its values that are not zero, by cell."""

    last: tuple[Field, Cell]  # that was read

    def __init__(self, dtype: Any, shape: int | Cell | None = None, width: int = 0) -> None:
        self.dtype, self.width = np.dtype(dtype), width
        self.least: Cell = (0,)
        self.values: dict[Cell, Any] = {}
        if shape is not None:
            extents = (shape,) if isinstance(shape, int) else tuple(shape)
            self.least = (0,) * len(extents)
            self.node = Node("dense", extents, Node("root", (1,) * len(extents)))

    @property
    def shape(self) -> Cell:
        return self.node.shape

    def _cell(self, index: Any) -> Cell:
        given = index if isinstance(index, tuple) else (index,)
        return tuple(i - k for i, k in zip(given, self.least, strict=True))

    def get(self, cell: Cell) -> Any:
        return self.values.get(cell, 0)

    def put(self, cell: Cell, value: Any) -> None:
        self.node.activate(cell[: len(self.shape)])
        self.values[cell] = np.asarray(value).astype(self.dtype).item()

    def __getitem__(self, index: Any) -> Any:
        cell = self._cell(index)
        Field.last = self, cell
        return Components(self, cell) if self.width else self.get(cell)

    def __setitem__(self, index: Any, value: Any) -> None:
        if not isinstance(value, Components):  # whose elements are set already
            self.put(self._cell(index), value)

    def __iter__(self) -> Iterator[Any]:
        for cell in self.cells():
            at = tuple(i + k for i, k in zip(cell, self.least, strict=True))
            yield at[0] if len(at) == 1 else at

    def cells(self) -> list[Cell]:
        """The active cells; of a list, those that it has."""
        if self.node.kind == "dynamic":
            return sorted(self.values)
        return [*self.node]

    def to_numpy(self) -> Any:
        found = np.zeros((*self.shape, *[self.width] * bool(self.width)), self.dtype)
        for cell, value in self.values.items():
            found[cell] = value
        return found


class Components:
    """The vector in a cell."""

    def __init__(self, field: Field, cell: Cell) -> None:
        self.field, self.cell = field, cell

    def __getitem__(self, k: int) -> Any:
        return self.field.get((*self.cell, k))

    def __setitem__(self, k: int, value: Any) -> None:
        self.field.put((*self.cell, k), value)


def length(lists: Node, cell: Sequence[int]) -> int:
    """The number of elements of a list."""
    return sum(at[:2] == tuple(cell) for at in lists.fields[0].values)


def append(lists: Node, cell: Sequence[int], value: Any) -> None:
    """Puts an element behind the last one of a list. Raises FullError."""
    n = length(lists, cell)
    if n == lists.shape[2]:
        raise FullError
    assert lists.above is not None
    lists.above.activate(tuple(cell))
    lists.fields[0].values[(*cell, n)] = np.asarray(value).astype(lists.fields[0].dtype).item()


def atomic_max(value: Any, other: int) -> None:
    """Updates the element that was read last: nothing is read in the second argument."""
    field, cell = Field.last
    field.put(cell, max(value, other))


def _kernel(function: Any) -> Any:
    def call(*given: Any) -> None:
        function(*given)

    call.name, call.parameters = function.__name__, [*inspect.signature(function).parameters]  # type: ignore[attr-defined]
    return call


def _language() -> SimpleNamespace:
    """The words of the language, with a root of its own."""
    types = {
        f"{kind}{n}": np.dtype(f"{kind}{n // 8}").type for kind in "iu" for n in (8, 16, 32, 64)
    }
    types |= {"f32": np.float32, "f64": np.float64}
    return SimpleNamespace(
        **types, root=Node("root", (1, 1)), ij="ij", k="k", cpu="cpu", field=Field, kernel=_kernel, length=length, append=append,
        init=lambda arch: None, reset=lambda: None, interpret=nullcontext, template=lambda: None,
        Vector=SimpleNamespace(field=lambda width, dtype: Field(dtype, width=width)),
        activate=lambda node, at: node.activate(tuple(at)), deactivate=lambda node, at: node.deactivate(tuple(at)),
        is_active=lambda node, at: node.is_active(tuple(at)), max=max, min=min, atomic_max=atomic_max,
        cast=lambda value, dtype: dtype(value).item(), static=lambda x: x, loop_unique=lambda x: x,
        block_local=lambda *fields: None, ndrange=lambda *n: product(*map(range, n)),
        grouped=lambda cells: map(Place, cells),
    )  # fmt: skip


def model_of(tree: Tree) -> Any:
    """The kernels of a tree, with Python's meaning of them."""
    known = {**vars(sparse_programs), "ks": _language()}
    methods = {
        name: FunctionType(f.__code__, known, name, f.__defaults__)
        for name, f in vars(World).items()
        if isinstance(f, FunctionType)
    }
    return type("Model", (), methods | {"apply": staticmethod(at_once)})(tree)


# --- programs beside their model


def at_once(kernel: Any, *args: Any) -> None:
    """Runs a kernel as programs do."""
    kernel(*args)


def plainly(kernel: Any, *args: Any) -> None:
    """Runs what a kernel is lowered to, in the interpreter of kernels on plain arrays."""
    call = plain_call(kernel, *args)
    run_kernel(call.instance.ir, call.arrays, call.scalars)


def plain_call(kernel: Any, *args: Any) -> KernelCall:
    """A call of a kernel, on the arrays of its trees."""
    return lowered_call(kernel.prepared(kernel.where, args, {})[1])


def plain_ir(kernel: Any, *args: Any) -> KernelIR:
    """The lowered form of a kernel in a standalone call."""
    return plain_call(kernel, *args).instance.ir


def drawn(n_trees: int, n_programs: int, seed: int) -> list[tuple[Tree, list[list[Call]]]]:
    """So many trees with so many programs each, the same for one seed."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(n_trees):
        tree = drawn_tree(rng)
        found.append((tree, [_drawn_calls(tree, rng) for _ in range(n_programs)]))
    return found


def _drawn_calls(tree: Tree, rng: np.random.Generator) -> list[Call]:
    """Calls whose results no order of iterations changes."""
    columns = int(np.prod([m for _, (_, m) in tree.other]))
    words = [x for x in (*WORDS, *HOST) if x != "up" or columns <= tree.chain[-1][1][1]]
    n = int(rng.integers(1, _MOST_CALLS + 1))
    return [(str(rng.choice(words)), int(rng.integers(0, 40))) for _ in range(n)]


def check(tree: Tree, programs: Sequence[Sequence[Call]], run: Run = at_once) -> None:
    """Runs programs on one tree, each from its beginning, beside its model. AssertionError where they differ."""
    world = World(tree)
    world.apply = run  # type: ignore[method-assign]
    try:
        for program in programs:
            _check(world, model_of(tree), program)
            world.reset()
    finally:
        world.end()


def _check(world: World, model: Any, program: Sequence[Call]) -> None:
    for what, c in program:
        try:
            model.call(what, c)
        except FullError:
            return  # what is appended then is an error, which other tests are of
        world.call(what, c)
        for level in range(len(world.nodes)):
            model.call("look", level)
            world.call("look", level)
        for name, field in vars(model).items():
            for k, one in enumerate(field if isinstance(field, list) else [field]):
                if isinstance(one, Field):
                    here = getattr(world, name)
                    found = (here[k] if isinstance(field, list) else here).to_numpy()
                    np.testing.assert_array_equal(found, one.to_numpy(), f"{name} behind {what}")
