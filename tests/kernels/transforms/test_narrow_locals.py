"""Locals of 64 bits that need 32: which get them."""

from __future__ import annotations

import pytest
from kernelscape.kernels.ir import kernel as ir
from kernelscape.kernels.ir.kernel import NOWHERE, DType
from kernelscape.kernels.transforms.narrow_locals import with_narrow_locals

I32, I64, U32 = DType.i32, DType.i64, DType.u32
K = ir.LoopIndex("k")
X = ir.Local("x", I64)


def number(n: int) -> ir.Const:
    return ir.Const(n, I64)


def table(at: ir.Expr) -> ir.Expr:
    return ir.Cast(ir.Load("table", (at,), U32), I64)


def set_to(name: str, value: ir.Expr) -> ir.SetLocal:
    return ir.SetLocal(name, value, NOWHERE)


def stored(at: ir.Expr, value: ir.Expr) -> ir.Store:
    return ir.Store("out", (at,), value, NOWHERE)


SCALED = ir.Binary("mul", X, number(512), I64)
HALVED = ir.Binary("floordiv", X, number(2), I64)
SMALL = ir.Binary("bit_and", ir.Binary("add", K, number(5), I64), number(7), I64)


@pytest.mark.parametrize(
    ("value", "use", "is_narrow"),
    [
        (table(K), stored(SCALED, number(0)), True),  # of an index the last bits are used
        (table(K), stored(K, table(ir.Binary("add", X, K, I64))), True),
        (table(K), stored(K, SCALED), False),  # the whole product is stored
        (table(K), stored(HALVED, number(0)), False),  # its last bits depend on others
        (table(K), stored(K, ir.Cast(SCALED, I32)), True),
        (table(K), stored(K, ir.Cast(X, DType.f64)), False),
        (SMALL, stored(K, HALVED), True),  # whose values fit
        (ir.Binary("mul", K, number(1 << 40), I64), stored(K, X), False),
    ],
)
def test_locals_are_narrow_where_no_result_changes(
    value: ir.Expr, use: ir.Stmt, is_narrow: bool
) -> None:
    first, _ = with_narrow_locals((set_to("x", value), use), {"k": 8}, {"x"})
    assert isinstance(first, ir.SetLocal)
    assert (first.value.dtype is I32) is is_narrow


def test_chains_of_indices_are_narrow_and_others_are_not() -> None:
    y = ir.Local("y", I64)
    body = (set_to("x", table(K)), set_to("y", SCALED), stored(y, number(0)))
    chain = with_narrow_locals(body, {"k": 8}, {"x", "y"})
    assert [s.value.dtype for s in chain if isinstance(s, ir.SetLocal)] == [I32, I32]
    kept = with_narrow_locals((*body, stored(K, y)), {"k": 8}, {"x", "y"})
    assert [s.value.dtype for s in kept if isinstance(s, ir.SetLocal)] == [I64, I64]


def test_a_local_that_is_set_twice_or_is_not_asked_for_stays() -> None:
    body = (set_to("x", K), set_to("x", number(1)), stored(X, number(0)))
    assert with_narrow_locals(body, {"k": 8}, {"x"}) == body
    assert with_narrow_locals(body[1:], {"k": 8}, set()) == body[1:]
