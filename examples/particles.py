"""A jelly block, snow and water fall on each other: the material point method, moved by affine velocities (Jiang 2015).

Particles carry mass, velocity and how their surroundings are deformed; forces are computed on a grid that is thrown away after
each step. Elastic stress is the fixed corotated one, from the polar decomposition; snow yields where its singular values leave
a range.

    python particles.py [picture.png]
"""

import sys
from typing import Any

import kernelscape as ks
import numpy as np

JELLY, SNOW, WATER = 0, 1, 2
COLOURS = np.array([[237, 85, 100], [238, 238, 240], [64, 140, 220]], dtype=np.uint8)
STIFFNESS, POISSON, GRAVITY = 1000.0, 0.2, 9.8


def simulate(cells: int, count: int, time: float) -> tuple[np.ndarray, np.ndarray]:
    """Positions in the unit square, shape (count, 2), and materials of the particles after some seconds."""
    ks.init(arch=ks.cpu, random_seed=2)
    dx = 1.0 / cells
    dt = 0.02 * dx  # a sound wave passes a cell in some 20 steps or more
    volume = (0.5 * dx) ** 2
    mu = STIFFNESS / (2 * (1 + POISSON))
    lam = 2 * mu * POISSON / (1 - 2 * POISSON)
    x, v = (ks.Vector.field(2, ks.f32, shape=count) for _ in range(2))
    affine, deformed = (ks.Matrix.field(2, 2, ks.f32, shape=count) for _ in range(2))
    material, hardening = ks.field(ks.i32, shape=count), ks.field(ks.f32, shape=count)
    momentum = ks.Vector.field(2, ks.f32, shape=(cells, cells))
    mass = ks.field(ks.f32, shape=(cells, cells))

    @ks.kernel
    def place() -> None:
        for p in x:
            block = p * 3 // count
            material[p] = block
            corner = ks.Vector([0.12 + 0.22 * block, 0.06 + 0.3 * block])
            x[p] = corner + 0.24 * ks.Vector([ks.random(), ks.random()])
            v[p] = ks.Vector([0.0, -2.0])
            deformed[p] = ks.Matrix.identity(ks.f32, 2)
            hardening[p] = 1.0

    @ks.func
    def weights(f: Any) -> Any:
        """Quadratic B-splines: how much a particle belongs to three neighbouring cells, along each axis."""
        return (0.5 * (1.5 - f) ** 2, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2)

    @ks.kernel
    def step() -> None:
        for i, j in mass:
            momentum[i, j] = ks.Vector([0.0, 0.0])
            mass[i, j] = 0.0
        for p in x:
            F = deformed[p] + dt * affine[p] @ deformed[p]
            h = 0.3 if material[p] == JELLY else hardening[p]
            shear = 0.0 if material[p] == WATER else mu * h
            U, S, V = ks.svd(F)
            J = 1.0
            for d in ks.static(range(2)):
                s = S[d, d]
                if material[p] == SNOW:
                    s = ks.math.clamp(s, 0.975, 1.0045)
                    packed = hardening[p] * ks.exp(10.0 * (s - S[d, d]))
                    hardening[p] = ks.math.clamp(packed, 0.1, 20.0)
                J *= s
                S[d, d] = s
            if material[p] == WATER:
                F = ks.sqrt(J) * ks.Matrix.identity(ks.f32, 2)
            elif material[p] == SNOW:
                F = U @ S @ V.transpose()
            deformed[p] = F
            R = U @ V.transpose()
            pressure = lam * h * J * (J - 1.0) * ks.Matrix.identity(ks.f32, 2)
            stress = 2.0 * shear * (F - R) @ F.transpose() + pressure
            carried = affine[p] * volume - (4.0 * dt * volume / (dx * dx)) * stress  # density 1
            base = ks.cast(x[p] / dx - 0.5, ks.i32)
            f = x[p] / dx - base
            w = weights(f)
            for i, j in ks.static(ks.ndrange(3, 3)):
                offset = (ks.Vector([i, j]) - f) * dx
                share = w[i][0] * w[j][1]
                momentum[base + ks.Vector([i, j])] += share * (volume * v[p] + carried @ offset)
                mass[base + ks.Vector([i, j])] += share * volume
        for i, j in mass:
            if mass[i, j] > 0:
                u = momentum[i, j] / mass[i, j] - ks.Vector([0.0, dt * GRAVITY])
                if (i < 3 and u[0] < 0) or (i > cells - 4 and u[0] > 0):
                    u[0] = 0.0
                if (j < 3 and u[1] < 0) or (j > cells - 4 and u[1] > 0):
                    u[1] = 0.0
                momentum[i, j] = u  # from here on a velocity
        for p in x:
            base = ks.cast(x[p] / dx - 0.5, ks.i32)
            f = x[p] / dx - base
            w = weights(f)
            moved = ks.Vector([0.0, 0.0])
            turned = ks.Matrix.zero(ks.f32, 2, 2)
            for i, j in ks.static(ks.ndrange(3, 3)):
                u = w[i][0] * w[j][1] * momentum[base + ks.Vector([i, j])]
                moved += u
                turned += (4.0 / dx) * u.outer_product(ks.Vector([i, j]) - f)
            v[p], affine[p] = moved, turned
            x[p] += dt * moved

    place()
    for _ in range(int(time / dt)):
        step()
    return x.to_numpy(), material.to_numpy()


if __name__ == "__main__":
    from PIL import Image

    places, kinds = simulate(cells=128, count=24000, time=1.0)
    picture = np.full((512, 512, 3), 24, dtype=np.uint8)
    column, row = (places * 511).astype(int).T
    picture[511 - row, column] = COLOURS[kinds]
    Image.fromarray(picture).save(sys.argv[1] if len(sys.argv) > 1 else "particles.png")
