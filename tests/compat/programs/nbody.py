"""Stars that attract each other, in a class."""

import math

import taichi as ti

ti.init(arch=ti.cpu)

N = 96
G = 1.0


@ti.data_oriented
class Stars:
    def __init__(self, n):
        self.n = n
        self.pos = ti.Vector.field(2, ti.f32, shape=n)
        self.vel = ti.Vector.field(2, ti.f32, shape=n)
        self.force = ti.Vector.field(2, ti.f32, shape=n)

    @ti.kernel
    def initialize(self):
        for i in range(self.n):
            theta = ti.random() * 2 * math.pi
            r = ti.sqrt(ti.random()) * 0.3
            self.pos[i] = ti.Vector([0.5 + r * ti.cos(theta), 0.5 + r * ti.sin(theta)])
            self.vel[i] = ti.Vector([-ti.sin(theta), ti.cos(theta)])

    @ti.kernel
    def compute_force(self):
        for i in range(self.n):
            self.force[i] = ti.Vector([0.0, 0.0])
        for i in range(self.n):
            p = self.pos[i]
            for j in range(self.n):
                if i != j:
                    diff = p - self.pos[j]
                    r = diff.norm(1e-2)
                    self.force[i] += -G * (1.0 / r) ** 3 * diff

    @ti.kernel
    def update(self, dt: ti.f32):
        for i in self.vel:
            self.vel[i] += dt * self.force[i] / self.n
            self.pos[i] += dt * self.vel[i]


stars = Stars(N)


def reset():
    stars.initialize()


def step():
    stars.compute_force()
    stars.update(1e-3)


if __name__ == "__main__":
    reset()
    gui = ti.GUI("stars", (64, 64))
    while gui.running:
        step()
        gui.circles(stars.pos.to_numpy(), radius=2)
        gui.show()
