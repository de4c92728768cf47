"""Conway's game of life: the board of the next generation is counted from the one before."""

import taichi as ti

ti.init(arch=ti.gpu)

n = 64
alive = ti.field(int, shape=(n, n))
count = ti.field(int, shape=(n, n))


@ti.kernel
def init():
    for i, j in alive:
        alive[i, j] = ti.random() > 0.7


@ti.func
def neighbours(i, j):
    found = 0
    for di, dj in ti.static(ti.ndrange((-1, 2), (-1, 2))):
        if ti.static(di != 0 or dj != 0):
            found += alive[(i + di) % n, (j + dj) % n]
    return found


@ti.kernel
def count_all():
    for i, j in alive:
        count[i, j] = neighbours(i, j)


@ti.kernel
def turn():
    for i, j in alive:
        if count[i, j] == 3 or (alive[i, j] == 1 and count[i, j] == 2):
            alive[i, j] = 1
        else:
            alive[i, j] = 0


def step():
    count_all()
    turn()


if __name__ == "__main__":
    init()
    gui = ti.GUI("life", (n, n))
    while gui.running and not gui.get_event(gui.ESCAPE):
        step()
        gui.set_image(alive.to_numpy().astype("float32"))
        gui.show()
    print("cells alive:", alive.to_numpy().sum())
