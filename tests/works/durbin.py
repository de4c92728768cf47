"""Levinson-Durbin recursion."""

from __future__ import annotations

import kernelscape as ks
import numpy as np

nd = ks.types.ndarray()


@ks.kernel
def levinson(r: nd, y: nd, z: nd):
    for _ in range(1):
        y[0] = -r[0]
        beta = 1.0
        alpha = -r[0]
        for k in range(1, r.shape[0]):
            beta = (1.0 - alpha * alpha) * beta
            total = 0.0
            for i in range(k):
                total += r[k - i - 1] * y[i]
            alpha = -(r[k] + total) / beta
            for i in range(k):
                z[i] = y[i] + alpha * y[k - i - 1]
            for i in range(k):
                y[i] = z[i]
            y[k] = alpha


def durbin(r, y, z):
    levinson(r, y, z)


def make_arguments(sizes, dtype, rng):
    n = sizes.get("n", 2000)
    return np.arange(n + 1, 1, -1).astype(dtype), np.zeros(n, dtype), np.zeros(n, dtype)
