"""Tasks that run by the colours of an earlier task, whose iterations update at least the same rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.describe import describe
from kernelscape.codegen.loops import ir as loop_ir
from kernelscape.codegen.loops.verify import IllFormedError, verify
from kernelscape.codegen.passes.pipeline import launches_of, verifying
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_program, record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.proposals import sketches
from kernelscape.space import choices as ch
from kernelscape.space.backbone.objects import LAUNCH_TASKS
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, DeadEnd
from kernelscape.space.decisions import fix
from kernelscape.space.families.scatter_colours import COLOURING, GENERATE, IF_CHANGED, REUSE
from kernelscape.testing import checking

from .scatter_cases import corners, opposite, problem_of

nd: Any = types.ndarray()


def space_of(fn: Any, *given: Any) -> Any:
    return build_space(normalise(record_sequence(fn, given, name="mesh")), checking.target(2, 32))


def ways(space: Any) -> list[list[str]]:
    root = space.root()
    every = space.variables.of_tasks["colouring"].values()
    return [[COLOURING[k] for k in root.values(var)] for var in every]


OWN = ["GENERATE", "IF_CHANGED"]
ANY = [*OWN, "REUSE"]


@kernel
def turn(tri: nd):
    for e in range(tri.shape[0]):
        tri[e, 1] = tri[e, 0]


@kernel
def double(f: nd):
    for i in range(f.shape[0]):
        f[i, 0] *= 2.0


@kernel
def first_corner(tri: nd, w: nd, g: nd):
    for e in range(tri.shape[0]):
        g[tri[e, 0], 0] += w[e]
        g[tri[e, 1], 0] += w[e]


@kernel
def first_corner_of_light_ones(tri: nd, w: nd, g: nd):
    for e in range(tri.shape[0]):
        if w[e] < 3.0:
            at = tri[e, 0]
            g[at, 1] -= w[e]
            at = tri[e, 1]
            g[at, 1] -= w[e]


@kernel
def next_corner(tri: nd, w: nd, g: nd):
    for e in range(tri.shape[0]):
        g[tri[e, 0] + 1, 0] += w[e]
        g[tri[e, 1], 0] += w[e]


@kernel
def around(tri: nd, w: nd, g: nd):
    for e in range(tri.shape[0]):
        at = 0
        for k in range(3):
            g[tri[e, at], 0] += w[e]
            if w[e] > 2.0:
                at = k


def mesh(n: int = 60) -> tuple[Any, ...]:
    tri = np.zeros((n, 4), np.int32)
    w, f, g = np.ones(n, np.float32), np.zeros((40, 2), np.float32), np.ones((40, 2), np.float32)
    return tri, w, f, np.zeros((40, 3), np.int64), g


def test_colours_serve_later_tasks_that_update_some_of_the_rows() -> None:
    """In any order, under more conditions, in other arrays, by other names; and while nothing writes the indices."""

    def chain(tri: Any, w: Any, f: Any, count: Any, g: Any) -> None:
        corners(tri, w, f, count)
        double(f)
        opposite(tri, w, g)

    def turned(tri: Any, w: Any, f: Any, count: Any, g: Any) -> None:
        corners(tri, w, f, count)
        turn(tri)
        opposite(tri, w, g)

    def reverse(tri: Any, w: Any, f: Any, count: Any, g: Any) -> None:
        opposite(tri, w, g)
        corners(tri, w, f, count)

    def lighter(tri: Any, w: Any, f: Any, count: Any, g: Any) -> None:
        first_corner(tri, w, f)
        first_corner_of_light_ones(tri, w, g)

    def heavier(tri: Any, w: Any, f: Any, count: Any, g: Any) -> None:
        first_corner_of_light_ones(tri, w, g)
        first_corner(tri, w, f)

    def elsewhere(tri: Any, w: Any, f: Any, count: Any, g: Any) -> None:
        first_corner(tri, w, f)
        next_corner(tri, w, g)

    def unknown(tri: Any, w: Any, f: Any, count: Any, g: Any) -> None:
        first_corner(tri, w, f)
        around(tri, w, g)

    found = [
        ways(space_of(fn, *mesh()))
        for fn in (chain, turned, reverse, lighter, heavier, elsewhere, unknown)
    ]
    assert found == [[OWN, last] for last in (ANY, OWN, OWN, ANY, OWN, OWN, OWN)]


def decided(space: Any, maker: int, block: str, fused: int) -> Candidate:
    """A candidate whose second task has the colours of the first, in one launch with it or in another."""
    v, now = space.variables, space.root()
    (first, second) = v.of_tasks["colouring"].values()
    size = v.of_tasks["greedy_block"][0]
    values = (
        (second, REUSE),
        (first, maker),
        (size, space.choices[size].values.index(block)),
        (v.fused[0, 1], fused),
    )
    for var, value in values:
        now = now.decide(var, 1 << value)
        assert isinstance(now, Candidate), space.choices[var].kind
    made = checking.random_candidate(now, np.random.default_rng(3))
    assert isinstance(made, Candidate)
    return made


@pytest.mark.compiler
@pytest.mark.parametrize("cores", [2, 3, 5])
def test_colours_of_an_earlier_task_compute_what_the_interpreter_does(
    cores: int, tmp_path: Path
) -> None:
    """Once, and in each step of a loop in time, which makes the colours anew or finds them as they were."""
    problem, inputs = problem_of("meshes", 150)
    space = build_space(problem, checking.target(cores, 32))
    candidates = [
        decided(space, maker, block, fused)
        for maker in (GENERATE, IF_CHANGED)
        for block in ("1", "16")
        for fused in (ch.SAME_LAUNCH, ch.SEPARATE)
    ]
    steps, inputs_of_steps = problem_of("steps", 150)
    assert [t.n_runs for t in steps.tasks] == [20, 20]
    space = build_space(steps, checking.target(cores, 32))
    stepped = [decided(space, x, "16", ch.SEPARATE) for x in (GENERATE, IF_CHANGED)]
    with verifying():
        works = [(checking.source_of(x), inputs) for x in candidates]
        works += [(checking.source_of(x), inputs_of_steps) for x in stepped]
    assert not checking.fault_of_any(works, tmp_path)


@pytest.mark.compiler
def test_random_candidates_with_colourings_compute_what_the_interpreter_does(
    tmp_path: Path,
) -> None:
    problem, inputs = problem_of("meshes", 150)
    space = fix(build_space(problem, checking.target(3, 32)), (("scatter", "GREEDY"),))
    rng, second = np.random.default_rng(5), space.variables.of_tasks["colouring"][1]
    drawn = (checking.random_candidate(space.root(), rng) for _ in range(12))
    candidates = [x for x in drawn if isinstance(x, Candidate)]
    assert {x.value(second) for x in candidates} == {GENERATE, IF_CHANGED, REUSE}
    assert not checking.fault([checking.source_of(x) for x in candidates], inputs, tmp_path)


def test_an_earlier_colouring_is_greedy_has_equal_blocks_and_comes_first() -> None:
    problem, _ = problem_of("meshes")
    space = build_space(problem, checking.target(2, 32))
    v = space.variables
    second, sizes = v.of_tasks["colouring"][1], v.of_tasks["greedy_block"]
    root = space.root()
    taken = root.decide(second, 1 << REUSE)
    assert isinstance(taken, Candidate)
    assert taken.values(v.scatter[0, "f"]) == taken.values(v.scatter[1, "g"]) == (ch.GREEDY,)
    assert not {ch.SORTED, ch.TILE} & set(taken.values(v.scatter[0, "count"]))
    assert taken.values(space.model.order(*space.backbone.body_ids)) == (ch.BEFORE,)
    apart = taken.decide(sizes[0], 1)
    assert isinstance(apart, Candidate)
    assert apart.values(sizes[1]) == (0,)
    assert isinstance(apart.decide(sizes[1], 2), DeadEnd)


def test_only_the_first_task_finds_rows_and_colours_blocks() -> None:
    problem, _ = problem_of("meshes")
    space = build_space(problem, checking.target(2, 32))
    candidate = decided(space, IF_CHANGED, "16", ch.SAME_LAUNCH)
    plan = plan_of(candidate)
    (launch,) = launches_of(plan, space.target)
    phases = [(p.task, type(p)) for n in launch.nodes for p in loop_ir.phases_of(n)]
    made = [(0, loop_ir.FindRows), (0, loop_ir.ColourBlocks)]
    assert [x for x in phases if x[1] in (loop_ir.FindRows, loop_ir.ColourBlocks)] == made
    words = describe(candidate)["scatters"]
    assert any("has the colours of an earlier task's blocks" in x for x in words)
    left = tuple(n for n in launch.nodes if not isinstance(n, loop_ir.Barrier | loop_ir.FindRows))
    with pytest.raises(IllFormedError, match="neither sorted nor coloured"):
        verify(replace(launch, nodes=left), plan)


def test_first_candidates_take_earlier_colours() -> None:
    problem, _ = problem_of("meshes")
    space = build_space(problem, checking.target(2, 32))
    second, f = space.variables.of_tasks["colouring"][1], space.variables.scatter[0, "f"]
    made = [complete_sketch(space.root(), x) for x in sketches(space)]
    taken = [x.value(second) for x in made if x is not None and x.value(f) == ch.GREEDY]
    assert taken
    assert set(taken) == {REUSE}


def test_the_adjoint_of_a_mesh_has_the_colours_of_its_forces() -> None:
    ks.init()
    ends = ks.field(ks.i32, shape=(60, 2))
    x = ks.field(ks.f32, shape=40, needs_grad=True)
    f = ks.field(ks.f32, shape=40, needs_grad=True)

    @ks.kernel
    def forces():
        for e in range(60):
            a, b = ends[e, 0], ends[e, 1]
            s = x[b] - x[a]
            f[a] += s * s
            f[b] -= s * s * s

    def forward_and_backward() -> None:
        forces()
        forces.grad()

    problem = normalise(record_program(forward_and_backward, ())[0])
    assert ways(build_space(problem, checking.target(2, 32))) == [OWN, ANY]


@pytest.mark.parametrize(
    ("between", "connected", "last"),
    [(3, [[3, 4, 5, 6, 7]], ANY), (LAUNCH_TASKS, [], OWN)],
)
def test_tasks_that_share_colours_are_of_one_component(
    between: int, connected: list[list[int]], last: list[str]
) -> None:
    """Else each component of a long sequence finds and colours its own rows. Tasks far apart stay alone."""

    def long(tri: Any, w: Any, f: Any, g: Any, *others: Any) -> None:
        for x in others[:3]:
            double(x)
        first_corner(tri, w, f)
        for x in others[3 : 3 + between]:
            double(x)
        first_corner(tri, w, g)
        for x in others[3 + between :]:
            double(x)

    tri, w, f, _, g = mesh()
    others = [np.ones((30 + k, 2), np.float32) for k in range(14)]
    space = space_of(long, tri, w, f, g, *others)
    assert [list(c) for c in space.backbone.components if len(c) > 1] == connected
    assert ways(space) == [OWN, last]
