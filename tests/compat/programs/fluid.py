"""A fluid in a box: advection backwards in time, pressure by Jacobi's method, with its fields in pairs."""

import sys

import taichi as ti

ti.init(arch=ti.gpu)

res = 32 if len(sys.argv) < 2 else int(sys.argv[1])
dt = 0.03
velocity = ti.Vector.field(2, float, shape=(res, res))
new_velocity = ti.Vector.field(2, float, shape=(res, res))
divergence = ti.field(float, shape=(res, res))
pressure = ti.field(float, shape=(res, res))
new_pressure = ti.field(float, shape=(res, res))
dye = ti.field(float, shape=(res, res))


class Pair:
    def __init__(self, cur, nxt):
        self.cur = cur
        self.nxt = nxt

    def swap(self):
        self.cur, self.nxt = self.nxt, self.cur


pressures = Pair(pressure, new_pressure)


@ti.func
def sample(f: ti.template(), i, j):
    return f[ti.math.clamp(i, 0, res - 1), ti.math.clamp(j, 0, res - 1)]


@ti.func
def between(f: ti.template(), p):
    s, t = p - 0.5
    i, j = int(ti.floor(s)), int(ti.floor(t))
    a, b = s - i, t - j
    low = ti.math.mix(sample(f, i, j), sample(f, i + 1, j), a)
    high = ti.math.mix(sample(f, i, j + 1), sample(f, i + 1, j + 1), a)
    return ti.math.mix(low, high, b)


@ti.kernel
def start():
    for i, j in velocity:
        d = (ti.Vector([i, j]) + 0.5) / res - 0.5
        velocity[i, j] = ti.Vector([-d.y, d.x]) * 20 * ti.exp(-8 * d.norm_sqr())
        dye[i, j] = 1.0 if d.x > 0 else 0.0


@ti.kernel
def advect():
    for i, j in velocity:
        p = ti.Vector([i, j]) + 0.5 - dt * velocity[i, j]
        new_velocity[i, j] = between(velocity, p)


@ti.kernel
def diverge():
    for i, j in velocity:
        velocity[i, j] = new_velocity[i, j]
        l = sample(new_velocity, i - 1, j).x
        r = sample(new_velocity, i + 1, j).x
        b = sample(new_velocity, i, j - 1).y
        t = sample(new_velocity, i, j + 1).y
        divergence[i, j] = (r - l + t - b) * 0.5


@ti.kernel
def jacobi(p: ti.template(), q: ti.template()):
    for i, j in p:
        around = (
            sample(p, i - 1, j) + sample(p, i + 1, j) + sample(p, i, j - 1) + sample(p, i, j + 1)
        )
        q[i, j] = (around - divergence[i, j]) * 0.25


@ti.kernel
def project(p: ti.template()):
    for i, j in velocity:
        l, r = sample(p, i - 1, j), sample(p, i + 1, j)
        b, t = sample(p, i, j - 1), sample(p, i, j + 1)
        velocity[i, j] -= 0.5 * ti.Vector([r - l, t - b])


def step():
    advect()
    diverge()
    for _ in range(4):
        jacobi(pressures.cur, pressures.nxt)
        pressures.swap()
    project(pressures.cur)


def main():
    start()
    gui = ti.GUI("fluid", (res, res))
    while True:
        step()
        gui.set_image(dye)
        gui.show()


if __name__ == "__main__":
    main()
