"""The text form of kernels, against tests/golden (rewrite with --update-golden)."""

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.ir import kernel
from kernelscape.kernels.ir.text import show, show_expr


@ks.kernel
def gemv(a: ks.types.ndarray(), x: ks.types.ndarray(), y: ks.types.ndarray(), alpha, beta):
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j] * x[j]
        y[i] = alpha * acc + beta * y[i]


@ks.kernel(fast_math=False)
def stencil(u: ks.types.ndarray(), v: ks.types.ndarray()):
    n, m = u.shape
    for i, j in ks.ndrange((1, n - 1), (1, m - 1)):
        v[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]) - u[i, j]


@ks.kernel
def branches(x: ks.types.ndarray(), k: ks.types.ndarray(), r: ks.types.ndarray()):
    for i in range(x.shape[0]):
        left = x[i - 1] if i > 0 else 0.0
        if left > x[i] or not k[i] < 2:
            r[0] = max(r[0], left)
        elif x[i] < 0:
            k[i] -= 1
        else:
            ks.atomic_add(r[k[i] % 4], ks.sqrt(x[i]) ** 2)


def test_gemv(golden):
    a = np.zeros((8, 16), np.float32)
    golden(
        show(gemv.instantiate(a, a[0].copy(), np.zeros(8, np.float32), 2.0, 0.5)), "gemv.kernel.txt"
    )


def test_stencil(golden):
    u = np.zeros((9, 17))
    golden(show(stencil.instantiate(u, u.copy())), "stencil.kernel.txt")


def test_branches(golden):
    ir = branches.instantiate(
        np.zeros(9, np.float32), np.zeros(9, np.int32), np.zeros(4, np.float32)
    )
    golden(show(ir), "branches.kernel.txt")


i = kernel.LoopIndex("i")
two = kernel.Const(2, kernel.DType.i64)
n = kernel.Param("n", kernel.DType.i64)


def op(name, a, b):
    return kernel.Binary(name, a, b, a.dtype)


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (op("mul", op("add", i, two), n), "(i + 2) * n"),
        (op("sub", i, op("sub", n, two)), "i - (n - 2)"),
        (op("sub", op("sub", i, n), two), "i - n - 2"),
        (op("add", i, kernel.Const(-1, kernel.DType.i64)), "i - 1"),
        (op("mul", i, kernel.Const(-1, kernel.DType.i64)), "i * (-1)"),
        (op("max", op("add", i, two), n), "max(i + 2, n)"),
        (kernel.Unary("neg", op("mul", i, n), kernel.DType.i64), "-(i * n)"),
        (kernel.Unary("not", kernel.Compare("lt", i, n), kernel.DType.bool_), "not i < n"),
        (
            kernel.Compare(
                "eq", kernel.Compare("lt", i, n), kernel.Const(True, kernel.DType.bool_)
            ),
            "(i < n) == True",
        ),
        (kernel.Select(kernel.Compare("lt", i, n), i, n, kernel.DType.i64), "(i if i < n else n)"),
        (kernel.Load("a", (i, op("floordiv", n, two)), kernel.DType.f32), "a[i, n // 2]"),
    ],
)
def test_parentheses_are_those_needed(x, text):
    assert show_expr(x) == text
