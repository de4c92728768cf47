"""The table of operations: one row makes an operation known to everything that handles operations."""

from __future__ import annotations

import json
import math
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.text.names import RESERVED
from kernelscape.kernels.frontend import functions
from kernelscape.kernels.frontend.kernel import cast, i64, kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.frontend.typing_rules import Typed, common_dtype, lift
from kernelscape.kernels.interpret.llvm import print_llvm
from kernelscape.kernels.ir import ops
from kernelscape.kernels.ir.kernel import (
    NOWHERE,
    Binary,
    Bitcast,
    Cast,
    Const,
    DType,
    Expr,
    KernelIR,
    Load,
    Param,
    SetLocal,
    Unary,
)
from kernelscape.kernels.ir.ops import OPS, Op
from kernelscape.kernels.ir.simplify import binary, bitcast, unary
from kernelscape.kernels.ir.simplify import cast as convert
from kernelscape.kernels.ir.verify import IRError, check
from kernelscape.kernels.ir.walk import widened
from kernelscape.kernels.tasks.archive import from_values, to_values
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.cpu.probe import guess_target
from kernelscape.runtime.worker.inputs import Arguments, draw, make_input_sets, ranges_of
from kernelscape.search.bound.operations import named_flops
from kernelscape.search.starts.complete import first_candidates
from kernelscape.space.build import build_space
from kernelscape.testing.run_tasks import run_tasks
from kernelscape.testing.syntax import calls, program_of

nd = types.ndarray()


@pytest.fixture
def arctangent(monkeypatch: pytest.MonkeyPatch) -> Any:
    row = Op(
        "arctan", 1, np.arctan, "floats", c="atan", module="numpy", flops=5.0, doc="Its angle."
    )
    monkeypatch.setitem(OPS, "arctan", row)
    return functions.arctan  # stays in the cache: kernels know functions by identity


def test_a_row_adds_an_operation(arctangent: Any) -> None:
    assert arctangent(1.0) == np.arctan(1.0)

    @kernel
    def angles(x: nd, y: nd):
        for i in range(x.shape[0]):
            y[i] = 2.0 * arctangent(x[i])

    x = np.linspace(-3, 3, 9, dtype=np.float32)
    y = np.zeros_like(x)
    angles(x, y)  # the interpreter
    np.testing.assert_allclose(y, 2 * np.arctan(x), rtol=1e-6)

    recording = record_sequence(angles, (x, np.zeros_like(x)))
    problem = normalise(recording)
    np.testing.assert_allclose(
        run_tasks(problem, {"x": x, "y": np.zeros_like(x)}, {})["y"], y, rtol=1e-6
    )
    assert "@atanf" in print_llvm(recording.calls[0].ir).text.replace('"', "")
    assert named_flops(problem.tasks[0]) == 9 * (5.0 + 1.0)
    _, candidate = next(iter(first_candidates(build_space(problem, guess_target()))))
    assert calls(program_of(candidate), "atanf")


def test_an_operation_without_a_row_is_none() -> None:
    @kernel
    def roots(x: nd, y: nd):
        for i in range(x.shape[0]):
            y[i] = np.sqrt(x[i])

    ir = roots.instantiate(np.zeros(3), np.zeros(3))
    check(ir)
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(OPS, "sqrt")
        with pytest.raises(IRError, match="sqrt is no operation"):
            check(ir)


def test_rows_are_whole() -> None:
    for op in OPS.values():
        assert callable(op.numpy)
        if isinstance(op.numpy, np.ufunc):
            assert op.numpy.nin == op.arity
        if op.c:
            assert {op.c, op.c + "f"} <= RESERVED
        if op.doc:
            assert getattr(functions, op.name) is functions.function(op.name)
            assert functions.operation_of(functions.function(op.name)) == op.name
            assert hasattr(ks, op.name)
    assert {"sqrt", "pow", "atan2", "popcnt", "round"} <= {op.name for op in ops.functions()}


@pytest.mark.parametrize(
    ("callee", "name"),
    [
        (np.arctan2, "atan2"),
        (math.atan2, "atan2"),
        (np.tanh, "tanh"),
        (np.hypot, "hypot"),
        (np.power, "pow"),
        (math.expm1, "expm1"),
        (np.round, "rint"),
        (round, "rint"),
        (math.isnan, "isnan"),
        (np.sort, None),
    ],
)
def test_functions_of_python_and_numpy_are_known(callee: object, name: str | None) -> None:
    assert functions.operation_of(callee) == name


def test_functions_outside_kernels_are_numpys() -> None:
    assert functions.function("atan2")(1.0, 2.0) == np.arctan2(1.0, 2.0)
    assert functions.function("round")(2.5) == 3.0
    assert functions.function("clz")(np.int32(1)) == 31
    assert functions.function("raw_div")(-7, 2) == -3


