"""Value-range analysis: intervals of integer expressions inside loops, and expressions that fit into 32 bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..ir import kernel as ir
from ..ir.intervals import Range, range_of

I32, I64 = ir.DType.i32, ir.DType.i64


@dataclass(frozen=True)
class Ranges:
    """Intervals of integer expressions, given the extents of some loops and the intervals of some locals."""

    extents: Mapping[str, int] = field(default_factory=dict)
    locals: Mapping[str, Range] = field(default_factory=dict)

    def of(self, e: ir.Expr) -> Range:
        """Returns the interval of an integer expression; that of its type if nothing else is known."""
        return range_of(e, self._leaf)

    def _leaf(self, e: ir.Expr) -> Range | None:
        match e:
            case ir.LoopIndex(loop) if loop in self.extents:
                return 0, max(0, self.extents[loop] - 1)
            case ir.Local(name):
                return self.locals.get(name)
        return None

    def fits(self, e: ir.Expr) -> bool:
        """True if all values of an integer expression fit into 32 bits."""
        least, most = I32.range
        low, high = self.of(e)
        return least <= low and high <= most

    def narrowed(self, e: ir.Expr) -> ir.Expr | None:
        """Returns an i64 expression as an i32 expression of the same value.

        None if its value, or that of a subexpression, may not fit into 32 bits.
        """
        if e.dtype is I32:
            return e
        if e.dtype is not I64 or not self.fits(e):
            return None
        match e:
            case ir.Const(value):
                return ir.Const(int(value), I32)
            case ir.LoopIndex():
                return replace(e, dtype=I32)
            case ir.Cast(x) if x.dtype is I32:
                return x
            case ir.Cast(x) if x.dtype.size_bytes < 4:
                return ir.Cast(x, I32)
            case ir.Unary("neg", x):
                inner = self.narrowed(x)
                return None if inner is None else ir.Unary("neg", inner, I32)
            case ir.Select(condition, a, b):
                left, right = self.narrowed(a), self.narrowed(b)
                if left is None or right is None:
                    return None
                return ir.Select(condition, left, right, I32)
            case ir.Binary(op, a, b):
                left, right = self.narrowed(a), self.narrowed(b)
                return None if left is None or right is None else ir.Binary(op, left, right, I32)
        return None
