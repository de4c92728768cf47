"""Random trees of sparse fields, and random calls on them: what sparse_programs.py makes sequences of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..kernels.ir.repeats import FEW_CALLS

Cell = tuple[int, int]
Call = tuple[str, int]
WORDS = (
    "store", "add", "fill", "bump", "settle", "around", "corners", "grow", "spread", "drop", "thin", "renew", "carry", "down",
    "down", "up", "append", "append", "sum_lists", "lengths", "empty", "look", "active", "total", "plain", "steps", "grouped",
    "groups", "near", "unique", "deposit", "particles", "smooth", "mark_cells",
)  # fmt: skip
# Of these the cells stay as they are, so that lists of them may be places, and leaves are read in tiles.
CALM = (
    "bump", "around", "corners", "near", "grouped", "total", "plain", "smooth", "deposit", "particles", "steps", "sum_lists",
)  # fmt: skip
KINDS = ("dense", "bitmasked", "pointer", "hash")
TYPES = ("i32", "i32", "f32", "f32", "f64", "i64", "i16", "u8")
MOST_CELLS = 160  # of a tree, active or not


@dataclass(frozen=True)
class Tree:
    """Two trees: `beside` is the level of the first that lists are at, in chunks of `chunk`; `width` are components of a field;
    `least` the first indices of its fields, along the axis of lists too. `mirror`: a tree with the cells of the first, if any.
    """

    chain: tuple[tuple[str, Cell], ...]
    other: tuple[tuple[str, Cell], ...]
    beside: int
    chunk: int
    dtype: str
    width: int
    least: tuple[int, int, int] = (0, 0, 0)
    mirror: tuple[tuple[str, Cell], ...] = ()

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


def drawn_tree(rng: np.random.Generator, most_cells: int = MOST_CELLS) -> Tree:
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
            _least(rng),
        )
        if any(kind != "dense" for kind, _ in chain) and np.prod(tree.shape) <= most_cells:
            return tree


def drawn_mirror(rng: np.random.Generator, tree: Tree) -> tuple[tuple[str, Cell], ...]:
    """A chain of nodes with as many cells along each axis as that of a tree: its nodes, some of them as one, of other kinds."""
    extents = [tree.chain[0][1]]
    for _, (n, m) in tree.chain[1:]:
        if rng.integers(3) == 0:
            rows, columns = extents.pop()
            n, m = rows * n, columns * m
        extents.append((n, m))
    return tuple((str(rng.choice(("pointer", "hash", *KINDS))), x) for x in extents)


def _node(rng: np.random.Generator) -> tuple[str, Cell]:
    return str(rng.choice(KINDS)), (int(rng.integers(1, 4)), int(rng.integers(1, 4)))


def _least(rng: np.random.Generator) -> tuple[int, int, int]:
    if rng.integers(3):
        return 0, 0, 0
    return int(rng.integers(-9, 10)), int(rng.integers(-9, 10)), int(rng.integers(-5, 6))


def drawn_parts(rng: np.random.Generator, most: int = 3) -> tuple[Part, ...]:
    """Up to `most` parts of one call or two, a third of the programs with one among them that is made again and again, so
    often in half of these that it is a repeat. In a quarter of the programs all cells stay.
    """
    found = []
    words = WORDS if rng.integers(4) else CALM
    at = int(rng.integers(most)) if rng.integers(3) == 0 else -1
    for k in range(int(rng.integers(1, most + 1))):
        n = int(rng.integers(1, 3))
        calls = tuple((str(rng.choice(words)), int(rng.integers(0, 40))) for _ in range(n))
        times, slope = (_times(rng, n), int(rng.integers(2))) if k == at else (1, 0)
        found.append(Part(times, slope, calls))
    return tuple(found)


def _times(rng: np.random.Generator, n_calls: int) -> int:
    return int(rng.integers(3)) + (2 if rng.integers(2) else FEW_CALLS // n_calls + 1)
