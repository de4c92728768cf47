"""Fragments: a thread of a GPU reads its register tile of an operand block element by element, or in vectors of 16 bytes.

Where copies of a thread are neighbours in a row of the block, one load from shared memory serves as many of them as a vector has
elements. CUTLASS calls a register tile that is loaded so a fragment. Threads along the row then have blocks of copies, and not
every copy of as many as there are threads. The bound has no term: it counts the widest requests, since a compiler may join
neighbouring loads by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..backbone import INNER, MID, OUTER, Dim, Operand
from ..draft import Draft, Family, all_but, bits
from ..targets.gpu_facts import row_order
from ..targets.kind import GPU
from .order import APART
from .packing import (
    ACROSS_MEMORY,
    ALONG_MEMORY,
    DIRECT,
    LAYOUT,
    ODD,
    STAGED,
    TRANSPOSED_ODD,
)
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
            inners = (row[INNER] for _, row in rows_of(s, o))
            if any(kinds_of(s, d) & bits(UNROLL) and whole_vectors(s, o, d) for d in inners):
                s.v.of_operands["fragments"][o] = s.b.add("fragments", (o.name,), FRAGMENTS)


def rows_of(s: Draft, o: Operand) -> Iterator[tuple[int, tuple[Dim, Dim, Dim]]]:
    """Yields layouts of an operand's copy, as a domain, with the dims of the loop along their rows: outer, mid and inner."""
    for is_transposed, layouts in ((False, ALONG_MEMORY), (True, ACROSS_MEMORY)):
        order = row_order(o, s.array(o.access.array), is_transposed=is_transposed)
        yield layouts, s.levels(o.task, order[-1])


def whole_vectors(s: Draft, o: Operand, inner: Dim) -> int:
    """Returns the sizes of a register tile along rows that are whole vectors, as a domain (bit mask)."""
    lanes = s.target.lanes(s.array(o.access.array).dtype.size_bytes)
    return bits(*(k for k, n in enumerate(sizes_of(s, inner)) if vector_width(n, lanes) > 1))


def vectors_of_copies(s: Draft) -> None:
    """Constraints of fragments in vectors: copies of a thread are neighbours in aligned rows of a block in shared memory.

    Copies of threads along rows are neighbours, too, and not as far apart as there are threads. Tasks that share such a loop
    would have their copies apart, so it is the loop of one task. Where vectors lie along another loop of the operand, its
    elements come from several rows.
    """
    b, v = s.b, s.v
    for o, var in v.of_operands["fragments"].items():
        one_by_one = (var, bits(ELEMENTS))
        b.clause("fragments in vectors", [one_by_one, (v.staged[o], all_but(STAGED, DIRECT))])
        for layouts, row in rows_of(s, o):
            others = [s.levels(o.task, name) for name in o.loops if name != row[OUTER].loop.name]
            conditions = [
                (v.layout[o], all_but(LAYOUT, ODD, TRANSPOSED_ODD)),
                (v.kind[row[INNER]], bits(UNROLL)),
                (v.size[row[INNER]], whole_vectors(s, o, row[INNER])),
                *((v.kind[d[INNER]], all_but(DIM_KIND, VECTOR)) for d in others),
            ]
            either = [one_by_one, (v.layout[o], (ALONG_MEMORY | ACROSS_MEMORY) & ~layouts)]
            for condition in conditions:
                b.clause("fragments in vectors", [*either, condition])
            unshared = (v.kind[row[MID]], all_but(DIM_KIND, THREAD))
            for e in s.backbone.partners[row[MID]]:
                apart = (s.order(row[MID], e), APART)
                b.clause("threads of one task", [*either, unshared, apart])


FAMILY = Family("fragments", {GPU: (vectors_of_copies,)}, declare)
