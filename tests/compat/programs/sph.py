"""Particles with neighbours from a grid of cells: their density, and a push apart."""

import taichi as ti
from taichi.math import ivec2, vec2

ti.init(arch=ti.cpu, default_ip=ti.i32)

n = 128
cells = 10
h = 1.0 / cells
most = 32

pos = ti.Vector.field(2, ti.f32, n)
vel = ti.Vector.field(2, ti.f32, n)
rho = ti.field(ti.f32, n)
n_in_cell = ti.field(ti.i32, (cells, cells))
in_cell = ti.field(ti.i32, (cells, cells, most))


@ti.kernel
def reset():
    for i in pos:
        pos[i] = vec2(ti.random(), ti.random()) * 0.5 + 0.25
        vel[i] = vec2(0, 0)


@ti.func
def cell_of(p):
    return ti.math.clamp(int(p / h), 0, cells - 1)


@ti.kernel
def sort_into_cells():
    for c in ti.grouped(n_in_cell):
        n_in_cell[c] = 0
    for i in pos:
        c = cell_of(pos[i])
        k = ti.atomic_add(n_in_cell[c], 1)
        if k < most:
            in_cell[c, k] = i


@ti.kernel
def densities():
    for i in pos:
        c = cell_of(pos[i])
        found = 0.0
        for d in ti.grouped(ti.ndrange((-1, 2), (-1, 2))):
            m = c + d
            if 0 <= m.x < cells and 0 <= m.y < cells:
                for k in range(ti.min(n_in_cell[m], most)):
                    r = (pos[i] - pos[in_cell[m, k]]).norm() / h
                    found += ti.max(0.0, 1 - r) ** 2
        rho[i] = found


@ti.kernel
def move():
    for i in pos:
        vel[i] += 1e-3 * vec2(0.5 - pos[i].x, -1.0 - rho[i] * 0.01)
        pos[i] += 1e-2 * vel[i]
        pos[i] = ti.math.clamp(pos[i], 0.0, 1.0)


def step():
    sort_into_cells()
    densities()
    move()


if __name__ == "__main__":
    reset()
    gui = ti.GUI("sph", (64, 64))
    while gui.running:
        step()
        gui.circles(pos.to_numpy(), radius=2)
        gui.show()
    print(ivec2(1, 2))
