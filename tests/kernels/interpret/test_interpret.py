"""The interpreter: lanes against loops in order, random expressions against Python, exact meaning
of the operations.
"""

import math

import kernelscape as ks
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.interpret import kernel as interpret
from kernelscape.kernels.interpret.kernel import evaluate_scalar, run_kernel
from kernelscape.kernels.interpret.lanes import linear, plan_lanes
from kernelscape.kernels.ir.affine import limits, reach
from kernelscape.kernels.ir.kernel import (
    Binary,
    Cast,
    Compare,
    Const,
    DType,
    For,
    Load,
    LoopIndex,
    Param,
    Select,
    Unary,
)
from kernelscape.kernels.ir.simplify import binary, compare, unary
from kernelscape.kernels.ir.verify import check
from kernelscape.kernels.ir.walk import identified, nested_statements
from kernelscape.testing.generator.features import STATEMENTS
from kernelscape.testing.generator.sequences import is_exact, kernels_of

MAX_LANES = (1, 3, 1 << 21)


@pytest.mark.parametrize("number", range(120))
def test_lanes_do_what_loops_in_order_do(number):
    ((ir, expected),) = kernels_of(STATEMENTS, [number])
    check(ir)
    found = {name: a.copy() for name, a in expected.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpret, "plan_lanes", lambda body: {})
        run_kernel(ir, expected, {})
        patch.setattr(interpret, "plan_lanes", plan_lanes)
        patch.setattr(interpret, "MAX_LANES", MAX_LANES[number % 3])
        run_kernel(ir, found, {})
    if is_exact(expected):
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name])


@ks.kernel
def doubled_where_positive(x: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(x.shape[0]):
        if x[i] > 0.0:
            t = x[i] + x[i]
            y[i] = t


def test_a_local_that_only_some_lanes_have_may_be_of_fewer_lanes_at_the_end(monkeypatch):
    x, y = np.array([3.0, -1.0, 0.0, 1.0, 2.0]), np.zeros(5)
    ir = record_sequence(doubled_where_positive, (x, y)).calls[0].ir
    monkeypatch.setattr(interpret, "MAX_LANES", 3)
    run_kernel(ir, {"x": x, "y": y}, {})
    np.testing.assert_array_equal(y, [6, 0, 0, 2, 4])


# --- expressions against Python

VARIABLES = {"i": 5, "k": -3, "x": 1.75, "y": -0.5}


@st.composite
def python_text(draw, kind, depth=0):
    """Text of an expression of `kind` ("int" or "float") that neither faults nor overflows."""
    if depth == 3 or draw(st.integers(0, 3)) == 0:
        if kind == "int":
            return draw(st.sampled_from(["i", "k", "2", "7", "-1"]))
        return draw(st.sampled_from(["x", "y", "0.5", "3.0"]))
    sub = python_text(kind, depth + 1)
    a, b = draw(sub), draw(sub)
    other = draw(python_text(draw(st.sampled_from(["int", "float"])), depth + 1))
    test = f"{a} {draw(st.sampled_from(['<', '<=', '==', '!=', '>', '>=']))} {other}"
    forms = [
        f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"(-{a})", f"abs({a})", f"max({a}, {b})",
        f"min({a}, {b}, {a})", f"({a} if {test} else {b})", f"({a}) ** 2",
        f"({a} if {test} and not {b} > {a} or {b} != 0 else {b})", f"({a} if {a} < {b} <= 9 else "
                                                                   f"{b})",
    ]  # fmt: skip
    if kind == "int":
        forms += [f"({a} // 3)", f"({a} % 5)", f"({a} // -2)", f"int({other})"]
    else:
        forms += [f"({a} / 4)", f"({a} // 2)", f"({a} % 2.5)", f"float({other})", f"({other} / 8)"]
    return draw(st.sampled_from(forms))


@settings(max_examples=50, deadline=None)
@given(python_text("float"))
def test_expressions_have_pythons_values(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("kernel")
    file = folder / "user.py"
    file.write_text(
        "import kernelscape as ks\n\n@ks.kernel\n"
        "def user(out: ks.types.ndarray(), i, k, x, y):\n"
        f"    out[0] = {text}\n"
    )
    namespace = {}
    exec(compile(file.read_text(), str(file), "exec"), namespace)
    out = np.zeros(1)
    namespace["user"](out, *VARIABLES.values())
    expected = eval(text, {}, dict(VARIABLES))
    assert out[0] == pytest.approx(expected, rel=1e-12, abs=1e-12)


# --- exact meanings

P = Param("p", DType.f32)
ONE = Const(1.0, DType.f32)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (Binary("floordiv", Const(-7, DType.i32), Const(2, DType.i32), DType.i32), -4),
        (Binary("mod", Const(-7, DType.i64), Const(3, DType.i64), DType.i64), 2),
        (Cast(Const(-2.9, DType.f64), DType.i32), -2),
        (Cast(Const(0.1, DType.f32), DType.f64), float(np.float32(0.1))),
        (
            Binary("add", Const(0.1, DType.f32), Const(0.2, DType.f32), DType.f32),
            np.float32(0.1) + np.float32(0.2),
        ),
        (Binary("div", Const(1.0, DType.f64), Const(0.0, DType.f64), DType.f64), math.inf),
        (Unary("floor", Const(-0.5, DType.f32), DType.f32), -1.0),
        (Select(Compare("lt", P, ONE), P, ONE, DType.f32), 0.5),
    ],
)
def test_operations_have_the_type_of_their_node(x, expected):
    found = evaluate_scalar(x, {"p": np.float32(0.5)})
    assert found == expected
    assert found.dtype == x.dtype.numpy


