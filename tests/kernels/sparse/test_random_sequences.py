"""Random sequences on random trees as random candidates: C and CUDA text leave what the reference leaves, in three periods.

experiments/sparse_trees.py has many more. What was wrong once is here by itself.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.analysis.scatters import scatters
from kernelscape.kernels.frontend.recorder import record_program
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.decisions import fix
from kernelscape.testing import checking, sparse_batches, sparse_candidates, sparse_periods
from kernelscape.testing.interpreted import run_reference
from kernelscape.testing.sparse_drawn import WORDS, Part, Tree
from kernelscape.testing.sparse_programs import World

pytest.importorskip("kernelscape.runtime.emulator")
pytest.importorskip("kernelscape.runtime.cuda")
WAYS = ("decided", "emulated")
TREES = range(26, 32)  # whose programs call 25 of the 34 kinds of kernels
SIZE = sparse_batches.Size(n_programs=4, n_parts=1, most_cells=40)
DRAWN = ("a repeat", "a tree with offsets", "deactivate_all by the host")
# A list below pools, of which cells are inactive.
BESIDE = (("hash", (3, 1)),)
LISTED = Tree((("hash", (1, 1)), ("pointer", (3, 3))), BESIDE, 1, 3, "i32", 3)
TILES = (("scatter", "TILE"), ("scatter_cells", "64"))


@pytest.mark.compiler
@pytest.mark.skipif(not shutil.which("g++") and not shutil.which("clang++"), reason="no C++")
def test_texts_leave_what_the_reference_leaves(tmp_path: Path) -> None:
    """A call of the compiler for each target, and trees that several programs share; experiments/sparse_trees.py has hundreds."""
    found = sparse_batches.run(WAYS, TREES, tmp_path, size=SIZE)
    assert [x.wrong for x in found.values()] == [[], []]
    assert sum(x.programs - x.dead_ends for x in found.values()) >= 40
    words = found["decided"].words
    assert all(words[kind] for kind in DRAWN)
    assert len({*WORDS} & {*words}) >= 24


def test_a_list_of_a_cell_that_is_inactive_is_emptied_without_a_store() -> None:
    """Slot 0 of a pool is what inactive cells share."""
    world = World(LISTED)
    world.begin(17)
    recording, before = world.recorded((Part(1, 0, (("empty", 4),)),))
    world.end()
    (name,) = (a for key, a in recording.trees[0].sections if key == "length2")
    before[name][0] = 7
    assert run_reference(recording, before, {})[name][0] == 7


def test_elements_are_stored_from_one_cell_each() -> None:
    """Lists have no order, so no element may depend on the cell that came last: rows of the other tree are longer."""
    longer = (("pointer", (1, 3)), ("dense", (3, 3)))
    world = World(Tree((("pointer", (3, 3)), ("dense", (1, 5))), longer, 1, 3, "i32", 1))
    with ks.interpret():
        for i, j in np.ndindex(3, 9):
            world.other[i, j] = 9 * i + j + 1
        world.call("up", 0)
    found = world.x.to_numpy()
    world.end()
    assert found[:3, :5].tolist() == [[9 * i + j + 1 for j in range(5)] for i in range(3)]


@pytest.mark.compiler
def test_tiles_of_scatters_are_not_added_to_what_inactive_cells_share(tmp_path: Path) -> None:
    """Slot 0 of a pool lies in the first block; it is read-only here."""
    world = World(Tree((("hash", (3, 2)), ("dense", (1, 11))), BESIDE, 1, 3, "f32", 1))
    world.begin(23)
    recording, before = world.recorded((Part(3, 0, (("add", 9),)),))
    world.end()
    space = fix(build_space(normalise(recording), sparse_candidates.machine(0)), TILES)
    made = checking.random_candidate(space.root(), np.random.default_rng(1))
    wanted = sparse_periods.periods(recording, before)
    work = sparse_candidates.Work(checking.source_of(made), recording, before, wanted)
    assert sparse_candidates.faults_built([work], tmp_path / "tiles") == [""]


def adjoint_on_leaves():
    """A recording that adds to neighbours of cells, which may be in other leaves, or inactive: the adjoint of a gather."""
    x, y = (ks.field(ks.f64, needs_grad=True) for _ in range(2))
    ks.root.pointer(ks.ij, 6).dense(ks.ij, 3).place(x, y, x.grad, y.grad)

    @ks.kernel
    def begin():
        for i, j in ks.ndrange(11, 14):
            if (i // 3 + j // 3) % 4 != 1:
                x[i, j] = 3 * i + j
                y.grad[i, j] = i - 2 * j

    @ks.kernel
    def gather():
        for i, j in x:
            y[i, j] += x[i + 1, j] * x[i, j] + 3 * x[i, j - 1]

    begin()
    return record_program(lambda: gather.grad(), ())


@pytest.mark.compiler
@pytest.mark.parametrize("colouring", ["GENERATE", "IF_CHANGED"])
def test_neighbours_of_cells_are_updated_by_coloured_leaves(colouring: str, tmp_path: Path) -> None:
    ks.init()
    recording, before = adjoint_on_leaves()
    greedy = (("scatter", "GREEDY"), ("greedy_block", "1"), ("colouring", colouring))
    space = fix(build_space(normalise(recording), sparse_candidates.machine(0)), greedy)
    made = checking.random_candidate(space.root(), np.random.default_rng(1))
    assert isinstance(made, Candidate)
    wanted = sparse_periods.periods(recording, before)
    work = sparse_candidates.Work(checking.source_of(made), recording, before, wanted)
    assert sparse_candidates.faults_built([work], tmp_path / "leaves") == [""]


def adjoint_of_particles():
    """A recording in which particles update the cells of a sparse grid that their positions find: the adjoint of a gather."""
    grid = ks.field(ks.f64, needs_grad=True)
    ks.root.pointer(ks.ij, 7).dense(ks.ij, 3).place(grid, grid.grad)
    x, w = ks.Vector.field(2, ks.f32, shape=90), ks.field(ks.f64, shape=90, needs_grad=True)

    @ks.kernel
    def begin():
        for i, j in ks.ndrange(19, 19):
            if (i // 3 + j // 3) % 4 != 1:
                grid[i, j] = 3 * i + j
        for p in x:
            x[p] = [0.13 * p % 7, 0.37 * (p // 3) % 7]
            w.grad[p] = p % 7 - 3

    @ks.kernel
    def gather():
        for p in x:
            base = ks.cast(x[p] * 2.3 + 0.4, ks.i32)
            near = x[p] * 2.3 - base
            for a, b in ks.ndrange(3, 3):
                w[p] += grid[base[0] + a, base[1] + b] * (near[1] + a + 2 * b)

    begin()
    return record_program(lambda: gather.grad(), ())


@pytest.mark.compiler
@pytest.mark.parametrize("block", ["1", "16"])
def test_particles_update_cells_of_leaves_in_coloured_blocks(block: str, tmp_path: Path) -> None:
    """The cell of a position is computed once: computed again it might be rounded to a neighbour, and have another colour."""
    ks.init()
    recording, before = adjoint_of_particles()
    greedy = (("scatter", "GREEDY"), ("greedy_block", block))
    problem = normalise(recording)
    wanted = sparse_periods.periods(recording, before)
    works = []
    for k in range(3):
        space = fix(build_space(problem, sparse_candidates.machine(k)), greedy)
        assert len(ways_of(space, "colouring")) == 1, "positions change from call to call"
        lanes = ["VECTOR", "ABSENT"][k % 2]
        (inner,) = (d.name for d in space.variables.kind if d.name.endswith("inner"))
        made = fix(space, ((f"dim_kind({inner})", lanes),)).root()
        made = checking.random_candidate(made, np.random.default_rng(k))
        assert isinstance(made, Candidate)
        works.append(sparse_candidates.Work(checking.source_of(made), recording, before, wanted))
    assert sparse_candidates.faults_built(works, tmp_path / "leaves") == [""] * 3


@pytest.mark.compiler
@pytest.mark.parametrize("how", ["SORTED", "COLOUR", "TILE"])
def test_particles_update_cells_of_leaves_block_by_block(how: str, tmp_path: Path) -> None:
    """Their windows are boxes of coordinates: cells with other coordinates are others, wherever their leaves lie."""
    ks.init()
    recording, before = adjoint_of_particles()
    problem = normalise(recording)
    (found,) = (x for t in problem.tasks for x in scatters(t, problem) if x.window)
    assert (found.is_in_tree, found.extents, [r.span for r in found.window]) == (
        True,
        (21, 21),
        [3, 3],
    )
    free = build_space(problem, checking.target(2, 32))
    (var,) = free.variables.scatter.values()
    ways = {free.choices[var].values[k] for k in free.root().values(var)}
    assert ways == {"SERIAL", "ATOMIC", "PRIVATE", "SORTED", "COLOUR", "TILE", "GREEDY"}
    wanted, works, sizes = sparse_periods.periods(recording, before), [], set[str]()
    for k, cores in enumerate((2, 3, 5, 1)):
        space = fix(build_space(problem, checking.target(cores, 32)), (("scatter", how),))
        made = checking.random_candidate(space.root(), np.random.default_rng(k))
        assert isinstance(made, Candidate)
        (cells,) = space.variables.scatter_cells.values()
        sizes.add(space.choices[cells].values[made.value(cells)])
        works.append(sparse_candidates.Work(checking.source_of(made), recording, before, wanted))
    assert len(sizes) > 1
    assert sparse_candidates.faults_built(works, tmp_path / "leaves") == [""] * 4


def ways_of(space, kind):
    """The possible values of the only choice of a kind."""
    (var,) = space.variables.of_tasks[kind].values()
    return space.root().values(var)
