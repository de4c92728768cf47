"""Random sequences of kernels on random trees of sparse fields, recorded: what their candidates must do follows from the reference.

A tree is a chain of nodes over two axes with fields in the last one; a list along a third axis hangs below one of its nodes, and
what loops carry over goes to a second tree. Kernels loop over fields and over nodes of every level, over lists and over plain
ranges; they store, add, read around their cells, activate, deactivate, append, and use the step of a repeat. Numbers stay so small
that all sums are exact in every type, and what iterations share has no order. Fields may have offsets: their first
index is not 0 then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from ..kernels.fields.canonical_state import SOUND, canonical
from ..kernels.fields.storage import TreeStorage
from ..kernels.frontend.recorder import Recording, record_program
from ..kernels.sparse.recorded import UsedTree
from .calling import Arrays
from .sparse_drawn import Part, Tree

ks: Any = import_module(__package__.partition(".")[0])  # programs of users see it whole

_LONGEST = 8  # list
_PARTICLES = 24
_MOST = 50  # the largest number that is read by what multiplies numbers


@dataclass(frozen=True)
class Emptied:
    """The effect of the host's `deactivate_all` of a node on the states of a sequence. `sections`: those of its tree before."""

    used: UsedTree
    node: int
    sections: Arrays

    def __call__(self, state: Arrays) -> Arrays:
        """The states behind it, those that are given stay."""
        here = {key: a.copy() for key, a in self.sections.items()}
        here |= {key: state[name].copy() for key, name in self.used.sections}
        TreeStorage(self.used.layout, here).deactivate_all(self.node)
        return state | {name: here[key] for key, name in self.used.sections}


def recorded(program: Callable[[], None]) -> tuple[Recording, Arrays]:
    """The recording of a function's calls, and the states that it begins with."""
    recording, arrays = record_program(program, ())
    return recording, {name: np.array(a) for name, a in arrays.items()}


def interpreted(program: Callable[[], None], wanted: Arrays) -> str:
    """The difference between `wanted` and the cells and values that the interpreter of trees leaves; "" for none. The lowering to
    plain arrays has no part in it. Free slots and old lists may differ: no program sees them.
    """
    with ks.interpret():
        program()
    recording, arrays = recorded(program)
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


