"""Particles add to cells of a sparse field in tiles of cells (`scatter` TILE): each tile's cells are looked up when it is added."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.analysis.scatters import scatters
from kernelscape.kernels.frontend.recorder import record_program
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.decisions import fix
from kernelscape.testing import checking, sparse_candidates, sparse_periods

TILES = ("scatter", "TILE")

# Trees over 21 x 21 cells, or a few more.
TREES: dict[str, Callable[[], Any]] = {
    "pointer": lambda: ks.root.pointer(ks.ij, 7).dense(ks.ij, 3),
    "pointers": lambda: ks.root.pointer(ks.ij, 3).pointer(ks.ij, (7, 1)).dense(ks.ij, (1, 7)),
    "bitmasked": lambda: ks.root.pointer(ks.ij, 7).bitmasked(ks.ij, 3),
    "mask above": lambda: ks.root.bitmasked(ks.ij, 7).dense(ks.ij, 3),
    "hash": lambda: ks.root.hash(ks.ij, 7).dense(ks.ij, 3),
    "dynamic": lambda: ks.root.pointer(ks.i, 21).dynamic(ks.j, 21, chunk_size=4),
}


def adjoint(tree: str, dtype: Any, offset: tuple[int, int] | None = None, n_components: int = 0):
    """The adjoint of a gather from cells around particles. Some cells are inactive, some particles outside of the domain.

    `offset`: the least indices of the tree's cells.
    """
    if n_components:
        grid = ks.Vector.field(n_components, dtype, needs_grad=True)
    else:
        grid = ks.field(dtype, needs_grad=True)
    own = {} if offset is None else {"offset": offset}
    TREES[tree]().place(grid, grid.grad, **own)
    first, second = offset or (0, 0)
    x, w = ks.Vector.field(2, ks.f32, shape=80), ks.field(dtype, shape=80, needs_grad=True)

    @ks.kernel
    def begin():
        for i, j in ks.ndrange(21, 21):
            if (i // 3 + j // 3) % 4 != 1 and not (tree == "dynamic" and j > i % 9 + 8):
                grid[first + i, second + j] = i - j
        for p in x:
            x[p] = [first + 0.37 * p % 26 - 2.6, second + 1.13 * (p // 3) % 27 - 2.7]
            w.grad[p] = p % 7 - 3

    @ks.kernel
    def gather():
        for p in x:
            base = ks.cast(ks.floor(x[p]), ks.i32)
            for a, b in ks.ndrange(3, 2):
                value = grid[base[0] + a, base[1] - b]
                if ks.static(n_components):
                    w[p] += value[0] * (1 + a) - 2 * value[1] * b
                else:
                    w[p] += value * (1 + a - 3 * b)

    begin()
    return record_program(lambda: gather.grad(), ())


def works_in_tiles(recording: Any, before: Any) -> list[sparse_candidates.Work]:
    """Random candidates that add in tiles, for 2, 3, 5 threads and one."""
    problem, works = normalise(recording), []
    wanted = sparse_periods.periods(recording, before)
    for k, cores in enumerate((2, 3, 5, 1)):
        space = fix(build_space(problem, checking.target(cores, 32)), (TILES,))
        made = checking.random_candidate(space.root(), np.random.default_rng(k))
        assert isinstance(made, Candidate)
        works.append(sparse_candidates.Work(checking.source_of(made), recording, before, wanted))
    return works


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("tree", "dtype", "offset"),
    [
        ("pointer", "f32", None),
        ("pointers", "f64", (-5, -30)),
        ("bitmasked", "f32", (-5, 4)),
        ("mask above", "f64", None),
        ("hash", "f32", (-12, -9)),
        ("dynamic", "f64", None),
    ],
)
def test_tiles_are_added_to_active_cells_alone(
    tree: str, dtype: str, offset: tuple[int, int] | None, tmp_path: Path
) -> None:
    ks.init()
    works = works_in_tiles(*adjoint(tree, getattr(ks, dtype), offset))
    assert sparse_candidates.faults_built(works, tmp_path) == [""] * 4


@pytest.mark.compiler
def test_tiles_have_the_components_of_vectors(tmp_path: Path) -> None:
    ks.init()
    recording, before = adjoint("pointer", ks.f32, n_components=3)
    problem = normalise(recording)
    (found,) = (x for t in problem.tasks for x in scatters(t, problem))
    assert [(r.base is None, r.span) for r in found.window] == [(True, 2), (False, 3), (False, 2)]
    works = works_in_tiles(recording, before)
    assert sparse_candidates.faults_built(works, tmp_path) == [""] * 4


def deposits():
    """A call that counts in cells, and finds their maxima: it activates none. It leaves every third cell as it is, NaN or not."""
    top, count = ks.field(ks.f32), ks.field(ks.i32)
    tree = ks.root.pointer(ks.i, 9)
    tree.bitmasked(ks.i, 4).place(top, count)
    at, value = ks.field(ks.i32, shape=90), ks.field(ks.f32, shape=90)

    @ks.kernel
    def begin():
        for i in range(30):
            if i % 7 != 3:
                top[i] = ks.math.nan if i % 6 == 0 else i - 15
        for p in at:
            at[p] = 3 * (11 * p % 8) - 2
            value[p] = p % 19 - 9

    @ks.kernel
    def deposit():
        ks.no_activate(tree)
        for p in at:
            first = at[p]
            for a in range(2):
                ks.atomic_max(top[first + a], value[p])
                count[first + a] += a

    begin()
    return record_program(deposit, ())


@pytest.mark.compiler
def test_tiles_hold_maxima_and_counts(tmp_path: Path) -> None:
    ks.init()
    works = works_in_tiles(*deposits())
    assert sparse_candidates.faults_built(works, tmp_path) == [""] * 4
