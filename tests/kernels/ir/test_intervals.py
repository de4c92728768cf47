"""Intervals of integer expressions."""

from __future__ import annotations

import pytest
from kernelscape.kernels.ir import kernel as ir
from kernelscape.kernels.ir.intervals import range_of
from kernelscape.kernels.ir.kernel import DType

I64 = DType.i64
I = ir.Local("i", I64)
NEXT = ir.Binary("add", I, ir.Const(3, I64), I64)


def number(n: int) -> ir.Const:
    return ir.Const(n, I64)


def inside(x: ir.Expr, n: int) -> ir.Expr:
    at_least, below = ir.Compare("ge", x, number(0)), ir.Compare("lt", x, number(n))
    return ir.Binary("and", at_least, below, DType.bool_)


@pytest.mark.parametrize(
    ("condition", "interval"),
    [
        (inside(I, 16), (0, 15)),
        (ir.Compare("eq", I, number(7)), (0, 7)),
        (ir.Compare("le", I, number(7)), (I64.range[0], 7)),
        (ir.Compare("ne", I, number(7)), I64.range),
        (inside(NEXT, 16), I64.range),  # of another expression
        (ir.Binary("or", inside(I, 16), inside(I, 8), DType.bool_), I64.range),
    ],
)
def test_a_condition_narrows_what_it_selects(condition: ir.Expr, interval: tuple[int, int]) -> None:
    assert range_of(ir.Select(condition, I, number(0), I64)) == interval
