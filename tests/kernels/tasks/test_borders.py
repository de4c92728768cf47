"""Nests with periodic, clamped and mirrored indices in parts: an interior whose indices are affine, and the borders.

NumPy is the judge: indices are computed there as written, for arrays shorter than a period, too.
"""

from __future__ import annotations

from itertools import product

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.explorer.workload import make_workload
from kernelscape.testing.run_tasks import run_tasks

N = 11


@ks.kernel
def periodic(x: ks.types.ndarray(), y: ks.types.ndarray(), a: ks.template(), b: ks.template()):
    for i, j in ks.ndrange(y.shape[0], y.shape[1]):
        y[i, j] = x[(i + a) % x.shape[0], (b - j) % x.shape[1]] + x[i, (j + b) % x.shape[1]]


@ks.kernel
def clamped(x: ks.types.ndarray(), y: ks.types.ndarray(), a: ks.template(), b: ks.template()):
    for i, j in ks.ndrange(y.shape[0], y.shape[1]):
        s = 0.0
        for k in range(3):
            s += x[ks.min(ks.max(i + a * k, 0), x.shape[0] - 1), ks.max(j - b, 0)]
        y[i, j] = s


@ks.kernel
def wrapped(x: ks.types.ndarray(), y: ks.types.ndarray(), a: ks.template(), b: ks.template()):
    for i, j in ks.ndrange(y.shape[0], y.shape[1]):
        k = i + 1 if i != x.shape[0] - 1 else 0
        m = j + b
        if m >= x.shape[1]:
            m = x.shape[1] - 1
        y[i, j] = x[k, ks.max(m, 0)]


@ks.kernel
def mirrored(x: ks.types.ndarray(), y: ks.types.ndarray(), a: ks.template(), b: ks.template()):
    for i, j in ks.ndrange(y.shape[0], y.shape[1]):
        last = x.shape[1] - 1
        y[i, j] = x[abs(i - 1) % x.shape[0], abs(last - abs(last - j - 1))]


@ks.kernel
def compared(x: ks.types.ndarray(), y: ks.types.ndarray(), a: ks.template(), b: ks.template()):
    """Comparisons as numbers, several of them in one condition, and bits that are kept."""
    for i, j in ks.ndrange(y.shape[0], y.shape[1]):
        n, m = x.shape[0], x.shape[1]
        k = i + 1 if 0 <= i < n - 1 else 0
        y[i, j] = x[k, j - (j > 0)] + x[i + int(i + 1 != n), j + 1 - m * (j + 1 >= m)]
        y[i, j] += x[min((i + a) & 7, n - 1), j]


@ks.kernel
def shortened(x: ks.types.ndarray(), y: ks.types.ndarray(), a: ks.template(), b: ks.template()):
    for i, j in ks.ndrange(y.shape[0], y.shape[1]):
        s = 0.0
        for k in range(ks.min(i, 2)):
            s += x[i - k - 1, j]
        y[i, j] = s


@ks.kernel
def assigned_inside(
    x: ks.types.ndarray(), y: ks.types.ndarray(), a: ks.template(), b: ks.template()
):
    """A local that a loop sets, which may run no iteration."""
    for i, j in ks.ndrange(y.shape[0], y.shape[1]):
        k = 0
        for m in range(ks.min(j, 2)):
            k = m + 1
        y[i, j] = x[(i + 1) % x.shape[0], k]


def by_numpy(name: str, x: np.ndarray, a: int, b: int) -> np.ndarray:
    n, m = x.shape
    i, j = np.meshgrid(np.arange(n), np.arange(m), indexing="ij")
    if name == "periodic":
        return x[(i + a) % n, (b - j) % m] + x[i, (j + b) % m]
    if name == "clamped":
        columns = np.maximum(j - b, 0)
        return sum(x[np.clip(i + a * k, 0, n - 1), columns] for k in range(3))
    if name == "shortened":
        rows = [x[max(r - 2, 0) : r].sum(axis=0) for r in range(n)]
        return np.array(rows)
    if name == "mirrored":
        return x[abs(i - 1) % n, abs(m - 1 - abs(m - 2 - j))]
    if name == "compared":
        rows = x[(i + 1) % n, np.maximum(j - 1, 0)] + x[np.minimum(i + 1, n - 1), (j + 1) % m]
        return rows + x[np.minimum((i + a) & 7, n - 1), j]
    if name == "assigned_inside":
        return x[(i + 1) % n, np.minimum(j, 2)]
    return x[np.where(i != n - 1, i + 1, 0), np.clip(j + b, 0, m - 1)]


