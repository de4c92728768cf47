"""Waves on a square of water."""

import taichi as ti

ti.init(arch=ti.gpu)

c, damping, dt = 0.2, 0.01, 1.0
size = 48
height = ti.field(ti.f32)
velocity = ti.field(ti.f32)
acceleration = ti.field(ti.f32)
ti.root.dense(ti.ij, (size, size)).place(height, velocity)
ti.root.dense(ti.ij, (size, size)).place(acceleration)


@ti.kernel
def drop(x: ti.f32, y: ti.f32, a: ti.f32):
    for i, j in height:
        r2 = (i - x) ** 2 + (j - y) ** 2
        height[i, j] += a * ti.exp(-0.02 * r2)


@ti.func
def laplacian(i, j):
    return 0.25 * (
        height[i - 1, j] + height[i + 1, j] + height[i, j - 1] + height[i, j + 1] - 4 * height[i, j]
    )


@ti.kernel
def forces():
    for i, j in ti.ndrange((1, size - 1), (1, size - 1)):
        acceleration[i, j] = c * laplacian(i, j) - damping * velocity[i, j]


@ti.kernel
def integrate():
    for i, j in height:
        velocity[i, j] += dt * acceleration[i, j]
        height[i, j] += dt * velocity[i, j]


def make_a_drop():
    drop(size / 2, size / 2, 4.0)


def step():
    forces()
    integrate()


if __name__ == "__main__":
    make_a_drop()
    gui = ti.GUI("waves", (size, size))
    try:
        while gui.running:
            step()
            gui.set_image(height)
            gui.show()
    finally:
        print("the window is closed")
    ti.tools.imwrite(height, "waves.png")
