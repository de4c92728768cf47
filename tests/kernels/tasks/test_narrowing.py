"""Arithmetic in 16 bits gives the numbers of the wide one: also where narrow parts wrap around, and casts change a sign.

The kind of fault: a part that is computed in another type than its own, because all numbers of its type fit there.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelscape.kernels.interpret.kernel import evaluate_scalar
from kernelscape.kernels.ir import kernel as ir
from kernelscape.kernels.ir.intervals import range_of
from kernelscape.kernels.ir.simplify import cast
from kernelscape.kernels.ir.walk import walk
from kernelscape.kernels.tasks.narrowing import narrowed, with_narrow_indices

NARROW = (ir.DType.i8, ir.DType.u8, ir.DType.i16, ir.DType.u16)
LEAVES = {f"{d.name}_{k}": d for d in NARROW for k in range(2)}
OPERATORS = ("add", "sub", "mul", "min", "max", "bit_and", "bit_or", "bit_xor")
WIDE = (ir.DType.i32, ir.DType.i64, ir.DType.u32)


@st.composite
def numbers(draw: st.DrawFn, dtype: ir.DType, depth: int = 4) -> ir.Expr:
    """An integer expression of a type: leaves are narrow arguments and small constants."""
    least, most = dtype.range
    own = [name for name, d in LEAVES.items() if d is dtype]
    kinds = ["constant", *["leaf"] * bool(own)]
    if depth:
        kinds += ["binary", "binary", "cast", "cast", "select", "unary", "by constant"]
    match draw(st.sampled_from(kinds)):
        case "leaf":
            return ir.Param(draw(st.sampled_from(own)), dtype)
        case "binary":
            a, b = draw(numbers(dtype, depth - 1)), draw(numbers(dtype, depth - 1))
            return ir.Binary(draw(st.sampled_from(OPERATORS)), a, b, dtype)
        case "by constant":
            op = draw(st.sampled_from(["floordiv", "mod", "shr", "shl"]))
            by = ir.Const(draw(st.integers(1, 6)), dtype)
            return ir.Binary(op, draw(numbers(dtype, depth - 1)), by, dtype)
        case "unary":
            op = "neg" if draw(st.booleans()) else "abs"
            return ir.Unary(op, draw(numbers(dtype, depth - 1)), dtype)
        case "cast":
            other = draw(st.sampled_from([d for d in (*NARROW, *WIDE) if d is not dtype]))
            return ir.Cast(draw(numbers(other, depth - 1)), dtype)
        case "select":
            return ir.Select(
                draw(conditions(depth - 1)),
                draw(numbers(dtype, depth - 1)),
                draw(numbers(dtype, depth - 1)),
                dtype,
            )
    return ir.Const(draw(st.integers(max(least, -200), min(most, 300))), dtype)


@st.composite
def conditions(draw: st.DrawFn, depth: int) -> ir.Expr:
    of = draw(st.sampled_from((*NARROW, *WIDE)))
    a, b = draw(numbers(of, depth)), draw(numbers(of, depth))
    return ir.Compare(draw(st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"])), a, b)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(NARROW).flatmap(numbers) | conditions(4), st.data())
def test_narrowed_arithmetic_has_the_same_value(e: ir.Expr, data: st.DataObject) -> None:
    narrow = narrowed(e)
    assert narrow.dtype is e.dtype
    for _ in range(4):
        scalars = {
            name: d.numpy.type(
                data.draw(st.sampled_from([*d.range, 0, 1, 2]) | st.integers(*d.range))
            )
            for name, d in LEAVES.items()
        }
        with np.errstate(all="ignore"):
            assert evaluate_scalar(narrow, scalars) == evaluate_scalar(e, scalars), (e, narrow)


def u8(name: str) -> ir.Expr:
    return ir.Cast(ir.Param(name, ir.DType.i8), ir.DType.u8)


def i32(e: ir.Expr) -> ir.Expr:
    return ir.Cast(e, ir.DType.i32)


def test_sums_of_pixels_are_narrow() -> None:
    nine = i32(ir.Param("u8_0", ir.DType.u8))
    for _ in range(8):
        nine = ir.Binary("add", nine, i32(ir.Param("u8_1", ir.DType.u8)), ir.DType.i32)
    blurred = cast(
        ir.Binary("floordiv", nine, ir.Const(9, ir.DType.i32), ir.DType.i32), ir.DType.u8
    )
    assert {x.dtype for x in walk(narrowed(blurred))} <= {ir.DType.u8, ir.DType.i16}
    sum_of_many = cast(
        ir.Binary("mul", nine, ir.Const(200, ir.DType.i32), ir.DType.i32), ir.DType.u8
    )
    assert narrowed(sum_of_many) == sum_of_many


@pytest.mark.parametrize(
    ("e", "value"),
    [(u8("i8_0"), 255), (ir.Binary("add", u8("i8_0"), u8("i8_1"), ir.DType.u8), 254)],
    ids=["a cast that changes the sign", "a sum that wraps around"],
)
def test_narrow_parts_keep_their_type(e: ir.Expr, value: int) -> None:
    equal = ir.Compare("eq", e, ir.Const(value, ir.DType.u8))
    held = {"i8_0": np.int8(-1), "i8_1": np.int8(-1)}
    assert evaluate_scalar(equal, held)
    assert evaluate_scalar(narrowed(equal), held)


A, B = ir.Param("a", ir.DType.i32), ir.Param("b", ir.DType.i32)
BY_CONSTANTS = [
    ir.Binary(op, A, ir.Const(3, ir.DType.i32), ir.DType.i32)
    for op in ("floordiv", "mod", "shr", "shl", "bit_and")
]
RANGED = [
    *(ir.Binary(op, A, B, ir.DType.i32) for op in ("add", "sub", "mul", "min", "max")),
    *(ir.Unary(op, A, ir.DType.i32) for op in ("neg", "abs")), *BY_CONSTANTS,
]  # fmt: skip


@pytest.mark.parametrize("e", RANGED, ids=lambda e: e.op)
def test_ranges_hold_all_values_and_end_in_some(e: ir.Expr) -> None:
    """Kind: an end that no number of the tests above reaches, so that the type of 16 bits is taken for one that holds all."""
    few = [(low, high) for low, high in product(range(-4, 5), repeat=2) if low <= high]
    for of_a, of_b in product(few, few[::4]):
        pairs = product(*(range(low, high + 1) for low, high in (of_a, of_b)))
        every = {int(evaluate_scalar(e, {"a": a, "b": b})) for a, b in pairs}
        low, high = range_of(e, {A: of_a, B: of_b}.get)
        assert low <= min(every) and max(every) <= high, (of_a, of_b)
        assert e in BY_CONSTANTS or e == ir.Unary("abs", A, ir.DType.i32) or {low, high} <= every


EXTENTS = {"i": 7, "j": 1 << 20, "k": 1 << 31}


@st.composite
def of_indices(draw: st.DrawFn, depth: int = 3) -> ir.Expr:
    """A sum or product of loop indices and constants in 64 bits, which may leave the range of 32 bits."""
    kind = draw(st.sampled_from(["index", "constant", *["binary"] * depth]))
    if kind == "index":
        return ir.LoopIndex(draw(st.sampled_from(sorted(EXTENTS))))
    if kind == "constant":
        return ir.Const(draw(st.sampled_from([-(1 << 31), -3, 0, 2, 5000, 1 << 31])), ir.DType.i64)
    a, b = draw(of_indices(depth - 1)), draw(of_indices(depth - 1))
    return ir.Binary(draw(st.sampled_from(["add", "sub", "mul", "min", "max"])), a, b, ir.DType.i64)


def at(e: ir.Expr, indices: dict[str, int]) -> int:
    """The value of an expression, each node of which is checked to fit its type."""
    match e:
        case ir.LoopIndex(loop):
            found = indices[loop]
        case ir.Const(value):
            found = int(value)
        case ir.Binary(op, a, b):
            left, right = at(a, indices), at(b, indices)
            found = {
                "add": left + right,
                "sub": left - right,
                "mul": left * right,
                "min": min(left, right),
                "max": max(left, right),
            }[op]
    if e.dtype is ir.DType.i32:
        assert ir.DType.i32.range[0] <= found <= ir.DType.i32.range[1], (e, indices)
    return found


@settings(max_examples=200, deadline=None)
@given(of_indices(), of_indices(), st.data())
def test_indices_are_compared_in_32_bits_only_where_all_numbers_fit(
    a: ir.Expr, b: ir.Expr, data: st.DataObject
) -> None:
    narrow = with_narrow_indices(ir.Compare("lt", a, b), EXTENTS)
    assert isinstance(narrow, ir.Compare)
    assert len({x.dtype for x in (*walk(narrow.a), *walk(narrow.b))}) == 1
    for _ in range(4):
        # The last vector of a loop may go beyond its end.
        indices = {n: data.draw(st.integers(0, e + 15), label=n) for n, e in EXTENTS.items()}
        assert at(narrow.a, indices) - at(narrow.b, indices) == at(a, indices) - at(b, indices)


def test_masks_of_indices_are_as_wide_as_the_elements() -> None:
    below = ir.Compare("lt", ir.LoopIndex("i"), ir.LoopIndex("j"))
    narrow = with_narrow_indices(ir.Binary("and", below, below, ir.DType.bool_), EXTENTS)
    assert {x.dtype for x in walk(narrow)} == {ir.DType.i32, ir.DType.bool_}
    far = ir.Compare("lt", ir.LoopIndex("i"), ir.LoopIndex("k"))
    assert with_narrow_indices(far, EXTENTS) == far
