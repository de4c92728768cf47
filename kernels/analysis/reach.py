"""Reach of an index: the range of elements that an iteration of a body touches along an axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..ir import kernel as ir
from ..ir.walk import walk


@dataclass(frozen=True)
class Reach:
    """Range of elements that an iteration touches along an axis: `base + least` to `base + largest`.

    `base` is an expression of the iteration. If it is None, the range is `least` to `largest` in each iteration.
    """

    base: ir.Expr | None
    least: int
    largest: int

    @property
    def span(self) -> int:
        """Number of elements of the range."""
        return self.largest - self.least + 1

    def with_(self, other: Reach) -> Reach:
        """Returns the smallest range that contains this range and `other`, which has the same base."""
        return replace(
            self, least=min(self.least, other.least), largest=max(self.largest, other.largest)
        )


def reach(e: ir.Expr, lengths: Mapping[str, int]) -> Reach | None:
    """Returns the range of an index over all iterations of the loops inside the body; None if it is unknown.

    `lengths`: the known extents of these loops.
    """
    match e:
        case ir.Cast(x=x) if _is_wider(e):
            return reach(x, lengths)
        case ir.Const():
            return Reach(None, int(e.value), int(e.value))
        case ir.LoopIndex() if e.loop in lengths:
            return Reach(None, 0, lengths[e.loop] - 1) if lengths[e.loop] > 0 else None
        case ir.Binary(op="add" | "sub" | "mul") if e.dtype.is_index:  # others wrap around
            made = _of_parts(e, lengths)
            if made is not None:
                return made
    inside = any(isinstance(x, ir.LoopIndex) and x.loop in lengths for x in walk(e))
    return None if inside else Reach(e, 0, 0)


def _of_parts(e: ir.Binary, lengths: Mapping[str, int]) -> Reach | None:
    a, b = reach(e.a, lengths), reach(e.b, lengths)
    if a is None or b is None:
        return None
    match e.op:
        case "add" if a.base is None or b.base is None:
            base = b.base if a.base is None else a.base
            return Reach(base, a.least + b.least, a.largest + b.largest)
        case "sub" if b.base is None:
            return Reach(a.base, a.least - b.largest, a.largest - b.least)
        case "mul" if a.base is None and b.base is None:
            ends = [x * y for x in (a.least, a.largest) for y in (b.least, b.largest)]
            return Reach(None, min(ends), max(ends))
    return None


def _is_wider(e: ir.Cast) -> bool:
    """True if a cast preserves the value of every integer of its operand's type."""
    of, to = e.x.dtype, e.dtype
    return of.is_integer and to.is_index and to.size_bytes >= of.size_bytes and of.is_signed
