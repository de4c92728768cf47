"""Loops over the cells of a leaf that look up where their values come from: in lanes that gather, alone and with others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.loops.ir import JoinedBodies, phases_of
from kernelscape.codegen.passes.pipeline import launches_of
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.plan.nest_plan import NestPlan
from kernelscape.kernels.frontend.recorder import Recording, record_program
from kernelscape.kernels.ir.kernel import For
from kernelscape.kernels.ir.walk import nested_statements
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.engine.planning import default_plan
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.proposals import sketches
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.decisions import fix
from kernelscape.testing import checking, sparse_candidates, sparse_periods

ALONG = (("ranges", "ALONG"),)


@pytest.fixture(autouse=True)
def program() -> Iterator[dict[str, Any]]:
    """Fields of blocks of 4 x 8 cells, some of them inactive, and kernels that move values along a velocity.

    Values and weights are small multiples of a quarter, so results are exact.
    """
    ks.init(arch=ks.cpu, cpu_max_num_threads=1)
    fields = u, q, moved, s, moved_too = [ks.field(ks.f32) for _ in range(5)]
    ks.root.pointer(ks.ij, (3, 2)).dense(ks.ij, (4, 8)).place(*fields)

    @ks.kernel
    def begin():
        for i, j in ks.ndrange(12, 16):
            if i // 4 != 1 or j > 7:
                u[i, j] = (i * 5 + j * 3) % 17 * 0.25 - 2.0
                q[i, j] = (i * 7 + j) % 11
                s[i, j] = (i + j * 5) % 13

    @ks.func
    def sample(f: ks.template(), i, y):
        low = ks.cast(ks.floor(y), ks.i32)
        part = y - low
        a, b = ks.max(0, ks.min(15, low)), ks.max(0, ks.min(15, low + 1))
        return f[i, a] + part * (f[i, b] - f[i, a])

    @ks.kernel
    def move(f: ks.template(), to: ks.template()):
        for i, j in f:
            y = sample(u, i, j - u[i, j])
            r = sample(f, i, j - y)
            if r > 9.0:
                r = f[i, j]
            to[i, j] = r

    @ks.kernel
    def smooth(f: ks.template(), to: ks.template()):
        for i, j in f:
            to[i, j] = f[i, j] + f[i, j - 1] * 0.5 + f[i + 1, j]

    begin()
    yield dict(locals())
    ks.reset()


def recorded(program: dict[str, Any]) -> tuple[Recording, dict[str, Any]]:
    def sequence() -> None:
        program["move"](program["q"], program["moved"])
        program["move"](program["s"], program["moved_too"])

    return record_program(sequence, ())


def greedy_along(recording: Recording) -> Candidate:
    """The first candidate that runs both tasks in one loop, in lanes."""
    space = fix(build_space(normalise(recording), checking.target(2, 32)), ALONG)
    root = space.root()
    assert isinstance(root, Candidate)
    made = next(complete_sketch(root, sketch) for sketch in sketches(space))
    assert isinstance(made, Candidate)
    return made


@pytest.mark.compiler
@pytest.mark.parametrize("number", range(3))
def test_lanes_of_cells_compute_what_the_reference_computes(
    program: dict[str, Any], number: int, tmp_path: Path
) -> None:
    recording, before = recorded(program)
    target = sparse_candidates.machine(number)
    space = fix(build_space(normalise(recording), target), ALONG)
    wanted = sparse_periods.periods(recording, before)
    rng = np.random.default_rng(number)
    made = [checking.random_candidate(space.root(), rng) for _ in range(3)]
    works = [
        sparse_candidates.Work(checking.source_of(c), recording, before, wanted)
        for c in made
        if isinstance(c, Candidate)
    ]
    assert works
    assert all("lane_gather" in w.source.text for w in works)
    assert set(sparse_candidates.faults_built(works, tmp_path / "lanes")) == {""}


@pytest.mark.compiler
def test_loops_in_lanes_of_joined_bodies_are_one(program: dict[str, Any], tmp_path: Path) -> None:
    """Fused loops in lanes gather the places that both bodies look up once."""
    recording, before = recorded(program)
    made = greedy_along(recording)
    launches = launches_of(plan_of(made), made.space.target)
    phases = (p for launch in launches for n in launch.nodes for p in phases_of(n))
    (joined,) = (p for p in phases if isinstance(p, JoinedBodies))
    assert joined.tasks == (1, 2)
    alone = made.space.problem.tasks[1].body
    assert alone is not None
    n_loops = [
        sum(isinstance(s, For) for s in nested_statements(body))
        for body in (alone.statements, joined.statements)
    ]
    assert n_loops[0] == n_loops[1]
    wanted = sparse_periods.periods(recording, before)
    work = sparse_candidates.Work(checking.source_of(made), recording, before, wanted)
    assert sparse_candidates.faults_built([work], tmp_path / "joined") == [""]


def test_only_loops_that_look_up_places_are_in_lanes(program: dict[str, Any]) -> None:
    """Compilers find vectors where cells beside one another are read, as in a stencil."""

    def choices(name: str) -> list[str]:
        def sequence() -> None:
            program[name](program["q"], program["moved"])

        space = build_space(normalise(record_program(sequence, ())[0]), checking.target(2, 32))
        return [c.name for c in space.choices if c.kind == "ranges"]

    assert len(choices("move")) == 1
    assert choices("smooth") == []


@pytest.mark.parametrize(("name", "n_lanes"), [("move", 8), ("smooth", None)])
def test_plain_calls_have_lanes_where_they_pay(
    program: dict[str, Any], name: str, n_lanes: int | None
) -> None:
    (ir,) = (
        c.ir
        for c in record_program(lambda: program[name](program["q"], program["moved"]), ())[0].calls
    )
    (task,) = default_plan(ir, 2, 32).tasks
    found = [x.width for step in task.steps if isinstance(step, NestPlan) for x in step.ranges]
    assert found == ([] if n_lanes is None else [n_lanes])


def test_locals_that_are_indices_have_32_bits_in_lanes(program: dict[str, Any]) -> None:
    text = checking.source_of(greedy_along(recorded(program)[0])).text
    assert "lane_gather_u32x8" in text and "i64x8_pair" not in text
