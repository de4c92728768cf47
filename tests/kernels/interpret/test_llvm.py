"""Kernels that LLVM compiles do what the interpreter does."""

from __future__ import annotations

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.interpret.kernel import run_kernel
from kernelscape.kernels.interpret.llvm import print_llvm
from kernelscape.kernels.interpret.reference import initial_arrays, run_calls
from kernelscape.kernels.interpret.work import work_of
from kernelscape.kernels.ir.kernel import (
    NOWHERE,
    ArrayParam,
    Binary,
    Bitcast,
    Cast,
    Const,
    DType,
    For,
    KernelIR,
    LoopIndex,
    Store,
)
from kernelscape.kernels.ir.walk import widened
from kernelscape.testing.generator.features import SMALL
from kernelscape.testing.generator.sequences import program
from kernelscape.testing.in_llvm import run_in_llvm
from kernelscape.testing.interpreted import run_reference

nd = ks.types.ndarray()


@pytest.mark.parametrize("number", range(60))
def test_random_sequences_agree_with_the_interpreter(number: int):
    example = program(SMALL, number)
    wanted = run_reference(example.recording, example.arrays, example.scalars, dtype=np.float64)
    found = initial_arrays(widened(example.recording), example.arrays)
    run_calls(widened(example.recording), found, example.scalars, run_in_llvm)
    for name, want in wanted.items():
        np.testing.assert_allclose(found[name], want, rtol=1e-12, atol=1e-13, equal_nan=True)


@ks.kernel
def all_operations(x: nd, y: nd, i: nd, out: nd, ints: nd, narrow: nd, alpha: float):
    for k in range(x.shape[0]):
        a = ks.sqrt(x[k]) + ks.exp(y[k]) - ks.log(x[k]) * ks.sin(y[k]) / ks.cos(x[k])
        b = min(max(x[k], y[k]), ks.floor(a)) if x[k] < y[k] and not y[k] > 3.0 else abs(y[k])
        out[k] = a * alpha - b
        ints[k] = i[k] // 3 + i[k] % -4 + ks.cast(y[k] * 2.5, ks.i64)
        narrow[k] = narrow[k] * narrow[k] + ks.cast(i[k], ks.i32)


@ks.kernel
def by_lists(first: nd, where: nd, x: nd, y: nd):
    for row in range(y.shape[0]):
        acc = 0.0
        for k in range(first[row], first[row + 1]):
            if x[where[k]] > 0.0:
                acc += x[where[k]]
            else:
                acc = max(acc, -x[where[k]])
        y[row] = acc


@ks.kernel
def triangle(a: nd, x: nd):
    for i in range(a.shape[0]):
        for j in range(i):
            x[i] -= a[i, j] * x[j]
        x[i] /= a[i, i]


def operands():
    rng = np.random.default_rng(1)
    n, nan, inf = 9, np.nan, np.inf
    x = np.array([1.5, 0.0, -1.0, nan, inf, 2.0, 0.3, -0.0, 700.0])
    y = np.array([0.5, -2.0, nan, 1.0, 1.0, -inf, 3.5, 0.0, 720.0])
    ints = rng.integers(-9, 9, n)
    ints[:3] = 2**31 - 1, -(2**31), 7
    y[[2, 5]] = 2.0, -1.0  # what is no integer is none to any of them
    narrow = np.array([70000, -70000, 3, -1, 2**31 - 1, 0, 5, 6, 7], np.int32)
    return x, y, ints, np.zeros(n), np.zeros(n, np.int64), narrow, 0.1


def lists():
    first = np.array([0, 2, 2, 5])
    return first, np.array([4, 0, 1, 1, 3]), np.array([1.0, -2.0, 3.0, -4.0, 5.0]), np.zeros(3)


KERNELS = [
    pytest.param(all_operations, operands, id="operations"),
    pytest.param(by_lists, lists, id="lists"),
    pytest.param(triangle, lambda: (np.tril(np.full((6, 6), 0.7)), np.arange(6.0)), id="triangle"),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("kernel", "make"), KERNELS)