def problem_of(kernel, *arrays, a: int = 1, b: int = 1):
    def sequence(*given):
        kernel(*given, a, b)

    return make_workload(sequence, arrays, sequence="x:f", name="f").problem


@pytest.mark.parametrize(
    "kernel",
    [periodic, clamped, wrapped, mirrored, compared, shortened, assigned_inside],
)
def test_parts_compute_what_the_nest_does(kernel) -> None:
    """Kind: iterations that no part has, or two; a piece that holds in some of them only."""
    for (a, b), shape in product([(1, 1), (-2, 3), (0, -1), (5, 2)], [(N, N), (3, N), (1, 2)]):
        if kernel is clamped and b < 0:
            continue  # beyond the end
        x = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
        y = np.full(shape, np.nan)
        found = run_tasks(problem_of(kernel, x, y, a=a, b=b), {"given0": x, "given1": y}, {})
        wanted = by_numpy(kernel.name, x, a, b)
        np.testing.assert_array_equal(found["given1"], wanted, f"{a} {b} {shape}")


@pytest.mark.parametrize(
    ("kernel", "n_parts"),
    [(periodic, 3), (clamped, 3), (wrapped, 3), (mirrored, 3)],
)
def test_interiors_are_structured(kernel, n_parts) -> None:
    x, y = np.zeros((N, N)), np.zeros((N, N))
    tasks = problem_of(kernel, x, y).tasks
    assert len(tasks) == n_parts
    assert tasks[0].is_structured
    assert np.prod([loop.extent for loop in tasks[0].loops if not loop.is_reduction]) > N * N // 2


@pytest.mark.parametrize(
    "index",
    [
        *("i - (i > 0)", "i + (i < n - 1)", "i - int(i > 0)", "i + 1 - n * (i + 1 >= n)"),
        *("i + 1 if 0 <= i < n - 1 else 0", "0 if i <= 0 or i > n else i - 1"),
        *("0 if not i > 0 else i - 1", "abs(i - 1)", "n - 1 - abs(n - 2 - i)", "(i + 1) & 15"),
        *("np.clip(i - 1, 0, n - 1)", "np.where(i > 0, i - 1, n - 1)", "np.mod(i - 1, n)"),
        *("i + 1 - n * ((i + 1) // n)", "ks.math.clamp(i - 1, 0, n - 1)"),
    ],
)
def test_neighbours_are_structured_however_they_are_written(tmp_path, index: str) -> None:
    """Kind: a form of an index of which the interior is known, and that is left as it is written."""
    n, text = (
        16,
        f"def near(x: nd, y: nd):\n    n = x.shape[0]\n    for i in range(n):\n        y[i] = x[{index}]\n",
    )
    file, names = tmp_path / "near.py", {"nd": ks.types.ndarray(), "ks": ks, "np": np}
    file.write_text(text)
    exec(compile(text, str(file), "exec"), names)
    x, y = np.arange(float(n)), np.full(n, np.nan)
    near = ks.kernel(names["near"])
    problem = make_workload(near, (x, y), sequence="x:f", name="f").problem
    assert problem.tasks[0].is_structured
    assert problem.tasks[0].loops[0].extent == n - 1
    found = run_tasks(problem, {"x": x, "y": y}, {})
    at = [eval(index, {**names, "ks": ks, "i": i, "n": n}) for i in range(n)]
    np.testing.assert_array_equal(found["y"], x[at], index)


def test_nests_with_conflicts_stay_whole() -> None:
    """Kind: parts that run in another order than iterations whose results depend on it."""

    @ks.kernel
    def in_place(x: ks.types.ndarray()):
        for i in range(x.shape[0]):
            x[i] = x[(i + 1) % x.shape[0]] + 1.0

    @ks.kernel
    def total(x: ks.types.ndarray(), s: ks.types.ndarray()):
        for i in range(x.shape[0]):
            s[0] = s[0] * 0.5 + x[(i + 1) % x.shape[0]]

    for kernel, arrays in ((in_place, (np.zeros(N),)), (total, (np.zeros(N), np.zeros(1)))):
        tasks = make_workload(kernel, arrays, sequence="x:f", name="f").problem.tasks
        assert [t.is_structured for t in tasks] == [False]
