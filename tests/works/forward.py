"""Forward substitution, row by row."""

from __future__ import annotations

import kernelscape as ks
import numpy as np

nd = ks.types.ndarray()


@ks.kernel
def substitute(a: nd, b: nd, x: nd):
    for _ in range(1):
        for i in range(a.shape[0]):
            left = b[i]
            for j in range(i):
                left -= a[i, j] * x[j]
            x[i] = left / a[i, i]


def forward(a, b, x):
    substitute(a, b, x)


def make_arguments(sizes, dtype, rng):
    n = sizes.get("n", 4000)
    a = np.tril(rng.random((n, n))) + n * np.eye(n)
    return a.astype(dtype), rng.random(n).astype(dtype), np.zeros(n, dtype)
