"""A kernel on sparse fields, lowered: plain IR, and what of it is what."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.kernel import KernelIR


@dataclass(frozen=True)
class Window:
    """A loop over the cells of leaves reads a field around its own cell: the number of the loop's statement, and of that in the
    text before; the field, and the bytes of a tile of it (see halo.py). `n_crossed`: axes along which a read may leave the leaf, at
    most: each doubles the places where a cell may be.
    """

    statement: int
    top: int
    field: str
    n_bytes: int
    n_crossed: int


@dataclass(frozen=True)
class Lowered:
    """The kernel on plain arrays, and which section each of the arrays is that were not there before: (array, tree, key).

    The first `n_settling` statements settle pools, the last `n_claiming` say what could not be written, and `lists` are those that
    make lists: (statement, its number in the text before, tree, node). `loops` are loops at top level: (statement, its number).
    `windows`: what may be read out of tiles, or is.
    """

    ir: KernelIR
    sections: tuple[tuple[str, str, str], ...]
    n_settling: int = 0
    n_claiming: int = 0
    lists: tuple[tuple[int, int, str, int], ...] = ()
    loops: tuple[tuple[int, int], ...] = ()
    windows: tuple[Window, ...] = ()
