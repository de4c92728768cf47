"""Smoke that rises and curls: stable fluids (Stam 1999) on a grid of pressure and velocity at the centres of cells.

Velocity is carried along itself backwards in time, then a pressure (Jacobi) takes away what flows into and out of cells.

    python fluid.py [picture.png]
"""

import sys
from typing import Any

import kernelscape as ks
import numpy as np

DT, BUOYANCY, CURL = 0.03, 900.0, 6.0  # seconds; cells per second squared; strength of small whirls


def smoke(size: int, steps: int, sweeps: int = 40) -> np.ndarray:
    """The density of smoke, shape (size, size), the second axis upwards."""
    ks.init(arch=ks.cpu)
    flow, carried_flow = (ks.Vector.field(2, ks.f32, shape=(size, size)) for _ in range(2))
    density, carried = (ks.field(ks.f32, shape=(size, size)) for _ in range(2))
    pressure, next_pressure, divergence, curl = (
        ks.field(ks.f32, shape=(size, size)) for _ in range(4)
    )

    @ks.func
    def at(q: ks.template, i: Any, j: Any) -> Any:
        """A cell; beyond the edge the last one."""
        return q[ks.max(0, ks.min(size - 1, i)), ks.max(0, ks.min(size - 1, j))]

    @ks.func
    def between(q: ks.template, p: Any) -> Any:
        """The value at a point, bilinear between the centres of four cells."""
        corner = ks.floor(p - 0.5)
        f = p - 0.5 - corner
        i, j = ks.cast(corner[0], ks.i32), ks.cast(corner[1], ks.i32)
        low = ks.math.mix(at(q, i, j), at(q, i + 1, j), f[0])
        high = ks.math.mix(at(q, i, j + 1), at(q, i + 1, j + 1), f[0])
        return ks.math.mix(low, high, f[1])

    @ks.kernel
    def carry() -> None:
        for i, j in flow:
            centre = ks.Vector([i + 0.5, j + 0.5])
            middle = centre - 0.5 * DT * flow[i, j]  # the midpoint rule: second order in time
            origin = centre - DT * between(flow, middle)
            carried_flow[i, j] = between(flow, origin)
            carried[i, j] = between(density, origin) * 0.998

    @ks.kernel
    def push(time: ks.f32) -> None:
        for i, j in flow:
            d = carried[i, j]
            source = ks.Vector([i - size * (0.5 + 0.08 * ks.sin(3.0 * time)), j - size * 0.08])
            if source.norm() < size * 0.045:
                d = ks.max(d, 1.0)
            density[i, j] = d
            flow[i, j] = carried_flow[i, j] + DT * ks.Vector([0.0, BUOYANCY * d * size / 512])
        for i, j in curl:
            curl[i, j] = 0.5 * (
                at(flow, i + 1, j)[1]
                - at(flow, i - 1, j)[1]
                - at(flow, i, j + 1)[0]
                + at(flow, i, j - 1)[0]
            )
        for i, j in flow:
            uphill = ks.Vector(
                [
                    abs(at(curl, i + 1, j)) - abs(at(curl, i - 1, j)),
                    abs(at(curl, i, j + 1)) - abs(at(curl, i, j - 1)),
                ]
            )
            n = uphill / (uphill.norm() + 1e-5)
            flow[i, j] += DT * CURL * curl[i, j] * ks.Vector([n[1], -n[0]])
        for i, j in flow:
            if i == 0 or i == size - 1 or j == 0 or j == size - 1:
                flow[i, j] = ks.Vector([0.0, 0.0])
        for i, j in divergence:
            divergence[i, j] = 0.5 * (
                at(flow, i + 1, j)[0]
                - at(flow, i - 1, j)[0]
                + at(flow, i, j + 1)[1]
                - at(flow, i, j - 1)[1]
            )

    @ks.kernel
    def relax(p: ks.template, after: ks.template) -> None:
        for i, j in p:
            around = at(p, i + 1, j) + at(p, i - 1, j) + at(p, i, j + 1) + at(p, i, j - 1)
            after[i, j] = 0.25 * (around - divergence[i, j])

    @ks.kernel
    def project() -> None:
        for i, j in flow:
            flow[i, j] -= 0.5 * ks.Vector(
                [
                    at(pressure, i + 1, j) - at(pressure, i - 1, j),
                    at(pressure, i, j + 1) - at(pressure, i, j - 1),
                ]
            )

    for k in range(steps):
        carry()
        push(k * DT)
        for _ in range(sweeps // 2):
            relax(pressure, next_pressure)
            relax(next_pressure, pressure)
        project()
    grey: np.ndarray = density.to_numpy()
    return grey


if __name__ == "__main__":
    from PIL import Image

    d = np.clip(smoke(size=320, steps=220), 0, 1).T[::-1, :, None]
    picture = (1 - d) * [16, 20, 34] + d * [236, 228, 214]
    Image.fromarray(picture.astype(np.uint8)).save(
        sys.argv[1] if len(sys.argv) > 1 else "fluid.png"
    )
