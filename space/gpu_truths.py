"""The truths that hold on a GPU only; see space/truths.py."""

from __future__ import annotations

from dataclasses import dataclass

from . import choices as ch
from .truths import SPLIT, WITHOUT_LOOP


def blocks_outermost(outer: int, other: int, order: int) -> bool:
    """`order` is that of `outer` to `other`."""
    return outer != ch.BLOCK or order != ch.INSIDE or other in (ch.BLOCK, *WITHOUT_LOOP)


def results_outside(free: int, reduced: int, order: int) -> bool:
    """`order` is that of the dim of the result to the dim that is reduced."""
    return not (free == reduced == ch.LOOP) or order != ch.INSIDE


def combined_alike(a: int, b: int) -> bool:
    """`a` and `b` say how two loops of one task are reduced over blocks, where they are."""
    return a == b or a not in SPLIT or b not in SPLIT


def tree_of_threads(kind: int, reduction: int) -> bool:
    return (kind == ch.THREAD) == (reduction == ch.TREE)


def levels_of_threads(a: int, b: int, level: int) -> bool:
    """`a` and `b` are kinds."""
    return (a == b == ch.THREAD) == (level != ch.NOT_THREADS)


def order_of_threads(ab: int, bc: int, ac: int) -> bool:
    return ab != bc or ab == ch.NOT_THREADS or ac == ab


def opposite(level: int) -> int:
    """The level of y and x, from that of x and y."""
    return {ch.FASTER: ch.SLOWER, ch.SLOWER: ch.FASTER}.get(level, level)


def same_threads(space: int, producer: int, consumer: int) -> bool:
    """The levels of two loops of the producer, and of their partners, in the same order."""
    return space != ch.REGISTER or producer == consumer


def same_threads_turned(space: int, producer: int, consumer: int) -> bool:
    return space != ch.REGISTER or producer == opposite(consumer)


def layout_of_copy(staged: int, layout: int) -> bool:
    return staged != ch.DIRECT or layout == ch.PLAIN


@dataclass(frozen=True)
class LayoutFits:
    """Rows of mid times inner elements, of 4 or 8 bytes: only where all banks take part are they moved apart."""

    mids: tuple[int, ...]
    inners: tuple[int, ...]

    def __call__(self, layout: int, mid: int, inner: int) -> bool:
        row = self.mids[mid] * self.inners[inner]
        is_power = row & (row - 1) == 0
        return layout == ch.PLAIN or (row % 8 == 0 and (is_power or layout != ch.SWIZZLED))


def hint_of_memory(hint: int, space: int) -> bool:
    return hint == ch.CA or space == ch.GLOBAL


def hint_of_copy(hint: int, staged: int) -> bool:
    """Asynchronous copies go around L1 by themselves."""
    return hint == ch.CA or staged in (ch.DIRECT, ch.COPY)


def copy_around_loops(kind: int, staged: int, order: int) -> bool:
    """`order` is that of another loop's outer dim to the mid dim of `kind`."""
    return kind in WITHOUT_LOOP or staged == ch.DIRECT or order == ch.OUTSIDE


@dataclass(frozen=True)
class GridFits:
    """At most `limit` tiles of mid times inner iterations, where a choice has the value `where`."""

    extent: int
    mids: tuple[int, ...]
    inners: tuple[int, ...]
    limit: int
    where: int

    def __call__(self, value: int, mid: int, inner: int) -> bool:
        tile = self.mids[mid] * self.inners[inner]
        return value != self.where or -(-self.extent // tile) <= self.limit