def test_kernels_agree_with_the_interpreter(kernel, make, dtype):
    args = [
        a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in make()
    ]
    r = record_sequence(kernel, args)
    ir = r.calls[0].ir
    arrays = {p.name: a for p, a in zip(ir.arrays, args, strict=False)}
    wanted = {name: a.copy() for name, a in arrays.items()}
    found = {name: a.copy() for name, a in arrays.items()}
    scalars = {p.name: 0.1 for p in ir.scalars}
    run_kernel(ir, wanted, scalars)
    with np.errstate(all="ignore"):
        run_in_llvm(ir, found, scalars)
    for name, want in wanted.items():
        assert found[name].dtype == want.dtype
        np.testing.assert_allclose(found[name], want, rtol=1e-6 if dtype == "float32" else 1e-14)


def test_an_index_outside_is_named_and_nothing_else_is_tested():
    first, where, x, y = lists()
    r = record_sequence(by_lists, (first, where, x, y))
    ir = r.calls[0].ir
    places = {p.array for p in print_llvm(ir).places}
    assert places == {"where", "x"}  # what stays inside for sure is not tested
    where[3] = -1
    with pytest.raises(IndexError, match="of x is -1"):
        run_in_llvm(ir, {"first": first, "where": where, "x": x, "y": y}, {})


NAN, BIG = Const(np.nan, DType.f64), Const(1e30, DType.f32)
OPEN = {
    "nan": Cast(NAN, DType.i64),
    "too large": Cast(BIG, DType.i32),
    "shifted out": Binary("shl", LoopIndex("i"), Const(64, DType.i64), DType.i64),
    "signs": Binary("shr", Cast(NAN, DType.i64), Const(99, DType.i64), DType.i64),
    "of a byte": Cast(Const(-300.5, DType.f64), DType.u8),
    "upper half": Bitcast(Cast(Const(2.0**63 + 2.0**60, DType.f64), DType.u64), DType.i64),
}


@pytest.mark.parametrize("index", OPEN.values(), ids=OPEN)
def test_an_index_that_llvm_leaves_open_is_tested(index):
    """It would be any number, also to the test that it is within its array."""
    store = Store("y", (Cast(index, DType.i64),), Const(1.0, DType.f64), NOWHERE)
    loop = For("i", Const(3, DType.i64), (store,), NOWHERE)
    ir = KernelIR("f", (ArrayParam("y", DType.f64, (3,)),), (), (loop,), NOWHERE)
    said = []
    for run in (run_kernel, run_in_llvm):
        y = np.zeros(3)
        try:
            run(ir, {"y": y}, {})
        except IndexError as e:
            said.append(str(e))
        else:
            said.append(y.tolist())
    assert said[0] == said[1]


def test_names_do_not_change_the_text():
    @ks.kernel
    def other(matrix: nd, vector: nd):
        for row in range(matrix.shape[0]):
            for column in range(row):
                vector[row] -= matrix[row, column] * vector[column]
            vector[row] /= matrix[row, row]

    args = (np.eye(6), np.ones(6))
    texts = {print_llvm(record_sequence(f, args).calls[0].ir).text for f in (triangle, other)}
    assert len(texts) == 1


def test_work_counts_what_the_interpreter_does_one_by_one():
    a, x = np.eye(400), np.ones(400)
    in_order = work_of(record_sequence(triangle, (a, x)).calls[0].ir)
    assert in_order.interpreted_ns > 400**2 / 2 * 1e3
    assert in_order.compiled_ns < in_order.interpreted_ns / 100

    @ks.kernel
    def scale(a: nd):
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                a[i, j] = 2.0 * a[i, j]

    lanes = work_of(record_sequence(scale, (a,)).calls[0].ir)
    assert lanes.interpreted_ns < 10 * lanes.compiled_ns
