"""Indices that leave their arrays: the engine says so where the interpreter does, and writes nothing."""

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.interpret.kernel import run_kernel
from kernelscape.runtime.engine.building import index_sites
from kernelscape.runtime.engine.engine import Engine, EngineOptions

pytestmark = pytest.mark.compiler
N = 10


@ks.kernel
def bytes_plus(y: ks.types.ndarray(), x: ks.types.ndarray(), b: ks.types.ndarray()):
    for i in range(b.shape[0]):
        y[i] = x[ks.i32(b[i]) + 128]


@ks.kernel
def signed_bytes(y: ks.types.ndarray(), x: ks.types.ndarray(), b: ks.types.ndarray()):
    for i in range(b.shape[0]):
        y[i] = x[ks.i8(i * 20)]


@ks.kernel
def far(y: ks.types.ndarray(), x: ks.types.ndarray(), b: ks.types.ndarray()):
    for i in range(b.shape[0]):
        y[ks.i32(ks.i8(i * 20)) * 1000000] = 1.0


@ks.kernel
def unsigned(y: ks.types.ndarray(), x: ks.types.ndarray(), b: ks.types.ndarray()):
    for i in range(b.shape[0]):
        y[i] = x[ks.u32(i) - ks.u32(3)]


@ks.kernel
def squares(y: ks.types.ndarray(), x: ks.types.ndarray(), b: ks.types.ndarray()):
    for i in range(b.shape[0]):
        y[i] = x[8 * i * i]


@ks.kernel
def bits(y: ks.types.ndarray(), x: ks.types.ndarray(), b: ks.types.ndarray()):
    for i in range(b.shape[0]):
        y[i] = x[i ^ 1000]


@ks.kernel
def rounded(y: ks.types.ndarray(), x: ks.types.ndarray(), b: ks.types.ndarray()):
    for i in range(b.shape[0]):
        y[i] = x[int(i * 30.5)]


@ks.kernel
def chosen(y: ks.types.ndarray(), x: ks.types.ndarray(), b: ks.types.ndarray()):
    for i in range(b.shape[0]):
        y[i] = x[ks.select(i > 5, i + 255, i)]


@ks.kernel
def longer_rows(y: ks.types.ndarray(), x: ks.types.ndarray(), b: ks.types.ndarray()):
    for i in range(b.shape[0]):
        for j in range(i * i * i):
            y[i] += x[j]


LEAVING = [bytes_plus, signed_bytes, far, unsigned, squares, bits, rounded, chosen, longer_rows]


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    return Engine(EngineOptions(folder=tmp_path_factory.mktemp("kernels"), cores=1))


@pytest.mark.parametrize("kernel", LEAVING, ids=lambda k: k.name)
def test_what_leaves_its_array_is_an_error_and_nothing_is_written(engine, kernel):
    y, x, b = np.zeros(N), np.arange(256.0), np.full(N, 255, np.uint8)
    ir = kernel.instantiate(y, x, b)
    with pytest.raises(IndexError, match="outside"):
        run_kernel(ir, {"y": y.copy(), "x": x, "b": b}, {})
    given = {"y": y, "x": x, "b": b}
    with pytest.raises(IndexError, match="nothing was written"):
        engine.run(ir, tuple(given[p.name] for p in ir.arrays), ())
    assert not y.any()


@ks.kernel
def twice(y: ks.types.ndarray(), x: ks.types.ndarray(), b: ks.types.ndarray()):
    for i in range(b.shape[0]):
        y[i] = x[b[i] * 2]


@ks.kernel
def narrowed(y: ks.types.ndarray(), x: ks.types.ndarray(), b: ks.types.ndarray()):
    for i in range(b.shape[0]):
        y[i] = x[ks.i32(b[i])]


def test_an_index_that_wraps_around_is_outside(engine):
    """Compiled kernels compute indices as longs: 2 (-2^31) is no 0 there."""
    y, x, b = np.zeros(N), np.arange(256.0), np.full(N, 7, np.int32)
    ir = twice.instantiate(y, x, b)
    engine.run(ir, (y, x, b), ())
    assert (y == 14).all()
    b[3] = -(2**31)
    y[:] = 0
    with pytest.raises(IndexError, match=r"`i64\(b\[i\] \* 2\)` of x is -4294967296 and must be"):
        engine.run(ir, (y, x, b), ())
    assert not y.any()