def test_an_index_outside_its_array_is_told():
    @ks.kernel
    def gather(x: ks.types.ndarray(), k: ks.types.ndarray(), y: ks.types.ndarray()):
        for i in range(y.shape[0]):
            y[i] = x[k[i]]

    x, y = np.arange(3.0), np.zeros(3)
    gather(x, np.array([2, 0, 1]), y)
    assert y.tolist() == [2, 0, 1]
    for wrong in (-1, 3):
        with (
            ks.interpret(),
            pytest.raises(IndexError, match=f"index 0 of x is {wrong}, outside 0..2"),
        ):
            gather(x, np.array([0, wrong, 1]), y)
        with pytest.raises(IndexError, match=f"of x is {wrong} and must be from 0 to 2"):
            gather(x, np.array([0, wrong, 1]), y)


def test_scatter_adds_every_occurrence():
    @ks.kernel
    def histogram(k: ks.types.ndarray(), count: ks.types.ndarray()):
        for i in range(k.shape[0]):
            if k[i] != 1:
                count[k[i]] += 1

    count = np.zeros(3, np.int32)
    histogram(np.array([0, 2, 2, 1, 2], np.int32), count)
    assert count.tolist() == [1, 0, 3]


@ks.kernel
def matmul(a: ks.types.ndarray(), b: ks.types.ndarray(), c: ks.types.ndarray()):
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            acc = 0.0
            for k in range(a.shape[1]):
                acc += a[i, k] * b[k, j]
            c[i, j] = acc


@ks.kernel
def columns(a: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            y[j] += a[i, j]


@ks.kernel
def running(a: ks.types.ndarray()):
    for i in range(a.shape[0]):
        for j in range(1, a.shape[1]):
            a[i, j] += a[i, j - 1]


@ks.kernel
def last(a: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            y[i] = a[i, j]


SQUARE = np.zeros((8, 8))


@pytest.mark.parametrize(
    ("kernel", "args", "vector"),
    [
        (matmul, (SQUARE, SQUARE, SQUARE.copy()), {"i": True, "j": True, "k": True}),
        (columns, (SQUARE, SQUARE[0].copy()), {"i": True, "j": True}),
        (running, (SQUARE,), {"i": True, "j": False}),
        (last, (SQUARE, SQUARE[0].copy()), {"i": True, "j": False}),
    ],
)
def test_which_loops_run_as_lanes(kernel, args, vector):
    body = identified(kernel.instantiate(*args).body)
    plans = plan_lanes(body)
    loops = [s for s in nested_statements(body) if isinstance(s, For)]
    assert {s.loop: plans[s.uid].is_vector for s in loops} == vector


def test_sums_over_lanes_stay_in_f32_and_in_bounded_memory():
    a = np.random.default_rng(0).random((700, 4000), dtype=np.float32)
    y = np.zeros(4000, np.float32)
    columns(a, y)
    np.testing.assert_allclose(y, a.sum(axis=0, dtype=np.float64), rtol=1e-5)
    assert plan_lanes(columns.instantiate(a, y).body)


# --- simplification


@given(st.integers(-5, 5), st.integers(-5, 5), st.integers(-5, 5))
def test_limits_enclose_and_reach_attains(c, p, q):
    i, j = LoopIndex("i"), LoopIndex("j")
    extents = {"i": 3, "j": 4}
    x = binary("add", binary("mul", i, Const(p, DType.i64)), binary("mul", j, Const(q, DType.i64)))
    x = binary("add", x, Const(c, DType.i64))
    all_values = [c + p * u + q * v for u in range(3) for v in range(4)]
    assert reach(x, extents) == (min(all_values), max(all_values))
    assert linear(x) == (c, {k: v for k, v in (("i", p), ("j", q)) if v})
    clamped = binary("min", binary("max", x, Const(0, DType.i64)), Const(2, DType.i64))
    low, high = limits(clamped, extents)
    assert low <= min(min(max(v, 0), 2) for v in all_values)
    assert high >= max(min(max(v, 0), 2) for v in all_values)


def test_neutral_operands_disappear():
    x = Load("x", (), DType.f32)
    zero, one = Const(0.0, DType.f32), Const(1.0, DType.f32)
    assert binary("sub", x, zero) is binary("mul", one, x) is binary("div", x, one) is x
    # -0.0 + 0.0 is 0.0, and so is -0.0 - -0.0: constants of two signs are two.
    negative = Const(-0.0, DType.f32)
    assert binary("add", x, negative) is x and negative != zero
    assert isinstance(binary("add", x, zero), Binary)
    assert isinstance(binary("sub", x, negative), Binary)
    assert unary("neg", unary("neg", x)) is x
    i = LoopIndex("i")
    assert binary("sub", binary("add", i, Const(1, DType.i64)), Const(1, DType.i64)) is i
    true = Const(True, DType.bool_)
    assert binary("and", true, compare("lt", i, i)) == compare("lt", i, i)
    assert binary("or", compare("lt", i, i), true) is true
