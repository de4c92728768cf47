"""Random trees of sparse fields and programs on them, against sets and dictionaries of Python.

A tree is a chain of nodes over two axes with a field of whole numbers in the last one. Beside it, below one of the nodes, are a
field and a list along a third axis; a second tree takes what a loop over the first carries over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st

from ..kernels.interpret.kernel import run_kernel

ks: Any = import_module(__package__.partition(".")[0])  # programs of users see it whole

Cell = tuple[int, int]
Chain = tuple[tuple[str, Cell], ...]
Run = Callable[..., None]
Step = tuple[str, int, list[Cell]]

WORDS = (
    "store", "add", "activate", "deactivate", "bump", "spread", "clear", "append", "empty", "mark", "carry", "renew",
)  # fmt: skip
_LONGEST = 5  # list
_OTHER = (7, 5)  # the shape of the second tree
_MOST = 4  # cells of a step


@dataclass(frozen=True)
class Shape:
    """A tree: `beside` is the level that the field and the list are at, in chunks of `chunk` cells."""

    chain: Chain
    beside: int
    chunk: int


class Model:
    """What such trees hold: sets of active cells by level, values by cell, lists by cell."""

    def __init__(self, shape: Shape) -> None:
        self.chain, self.beside = shape.chain, shape.beside
        self.active: list[set[Cell]] = [set() for _ in self.chain]
        self.values: dict[Cell, int] = {}
        self.marks: dict[Cell, int] = {}
        self.lists: dict[Cell, list[int]] = {}
        self.other: dict[Cell, int] = {}

    @property
    def last(self) -> int:
        return len(self.chain) - 1

    def shape(self, level: int) -> Cell:
        n = m = 1
        for _, (a, b) in self.chain[: level + 1]:
            n, m = n * a, m * b
        return n, m

    def above(self, cell: Cell, level: int, upper: int) -> Cell:
        """The cell of a level above that a cell is in."""
        (n, m), (a, b) = self.shape(level), self.shape(upper)
        return cell[0] // (n // a), cell[1] // (m // b)

    def activate(self, cell: Cell, level: int) -> None:
        for upper in range(level + 1):
            self.active[upper].add(self.above(cell, level, upper))

    def is_active(self, cell: Cell, level: int) -> bool:
        return all(
            kind == "dense" or self.above(cell, level, upper) in self.active[upper]
            for upper, (kind, _) in enumerate(self.chain[: level + 1])
        )

    def deactivate(self, cell: Cell, level: int) -> None:
        def left(held: dict[Cell, Any], at: int) -> dict[Cell, Any]:
            return {c: v for c, v in held.items() if self.above(c, at, level) != cell}

        for lower in range(level, len(self.chain)):
            gone = {c for c in self.active[lower] if self.above(c, lower, level) == cell}
            self.active[lower] -= gone
        self.values = left(self.values, self.last)
        if level <= self.beside:
            self.marks, self.lists = left(self.marks, self.beside), left(self.lists, self.beside)

    def clear(self, level: int) -> None:
        """All cells of a node; of a dense one, those of the first other ones from there on."""
        sparse = [k for k in range(level, len(self.chain)) if self.chain[k][0] != "dense"]
        for lower in range(sparse[0], len(self.chain)) if sparse else ():
            self.active[lower].clear()
        if sparse:
            self.values.clear()
        if sparse and sparse[0] <= self.beside:
            self.marks.clear()
        if level <= self.beside:
            self.lists.clear()

    def cells(self, level: int) -> set[Cell]:
        n, m = self.shape(level)
        return {(i, j) for i in range(n) for j in range(m) if self.is_active((i, j), level)}


kinds = st.sampled_from(["dense", "bitmasked", "pointer", "hash"])


@st.composite
def shapes(draw: Any, deepest: int = 4) -> Shape:
    """Trees with one node at least whose cells may be inactive."""
    extents = st.tuples(st.integers(1, 3), st.integers(1, 3))
    chain = draw(
        st.lists(st.tuples(kinds, extents), min_size=1, max_size=deepest).filter(
            lambda chain: any(kind != "dense" for kind, _ in chain)
        )
    )
    return Shape(tuple(chain), draw(st.integers(0, len(chain) - 1)), draw(st.integers(1, _LONGEST)))


programs = st.lists(
    st.tuples(
        st.sampled_from(WORDS),
        st.integers(0, 3),
        st.lists(st.tuples(st.integers(0, 80), st.integers(0, 80)), min_size=1, max_size=_MOST),
    ),
    max_size=10,
)


def drawn(n_trees: int, n_programs: int, seed: int) -> list[tuple[Shape, list[list[Step]]]]:
    """So many trees with so many programs each, the same for one seed."""
    found: list[tuple[Shape, list[list[Step]]]] = []
    lists = st.lists(programs, min_size=n_programs, max_size=n_programs)

    @hypothesis_seed(seed)
    @settings(
        max_examples=n_trees,
        phases=(Phase.generate,),
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(shapes(), lists)
    def collect(shape: Shape, steps: list[list[Step]]) -> None:
        found.append((shape, steps))

    collect()
    return found[:n_trees]


def plainly(kernel: Any, *args: Any) -> None:
    """Runs what a kernel is lowered to, in the interpreter of kernels on plain arrays."""
    values = dict(zip((name for name, _ in kernel.parameters), args, strict=True))
    _, instance = kernel._instance(values, kernel.where)
    arrays = {name: source.storage for name, source in instance.fields}
    run_kernel(instance.ir, arrays, {p.name: values[p.name] for p in instance.ir.scalars})


def at_once(kernel: Any, *args: Any) -> None:
    """Runs a kernel as programs do."""
    kernel(*args)


class World:
    """A tree with its kernels, in a program that has begun."""

    def __init__(self, shape: Shape, run: Run) -> None:
        self.shape, self.run = shape, run
        self.x, self.mark, self.list, self.other = (ks.field(ks.i32) for _ in range(4))
        self.nodes: list[Any] = []
        node: Any = ks.root
        for kind, extents in shape.chain:
            node = getattr(node, kind)(ks.ij, extents)
            self.nodes.append(node)
        node.place(self.x)
        self.nodes[shape.beside].place(self.mark)
        self.lists = self.nodes[shape.beside].dynamic(ks.k, _LONGEST, chunk_size=shape.chunk)
        self.lists.place(self.list)
        ks.root.pointer(ks.i, _OTHER[0]).bitmasked(ks.j, _OTHER[1]).place(self.other)
        self.seen = [ks.field(ks.i32, n.shape) for n in self.nodes]
        self.at = ks.field(ks.i32, (_MOST, 2))
        self._write_kernels()

    def _write_kernels(self) -> None:
        x, at, nodes, seen = self.x, self.at, self.nodes, self.seen
        mark, lists, other = self.mark, self.lists, self.other
        rows, columns = _OTHER

        @ks.kernel
        def store(n: ks.i32, value: ks.i32):
            for k in range(n):
                x[at[k, 0], at[k, 1]] = value

        @ks.kernel
        def add(n: ks.i32):
            for k in range(n):
                x[at[k, 0], at[k, 1]] += 3

        @ks.kernel
        def change(level: ks.template(), n: ks.i32, is_on: ks.template()):
            for k in range(n):
                if ks.static(is_on):
                    ks.activate(nodes[level], [at[k, 0], at[k, 1]])
                else:
                    ks.deactivate(nodes[level], [at[k, 0], at[k, 1]])

        @ks.kernel
        def bump():
            for i, j in x:
                x[i, j] += i + 2 * j + 1

        @ks.kernel
        def spread():
            for i, j in x:
                if x[i, j] > 0 and i + 1 < x.shape[0]:
                    ks.atomic_max(x[i + 1, j], 1)

        @ks.kernel
        def look(level: ks.template()):
            for i, j in nodes[level]:
                seen[level][i, j] += 1

        @ks.kernel
        def append(n: ks.i32, value: ks.i32):
            for k in range(n):
                ks.append(lists, [at[k, 0], at[k, 1]], value + k)

        @ks.kernel
        def empty(n: ks.i32):
            for k in range(n):
                ks.deactivate(lists, [at[k, 0], at[k, 1]])

        @ks.kernel
        def put_mark(n: ks.i32):
            for k in range(n):
                mark[at[k, 0], at[k, 1]] += 5

        @ks.kernel
        def carry():
            for i, j in x:
                other[i % rows, j % columns] += x[i, j]

        @ks.kernel
        def renew(level: ks.template(), n: ks.i32, value: ks.i32):
            for k in range(n):
                ks.deactivate(nodes[level], [at[k, 0], at[k, 1]])
            for k in range(n):
                ks.activate(nodes[level], [at[k, 0], at[k, 1]])
            for i, j in x:
                x[i, j] += value

        self.kernels = {k.name: k for k in (store, add, change, bump, spread, look, append)}
        self.kernels |= {k.name: k for k in (empty, put_mark, carry, renew)}

    def call(self, name: str, *args: Any) -> None:
        self.run(self.kernels[name], *args)

    def reset(self) -> None:
        """As it began."""
        ks.deactivate_all_snodes()
        if not self.mark.snode.is_sparse:
            self.mark.fill(0)

    def check(self, program: Sequence[Step]) -> None:
        """Runs a program beside its model and compares both behind each step. AssertionError where they differ."""
        model = Model(self.shape)
        for number, (what, level, where) in enumerate(program):
            if self.step(model, what, level % len(self.shape.chain), where, number + 1):
                self.compare(model)

    def step(self, model: Model, what: str, level: int, where: Sequence[Cell], value: int) -> bool:
        """One step, in both; False where it is left out, as its meaning is open."""
        chain, last = self.shape.chain, model.last
        if what in ("deactivate", "renew") and chain[level][0] == "dense":
            return False
        by_level = what in ("activate", "deactivate", "clear", "renew")
        is_beside = what in ("append", "empty", "mark")
        level = level if by_level else self.shape.beside if is_beside else last
        n, m = model.shape(level)
        cells = list(dict.fromkeys((i % n, j % m) for i, j in where))
        self.at.from_numpy(np.array([*cells, *[(0, 0)] * (_MOST - len(cells))], np.int32))
        match what:
            case "store":
                self.call("store", len(cells), value)
                for c in cells:
                    model.activate(c, last)
                    model.values[c] = value
            case "add":
                self.call("add", len(cells))
                for c in cells:
                    model.activate(c, last)
                    model.values[c] = model.values.get(c, 0) + 3
            case "activate" | "deactivate":
                self.call("change", level, len(cells), what == "activate")
                for c in cells:
                    getattr(model, what)(c, level)
            case "renew":
                self.call("renew", level, len(cells), value)
                for c in cells:
                    model.deactivate(c, level)
                for c in cells:
                    model.activate(c, level)
                for c in model.cells(last):
                    model.values[c] = model.values.get(c, 0) + value
            case "bump":
                self.call("bump")
                for c in model.cells(last):
                    model.values[c] = model.values.get(c, 0) + c[0] + 2 * c[1] + 1
            case "spread":
                return self.spread(model)
            case "clear":
                self.nodes[level].deactivate_all()
                model.clear(level)
            case "append":
                cells = [c for c in cells if len(model.lists.get(c, ())) < _LONGEST]
                self.at.from_numpy(np.array([*cells, *[(0, 0)] * (_MOST - len(cells))], np.int32))
                self.call("append", len(cells), value)
                for k, c in enumerate(cells):
                    model.activate(c, level)
                    model.lists.setdefault(c, []).append(value + k)
            case "empty":
                self.call("empty", len(cells))
                for c in cells:
                    model.lists.pop(c, None)
            case "mark":
                self.call("put_mark", len(cells))
                for c in cells:
                    model.activate(c, level)
                    model.marks[c] = model.marks.get(c, 0) + 5
            case "carry":
                self.call("carry")
                for i, j in model.cells(last):
                    c = i % _OTHER[0], j % _OTHER[1]
                    model.other[c] = model.other.get(c, 0) + model.values.get((i, j), 0)
        return True

    def spread(self, model: Model) -> bool:
        n, _ = model.shape(model.last)
        before, active = dict(model.values), model.cells(model.last)
        grown = {c for c in active if before.get(c, 0) > 0 and c[0] + 1 < n}
        if any((i + 1, j) in active for i, j in grown):
            return False  # whether that one is seen before or behind is open
        self.call("spread")
        for i, j in grown:
            model.activate((i + 1, j), model.last)
            model.values[i + 1, j] = max(1, model.values.get((i + 1, j), 0))
        return True

    def compare(self, model: Model) -> None:
        """Values, lists and active cells of every level."""
        for field, held in (
            (self.x, model.values),
            (self.mark, model.marks),
            (self.other, model.other),
        ):
            expected = np.zeros(field.shape, np.int32)
            for c, v in held.items():
                expected[c] = v
            np.testing.assert_array_equal(field.to_numpy(), expected)
        found = self.list.to_numpy()
        rows, columns = np.nonzero(found.any(axis=2))
        present = {(int(i), int(j)): found[i, j] for i, j in zip(rows, columns, strict=True)}
        assert present.keys() == {c for c, v in model.lists.items() if v}
        for c, held_list in present.items():
            assert held_list[: len(model.lists[c])].tolist() == model.lists[c]
            assert not held_list[len(model.lists[c]) :].any()
        for k, field in enumerate(self.seen):
            field.fill(0)
            self.call("look", k)
            counts = field.to_numpy()
            cells = {(int(i), int(j)) for i, j in np.argwhere(counts == 1)}
            assert cells == model.cells(k) and counts.max(initial=0) <= 1


def check(shape: Shape, steps: Sequence[Sequence[Step]], run: Run) -> None:
    """Several programs on one tree, each from its beginning."""
    ks.init(arch=ks.cpu)
    try:
        world = World(shape, run)
        for program in steps:
            world.check(program)
            world.reset()
    finally:
        ks.reset()
