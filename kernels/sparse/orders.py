"""Orders of the cells in a leaf: permutations by coordinates, or by the bits of coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ..ir.kernel import Expr
from .cells import number, plus, quotient, remainder, times


@dataclass(frozen=True)
class CellOrder:
    """Order of the cells of a leaf: the position of a cell is a sum over `parts` of its coordinates.

    A part is (axis, divisor, extent, stride): the coordinate along an axis, divided by `divisor`, modulo `extent`, times `stride`.
    `extents`: the number of cells along each axis.
    """

    extents: tuple[int, ...]
    parts: tuple[tuple[int, int, int, int], ...]

    @property
    def n_cells(self) -> int:
        return prod(self.extents)

    @staticmethod
    def of_axes(extents: tuple[int, ...], axes: Sequence[int]) -> CellOrder:
        """Returns the order that runs over `axes`, from the slowest to the fastest."""
        strides = [prod(extents[a] for a in axes[k + 1 :]) for k in range(len(axes))]
        return CellOrder(
            extents, tuple((a, 1, extents[a], s) for a, s in zip(axes, strides, strict=True))
        )

    @staticmethod
    def of_bits(extents: tuple[int, ...]) -> CellOrder:
        """Returns the Morton order: the lowest bits of all axes first, the last axis before the others.

        Extents are powers of two.
        """
        parts, stride = [], 1
        for bit in range(max(extents).bit_length() - 1):
            for axis in reversed(range(len(extents))):
                if extents[axis] >> bit > 1:
                    parts.append((axis, 1 << bit, 2, stride))
                    stride *= 2
        return CellOrder(extents, tuple(parts))

    def place(self, coordinates: Sequence[Expr]) -> Expr:
        """The position in its leaf of a cell with these coordinates."""
        at: Expr = number(0)
        for axis, divisor, extent, stride in self.parts:
            x = coordinates[axis]
            if divisor > 1:
                x = quotient(x, divisor)
            if divisor * extent < self.extents[axis]:
                x = remainder(x, extent)
            at = plus(at, times(x, stride))
        return at
