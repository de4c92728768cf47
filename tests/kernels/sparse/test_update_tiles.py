"""Updates of neighbour cells in tiles of leaves: which loops may have them, and what they leave in all ways of a scatter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.frontend.recorder import record_program
from kernelscape.kernels.ir.kernel import LocalArray, LocalElement, Update
from kernelscape.kernels.ir.task import Problem, Task
from kernelscape.kernels.ir.walk import nested_statements
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.bound.tables import build_tables
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, DeadEnd
from kernelscape.space.decisions import fix
from kernelscape.space.families.leaf_tiles import IN_TILE
from kernelscape.space.families.scatter_colours import REUSE
from kernelscape.testing import checking, sparse_candidates, sparse_periods

WAYS = ("SERIAL", "ATOMIC", "PRIVATE", "GREEDY")


@pytest.fixture(autouse=True)
def program() -> Iterator[None]:
    ks.init(arch=ks.cpu)
    yield
    ks.reset()


def plane(kind: str = "pointer", dtype: Any = ks.f64) -> Any:
    """The adjoint of a gather of a scalar field: its cells add to two neighbours and to themselves, across corners, in a branch."""
    x, y = (ks.field(dtype, needs_grad=True) for _ in range(2))
    above = getattr(ks.root, kind)(ks.ij, (4, 5))
    above.dense(ks.ij, (3, 4)).place(x, y, x.grad, y.grad)

    @ks.kernel
    def begin():
        for i, j in ks.ndrange(12, 20):
            if (i // 3 + j // 4) % 3 != 1:
                x[i, j] = (3 * i + j) % 7
                y.grad[i, j] = i - 2 * j

    @ks.kernel
    def gather():
        for i, j in x:
            y[i, j] += x[i + 1, j + 1] * x[i, j] + 3 * x[i, j - 2]
            if x[i, j] > 2:
                y[i, j] += x[i - 3, j] * 0.5

    begin()
    return lambda: gather.grad()


def room() -> Any:
    """The adjoint of a gather of a vector field in three axes, with another field beside it."""
    x, y = ks.Vector.field(2, ks.f32, needs_grad=True), ks.field(ks.f32, needs_grad=True)
    z = ks.field(ks.f32, needs_grad=True)
    leaf = ks.root.pointer(ks.ijk, 3).dense(ks.ijk, 2)
    leaf.place(x, y, z, x.grad, y.grad, z.grad)

    @ks.kernel
    def begin():
        for i, j, k in ks.ndrange(6, 6, 6):
            if (i // 2 + j // 2 + k // 2) % 3 != 1:
                x[i, j, k] = [i - j, k]
                z[i, j, k] = k + 1
                y.grad[i, j, k] = i - 2 * j + k

    @ks.kernel
    def gather():
        for i, j, k in y:
            for d in ks.static(range(2)):
                y[i, j, k] += x[i + 1, j, k][d] - x[i, j - 1, k - 1][d]
            y[i, j, k] += z[i, j, k + 1] * z[i, j, k]

    begin()
    return lambda: gather.grad()


PROGRAMS = {"plane": plane, "hash": lambda: plane("hash", ks.f32), "room": room}


def updated(task: Task) -> list[str]:
    """Sites of tiles that are updated, of one task."""
    return [x.name for x in task.body.trees.tiles if x.updated] if task.body is not None else []


def sites(problem: Problem) -> list[str]:
    return [name for task in problem.tasks for name in updated(task)]


def halo(problem: Problem) -> tuple[tuple[str, str], ...]:
    """Decisions: all updated fields are in tiles."""
    return tuple((f"staged({name})", "HALO") for name in sites(problem))


def candidate(problem: Problem, decided: Any, target: Any, seed: int = 1) -> Candidate | None:
    root = fix(build_space(problem, target), decided).root()
    if isinstance(root, DeadEnd):
        return None
    made = checking.random_candidate(root, np.random.default_rng(seed))
    return made if isinstance(made, Candidate) else None


@pytest.mark.compiler
@pytest.mark.parametrize("name", PROGRAMS)
def test_tiles_are_added_to_what_the_updates_reach(name: str, tmp_path: Path) -> None:
    """On one, two and three threads, in every way of a scatter, over three periods. Inactive leaves get nothing."""
    recording, before = record_program(PROGRAMS[name](), ())
    problem = normalise(recording)
    assert len(sites(problem)) == (2 if name == "room" else 1)
    wanted, works, seen = sparse_periods.periods(recording, before), [], set[str]()
    for k, way in enumerate((*WAYS, *WAYS)):
        decided = (("scatter", way), *halo(problem))
        made = candidate(problem, decided, sparse_candidates.machine(k), k)
        if made is None:
            continue  # one thread has no colours
        seen.add(way)
        (t,) = (t for t, task in enumerate(problem.tasks) if updated(task))
        body: Any = plan_of(made).tasks[t].task.body
        assert sum(isinstance(s, LocalArray) for s in nested_statements(body.statements)) > 0
        works.append(sparse_candidates.Work(checking.source_of(made), recording, before, wanted))
    assert seen == {*WAYS}
    assert sparse_candidates.faults_built(works, tmp_path / "tiles") == [""] * len(works)


def test_a_tile_is_added_in_loops_over_the_leaves_around() -> None:
    """Without it, each cell looks up its neighbours for four updates."""
    problem = normalise(record_program(plane(), ())[0])
    (t,) = (t for t, task in enumerate(problem.tasks) if updated(task))
    found = []
    for value in ("ROWS", "HALO"):
        decided = tuple((name, value) for name, _ in halo(problem))
        made = candidate(problem, decided, checking.target(2, 32))
        assert made is not None
        body: Any = plan_of(made).tasks[t].task.body
        updates = [s for s in nested_statements(body.statements) if isinstance(s, Update)]
        found.append((len(updates), sum(isinstance(s.value, LocalElement) for s in updates)))
    # Of the leaf itself; of those below, right of, and behind the corner between them; of those left and above.
    assert found == [(4, 0), (6, 6)]


def test_fields_whose_cells_one_iteration_updates_have_no_tiles() -> None:
    """The tiles of two leaves have cells in common that only one of them updates, and threads would lose updates."""
    x, y = (ks.field(ks.f64, needs_grad=True) for _ in range(2))
    ks.root.pointer(ks.i, 6).dense(ks.i, 4).place(x, y, x.grad, y.grad)

    @ks.kernel
    def shifted():
        for i in x:
            y[i] += x[i + 1] * 2.0

    @ks.kernel
    def both():
        for i in x:
            y[i] += x[i + 1] * 2.0 + x[i]

    x[2] = y[2] = 1.0
    found = [normalise(record_program(lambda f=f: f.grad(), ())[0]) for f in (shifted, both)]
    assert [len(sites(p)) for p in found] == [0, 1]


def test_fields_that_the_loop_reads_or_whose_sums_keep_their_order_have_no_tiles() -> None:
    x, y = (ks.field(ks.f64, needs_grad=True) for _ in range(2))
    ks.root.pointer(ks.i, 6).dense(ks.i, 4).place(x, y, x.grad, y.grad)

    @ks.kernel(fast_math=False)
    def exact():
        for i in x:
            y[i] += x[i + 1] * 2.0 + x[i]

    @ks.kernel
    def of_its_own():
        for i in x:
            x.grad[i] += x.grad[i + 1] * 2.0 + x[i]

    x[2] = y[2] = 1.0
    found = [record_program(f, ())[0] for f in (lambda: exact.grad(), lambda: of_its_own())]
    assert [len(sites(normalise(r))) for r in found] == [0, 0]


def test_tiles_have_colours_of_their_own() -> None:
    """A tile is added to cells that no update reaches, so an earlier colouring may lack them."""
    turn = plane()
    problem = normalise(record_program(lambda: (turn(), turn()), ())[0])
    space = build_space(problem, checking.target(2, 32))
    v, root = space.variables, space.root()
    last = max(v.of_tasks["colouring"])
    tile = v.of_places["staged"][last, sites(problem)[-1]]
    reused = root.decide(v.of_tasks["colouring"][last], 1 << REUSE)
    assert isinstance(reused, Candidate)
    assert reused.values(tile) == (0,)
    in_tiles = root.decide(tile, 1 << IN_TILE)
    assert isinstance(in_tiles, Candidate)
    assert REUSE not in in_tiles.values(v.of_tasks["colouring"][last])


def test_atomic_updates_that_may_be_in_tiles_are_no_term_of_the_bound() -> None:
    problem = normalise(record_program(plane(), ())[0])
    target = replace(checking.target(2, 32), atomic_f64_per_ns=0.5)
    counts = []
    for tasks in (problem.tasks, tuple(map(without_tiles, problem.tasks))):
        space = build_space(replace(problem, tasks=tasks), target)
        counts.append(len(build_tables(space, compiler_vectorises=True).atomic))
    assert counts == [0, 1]


def without_tiles(task: Task) -> Task:
    body: Any = task.body
    return replace(task, body=replace(body, trees=replace(body.trees, tiles=())))
