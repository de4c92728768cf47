"""Forest fire, a cellular automaton (Drossel and Schwabl 1992): trees grow, lightning strikes, fire goes from tree to tree.

python automaton.py [picture.png]
"""

import sys

import kernelscape as ks
import numpy as np

EMPTY, TREE, FIRE, ASH = 0, 1, 2, 3
GROWTH, LIGHTNING, COOLING = 0.01, 2e-6, 0.05  # chances per cell and step
COLOURS = np.array([[38, 30, 24], [46, 112, 58], [255, 170, 40], [92, 84, 78]], dtype=np.uint8)


def forest(size: int, steps: int, seed: int = 1) -> np.ndarray:
    """The state of each cell, shape (size, size), after some steps on a torus."""
    ks.init(arch=ks.cpu, random_seed=seed)
    cells = ks.field(ks.i32, shape=(size, size))
    after = ks.field(ks.i32, shape=(size, size))

    @ks.func
    def burning_neighbours(i: int, j: int) -> int:
        count = 0
        for di, dj in ks.static(((-1, 0), (1, 0), (0, -1), (0, 1))):
            count += cells[(i + di) % size, (j + dj) % size] == FIRE
        return count

    @ks.kernel
    def plant(share: ks.f32) -> None:
        for i, j in cells:
            cells[i, j] = TREE if ks.random() < share else EMPTY

    @ks.kernel
    def step() -> None:
        for i, j in cells:
            state = cells[i, j]
            chance = ks.random()
            if state == TREE:
                if burning_neighbours(i, j) > 0 or chance < LIGHTNING:
                    state = FIRE
            elif state == FIRE:
                state = ASH
            elif state == ASH:
                if chance < COOLING:
                    state = EMPTY
            elif chance < GROWTH:
                state = TREE
            after[i, j] = state
        for i, j in cells:
            cells[i, j] = after[i, j]

    plant(0.4)
    for _ in range(steps):
        step()
    states: np.ndarray = cells.to_numpy()
    return states


if __name__ == "__main__":
    from PIL import Image

    states = forest(size=384, steps=400)
    Image.fromarray(COLOURS[states]).save(sys.argv[1] if len(sys.argv) > 1 else "automaton.png")
