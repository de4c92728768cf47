"""Particles that activate the cells to which they add, sorted by block: threads change tables at once, fields block by block.

Cells become active by an update, also if it adds zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.explorer.workload import Options, space_for
from kernelscape.kernels.frontend.recorder import record_program
from kernelscape.kernels.ir.task import Problem
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space.backbone import OUTER
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, Space
from kernelscape.space.decisions import fix
from kernelscape.space.families.scatter import SCATTER
from kernelscape.testing import checking, sparse_candidates, sparse_periods
from kernelscape.testing.machines import root_of

N = 70  # particles
WAYS = (("SORTED", 2), ("COLOUR", 3), ("COLOUR", 5), ("SORTED", 1))  # and how many threads

# Trees over 21 cells along each of their axes.
TREES: dict[str, Callable[[], Any]] = {
    "pointer": lambda: ks.root.pointer(ks.ij, 7).dense(ks.ij, 3),
    "pointers": lambda: ks.root.pointer(ks.ij, 3).pointer(ks.ij, (7, 1)).dense(ks.ij, (1, 7)),
    "bitmasked": lambda: ks.root.pointer(ks.ij, 7).bitmasked(ks.ij, 3),
    "hash": lambda: ks.root.hash(ks.ij, 7).dense(ks.ij, 3),
    "dynamic": lambda: ks.root.pointer(ks.i, 21).dynamic(ks.j, 21, chunk_size=4),
    "room": lambda: ks.root.pointer(ks.ijk, 3).pointer(ks.ijk, 7),
}


@pytest.fixture(autouse=True)
def program() -> Iterator[None]:
    ks.init(arch=ks.cpu)
    yield
    ks.reset()


def deposit(tree: str, seed: int) -> tuple[Any, Any]:
    """A call in which random particles add mass, and in a branch momentum, to the cells around. Every third mass is zero."""
    mass, momentum = ks.field(ks.f32), ks.Vector.field(2, ks.f64)
    TREES[tree]().place(mass, momentum)
    n = 3 if tree == "room" else 2
    x, w = ks.Vector.field(n, ks.f32, shape=N), ks.field(ks.f32, shape=N)
    rng = np.random.default_rng(seed)
    some = rng.uniform(0.0, 19.0, (N, n))
    near = rng.uniform(5.0, 7.0, (N, n))
    x.from_numpy(np.where(rng.random((N, 1)) < 0.5, some, near).astype(np.float32))
    w.from_numpy((np.arange(N) % 3 - 1).astype(np.float32))

    @ks.kernel
    def add():
        for p in x:
            base = ks.cast(ks.floor(x[p]), ks.i32)
            for around in ks.grouped(ks.ndrange(*(2,) * n)):
                mass[base + around] += w[p] * (1.0 + around[0])
                if (p + around[1]) % 4 != 2:
                    momentum[base + around] += ks.Vector([1.0, w[p]])

    return record_program(add, ())


def spaces(problem: Problem) -> Iterator[tuple[str, Space]]:
    for way, cores in WAYS:
        space = build_space(problem, checking.target(cores, 32))
        yield way, fix(space, (("scatter", way),))


def found_in(space: Space, seed: int) -> Candidate:
    made = checking.random_candidate(root_of(space), np.random.default_rng(seed))
    assert isinstance(made, Candidate)
    return made


@pytest.mark.compiler
@pytest.mark.parametrize("tree", TREES)
def test_sorted_particles_activate_the_cells_to_which_they_add(tree: str, tmp_path: Path) -> None:
    """Each update makes its cell active, and no other: on one thread and more, over three periods."""
    recording, before = deposit(tree, seed=list(TREES).index(tree))
    problem, works = normalise(recording), []
    wanted = sparse_periods.periods(recording, before)
    for k, (way, space) in enumerate(spaces(problem)):
        made = found_in(space, k)
        (task,) = (t for t in plan_of(made).tasks if t.scatters)
        assert {SCATTER[x.how] for x in task.scatters} == {way}
        assert task.activates and bool(task.states) == task.is_parallel
        works.append(sparse_candidates.Work(checking.source_of(made), recording, before, wanted))
    assert sparse_candidates.faults_built(works, tmp_path) == [""] * len(WAYS)


@pytest.mark.parametrize("tree", ["hash", "pointer"])
def test_ways_of_particles_that_activate_and_of_those_in_order(tree: str) -> None:
    """Threads take slots in another order each time, in which lists of hash nodes are; those of tables are in the cells' order.

    So deterministic threads activate no cells of hash nodes.
    """
    problem, seen = normalise(deposit(tree, seed=1)[0]), []
    for deterministic in (False, True):
        options = Options(deterministic=deterministic)
        space = space_for(problem, checking.target(2, 32), options)
        v, root = space.variables, space.root()
        assert isinstance(root, Candidate)
        (t,) = {u for u, _ in v.scatter}
        ways = {SCATTER[k] for way in v.scatter.values() for k in root.values(way)}
        (outer,) = (var for d, var in v.kind.items() if d.task == t and d.level == OUTER)
        seen.append(
            (ways, "PARALLEL" in [space.choices[outer].values[k] for k in root.values(outer)])
        )
    sorts = {
        "SERIAL",
        "SORTED",
        "COLOUR",
    }  # no TILE: its cells are looked up while threads make others
    assert seen == [({*sorts, "ATOMIC", "PRIVATE"}, True), (sorts, tree == "pointer")]