def test_an_index_that_is_narrowed_is_what_it_becomes(engine):
    y, x, b = np.zeros(N), np.arange(256.0), np.full(N, 2**32 + 7, np.int64)
    engine.run(narrowed.instantiate(y, x, b), (y, x, b), ())
    assert (y == 7).all()


@ks.kernel
def inside(y: ks.types.ndarray(), x: ks.types.ndarray(), b: ks.types.ndarray()):
    for i in range(b.shape[0]):
        y[i] = (
            x[b[i]] + x[(i * i) % 256] + x[min(max(i * i, 0), 255)] + x[ks.select(i > 5, i, 2 * i)]
        )


def test_indices_that_cannot_leave_are_not_looked_at():
    ir = inside.instantiate(np.zeros(N), np.zeros(256), np.zeros(N, np.uint8))
    assert index_sites(ir)[1] == ()


@ks.kernel
def behind_a_branch(y: ks.types.ndarray(), x: ks.types.ndarray(), b: ks.types.ndarray()):
    for i in range(y.shape[0]):
        if b[i] > 0:
            y[i] = x[i + 1]


@ks.kernel
def behind_two(y: ks.types.ndarray(), x: ks.types.ndarray(), b: ks.types.ndarray()):
    for i in range(y.shape[0]):
        if (i < 7 or b[i] > 0) and not b[i] > 5:
            y[i] = x[i + 1]


@ks.kernel
def in_the_other_branch(y: ks.types.ndarray(), x: ks.types.ndarray(), b: ks.types.ndarray()):
    for i in range(y.shape[0]):
        if b[i] == 0:
            y[i] = 1.0
        else:
            y[i + 1] = 2.0


@ks.kernel
def after_continue(y: ks.types.ndarray(), x: ks.types.ndarray(), b: ks.types.ndarray()):
    for i in range(y.shape[0]):
        if b[i] == 0:
            continue
        y[i] = x[i + 1]


@ks.kernel
def in_a_loop_of_data(y: ks.types.ndarray(), x: ks.types.ndarray(), b: ks.types.ndarray()):
    for i in range(y.shape[0]):
        for _j in range(b[i]):
            y[i] += x[i + 1]


@ks.kernel
def constant_one(y: ks.types.ndarray(), x: ks.types.ndarray(), b: ks.types.ndarray()):
    for i in range(y.shape[0]):
        if b[i] > 0 and i == 9:
            y[12] = x[i]


BRANCHES = [
    behind_a_branch,
    behind_two,
    in_the_other_branch,
    after_continue,
    in_a_loop_of_data,
    constant_one,
]


@pytest.mark.parametrize("kernel", BRANCHES, ids=lambda k: k.name)
def test_an_index_behind_a_branch_is_wrong_where_it_is_reached(engine, kernel):
    """It is refused where data lead to it, and only there."""
    y, x, b = np.zeros(N), np.arange(float(N)), np.ones(N, np.int32)
    ir = kernel.instantiate(y, x, b)
    given = {"y": y, "x": x, "b": b}
    with pytest.raises(IndexError, match="outside"):
        run_kernel(ir, given | {"y": y.copy()}, {})
    with pytest.raises(IndexError, match="nothing was written"):
        engine.run(ir, tuple(given[p.name] for p in ir.arrays), ())
    assert not y.any()
    b[-1] = 0
    expected = y.copy()
    run_kernel(ir, given | {"y": expected}, {})
    engine.run(ir, tuple(given[p.name] for p in ir.arrays), ())
    np.testing.assert_array_equal(y, expected)


@ks.kernel
def bounded(y: ks.types.ndarray(), x: ks.types.ndarray(), b: ks.types.ndarray()):
    for i in range(y.shape[0]):
        if b[i] > 0:
            if i > 0:
                y[i] = x[i - 1]
            else:
                y[i + 9] = x[i]
            if i != 0 and i + 1 != y.shape[0]:
                y[i] += x[i - 1] + x[i + 1]
            if not (i < 1 or i >= y.shape[0] - 1):
                y[i] += x[i - 1] + x[i + 1]
            if i == 4:
                y[i + 5] = x[i - 4]


def test_indices_that_conditions_keep_inside_are_not_looked_at():
    ir = bounded.instantiate(np.zeros(N), np.zeros(N), np.zeros(N, np.int32))
    assert index_sites(ir)[1] == ()
