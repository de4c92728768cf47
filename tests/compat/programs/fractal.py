"""A Julia set that turns with time."""

import taichi as ti

ti.init(arch=ti.gpu)

n = 40
pixels = ti.field(dtype=float, shape=(n * 2, n))
t = ti.field(dtype=float, shape=())


@ti.func
def complex_sqr(z):
    return ti.Vector([z[0] ** 2 - z[1] ** 2, z[1] * z[0] * 2])


@ti.kernel
def paint():
    for i, j in pixels:
        c = ti.Vector([-0.8, ti.cos(t[None]) * 0.2])
        z = ti.Vector([i / n - 1, j / n - 0.5]) * 2
        iterations = 0
        while z.norm() < 20 and iterations < 50:
            z = complex_sqr(z) + c
            iterations += 1
        pixels[i, j] = 1 - iterations * 0.02


@ti.kernel
def tick():
    t[None] += 0.03


def step():
    tick()
    paint()


gui = ti.GUI("Julia Set", res=(n * 2, n))
for _k in range(1000000):
    step()
    gui.set_image(pixels)
    gui.show()
