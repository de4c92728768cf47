"""Hypothesis strategies: random sequences of kernels with their arguments, written in the real
language.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ..kernels.language.kernel import kernel, types
from ..kernels.language.record import Recording, ndarray, record_sequence

EXTENTS = (1, 2, 3, 5, 7, 13, 16, 33, 64)

nd: Any = types.ndarray()


@kernel
def scale_to(x: nd, out: nd, alpha: float) -> None:
    for i in range(out.shape[0]):
        out[i] = alpha * x[i] - 0.5


@kernel
def add_vectors(x: nd, y: nd, out: nd) -> None:
    for i in range(out.shape[0]):
        t = x[i] + y[i]
        out[i] = t * 0.5 + abs(t)


@kernel
def blend(x: nd, y: nd, z: nd, out: nd) -> None:
    for i in range(out.shape[0]):
        out[i] = x[i] * y[i] - z[i] if x[i] < y[i] else max(z[i], x[i])


@kernel
def scale_in_place(out: nd, alpha: float) -> None:
    for i in range(out.shape[0]):
        out[i] *= alpha


@kernel
def stencil_1d(x: nd, out: nd) -> None:
    for i in range(1, x.shape[0] - 1):
        out[i] = 0.25 * x[i - 1] + 0.5 * x[i] + 0.25 * x[i + 1]


@kernel
def suffix_difference(x: nd, out: nd) -> None:
    for i in range(x.shape[0] - 1):
        out[i] = x[i + 1] - x[i]


@kernel
def sum_of(x: nd, out: nd) -> None:
    acc = 0.0
    for i in range(x.shape[0]):
        acc += x[i]
    out[0] = acc * 0.25


@kernel
def dot_into(x: nd, y: nd, out: nd) -> None:
    out[0] = 0.0
    for i in range(x.shape[0]):
        out[0] += x[i] * y[i]


@kernel
def largest(x: nd, out: nd) -> None:
    acc = -4.0
    for i in range(x.shape[0]):
        acc = max(acc, x[i])
    out[0] = acc


@kernel
def add_scalar(s: nd, out: nd) -> None:
    for i in range(out.shape[0]):
        out[i] = out[i] + 0.125 * s[0]


@kernel
def combine_matrices(a: nd, b: nd, out: nd) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = 0.5 * a[i, j] - b[i, j]


@kernel
def clamp_in_place(out: nd, alpha: float) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = min(max(out[i, j], -alpha), alpha)


@kernel
def outer_update(x: nd, y: nd, out: nd) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] += 0.25 * x[i] * y[j]


@kernel
def stencil_2d(a: nd, out: nd) -> None:
    for i in range(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            around = a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1]
            out[i, j] = 0.2 * (a[i, j] + around)


@kernel
def gemv(a: nd, x: nd, out: nd, alpha: float) -> None:
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j] * x[j]
        out[i] = alpha * acc


@kernel
def gemv_with_old(a: nd, x: nd, out: nd, alpha: float) -> None:
    for i in range(a.shape[0]):
        acc = alpha * out[i]
        for j in range(a.shape[1]):
            acc += a[i, j] * x[j]
        out[i] = 0.25 * acc


@kernel
def gemv_by_updates(a: nd, x: nd, out: nd) -> None:
    for i in range(a.shape[0]):
        out[i] = 0.0
        for j in range(a.shape[1]):
            out[i] += a[i, j] * x[j]


@kernel
def gemvt_by_updates(a: nd, x: nd, out: nd) -> None:
    for j in range(a.shape[1]):
        out[j] = 0.5
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[j] += 0.25 * a[i, j] * x[i]


@kernel
def add_gemvt(a: nd, x: nd, out: nd) -> None:
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[j] += 0.25 * a[i, j] * x[i]


@kernel
def gemvt_by_columns(a: nd, x: nd, out: nd) -> None:
    for j in range(a.shape[1]):
        acc = 0.0
        for i in range(a.shape[0]):
            acc += a[i, j] * x[i]
        out[j] = 0.25 * acc


@kernel
def row_sums(a: nd, out: nd) -> None:
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j]
        out[i] = acc


@kernel
def column_maxima(a: nd, out: nd) -> None:
    for j in range(a.shape[1]):
        acc = a[0, j]
        for i in range(a.shape[0]):
            acc = max(acc, a[i, j])
        out[j] = acc


@kernel
def subtract_rows(a: nd, x: nd, out: nd) -> None:
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[i, j] = a[i, j] - 0.5 * x[i]


@kernel
def two_results(a: nd, x: nd, y: nd, out: nd, out2: nd) -> None:
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j] * x[j]
        out[i] = acc
        out2[i] = acc * 0.5 + y[i]


@kernel
def centre_rows(a: nd, out: nd) -> None:
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j]
        mean = acc / a.shape[1]
        for j in range(a.shape[1]):
            out[i, j] = a[i, j] - mean


@kernel
def total_of(a: nd, out: nd) -> None:
    acc = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            acc += a[i, j] * a[i, j]
    out[0] = 0.125 * acc


@kernel
def branch(x: nd, out: nd) -> None:
    for i in range(out.shape[0]):
        if x[i] > 0.0:
            out[i] = x[i]
        else:
            out[i] = 0.5 * x[i]


@kernel
def positive_only(x: nd, out: nd) -> None:
    for i in range(out.shape[0]):
        if x[i] > 0.0:
            out[i] = 2.0 * x[i]


# A template: the kernel, the kinds of its array arguments ("m": a vector of m, "n", "mn": a
# matrix, "1": one element; those written marked by "!"), and whether it takes a scalar.
TEMPLATES: tuple[tuple[Any, tuple[str, ...], bool], ...] = (
    (scale_to, ("n", "n!"), True),
    (scale_to, ("m", "m!"), True),
    (add_vectors, ("n", "n", "n!"), False),
    (add_vectors, ("m", "m", "m!"), False),
    (blend, ("n", "n", "n", "n!"), False),
    (scale_in_place, ("n!",), True),
    (stencil_1d, ("n", "n!"), False),
    (suffix_difference, ("m", "m!"), False),
    (sum_of, ("n", "1!"), False),
    (dot_into, ("n", "n", "1!"), False),
    (largest, ("m", "1!"), False),
    (add_scalar, ("1", "n!"), False),
    (combine_matrices, ("mn", "mn", "mn!"), False),
    (clamp_in_place, ("mn!",), True),
    (outer_update, ("m", "n", "mn!"), False),
    (stencil_2d, ("mn", "mn!"), False),
    (gemv, ("mn", "n", "m!"), True),
    (gemv_with_old, ("mn", "n", "m!"), True),
    (gemv_by_updates, ("mn", "n", "m!"), False),
    (gemvt_by_updates, ("mn", "m", "n!"), False),
    (add_gemvt, ("mn", "m", "n!"), False),
    (gemvt_by_columns, ("mn", "m", "n!"), False),
    (row_sums, ("mn", "m!"), False),
    (column_maxima, ("mn", "n!"), False),
    (subtract_rows, ("mn", "m", "mn!"), False),
    (two_results, ("mn", "n", "m", "m!", "m!"), False),
    (centre_rows, ("mn", "mn!"), False),
    (total_of, ("mn", "1!"), False),
    (branch, ("n", "n!"), False),
    (positive_only, ("n", "n!"), False),
)


@dataclass(frozen=True)
class Example:
    """A recorded sequence with arguments for it, by name."""

    recording: Recording
    arrays: dict[str, np.ndarray]
    scalars: dict[str, float]
    calls: tuple[str, ...]  # for reading a failing example

    def __repr__(self) -> str:
        shapes = {k: v.shape for k, v in self.arrays.items()}
        temps = {p.name: p.shape for p in self.recording.temps}
        return f"Example({'; '.join(self.calls)}; arrays {shapes}; temporaries {temps})"


@st.composite
def sequences(
    draw: Callable[..., Any],
    max_kernels: int = 4,
    templates: tuple[tuple[Any, tuple[str, ...], bool], ...] = TEMPLATES,
    extents: tuple[int, ...] = EXTENTS,
    dtypes: tuple[str, ...] = ("float32", "float64"),
) -> Example:
    """Up to `max_kernels` calls over pools of three arrays per shape; the third of each pool is a
    temporary in half of the draws.
    """
    m, n = draw(st.sampled_from(extents)), draw(st.sampled_from(extents))
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    shapes = {"m": (m,), "n": (n,), "mn": (m, n), "1": (1,)}
    pools = {"m": ("u", "v", "tu"), "n": ("x", "y", "tx"), "mn": ("a", "b", "ta"), "1": ("r", "s")}
    has_temps = draw(st.booleans())
    plan: list[tuple[Any, tuple[str, ...], bool]] = []
    for _ in range(draw(st.integers(1, max_kernels))):
        fn, kinds, takes_scalar = draw(st.sampled_from(templates))
        chosen: list[str] = []
        for kind in sorted(kinds, key=lambda k: not k.endswith("!")):  # written ones first
            pool = pools[kind.rstrip("!")]
            free = [name for name in pool if name not in chosen]
            chosen.append(draw(st.sampled_from(free or list(pool))))
        order = sorted(range(len(kinds)), key=lambda k: not kinds[k].endswith("!"))
        names = tuple(chosen[order.index(k)] for k in range(len(kinds)))
        plan.append((fn, names, takes_scalar))
    kind_of = {name: kind for kind, pool in pools.items() for name in pool}
    temps = {"tu", "tx", "ta"} if has_temps else set()
    used = [name for name in kind_of if any(name in names for _, names, _ in plan)]
    inputs = [name for name in used if name not in temps]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arrays = {k: rng.uniform(-1, 1, shapes[kind_of[k]]).astype(dtype) for k in inputs}
    return record_example(plan, arrays, {k: shapes[kind_of[k]] for k in used if k in temps}, dtype)


def record_example(
    plan: list[tuple[Any, tuple[str, ...], bool]],
    arrays: dict[str, np.ndarray],
    temps: dict[str, tuple[int, ...]],
    dtype: np.dtype,
) -> Example:
    """A sequence of planned calls (kernel, names of arrays, whether it takes a scalar) over arrays and temporaries."""

    def sequence(alpha: float, *given: Any) -> None:
        here = dict(zip(arrays, given, strict=True))
        for name, shape in temps.items():
            here[name] = ndarray(dtype, shape, name=name)
        for fn, names, takes_scalar in plan:
            fn(*(here[k] for k in names), *((alpha,) if takes_scalar else ()))

    recording = record_sequence(sequence, (0.75, *arrays.values()), name="drawn")
    by_name = dict(zip((p.name for p in recording.arrays), arrays.values(), strict=True))
    scalars = {p.name: 0.75 for p in recording.scalars}
    calls = tuple(f"{fn.__name__}{names}" for fn, names, _ in plan)
    return Example(recording, by_name, scalars, calls)
