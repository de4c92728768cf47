"""Result of sparse lowering: plain IR and the map back to the original statements."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.kernel import KernelIR


@dataclass(frozen=True)
class HaloWindow:
    """Window: a field that a loop over the cells of leaves reads, or updates, around its current cell, maybe in a tile.

    `top` is the loop's number in the body before lowering. `n_bytes` is the size of a tile of `field` (see halo.py). `n_crossed`:
    the largest number of axes along which an access may leave the leaf; each doubles the number of leaves that are accessed.
    """

    top: int
    field: str
    n_bytes: int
    n_crossed: int
    is_updated: bool


@dataclass(frozen=True)
class Lowered:
    """Lowered kernel: a kernel on plain arrays, and the section (array of a tree's memory) of each added array.

    A section is (array, tree, key).
    The first `n_settling` statements reclaim pools, and the last `n_claiming` report writes that could not be made. `lists` are the
    statements that make lists: (statement, number of the loop in the body before lowering, tree, node). Loops at top level keep
    their identity. `windows`: fields that loops may access in tiles, or do.
    """

    ir: KernelIR
    sections: tuple[tuple[str, str, str], ...]
    n_settling: int = 0
    n_claiming: int = 0
    lists: tuple[tuple[int, int, str, int], ...] = ()
    windows: tuple[HaloWindow, ...] = ()
