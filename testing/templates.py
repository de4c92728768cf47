"""More kernels for random sequences than strategies.py has: integers, products over three loops, reductions in order,
mathematical functions, loop indices as values, and what normalises to bodies.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from ..kernels.language.functions import exp, floor, sin, sqrt
from ..kernels.language.kernel import kernel, types
from .strategies import TEMPLATES, Example, sequences

nd: Any = types.ndarray()


@kernel
def int_scale(x: nd, out: nd) -> None:
    for i in range(out.shape[0]):
        out[i] = 3 * x[i] - 5


@kernel
def int_divide(x: nd, y: nd, out: nd) -> None:
    for i in range(out.shape[0]):
        out[i] = (x[i] - y[i]) // 3 + x[i] % 5


@kernel
def int_blend(x: nd, y: nd, out: nd) -> None:
    for i in range(out.shape[0]):
        out[i] = abs(x[i]) if x[i] < y[i] else max(y[i], -x[i])


@kernel
def int_sum(x: nd, out: nd) -> None:
    acc = 0
    for i in range(x.shape[0]):
        acc += x[i]
    out[0] = acc


@kernel
def int_smallest(x: nd, out: nd) -> None:
    acc = x[0]
    for i in range(x.shape[0]):
        acc = min(acc, x[i])
    out[0] = acc


@kernel
def int_gemv(a: nd, x: nd, out: nd) -> None:
    for i in range(a.shape[0]):
        acc = 0
        for j in range(a.shape[1]):
            acc += a[i, j] * x[j]
        out[i] = acc % 1000


@kernel
def int_gemvt(a: nd, x: nd, out: nd) -> None:
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[j] += a[i, j] * x[i]


@kernel
def int_outer(x: nd, y: nd, out: nd) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] += (x[i] % 7) * (y[j] % 7) + i - j


@kernel
def int_column_maxima(a: nd, out: nd) -> None:
    for j in range(a.shape[1]):
        acc = a[0, j]
        for i in range(a.shape[0]):
            acc = max(acc, a[i, j])
        out[j] = acc


INTEGER_TEMPLATES: tuple[tuple[Any, tuple[str, ...], bool], ...] = (
    (int_scale, ("n", "n!"), False),
    (int_scale, ("m", "m!"), False),
    (int_divide, ("n", "n", "n!"), False),
    (int_blend, ("m", "m", "m!"), False),
    (int_sum, ("n", "1!"), False),
    (int_smallest, ("m", "1!"), False),
    (int_gemv, ("mn", "n", "m!"), False),
    (int_gemvt, ("mn", "m", "n!"), False),
    (int_outer, ("m", "n", "mn!"), False),
    (int_column_maxima, ("mn", "n!"), False),
)


@kernel
def smooth(x: nd, y: nd, out: nd) -> None:
    for i in range(out.shape[0]):
        out[i] = sqrt(abs(x[i])) + sin(y[i]) * exp(-abs(x[i]))


@kernel
def ramp(x: nd, out: nd) -> None:
    for i in range(out.shape[0]):
        out[i] = x[i] + 0.01 * i


@kernel
def saw(a: nd, out: nd) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = a[i, j] + 0.5 * floor(0.3 * j) - 0.01 * i


@kernel
def product_rows(a: nd, b: nd, y: nd, out: nd) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            acc = 0.0
            for k in range(a.shape[1]):
                acc += a[i, k] * b[i, k]
            out[i, j] = 0.125 * acc * y[j]


@kernel
def product_columns(a: nd, b: nd, out: nd) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            acc = 0.0
            for k in range(a.shape[0]):
                acc += a[i, j] * b[k, j]
            out[i, j] = 0.125 * acc


@kernel
def product_by_updates(a: nd, x: nd, b: nd, out: nd) -> None:
    for k in range(a.shape[1]):
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                out[i, j] += 0.125 * a[i, k] * x[k] * b[i, j]


@kernel(fast_math=False)
def sum_in_order(x: nd, out: nd) -> None:
    acc = 0.0
    for i in range(x.shape[0]):
        acc += x[i]
    out[0] = acc


@kernel(fast_math=False)
def gemv_in_order(a: nd, x: nd, out: nd) -> None:
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j] * x[j]
        out[i] = acc


@kernel(fast_math=False)
def gemvt_in_order(a: nd, x: nd, out: nd) -> None:
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[j] += a[i, j] * x[i]


@kernel
def running_sum(x: nd, out: nd) -> None:
    for i in range(1, out.shape[0]):
        out[i] = 0.5 * out[i - 1] + x[i]


@kernel
def reversed_copy(x: nd, out: nd) -> None:
    for i in range(out.shape[0]):
        out[i] = x[x.shape[0] - 1 - i]


@kernel
def every_other(x: nd, out: nd) -> None:
    for i in range(out.shape[0] // 2):
        out[2 * i] = x[2 * i + 1] - x[2 * i]


@kernel
def lower_part(a: nd, x: nd, out: nd) -> None:
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(i % a.shape[1]):
            acc += a[i, j] * x[j]
        out[i] = acc


@kernel
def shifted_gemv(a: nd, x: nd, out: nd) -> None:
    for i in range(a.shape[0] - 1):
        acc = 0.0
        for j in range(a.shape[1] - 1):
            acc += a[i + 1, j] * x[j + 1]
        out[i + 1] = acc


MORE_TEMPLATES: tuple[tuple[Any, tuple[str, ...], bool], ...] = (
    (smooth, ("n", "n", "n!"), False),
    (ramp, ("m", "m!"), False),
    (saw, ("mn", "mn!"), False),
    (product_rows, ("mn", "mn", "n", "mn!"), False),
    (product_columns, ("mn", "mn", "mn!"), False),
    (product_by_updates, ("mn", "n", "mn", "mn!"), False),
    (sum_in_order, ("m", "1!"), False),
    (gemv_in_order, ("mn", "n", "m!"), False),
    (gemvt_in_order, ("mn", "m", "n!"), False),
    (running_sum, ("n", "n!"), False),
    (reversed_copy, ("m", "m!"), False),
    (every_other, ("n", "n!"), False),
    (lower_part, ("mn", "n", "m!"), False),
    (shifted_gemv, ("mn", "n", "m!"), False),
)

PRODUCT_TEMPLATES = (
    *(t for t in MORE_TEMPLATES if t[0].__name__.startswith("product")),
    *(t for t in TEMPLATES if t[1] in (("mn", "mn", "mn!"), ("mn!",), ("mn", "mn!"))),
)


def any_sequence(max_kernels: int = 4) -> st.SearchStrategy[Example]:
    """Sequences of all these kernels: mostly floating point, some of integers."""
    floats = sequences(max_kernels, TEMPLATES + MORE_TEMPLATES)
    products = sequences(min(3, max_kernels), PRODUCT_TEMPLATES, extents=(1, 3, 7, 16, 33))
    return st.one_of(floats, floats, floats, products, integer_sequences(max_kernels))


def integer_sequences(max_kernels: int = 4) -> st.SearchStrategy[Example]:
    """Sequences of i32 or i64 kernels, on small integers."""
    drawn = sequences(max_kernels, INTEGER_TEMPLATES, dtypes=("int32", "int64"))
    return st.builds(_with_integers, drawn, st.integers(0, 2**16))


def _with_integers(example: Example, seed: int) -> Example:
    rng = np.random.default_rng(seed)
    arrays = {k: rng.integers(-9, 10, v.shape).astype(v.dtype) for k, v in example.arrays.items()}
    return Example(example.recording, arrays, example.scalars, example.calls)
