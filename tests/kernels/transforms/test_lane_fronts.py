"""Bodies in two parts: operands of the rest that the front computes for it, and elements that the rest loads once."""

from __future__ import annotations

from typing import Any

import pytest
from kernelscape.kernels.ir import kernel as ir
from kernelscape.kernels.ir.kernel import NOWHERE, DType
from kernelscape.kernels.ir.walk import children, loads, nested_statements, walk
from kernelscape.kernels.transforms.lane_fronts import Front, LoopFacts, split

I32, I64, F32 = DType.i32, DType.i64, DType.f32
P = ir.Cast(ir.LoopIndex("p", I32), I64)
W, I = ir.Local("w", F32), ir.Local("i", I64)
BASE = ir.Cast(ir.Load("base", (P,), I32), I64)


def number(n: int) -> ir.Const:
    return ir.Const(n, I64)


def op(name: Any, a: ir.Expr, b: ir.Expr) -> ir.Expr:
    return ir.Binary(name, a, b, a.dtype)


def inside(x: ir.Expr, n: int) -> ir.Expr:
    at_least, below = ir.Compare("ge", x, number(0)), ir.Compare("lt", x, number(n))
    return ir.Binary("and", at_least, below, DType.bool_)


def put(name: str, value: ir.Expr) -> ir.SetLocal:
    return ir.SetLocal(name, value, NOWHERE)


def add(at: ir.Expr, value: ir.Expr) -> ir.Stmt:
    return ir.Update("grid", (at,), "add", value, NOWHERE)


def parts(*body: ir.Stmt) -> Front:
    weight = op("mul", ir.Load("x", (P,), F32), ir.Load("x", (P,), F32))
    shapes = {"x": (99,), "base": (99,), "table": (64,), "grid": (999,), "q": (99,), "few": (98,)}
    facts = LoopFacts("p", {"p": 99}, shapes.__getitem__, {"grid", "table"}, frozenset())
    found = split((put("w", weight), put("i", BASE), *body), facts)
    assert found is not None
    return found


HELD = ir.Select(inside(I, 16), I, number(0), I64)
SHORT = op("add", I, number(3))
LONG = op("mul", op("add", HELD, number(1)), number(4))
WIDE = op("mul", op("add", op("mul", I, I), number(1)), op("add", I, number(4)))


@pytest.mark.parametrize(
    ("at", "kept"),
    [
        (LONG, {"w": F32, "lane_0": I32}),
        (SHORT, {"w": F32}),  # to keep it costs as much as to compute it
        (WIDE, {"w": F32, "i": I64}),  # 32 bits may not hold it
        (op("raw_div", LONG, I), {"w": F32, "i": I64, "lane_0": I32}),  # not where `i` may be 0
    ],
    ids=["long", "short", "wide", "divided"],
)
def test_places_of_many_operations_are_computed_in_the_front(
    at: ir.Expr, kept: dict[str, DType]
) -> None:
    """Behind a branch, too."""
    found = parts(ir.If(ir.Compare("gt", W, ir.Const(0.5, F32)), (add(at, W),), (), NOWHERE))
    assert dict(found.kept) == kept
    rest = [x for s in nested_statements(found.rest) for e in children(s) for x in walk(e)]
    assert (at in rest) == (at in (SHORT, WIDE))
    assert not any(isinstance(x, ir.Select) for x in rest)


def test_tests_of_many_indices_are_computed_in_the_front() -> None:
    both = ir.Binary("and", inside(I, 16), inside(SHORT, 16), DType.bool_)
    found = parts(ir.If(both, (add(number(0), W),), (), NOWHERE))
    assert dict(found.kept) == {"w": F32, "lane_0": I32}
    (branch,) = (s for s in found.rest if isinstance(s, ir.If))
    assert branch.condition == ir.Compare("ne", ir.Local("lane_0", I32), ir.Const(0, I32))


def test_what_the_rest_writes_stays_there() -> None:
    """A slot may be another one when the next iteration looks it up."""
    looked_up = op("mul", op("add", ir.Load("table", (HELD,), I64), number(1)), number(4))
    found = parts(add(looked_up, W), ir.Store("table", (HELD,), number(1), NOWHERE))
    read = [x for s in nested_statements(found.rest) for e in children(s) for x in loads(e)]
    assert [x.array for x in read] == ["table"]
    assert not any(x.array == "table" for s in found.front for e in children(s) for x in loads(e))


def test_elements_that_the_rest_reads_again_are_loaded_once() -> None:
    often, once, outside = (ir.Load(name, (P,), F32) for name in ("q", "base", "few"))
    products = [op("mul", W, x) for x in (often, often, once, outside, outside)]
    guarded = ir.If(ir.Compare("gt", W, ir.Const(0.5, F32)), (add(I, products[0]),), (), NOWHERE)
    found = parts(guarded, *(add(I, x) for x in products[1:]))
    read = [x for s in nested_statements(found.rest) for e in children(s) for x in loads(e)]
    assert [read.count(x) for x in (often, once, outside)] == [1, 1, 2]
    assert isinstance(found.rest[0], ir.SetLocal) and found.rest[0].value == often
