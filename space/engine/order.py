"""Order algebra of a loop forest: five relations of two objects, their composition, and the forest.

`order(i, j) = INNER` means that i is inside j, `BEFORE` that all of i comes before all of j, `MERGED` that both are one loop
(Telamon section 3). A table gives the possible relations of (a, c) for those of (a, b) and (b, c). It is derived from the forests
themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

BEFORE, AFTER, INNER, OUTER, MERGED = range(5)
ORDER_VALUES = ("BEFORE", "AFTER", "INNER", "OUTER", "MERGED")
ANY_ORDER = 0b11111
INVERSE = (AFTER, BEFORE, OUTER, INNER, MERGED)  # order(j, i) given order(i, j)

Matrix = Sequence[Sequence[int]] | npt.NDArray[np.int64]


class OrderNode(NamedTuple):
    """A node of an ordered forest: a loop that merges `objects`, and its children in order."""

    objects: tuple[int, ...]
    children: tuple[OrderNode, ...]


def inverse_mask(mask: int) -> int:
    """Returns the values of order(j, i), as a mask, that correspond to the values `mask` of order(i, j)."""
    return sum(1 << INVERSE[value] for value in range(5) if mask >> value & 1)


# ---- the composition table


def _partitions(items: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
    if not items:
        yield ()
        return
    first, rest = items[0], items[1:]
    for size in range(len(rest) + 1):
        for mates in combinations(rest, size):
            others = tuple(item for item in rest if item not in mates)
            for tail in _partitions(others):
                yield ((first, *mates), *tail)


def _forests(blocks: tuple[tuple[int, ...], ...]) -> Iterator[tuple[OrderNode, ...]]:
    """Yields every ordered forest with one node per block of merged objects."""
    if not blocks:
        yield ()
        return
    for root in blocks:
        others = tuple(block for block in blocks if block != root)
        for size in range(len(others) + 1):
            for below in combinations(others, size):
                after = tuple(block for block in others if block not in below)
                for children in _forests(below):
                    for siblings in _forests(after):
                        yield (OrderNode(root, children), *siblings)


def _relations(trees: tuple[OrderNode, ...], n_objects: int) -> list[list[int]]:
    """Returns the matrix of order(i, j) in a forest, from the times at which a traversal enters and leaves each object."""
    enter, leave, clock = [0] * n_objects, [0] * n_objects, 0

    def walk(node: OrderNode) -> None:
        nonlocal clock
        clock += 1
        for item in node.objects:
            enter[item] = clock
        for child in node.children:
            walk(child)
        clock += 1
        for item in node.objects:
            leave[item] = clock

    for tree in trees:
        walk(tree)

    def relation(a: int, b: int) -> int:
        if enter[a] == enter[b]:
            return MERGED
        if leave[a] < enter[b]:
            return BEFORE
        if leave[b] < enter[a]:
            return AFTER
        return INNER if enter[b] < enter[a] else OUTER

    return [[relation(a, b) for b in range(n_objects)] for a in range(n_objects)]


@cache
def triples() -> frozenset[tuple[int, int, int]]:
    """Returns all (order(a, b), order(b, c), order(a, c)) that occur in some forest of three objects."""
    found = set()
    for blocks in _partitions((0, 1, 2)):
        for trees in _forests(blocks):
            matrix = _relations(trees, 3)
            found.add((matrix[0][1], matrix[1][2], matrix[0][2]))
    return frozenset(found)


@cache
def composition_table() -> npt.NDArray[np.uint32]:
    """Returns [32, 32]: for masks of order(a, b) and order(b, c), the mask of the possible order(a, c)."""
    table = np.zeros((32, 32), np.uint32)
    for left, right, whole in triples():
        lefts = [mask for mask in range(32) if mask >> left & 1]
        rights = [mask for mask in range(32) if mask >> right & 1]
        table[np.ix_(lefts, rights)] |= np.uint32(1 << whole)
    return table


@cache
def inverse_table() -> npt.NDArray[np.uint32]:
    """Returns [32]: `inverse_mask` of every mask."""
    return np.array([inverse_mask(mask) for mask in range(32)], np.uint32)


# ---- the truth, and the forest of a complete matrix


def _build(matrix: Matrix) -> tuple[OrderNode, ...]:
    """Returns the only forest that can have these relations; `holds_order` tells whether it has all of them."""
    n = len(matrix)
    classes = [
        tuple(j for j in range(n) if matrix[i][j] == MERGED)
        for i in range(n)
        if MERGED not in list(matrix[i])[:i] and matrix[i][i] == MERGED
    ]
    around = {c: [o for o in classes if matrix[c[0]][o[0]] == INNER] for c in classes}
    below: dict[tuple[int, ...], list[tuple[int, ...]]] = {(): []}
    for item, containers in around.items():
        innermost = max(containers, key=lambda other: len(around[other]), default=())
        below.setdefault(innermost, []).append(item)

    def row(parent: tuple[int, ...]) -> tuple[OrderNode, ...]:
        siblings = below.pop(
            parent, []
        )  # popped: a contradictory matrix must not be walked for ever
        ranks = {s: sum(matrix[o[0]][s[0]] == BEFORE for o in siblings) for s in siblings}
        return tuple(OrderNode(s, row(s)) for s in sorted(siblings, key=ranks.__getitem__))

    return row(())


def _paths(
    trees: tuple[OrderNode, ...], prefix: tuple[int, ...]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    for rank, node in enumerate(trees):
        path = (*prefix, rank)
        yield from ((item, path) for item in node.objects)
        yield from _paths(node.children, path)


def _shown(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    if a == b:
        return MERGED
    if a[: len(b)] == b:
        return INNER
    if b[: len(a)] == a:
        return OUTER
    return BEFORE if a < b else AFTER


def holds_order(matrix: Matrix) -> bool:
    """True if some ordered forest has these relations; matrix[i][j] is the value of order(i, j)."""
    paths: dict[int, tuple[int, ...]] = {}
    for item, path in _paths(_build(matrix), ()):
        if item in paths:
            return False
        paths[item] = path
    n = len(matrix)
    return len(paths) == n and all(
        matrix[i][j] == _shown(paths[i], paths[j]) for i in range(n) for j in range(n)
    )


def forest(matrix: Matrix) -> tuple[OrderNode, ...]:
    """Returns the loop forest with these relations, as its trees in order.

    `holds_order(matrix)` must be true.
    """
    assert holds_order(matrix), "no ordered forest has these relations"
    return _build(matrix)
