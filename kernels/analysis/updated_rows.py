"""Rows of an array that an iteration updates, through indices that differ from update to update: the corners of a mesh's element.

A row is a part of the array with the same indices along the axes on which all updates move.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from ..ir import kernel as ir
from ..ir.walk import rewrite, walk
from .reach import Reach, reach

MAX_ROWS = 32  # of an iteration: twice the corners of a quadratic tetrahedron, rounded up

Row = tuple[Reach, ...]
"""An index for each moving axis, as a base and a constant distance (`least`)."""


@dataclass(frozen=True)
class UpdatedRows:
    """Rows of an array that one iteration updates.

    `extents`: of the array, along the axes that rows are on. `of_updates`: the rows of each update.
    """

    extents: tuple[int, ...]
    of_updates: tuple[tuple[ir.Update, tuple[Row, ...]], ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        """The different rows, in program order."""
        return tuple(dict.fromkeys(row for _, rows in self.of_updates for row in rows))

    @property
    def bases(self) -> tuple[ir.Expr, ...]:
        """The expressions from which the rows are computed."""
        return tuple(bases_of(self.rows))


def updated_rows(
    updates: Sequence[ir.Update], shape: tuple[int, ...], lengths: Mapping[str, int]
) -> UpdatedRows | None:
    """Returns the rows of an array of this shape that one iteration updates; None if they are unknown or too many.

    `lengths`: the extents of the loops inside the body, 0 if they are not constant.
    """
    boxes = [(s, box) for s in updates for box in _boxes(s, lengths)]
    known = [(s, [r for r in box if r is not None]) for s, box in boxes]
    if any(len(box) < len(shape) for _, box in known):
        return None
    axes = [k for k in range(len(shape)) if all(box[k].base is not None for _, box in known)]
    if not axes or sum(prod(box[k].span for k in axes) for _, box in known) > MAX_ROWS * 4:
        return None
    rows = tuple((s, tuple(product(*(_points(box[k]) for k in axes)))) for s, box in known)
    found = UpdatedRows(tuple(shape[k] for k in axes), rows)
    return found if len(found.rows) <= MAX_ROWS else None


def bases_of(rows: Sequence[Row]) -> Iterator[ir.Expr]:
    """Yields the expressions from which rows are computed, each once."""
    yield from dict.fromkeys(r.base for row in rows for r in row if r.base is not None)


def _points(r: Reach) -> list[Reach]:
    return [Reach(r.base, k, k) for k in range(r.least, r.largest + 1)]


def _boxes(update: ir.Update, lengths: Mapping[str, int]) -> Iterator[list[Reach | None]]:
    """Yields the box of an update, or a box for each iteration of short loops around it, whose index is part of a load."""
    box = [reach(e, lengths) for e in update.indices]
    loops = dict.fromkeys(
        x.loop
        for e in update.indices
        for x in walk(e)
        if isinstance(x, ir.LoopIndex) and x.loop in lengths
    )
    n = prod(lengths[loop] for loop in loops)
    if None not in box or not 0 < n <= MAX_ROWS:
        yield box
        return
    for numbers in product(*(range(lengths[loop]) for loop in loops)):
        at = dict(zip(loops, numbers, strict=True))
        yield [reach(_at(e, at), lengths) for e in update.indices]


def _at(e: ir.Expr, numbers: Mapping[str, int]) -> ir.Expr:
    """Returns `e` with the indices of loops replaced by these numbers."""

    def change(x: object) -> object:
        if isinstance(x, ir.LoopIndex) and x.loop in numbers:
            return ir.Const(numbers[x.loop], x.dtype)
        return x

    return rewrite(e, change)