def test_functions_of_two_numbers_in_kernels() -> None:
    @kernel
    def angles(x: nd, y: nd, whole: nd):
        for i in range(x.shape[0]):
            y[i] = np.arctan2(x[i], 2) + math.hypot(x[i], x[i]) + np.tanh(x[i])
            whole[i] = math.ceil(x[i]) + round(x[i])

    x = np.linspace(-3, 3, 9, dtype=np.float32)
    y, whole = np.zeros_like(x), np.zeros(9, np.int32)
    angles(x, y, whole)
    np.testing.assert_allclose(y, np.arctan2(x, 2) + np.hypot(x, x) + np.tanh(x), rtol=1e-6)
    np.testing.assert_array_equal(whole, np.ceil(x) + np.round(x))


@pytest.mark.parametrize("dtype", ["i1", "i2", "u1", "u2", "u4", "u8", "f2"])
def test_arrays_of_every_type(dtype: str) -> None:
    """From the interpreter to tasks, in files and in inputs to verify on; halves stay closed."""

    @kernel
    def twice(x: nd, y: nd, sums: nd):
        for i in range(x.shape[0]):
            y[i] = x[i] * 2
            sums[0] += cast(x[i], i64)

    x = np.arange(9).astype(dtype)
    y, sums = np.zeros_like(x), np.zeros(1, np.int64)
    twice(x, y, sums)
    np.testing.assert_array_equal(y, 2 * x)
    assert sums[0] == 36
    recording = record_sequence(twice, (x, y, sums))
    assert from_values(json.loads(json.dumps(to_values(recording)))) == recording
    problem = normalise(recording)
    assert problem.tasks[0].is_structured == (dtype != "f2")
    got = run_tasks(problem, {"x": x, "y": np.zeros_like(x), "sums": 0 * sums}, {})
    np.testing.assert_array_equal(got["y"], y)
    assert got["sums"][0] == 36
    given = Arguments({"x": x, "y": np.zeros_like(x), "sums": 0 * sums}, {})
    rng = np.random.default_rng(1)
    found = make_input_sets(recording, problem, given, rng)
    np.testing.assert_array_equal(found.sets[0].expected["y"].want, y)
    assert all(s.arrays["x"].dtype == x.dtype for s in found.sets)
    drawn = draw(recording, ranges_of(given), {}, rng)
    assert drawn.arrays["x"].dtype == x.dtype and drawn.arrays["x"].max() <= 8


@pytest.mark.parametrize(
    ("left", "literal", "wanted"),
    [
        ("u8", 5, "u8"),
        ("u8", 300, "i32"),
        ("u32", -1, "u32"),
        ("i32", 2**31, "i64"),
        ("f16", 3, "f16"),
    ],
)
def test_literals_take_the_type_they_meet_where_it_holds_them(
    left: str, literal: int, wanted: str
) -> None:
    number = lift(literal)
    assert isinstance(number, Typed)
    assert common_dtype(Typed(Param("x", DType[left])), number, DType.f32) is DType[wanted]


def test_bits_are_looked_at_in_the_type_they_had() -> None:
    load = Load("x", (Const(0, DType.i64),), DType.f32)
    bits = widened(Bitcast(load, DType.i32))
    assert bits == Bitcast(Cast(Load("x", load.indices, DType.f64), DType.f32), DType.i32)
    back = widened(Bitcast(Const(1, DType.i32), DType.f32))
    assert back == Cast(Bitcast(Const(1, DType.i32), DType.f32), DType.f64)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Unary("popcnt", Const(1, DType.i16), DType.i32), "popcnt is not defined on i16"),
        (Unary("isnan", Const(1.0, DType.f32), DType.f32), "is f32"),
        (
            Binary("bit_and", Const(1.0, DType.f32), Const(1.0, DType.f32), DType.f32),
            "not defined on f32",
        ),
        (Bitcast(Const(1, DType.i64), DType.f32), "the bits of `1`, i64, are no f32"),
    ],
)
def test_what_operations_take_is_checked(wrong: Expr, message: str) -> None:
    ir = KernelIR("k", (), (), (SetLocal("a", wrong, NOWHERE),), NOWHERE)
    with pytest.raises(IRError, match=message):
        check(ir)


def test_constants_wrap_around() -> None:
    assert binary("add", Const(200, DType.u8), Const(100, DType.u8)) == Const(44, DType.u8)
    less = binary("sub", Param("x", DType.u32), Const(1, DType.u32))
    assert less == Binary("sub", Param("x", DType.u32), Const(1, DType.u32), DType.u32)
    assert convert(Const(-1, DType.i64), DType.u64) == Const(2**64 - 1, DType.u64)
    assert bitcast(Const(1.0, DType.f32), DType.u32) == Const(0x3F800000, DType.u32)
    # The first number of splitmix64 from seed 0: the finaliser of its increment.
    assert unary("mix64", Const(0x9E3779B97F4A7C15, DType.u64)) == Const(
        0xE220A8397B1DCDAF, DType.u64
    )
