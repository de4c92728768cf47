"""Masses on a cloth of springs that falls."""

import taichi as ti
import taichi.math as tm

ti.init(arch=ti.cpu)

n = 24
dt = 4e-3
stiffness = 900.0
x = ti.Vector.field(3, float, (n, n))
v = ti.Vector.field(3, float, (n, n))


@ti.kernel
def initialize():
    for i, j in x:
        x[i, j] = tm.vec3(i / n, 0.6, j / n)
        v[i, j] = 0.0


@ti.kernel
def substep():
    for i, j in x:
        v[i, j] += tm.vec3(0, -9.8, 0) * dt
    for i, j in x:
        force = tm.vec3(0.0)
        for d in ti.static([(1, 0), (-1, 0), (0, 1), (0, -1)]):
            k, m = i + d[0], j + d[1]
            if 0 <= k < n and 0 <= m < n:
                between = x[i, j] - x[k, m]
                length = tm.length(between)
                force += -stiffness * between / length * (length * n - 1.0)
        v[i, j] += force * dt / n
    for i, j in x:
        v[i, j] *= ti.exp(-0.5 * dt)
        if i != 0:
            x[i, j] += dt * v[i, j]


def main():
    initialize()
    window = ti.ui.Window("cloth", (64, 64))
    canvas = window.get_canvas()
    while window.running:
        for _ in range(4):
            substep()
        canvas.circles(x, radius=0.01)
        window.show()
    print("ended")


if __name__ == "__main__":
    main()