class World:
    """Trees with their kernels, in a program that has begun with `options`: sequences of one are recorded one after the other."""

    def __init__(self, tree: Tree, **options: Any) -> None:
        ks.init(arch=ks.cpu, **options)
        self.tree, dtype = tree, getattr(ks, tree.dtype)
        self.x, self.y, self.other, self.items = (ks.field(dtype) for _ in range(4))
        self.v: Any = ks.Vector.field(tree.width, dtype) if tree.width > 1 else None
        self.nodes: list[Any] = []
        node: Any = ks.root
        for kind, extents in tree.chain:
            node = getattr(node, kind)(ks.ij, extents)
            self.nodes.append(node)
        fields = [self.x, self.y, *([self.v] if self.v is not None else [])]
        node.place(*fields, offset=tree.least[:2])
        self.lists = self.nodes[tree.beside].dynamic(ks.k, _LONGEST, chunk_size=tree.chunk)
        self.lists.place(self.items, offset=tree.least)
        self.mark = ks.field(ks.i32)
        self.nodes[tree.beside].place(self.mark, offset=tree.least[:2])
        node = ks.root
        for kind, extents in tree.other:
            node = getattr(node, kind)(ks.ij, extents)
        node.place(self.other)
        self.z: Any = ks.field(dtype) if tree.mirror else None
        node = ks.root
        for kind, extents in tree.mirror:
            node = getattr(node, kind)(ks.ij, extents)
        if self.z is not None:
            node.place(self.z, offset=tree.least[:2])
        self.seen = [ks.field(ks.i32, n.shape) for n in self.nodes]
        self.plain, self.rest = (ks.field(dtype, self.x.shape) for _ in range(2))
        self.grid, self.at = ks.field(ks.i32, (9, 7)), ks.field(ks.i32, _PARTICLES)
        self.sums = ks.field(ks.i64, 2)
        self.sparse = [k for k, n in enumerate(self.nodes) if n.kind != "dense"]
        self.kernels: dict[str, Any] = {}
        self._write_stores()
        self._write_loops()
        self._write_cells()
        self._write_reads()
        self._write_dense()
        if self.z is not None:
            self._write_mirror()

    def _keep(self, *kernels: Any) -> None:
        self.kernels |= {k.name: k for k in kernels}

    def _write_stores(self) -> None:
        x, y, lists = self.x, self.y, self.lists
        (rows, columns), (a, b, _) = x.shape, self.tree.least

        @ks.kernel
        def store(c: ks.i32):
            for k in range(3):
                x[(c + 2 * k) % rows + a, (3 * c + k) % columns + b] = c % 40 + 1

        @ks.kernel
        def add(c: ks.template()):
            for k in range(4):
                y[(c + k // 2) % rows + a, c % columns + b] += k + 1

        @ks.kernel
        def fill(c: ks.i32):
            for i, j in ks.ndrange(rows, columns):
                if (i + 2 * j + c) % 5 == 0:
                    x[i + a, j + b] = (i + j) % 20

        @ks.kernel
        def append(c: ks.i32):
            for k in range(2):
                ks.append(lists, [c % lists.shape[0], (c + k) % lists.shape[1]], c % 30)

        @ks.kernel
        def empty(c: ks.i32):
            for k in range(2):
                ks.deactivate(lists, [(c + k) % lists.shape[0], c % lists.shape[1]])

        mark, marked = self.mark, self.nodes[self.tree.beside]

        @ks.kernel
        def mark_cells(c: ks.i32):
            for k in range(2):
                mark[(c + k) % marked.shape[0] + a, c % marked.shape[1] + b] += 5

        self._keep(store, add, fill, append, empty, mark_cells)

    def _write_loops(self) -> None:
        x, y, v, width = self.x, self.y, self.v, self.tree.width
        (rows, columns), (a, b, _) = x.shape, self.tree.least

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
                    y[(i + 1 - a) % rows + a, (j + 2 - b) % columns + b] += 1

        @ks.kernel
        def spread():
            for i, j in x:
                if x[i, j] > 1 and i + 1 < rows + a:
                    ks.atomic_max(x[i + 1, j], 1)

        @ks.kernel
        def steps(t: ks.i32):
            for i, j in x:
                if (i + t) % 2 == 0:
                    y[i, j] += x[i, j] + t

        @ks.kernel
        def grouped():
            for cell in ks.grouped(x):
                y[cell] += x[cell] + ks.max(cell.sum(), 0)

        @ks.kernel
        def near(c: ks.i32):
            ks.block_local(x)
            for i, j in x:
                y[i, j] = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1] + c % 4

        @ks.kernel
        def unique():
            for i, j in x:
                k = ks.loop_unique(rows - 1 - i + 2 * a)
                y[k, j] += x[i, j]

        self._keep(bump, settle, around, corners, grow, spread, steps, grouped, near, unique)

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

        @ks.kernel
        def groups(c: ks.template()):
            for cell in ks.grouped(nodes[c]):
                self.seen[c][cell] += cell[0] + 1

        self._keep(drop, thin, renew, look, active, groups)

    def _write_reads(self) -> None:
        x, y, other, items, lists = self.x, self.y, self.other, self.items, self.lists
        (n, m), (a, b, _) = self.tree.chain[-1][1], self.tree.least
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
                # Cells come in any order, so each has an element of its own.
                if i < x.shape[0] and j < m:
                    x[i + a, j % m + b] = ks.min(other[i, j], _MOST)

        @ks.kernel
        def sum_lists():
            for i, j, k in items:
                self.sums[0] += ks.cast(items[i, j, k], ks.i64) * (k + 9) // (k + 9)

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
                self.plain[i, j] = x[i + a, j + b] + 2 * y[i + a, j + b]

        self._keep(carry, down, up, sum_lists, lengths, total, plain)

    def _write_mirror(self) -> None:
        x, z = self.x, self.z
        (rows, columns), (a, b, _) = x.shape, self.tree.least

        @ks.kernel
        def lift():
            for i, j in x:
                z[i, j] = ks.min(x[i, j] + 1, _MOST)

        @ks.kernel
        def sink():
            for i, j in z:
                x[i, j] = ks.min(z[i, j] + 2, _MOST)

        @ks.kernel
        def sprout(c: ks.i32):
            for k in range(2):
                z[(c + k) % rows + a, 5 * c % columns + b] = c % 9

        self._keep(lift, sink, sprout)

    def _write_dense(self) -> None:
        x, grid, at = self.x, self.grid, self.at

        @ks.kernel
        def smooth(c: ks.i32):
            for i, j in self.plain:
                self.rest[i, j] = ks.min(self.plain[i, j], _MOST) + c

        @ks.kernel
        def deposit():
            for i, j in x:
                p, q = ks.cast(x[i, j], ks.i32) % 8, (i + j) % 6
                for k, m in ks.static(ks.ndrange(2, 2)):
                    grid[p + k, q + m] += k + m + 1

        @ks.kernel
        def particles(c: ks.i32):
            for k in at:
                p = at[k] % 7
                for m in ks.static(range(3)):
                    grid[p + m, 0] += m + 1
                at[k] += k + c

        self._keep(smooth, deposit, particles)

    @staticmethod
    def apply(kernel: Any, *args: Any) -> None:
        """Runs a kernel."""
        kernel(*args)

    def call(self, what: str, c: int) -> None:
        """One call. What it does with its number follows from the kernel; "clear" is done by the host."""
        if what == "clear":
            self.nodes[c % len(self.nodes)].deactivate_all()
            return
        kernel = self.kernels[what]
        if what in ("drop", "thin", "renew"):
            self.apply(kernel, c, self.nodes[self.sparse[c % len(self.sparse)]])
        elif what in ("look", "active", "groups"):
            self.apply(kernel, c % len(self.nodes))
        else:
            self.apply(kernel, *[c] * len([*kernel.parameters]))

    def run(self, parts: tuple[Part, ...]) -> None:
        """All calls of a program in order."""
        for part in parts:
            for t in range(part.times):
                for what, c in part.calls:
                    self.call(what, c + t * part.slope)

    def recorded(self, parts: tuple[Part, ...]) -> tuple[Recording, Arrays]:
        """A program, and the states that it begins with."""
        return recorded(lambda: self.run(parts))

    def emptied(self, recording: Recording, number: int) -> Emptied | None:
        """The effect of the host's `deactivate_all` of a node of the first tree; None where the program does not use the tree."""
        node = self.nodes[self.sparse[number % len(self.sparse)]]
        structure = node.structure
        used = [u for u in recording.trees if u.tree.name == structure.tree.name]
        if not used:
            return None
        sections = {name: a.copy() for name, a in structure.storage.arrays.items()}
        return Emptied(used[0], structure.numbers[id(node)], sections)

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

    def reset(self) -> None:
        """Resets the fields to those of the beginning."""
        ks.deactivate_all_snodes()
        fields = (
            self.other,
            self.mark,
            self.plain,
            self.rest,
            self.grid,
            self.at,
            self.sums,
            *self.seen,
        )
        for field in fields:
            if not field.snode.is_sparse:
                field.fill(0)

    def end(self) -> None:
        ks.reset()
