"""Fragments: a thread of a GPU reads its register tile of an operand block element by element, or in vectors of 16 bytes.

Where copies of a thread are neighbours in a row of the block, one load from shared memory serves as many of them as a vector has
elements. CUTLASS calls a register tile that is loaded so a fragment. The bound has no term: it counts the widest requests, since a
compiler may join neighbouring loads by itself.
"""

from __future__ import annotations

from ..backbone import INNER, MID, OUTER, Dim, Operand
from ..draft import Draft, Family, all_but, bits
from ..targets.gpu_facts import row_order
from ..targets.kind import GPU
from .packing import DIRECT, LAYOUT, ODD, STAGED
from .tiling import DIM_KIND, THREAD, UNROLL, VECTOR, kinds_of, sizes_of, vector_width

ELEMENTS, IN_VECTORS = range(2)
FRAGMENTS = (
    "ELEMENTS",  # a load for each element
    "IN_VECTORS",  # a load for the neighbours in a row, of which each copy takes its own
)

_ELEMENT_BYTES = (4, 8)  # of which a vector of 16 bytes has at most four


def declare(s: Draft) -> None:
    for o in s.backbone.operands:
        if not o.is_window and s.array(o.access.array).dtype.size_bytes in _ELEMENT_BYTES:
            inner = row_of(s, o)[INNER]
            if kinds_of(s, inner) & bits(UNROLL) and whole_vectors(s, o):
                s.v.of_operands["fragments"][o] = s.b.add("fragments", (o.name,), FRAGMENTS)


def row_of(s: Draft, o: Operand) -> tuple[Dim, Dim, Dim]:
    """Returns the dims of the loop along the rows of an operand's block: outer, mid and inner."""
    return s.levels(o.task, row_order(o, s.array(o.access.array))[-1])


def whole_vectors(s: Draft, o: Operand) -> int:
    """Returns the sizes of a register tile along rows that are whole vectors, as a domain (bit mask)."""
    lanes = s.target.lanes(s.array(o.access.array).dtype.size_bytes)
    sizes = sizes_of(s, row_of(s, o)[INNER])
    return bits(*(k for k, n in enumerate(sizes) if vector_width(n, lanes) > 1))


def vectors_of_copies(s: Draft) -> None:
    """Constraints of fragments in vectors: copies of a thread are neighbours in aligned rows of a block in shared memory.

    Threads along rows would be between the copies. Where vectors lie along another loop of the
    operand, its elements come from several rows.
    """
    b, v = s.b, s.v
    for o, var in v.of_operands["fragments"].items():
        one_by_one = (var, bits(ELEMENTS))
        row = row_of(s, o)
        others = [s.levels(o.task, name) for name in o.loops if name != row[OUTER].loop.name]
        conditions = [
            (v.staged[o], all_but(STAGED, DIRECT)),
            (v.layout[o], all_but(LAYOUT, ODD)),
            (v.kind[row[MID]], all_but(DIM_KIND, THREAD)),
            (v.kind[row[INNER]], bits(UNROLL)),
            (v.size[row[INNER]], whole_vectors(s, o)),
            *((v.kind[d[INNER]], all_but(DIM_KIND, VECTOR)) for d in others),
        ]
        for condition in conditions:
            b.clause("fragments in vectors", [one_by_one, condition])


FAMILY = Family("fragments", {GPU: (vectors_of_copies,)}, declare)
