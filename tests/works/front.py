"""A front that moves: upwind differences, and what is below a threshold goes out. A part burns at exact temperatures."""

from __future__ import annotations

import kernelscape as ks
import numpy as np

nd = ks.types.ndarray()
template = ks.template()


@ks.kernel
def move(heat: nd, wind: nd, new: nd, fault: template):
    rows, columns = heat.shape[0], heat.shape[1]
    for i in range(rows - 1 if fault == 2 else rows):
        for j in range(columns):
            before, after = max(j - 1, 0), min(j + 1, columns - 1)
            if fault == 4 and j == 0:
                before = columns - 1
            change = (
                heat[i, j] - heat[i, before] if wind[i, j] > 0.0 else heat[i, after] - heat[i, j]
            )
            new[i, j] = heat[i, j] - 0.25 * wind[i, j] * change


@ks.kernel
def burn(new: nd, heat: nd, limit: float, fault: template):
    for i in range(new.shape[0]):
        for j in range(new.shape[1]):
            burns = new[i, j] >= (limit * 1.001 if fault == 3 else limit)
            if fault == 1:
                burns = new[i, j] > limit
            heat[i, j] = new[i, j] + 1.0 if burns else 0.5 * new[i, j]


def front(heat, wind, new, limit, fault: template = 0):
    move(heat, wind, new, fault)
    burn(new, heat, limit, fault)


def make_arguments(sizes, dtype, rng):
    n = sizes.get("n", 96)
    heat, wind = rng.random((n, n)), rng.uniform(-1, 1, (n, n))
    heat[: n // 4] = 0.5  # nothing changes there
    return heat.astype(dtype), wind.astype(dtype), np.zeros((n, n), dtype), 0.5
