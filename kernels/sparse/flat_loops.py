"""Loop coalescing: a perfect nest of constant extents as one loop, so that many threads share all of its iterations."""

from __future__ import annotations

from dataclasses import replace

from ..ir import kernel as ir
from ..ir.walk import Renaming
from .cells import I64, number, quotient, remainder


def coalesced(loop: ir.For) -> ir.For:
    """Returns the loop over all iterations of the perfect nest that begins with `loop`, in their order."""
    match loop:
        case ir.For(extent=ir.Const(value=int(n)), body=(ir.For() as inner,)):
            inner = coalesced(inner)
            if isinstance(inner.extent, ir.Const):
                m, index = int(inner.extent.value), ir.LoopIndex(loop.loop, I64)
                both = {loop.loop: quotient(index, m), inner.loop: remainder(index, m)}
                again = Renaming(loops=both)
                body = tuple(again.apply_stmt(s) for s in inner.body)
                return replace(loop, extent=number(n * m), body=body)
    return loop
