"""LU decomposition in place."""

from __future__ import annotations

import kernelscape as ks
import numpy as np

nd = ks.types.ndarray()
template = ks.template()


@ks.kernel
def decompose(a: nd, fault: template):
    for _ in range(1):
        for i in range(a.shape[0]):
            for j in range(i):
                for k in range(j):
                    a[i, j] -= a[i, k] * a[k, j]
                a[i, j] /= a[j, j]
                if fault == 1 and i == 20 and j == 7:
                    a[i, j] *= 1.0 + 1e-9
            for j in range(i, a.shape[0]):
                for k in range(i):
                    a[i, j] -= a[i, k] * a[k, j]


def lu(a, fault: template = 0):
    decompose(a, fault)


def make_arguments(sizes, dtype, rng):
    n = sizes.get("n", 60)
    return ((rng.uniform(-1, 1, (n, n)) + n * np.eye(n)).astype(dtype),)
