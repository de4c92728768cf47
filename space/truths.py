"""The truths: what each constraint between two or three choices says of their values, in plain Python.

A truth judges decided values and knows nothing of domains or propagation. space/constraints.py says which choices it holds
between; the filters and the CP-SAT model are derived from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from . import choices as ch

MAX_VECTORS_PER_DIM = 8
MAX_UNROLLED = 16  # copies along one dim
SPLIT = (ch.PARTIALS, ch.ATOMIC)  # reductions that are shared out
WITHOUT_LOOP = (ch.ABSENT, ch.THREAD)  # kinds of mid dims for which no loop is written


def beside_other(kind: int, outer: int, mid: int) -> bool:
    return kind not in WITHOUT_LOOP or mid == (ch.INSIDE if outer == ch.MERGED else outer)


def beside_twin(kind: int, outer: int, mid: int) -> bool:
    return kind not in WITHOUT_LOOP or mid in (outer, ch.MERGED)


def twins_merge(kind: int, outers: int, mids: int) -> bool:
    return kind not in WITHOUT_LOOP or (outers == ch.MERGED) == (mids == ch.MERGED)


def equivalence(ab: int, bc: int, ac: int) -> bool:
    return (ab, bc, ac).count(ch.SAME_LAUNCH) != 2


def separate(fused: int, order: int) -> bool:
    return fused == ch.SAME_LAUNCH or order in (ch.BEFORE, ch.AFTER)


def mid_merges_inside_outer(outer: int, mid: int) -> bool:
    return mid != ch.MERGED or outer == ch.MERGED


def merged_equal(order: int, a: int, b: int) -> bool:
    return order != ch.MERGED or a == b


@dataclass(frozen=True)
class MergedSizes:
    a: tuple[int, ...]
    b: tuple[int, ...]

    def __call__(self, order: int, a: int, b: int) -> bool:
        return order != ch.MERGED or self.a[a] == self.b[b]


@dataclass(frozen=True)
class LateSizes:
    """Loops that a task shares with another one, late, have equal register tiles."""

    a: tuple[int, ...]
    b: tuple[int, ...]

    def __call__(self, shift: int, a: int, b: int) -> bool:
        return shift != ch.LATE or self.a[a] == self.b[b]


def not_nested(a: int, b: int, order: int) -> bool:
    return not (a == b == ch.PARALLEL) or order not in (ch.INSIDE, ch.OUTSIDE)


def vector_width(size: int, lanes: int) -> int:
    """Elements of the widest vectors, of at most `lanes`, that make up a dim of `size`."""
    return gcd(size, lanes)


@dataclass(frozen=True)
class KindFitsSize:
    """Sizes of dims; vectors have at least `narrowest` elements and at most `lanes`."""

    sizes: tuple[int, ...]
    lanes: int
    narrowest: int

    def __call__(self, kind: int, size: int) -> bool:
        n = self.sizes[size]
        if kind == ch.VECTOR:
            width = vector_width(n, self.lanes)
            return width >= self.narrowest and n <= MAX_VECTORS_PER_DIM * width and n > 1
        if kind == ch.UNROLL:
            return 1 < n <= MAX_UNROLLED
        return (n == 1) == (kind == ch.ABSENT)


@dataclass(frozen=True)
class SmallestCover:
    """Sizes of the mid and inner dims of a loop, where the next smaller mid dim would leave iterations for another tile."""

    extent: int
    mids: tuple[int, ...]
    inners: tuple[int, ...]

    def __call__(self, mid: int, inner: int) -> bool:
        return mid == 0 or self.mids[mid - 1] * self.inners[inner] < self.extent


def one_vector(a: int, b: int) -> bool:
    return not a == b == ch.VECTOR


def outer_reduction(kind: int, reduction: int) -> bool:
    return (kind == ch.PARALLEL) == (reduction in SPLIT)


def inner_reduction(kind: int, reduction: int) -> bool:
    return kind == ch.UNROLL or (kind == ch.VECTOR) == (reduction == ch.LANES)


def register_merged(space: int, order: int) -> bool:
    return space != ch.REGISTER or order == ch.MERGED


def register_whole(space: int, reduction: int) -> bool:
    return space != ch.REGISTER or reduction not in SPLIT


def on_chip_same_launch(space: int, fused: int) -> bool:
    return space == ch.GLOBAL or fused == ch.SAME_LAUNCH


def elided(store: int, space: int) -> bool:
    return store != ch.ELIDED or space != ch.GLOBAL


def stream_kept(cache: int, store: int) -> bool:
    return cache != ch.STREAM or store == ch.KEEP


def copy_of_memory(staged: int, space: int) -> bool:
    return staged == ch.DIRECT or space == ch.GLOBAL


def copy_outside(staged: int, order: int) -> bool:
    return staged == ch.DIRECT or order == ch.OUTSIDE
