"""Edges of an image: blur, gradient, threshold. Half of the image is noise, half has few grey levels, whose sums are exact."""

from __future__ import annotations

import kernelscape as ks
import numpy as np

nd = ks.types.ndarray()
template = ks.template()


@ks.kernel
def blur(image: nd, smooth: nd, fault: template):
    rows, columns = image.shape[0], image.shape[1]
    for i in range(rows):
        for j in range(columns):
            up, down, left, right = (
                max(i - 1, 0),
                min(i + 1, rows - 1),
                max(j - 1, 0),
                min(j + 1, columns - 1),
            )
            if fault == 4 and j == 0:
                left = columns - 1
            smooth[i, j] = (
                image[up, j] + image[down, j] + image[i, left] + image[i, right] + 4.0 * image[i, j]
            ) * 0.125


@ks.kernel
def gradient(smooth: nd, size: nd):
    rows, columns = smooth.shape[0], smooth.shape[1]
    for i in range(rows):
        for j in range(columns):
            dx = smooth[i, min(j + 1, columns - 1)] - smooth[i, max(j - 1, 0)]
            dy = smooth[min(i + 1, rows - 1), j] - smooth[max(i - 1, 0), j]
            size[i, j] = dx * dx + dy * dy


@ks.kernel
def threshold(size: nd, edge: nd, limit: float, fault: template):
    for i in range(1 if fault == 2 else 0, size.shape[0]):
        for j in range(size.shape[1]):
            is_edge = size[i, j] >= limit
            if fault == 1:
                is_edge = size[i, j] > limit
            if fault == 3:
                is_edge = size[i, j] >= limit * 1.001
            edge[i, j] = 1.0 if is_edge else 0.0


def edges(image, smooth, size, edge, limit, fault: template = 0):
    blur(image, smooth, fault)
    gradient(smooth, size)
    threshold(size, edge, limit, fault)


def make_arguments(sizes, dtype, rng):
    n = sizes.get("n", 2048)
    image = rng.uniform(0, 255, (n, n))
    image[: n // 2] = 32.0 * np.rint(image[: n // 2] / 32.0)
    arrays = [np.zeros((n, n), dtype) for _ in range(3)]
    return (image.astype(dtype), *arrays, 400.0)
