"""Data layout: the order of the cells in a leaf while a sequence runs (row-major, column-major or Morton).

The program has the last axis fastest (row-major). Other orders are copies in the workspace. The
launches of `leaf_layout` convert them when the sequence begins, and back when it ends: the
same launches serve both choices, and the bound counts them once.
"""

from __future__ import annotations

from ...kernels.ir.task import Leaves
from ...kernels.sparse.orders import CellOrder
from ..draft import Draft, Family, Phrases, SequencePart, bits
from ..targets.kind import CPU, GPU
from .leaf_layout import first_user, fits

ROWS, COLUMNS, MORTON = range(3)
CELL_ORDER = (
    "ROWS",  # the last axis fastest, as the program has them
    "COLUMNS",  # the first axis fastest: a loop whose inner index is the first one reads neighbours
    "MORTON",  # bits of the indices interleaved: what is near along any axis is near in memory (Morton, 1966)
)


def declare(s: Draft) -> None:
    for x in s.problem.parts.leaves:
        if is_ordered(x) and fits(s, x):
            site = SequencePart(x.name, first_user(s.problem, x))
            values = bits(ROWS, COLUMNS, *([MORTON] if has_bits(x) else []))
            s.v.of_trees["cell_order"][site] = s.b.add("cell_order", (x.name,), CELL_ORDER, values)


def is_ordered(x: Leaves) -> bool:
    """True if the cells of a leaf can have more than one order: at least two axes are longer than 1."""
    return sum(n > 1 for n in x.extents) > 1


def has_bits(x: Leaves) -> bool:
    """True if all extents of a leaf are powers of two, so that each index takes a whole number of bits (Morton order)."""
    return all(n & (n - 1) == 0 for n in x.extents)


def order_of(value: str, x: Leaves) -> CellOrder | None:
    """Returns the cell order that a value names; None for the program's own order."""
    match value:
        case "COLUMNS":
            return CellOrder.of_axes(x.extents, tuple(reversed(range(len(x.extents)))))
        case "MORTON":
            return CellOrder.of_bits(x.extents)
    return None


PHRASES = Phrases(
    "cell_order",
    "layouts",
    {
        "COLUMNS": "has the cells of a leaf with the first axis fastest, converted on entry and back on exit",
        "MORTON": "has the cells of a leaf in Morton order, converted on entry and back on exit",
    },
    {"COLUMNS": "the first axis fastest", "MORTON": "Morton order"},
)

FAMILY = Family("cell_order", {CPU: (), GPU: ()}, declare, (PHRASES,))
