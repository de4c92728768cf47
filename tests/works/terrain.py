"""Classes of a terrain by its slope: flat, gentle, steep. A fifth of it is level, where slopes are exact."""

from __future__ import annotations

import kernelscape as ks
import numpy as np

nd = ks.types.ndarray()
template = ks.template()


@ks.kernel
def slopes(height: nd, slope: nd, spacing: float, fault: template):
    rows, columns = height.shape[0], height.shape[1]
    for i in range(rows):
        for j in range(columns):
            left, right = max(j - 1, 0), min(j + 1, columns - 1)
            if fault == 4 and j == columns - 1:
                right = 0
            x = (height[i, right] - height[i, left]) / (2.0 * spacing)
            y = (height[min(i + 1, rows - 1), j] - height[max(i - 1, 0), j]) / (2.0 * spacing)
            slope[i, j] = ks.sqrt(x * x + y * y)


@ks.kernel
def classify(slope: nd, kind: nd, gentle: float, steep: float, fault: template):
    for i in range(slope.shape[0] - (1 if fault == 2 else 0)):
        for j in range(slope.shape[1]):
            limit = gentle * 1.001 if fault == 3 else gentle
            is_gentle = slope[i, j] >= limit
            if fault == 1:
                is_gentle = slope[i, j] > limit
            kind[i, j] = 0
            if is_gentle:
                kind[i, j] = 1
            if slope[i, j] > steep:
                kind[i, j] = 2


def terrain(height, slope, kind, spacing, gentle, steep, fault: template = 0):
    slopes(height, slope, spacing, fault)
    classify(slope, kind, gentle, steep, fault)


def make_arguments(sizes, dtype, rng):
    n = sizes.get("n", 96)
    height = 40.0 * rng.random((n, n))
    height[: n // 5] = 8.0 * np.arange(n)  # a slope of 1 everywhere
    return height.astype(dtype), np.zeros((n, n), dtype), np.zeros((n, n), np.int8), 8.0, 1.0, 2.0
