"""Random sequences of kernels on random trees of sparse fields, recorded: what their candidates must do follows from the reference.

A tree is a chain of nodes over two axes with fields in the last one; a list along a third axis hangs below one of its nodes, and
what loops carry over goes to a second tree. Kernels loop over fields and over nodes of every level, over lists and over plain
ranges; they store, add, read around their cells, activate, deactivate, append, and use the step of a repeat. Numbers stay so small
that all sums are exact in every type, and what iterations share has no order.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from ..kernels.fields.canonical import SOUND, canonical
from ..kernels.language.record import Recording, record_program
from .calling import Arrays

ks: Any = import_module(__package__.partition(".")[0])  # programs of users see it whole

Cell = tuple[int, int]
Call = tuple[str, int]
WORDS = (
    "store", "add", "fill", "bump", "settle", "around", "corners", "grow", "spread", "drop", "thin", "renew", "carry", "down",
    "down", "up", "append", "append", "sum_lists", "lengths", "empty", "look", "active", "total", "plain", "steps",
)  # fmt: skip
KINDS = ("dense", "bitmasked", "pointer", "hash")
TYPES = ("i32", "i32", "f32", "f32", "f64", "i64", "i16", "u8")
_MOST_CELLS = 160  # of a tree, active or not
_LONGEST = 8  # list
_MOST = 50  # the largest number that is read by what multiplies numbers


@dataclass(frozen=True)
class Tree:
    """Two trees: `beside` is the level of the first that lists are at, in chunks of `chunk`; `width` are components of a field."""

    chain: tuple[tuple[str, Cell], ...]
    other: tuple[tuple[str, Cell], ...]
    beside: int
    chunk: int
    dtype: str
    width: int

    @property
    def shape(self) -> Cell:
        rows = columns = 1
        for _, (n, m) in self.chain:
            rows, columns = rows * n, columns * m
        return rows, columns


@dataclass(frozen=True)
class Part:
    """Calls in order, `times` times: the number of each grows by its `slope` from time to time."""

    times: int
    slope: int
    calls: tuple[Call, ...]


def drawn_tree(rng: np.random.Generator) -> Tree:
    """A tree to a depth of four, with a node at least whose cells may be inactive; leaves of one cell up to four by eight."""
    while True:
        chain = [_node(rng) for _ in range(rng.integers(1, 5))]
        if rng.integers(2):
            leaf = int(rng.choice([1, 2, 3, 4])), int(rng.choice([2, 4, 5, 8]))
            chain[-1] = str(rng.choice(["dense", "dense", "bitmasked"])), leaf
        if rng.integers(4) == 0:  # words of masks, groups of entries of tables
            at = int(rng.integers(len(chain)))
            chain[at] = chain[at][0], (int(rng.integers(1, 4)), int(rng.integers(9, 17)))
        tree = Tree(
            tuple(chain),
            tuple(_node(rng) for _ in range(rng.integers(1, 3))),
            int(rng.integers(len(chain))),
            int(rng.integers(1, 6)),
            str(rng.choice(TYPES)),
            int(rng.choice([1, 1, 2, 3])),
        )
        if any(kind != "dense" for kind, _ in chain) and np.prod(tree.shape) <= _MOST_CELLS:
            return tree


def _node(rng: np.random.Generator) -> tuple[str, Cell]:
    return str(rng.choice(KINDS)), (int(rng.integers(1, 4)), int(rng.integers(1, 4)))


def drawn_parts(rng: np.random.Generator, most: int = 3) -> tuple[Part, ...]:
    """Up to `most` parts of one call or two, a third of the programs with a repeat among them."""
    found = []
    at = int(rng.integers(most)) if rng.integers(3) == 0 else -1
    for k in range(int(rng.integers(1, most + 1))):
        n = int(rng.integers(1, 3))
        calls = tuple((str(rng.choice(WORDS)), int(rng.integers(0, 40))) for _ in range(n))
        times, slope = (int(rng.choice([2, 3, 4])), int(rng.integers(2))) if k == at else (1, 0)
        found.append(Part(times, slope, calls))
    return tuple(found)


class World:
    """Trees with their kernels, in a program that has begun: sequences of one are recorded one after the other."""

    def __init__(self, tree: Tree) -> None:
        ks.init(arch=ks.cpu)
        self.tree, dtype = tree, getattr(ks, tree.dtype)
        self.x, self.y, self.other, self.items = (ks.field(dtype) for _ in range(4))
        self.v: Any = ks.Vector.field(tree.width, dtype) if tree.width > 1 else None
        self.nodes: list[Any] = []
        node: Any = ks.root
        for kind, extents in tree.chain:
            node = getattr(node, kind)(ks.ij, extents)
            self.nodes.append(node)
        node.place(self.x, self.y, *([self.v] if self.v is not None else []))
        self.lists = self.nodes[tree.beside].dynamic(ks.k, _LONGEST, chunk_size=tree.chunk)
        self.lists.place(self.items)
        node = ks.root
        for kind, extents in tree.other:
            node = getattr(node, kind)(ks.ij, extents)
        node.place(self.other)
        self.seen = [ks.field(ks.i32, n.shape) for n in self.nodes]
        self.plain = ks.field(dtype, self.x.shape)
        self.sums = ks.field(ks.i64, 2)
        self.sparse = [k for k, n in enumerate(self.nodes) if n.kind != "dense"]
        self.kernels: dict[str, Any] = {}
        self._write_stores()
        self._write_loops()
        self._write_cells()
        self._write_reads()

    def _keep(self, *kernels: Any) -> None:
        self.kernels |= {k.name: k for k in kernels}

    def _write_stores(self) -> None:
        x, y, lists = self.x, self.y, self.lists
        rows, columns = x.shape

        @ks.kernel
        def store(c: ks.i32):
            for k in range(3):
                x[(c + 2 * k) % rows, (3 * c + k) % columns] = c % 40 + 1

        @ks.kernel
        def add(c: ks.template()):
            for k in range(4):
                y[(c + k // 2) % rows, c % columns] += k + 1

        @ks.kernel
        def fill(c: ks.i32):
            for i, j in ks.ndrange(rows, columns):
                if (i + 2 * j + c) % 5 == 0:
                    x[i, j] = (i + j) % 20

        @ks.kernel
        def append(c: ks.i32):
            for k in range(2):
                ks.append(lists, [c % lists.shape[0], (c + k) % lists.shape[1]], c % 30)

        @ks.kernel
        def empty(c: ks.i32):
            for k in range(2):
                ks.deactivate(lists, [(c + k) % lists.shape[0], c % lists.shape[1]])

        self._keep(store, add, fill, append, empty)

    def _write_loops(self) -> None:
        x, y, v, width = self.x, self.y, self.v, self.tree.width
        rows, columns = x.shape

        @ks.kernel
        def bump():
            for i, j in x:
                y[i, j] += x[i, j] + i
                if ks.static(v is not None):
                    for k in ks.static(range(width)):
                        v[i, j][k] += x[i, j] + k

        @ks.kernel
        def settle():
            for i, j in x:
                x[i, j] = ks.max(ks.min(y[i, j], _MOST), 0)

        @ks.kernel
        def around():
            for i, j in x:
                y[i, j] = x[i - 1, j] + 2 * x[i + 1, j] + x[i, j + 1]

        @ks.kernel
        def corners(c: ks.i32):
            for i, j in x:
                if (i + c) % 4 != 0:
                    if ks.static(v is not None):
                        v[i, j][0] = x[i - 1, j - 1] + x[i + 1, j] - x[i, j + 1]
                    y[i, j] = x[i + 1, j - 1] + x[i, j - 2] + x[i, j]

        @ks.kernel
        def grow(c: ks.i32):
            for i, j in x:
                if (i + j + c) % 3 == 0:
                    y[(i + 1) % rows, (j + 2) % columns] += 1

        @ks.kernel
        def spread():
            for i, j in x:
                if x[i, j] > 1 and i + 1 < rows:
                    ks.atomic_max(x[i + 1, j], 1)

        @ks.kernel
        def steps(t: ks.i32):
            for i, j in x:
                if (i + t) % 2 == 0:
                    y[i, j] += x[i, j] + t

        self._keep(bump, settle, around, corners, grow, spread, steps)

    def _write_cells(self) -> None:
        x, nodes = self.x, self.nodes

        @ks.kernel
        def drop(c: ks.i32, node: ks.template()):
            for k in range(2):
                ks.deactivate(node, [(c + k) % node.shape[0], c % node.shape[1]])

        @ks.kernel
        def thin(c: ks.i32, node: ks.template()):
            for i, j in node:
                if (i + 2 * j + c) % 3 == 0:
                    ks.deactivate(node, [i, j])

        @ks.kernel
        def renew(c: ks.i32, node: ks.template()):
            for k in range(2):
                ks.deactivate(node, [(c + k) % node.shape[0], c % node.shape[1]])
            for k in range(3):
                ks.activate(node, [c % node.shape[0], (c + k) % node.shape[1]])
            for i, j in x:
                x[i, j] = ks.min(x[i, j] + 1, _MOST)

        @ks.kernel
        def look(c: ks.template()):
            for i, j in nodes[c]:
                self.seen[c][i, j] += 1

        @ks.kernel
        def active(c: ks.template()):
            for i, j in self.seen[c]:
                if ks.is_active(nodes[c], [i, j]):
                    self.seen[c][i, j] += 2

        self._keep(drop, thin, renew, look, active)

    def _write_reads(self) -> None:
        x, y, other, items, lists = self.x, self.y, self.other, self.items, self.lists
        n, m = self.tree.chain[-1][1]
        p, q = other.shape

        @ks.kernel
        def carry():
            for i, j in x:
                other[i % p, j % q] += x[i, j]

        @ks.kernel
        def down():
            for i, j in x:
                other[i // n % p, j // m % q] += x[i, j]

        @ks.kernel
        def up():
            for i, j in other:
                x[i, j % m] = ks.min(other[i, j], _MOST)

        @ks.kernel
        def sum_lists():
            for i, j, k in items:
                self.sums[0] += ks.cast(items[i, j, k], ks.i64) * (k + 1) // (k + 1)

        @ks.kernel
        def lengths():
            for i, j in self.seen[self.tree.beside]:
                self.seen[self.tree.beside][i, j] += ks.length(lists, [i, j])

        @ks.kernel
        def total():
            for i, j in x:
                self.sums[1] += ks.cast(x[i, j], ks.i64)

        @ks.kernel
        def plain():
            for i, j in self.plain:
                self.plain[i, j] = x[i, j] + 2 * y[i, j]

        self._keep(carry, down, up, sum_lists, lengths, total, plain)

    def call(self, what: str, c: int) -> None:
        """One call. What it does with its number follows from the kernel."""
        kernel = self.kernels[what]
        if what in ("drop", "thin", "renew"):
            kernel(c, self.nodes[self.sparse[c % len(self.sparse)]])
        elif what in ("look", "active"):
            kernel(c % len(self.nodes))
        elif [*kernel.parameters]:
            kernel(c)
        else:
            kernel()

    def run(self, parts: tuple[Part, ...]) -> None:
        """All calls of a program in order."""
        for part in parts:
            for t in range(part.times):
                for what, c in part.calls:
                    self.call(what, c + t * part.slope)

    def recorded(self, parts: tuple[Part, ...]) -> tuple[Recording, Arrays]:
        """A program, and the states that it begins with."""
        recording, arrays = record_program(lambda: self.run(parts), ())
        return recording, {name: np.array(a) for name, a in arrays.items()}

    def interpreted(self, parts: tuple[Part, ...], wanted: Arrays) -> str:
        """Where the interpreter of trees, which the lowering to plain arrays has no part in, leaves other cells or values than are
        `wanted`. What no program sees may differ: which slots are free, and which lists are old.
        """
        with ks.interpret():
            self.run(parts)
        recording, arrays = self.recorded(parts)
        found = canonical(recording.trees, arrays)
        slots = {name for used in recording.trees for _, name in used.sections}
        wrong = [
            name
            for name, a in wanted.items()
            if not name.endswith(SOUND)
            and not (
                name in slots and a.shape == arrays[name].shape
            )  # by slot: where cells are is not known
            and not np.array_equal(found[name], a)
        ]
        return ", ".join(wrong)

    def begin(self, c: int) -> None:
        """Some cells that are active, and some that were: at the beginning of a program."""
        with ks.interpret():
            for what, number in (
                ("store", c),
                ("add", c + 1),
                ("append", c),
                ("drop", c + 2),
                ("store", c + 1),
            ):
                self.call(what, number)

    def end(self) -> None:
        ks.reset()
