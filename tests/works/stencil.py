"""Steps of a Jacobi iteration, there and back."""

from __future__ import annotations

import kernelscape as ks

nd = ks.types.ndarray()
template = ks.template()


@ks.kernel
def step(a: nd, b: nd, fault: template):
    for i in range(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            b[i, j] = 0.2 * (a[i, j] + a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])
            if fault == 1 and i == 20 and j == 7:
                b[i, j] *= 1.0 + 1e-9


def stencil(a, b, steps: template, fault: template = 0):
    for k in range(steps):
        step(a, b, fault if k == 0 else 0)
        step(b, a, 0)


def make_arguments(sizes, dtype, rng):
    n = sizes.get("n", 100)
    a = rng.uniform(0, 1, (n, n)).astype(dtype)
    return a, a.copy(), sizes.get("t", 5)
