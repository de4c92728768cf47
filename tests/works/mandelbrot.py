"""A Mandelbrot set: how many steps each point stays, and where it is then."""

from __future__ import annotations

import kernelscape as ks
import numpy as np

nd = ks.types.ndarray()
template = ks.template()


@ks.kernel
def orbits(c: nd, d: nd, z: nd, count: nd, steps: template, fault: template):
    for i in range(d.shape[0]):
        for j in range(c.shape[0]):
            x = 0.0
            y = 0.0
            n = 0
            for step in range(steps):
                if x * x + y * y < 4.0:
                    t = x * x - y * y + c[j]
                    if fault == 1 and step == 5:
                        t = t * (1.0 + 1e-9)
                    y = 2.0 * x * y + d[i]
                    x = t
                    n += 1
            count[i, j] = n
            z[i, j] = x


def mandelbrot(c, d, z, count, steps: template, fault: template = 0):
    orbits(c, d, z, count, steps, fault)


def make_arguments(sizes, dtype, rng):
    n, m = sizes.get("n", 1000), sizes.get("m", 1000)
    c, d = np.linspace(-2.25, 0.75, n, dtype=dtype), np.linspace(-1.25, 1.25, m, dtype=dtype)
    return c, d, np.zeros((m, n), dtype), np.zeros((m, n), np.int64), sizes.get("steps", 200)
