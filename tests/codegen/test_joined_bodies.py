"""Bodies of several tasks as one, with equal values computed once: candidates against the interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.loops.ir import JoinedBodies, phases_of
from kernelscape.codegen.passes.pipeline import launches_of, verifying
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.analysis.alike_bodies import alike_bodies
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.kernel import For, Store
from kernelscape.kernels.ir.walk import children, loads, nested_statements
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.proposals import greedy_sketch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.decisions import fix
from kernelscape.space.families.lane_parts import FRONT
from kernelscape.testing import checking
from kernelscape.testing.checking import Way
from kernelscape.testing.legality import illegal

pytestmark = [pytest.mark.compiler]
nd: Any = types.ndarray()


@kernel
def carry(q: nd, new: nd, u: nd):
    for i in range(q.shape[0]):
        for j in range(q.shape[1]):
            x = j - 0.7 * u[i, j]
            if x < 0.0:
                x = 0.0
            k = min(int(x), q.shape[1] - 2)
            f = x - k
            new[i, j] = q[i, k] * (1.0 - f) + q[i, k + 1] * f


@kernel
def follow(q: nd, new: nd, u: nd):
    """Reads what `carry` has just written, and writes it over."""
    for i in range(q.shape[0]):
        for j in range(q.shape[1]):
            k = min(max(int(u[i, j] * 3.0), 0), q.shape[1] - 1)
            new[i, j] = new[i, j] * 0.5 + q[i, k]


@kernel
def neighbours(q: nd, new: nd, u: nd):
    """Reads what other iterations write: no loop over them may be shared."""
    for i in range(q.shape[0]):
        for j in range(q.shape[1]):
            k = min(max(int(u[i, j] * 3.0), 0), q.shape[1] - 1)
            new[i, j] = q[i, k] + q[i, max(j - 1, 0)]


@kernel
def only_some(q: nd, new: nd, u: nd):
    for i in range(q.shape[0]):
        for j in range(q.shape[1]):
            k = min(max(int(u[i, j] * 3.0), 0), q.shape[1] - 1)
            if q[i, k] > 0.0:
                n = 0.0
                while n < q[i, k]:
                    n += 0.5
                new[i, j] = n


@kernel
def sampled(q: nd, new: nd, u: nd):
    """A loop over the cells of a block of columns, each of which looks up where its value comes from."""
    for i in range(q.shape[0]):
        for b in range(4):
            first = int(u[i, b])
            for c in range(9):
                x = min(max(9 * b + c - 0.7 * u[i, 9 * b + c] + first, 0.0), 35.0)
                new[i, 9 * b + c] = q[i, int(x)] * 2.0 + q[i, int(x) + 1]


@kernel
def prepared(q: nd, new: nd, u: nd):
    """Its results are read at other places: no loop over columns is shared with what reads them."""
    for i in range(q.shape[0]):
        for j in range(q.shape[1]):
            k = min(max(int(u[i, j] * 3.0), 0), q.shape[1] - 1)
            new[i, j] = q[i, k] * 3.0


@kernel
def halved(x: nd, z: nd):
    for i in range(x.shape[0]):
        y = x[i]
        while y > 1.0:
            y *= 0.5
        z[i] = y


@kernel
def risen(z: nd, best: nd):
    """Each iteration needs what the one before leaves: only its first statement may run in lanes."""
    for i in range(z.shape[0]):
        v = ks.sqrt(abs(z[i]) + 0.5) * 3.0
        if v > best[0]:
            best[0] = 0.9 * v


def one_after_another(x, z, best):
    halved(x, z)
    risen(z, best)


def blocks(a, b, c, d, u):
    """Two channels in blocks: their inner loops become one."""
    sampled(a, c, u)
    sampled(b, d, u)


def prepared_channels(a, b, c, d, u):
    carry(a, c, u)
    prepared(d, b, u)
    carry(b, d, u)


def channels(a, b, c, d, u):
    """One array carried into two, by the same velocity."""
    carry(a, c, u)
    carry(b, d, u)


def in_place(a, b, c, d, u):
    carry(a, c, u)
    follow(a, c, u)
    carry(b, d, u)


def in_the_way(a, b, c, d, u):
    carry(a, c, u)
    neighbours(c, d, u)


def branching(a, b, c, d, u):
    only_some(a, c, u)
    only_some(a, d, u)
    follow(a, d, u)


def problem_of(fn: Any) -> Any:
    rng = np.random.default_rng(1)
    arrays = {n: rng.standard_normal((5, 37)).astype(np.float32) for n in "abcdu"}
    recording = record_sequence(fn, tuple(arrays.values()), name="one")
    return recording, normalise(recording), arrays


def joined_in(candidate: Candidate) -> list[JoinedBodies]:
    plan, target = plan_of(candidate), candidate.space.target
    launches = launches_of(plan, target)
    phases = (p for launch in launches for n in launch.nodes for p in phases_of(n))
    return [p for p in phases if isinstance(p, JoinedBodies) and len(p.tasks) > 1]


# By sequence: whether tasks are one body in some candidate.
SEQUENCES = [(channels, True), (in_place, True), (in_the_way, False), (branching, True)]


@pytest.mark.parametrize(("fn", "may_join"), SEQUENCES)
def test_joined_bodies_compute_what_the_interpreter_does(
    fn: Any, may_join: bool, tmp_path: Path
) -> None:
    recording, problem, arrays = problem_of(fn)
    root = build_space(problem, checking.target(2, 32)).root()
    assert isinstance(root, Candidate)
    rng = np.random.default_rng(7)
    made: dict[Any, Candidate] = {}
    with verifying():
        for _ in range(30):
            drawn = checking.random_candidate(root, rng)
            if isinstance(drawn, Candidate):
                assert illegal(drawn) == ""
                made.setdefault(tuple(p.tasks for p in joined_in(drawn)), drawn)
    joined = {p.tasks for c in made.values() for p in joined_in(c)}
    assert bool(joined) == may_join
    candidates = list(made.values())[:4]
    inputs = checking.make_inputs(recording, problem, arrays, {})
    sources = [checking.source_of(c) for c in candidates]
    assert not checking.fault(sources, inputs, tmp_path, Way(repeats=2), may_warn=True)


def test_what_bodies_have_in_common_is_there_once() -> None:
    """Of two channels the velocity is loaded once, and what is stored and loaded again is not loaded."""
    _, problem, _ = problem_of(channels)
    root = build_space(problem, checking.target(2, 32)).root()
    assert isinstance(root, Candidate)
    rng = np.random.default_rng(7)
    drawn = (checking.random_candidate(root, rng) for _ in range(60))
    found = next(p for c in drawn if isinstance(c, Candidate) for p in joined_in(c))
    every = [e for s in nested_statements(found.statements) for e in children(s)]
    of_velocity = [x for e in every for x in loads(e) if x.array == "u"]
    assert len(of_velocity) == 1
    assert sum(isinstance(s, Store) for s in nested_statements(found.statements)) == 2


def test_channels_are_one_loop_inside_of_their_body(tmp_path: Path) -> None:
    """Loops inside of joined bodies over the same iterations: what they look up is looked up once."""
    recording, problem, arrays = problem_of(blocks)
    root = build_space(problem, checking.target(2, 32)).root()
    assert isinstance(root, Candidate)
    made = complete_sketch(root, greedy_sketch(root.space))
    assert made is not None
    (found,) = joined_in(made)
    inside = list(nested_statements(found.statements))
    of_velocity = [x for s in inside for e in children(s) for x in loads(e) if x.array == "u"]
    assert (sum(isinstance(s, For) for s in inside), len(of_velocity)) == (1, 2)
    inputs = checking.make_inputs(recording, problem, arrays, {})
    assert not checking.fault([checking.source_of(made)], inputs, tmp_path, Way(), may_warn=True)


def test_tasks_that_do_the_same_are_fused_before_others() -> None:
    """A task between two channels may be in one loop with either, and then keeps them apart."""
    _, problem, _ = problem_of(prepared_channels)
    assert alike_bodies(problem.tasks) == {(0, 2)}
    root = build_space(problem, checking.target(2, 32)).root()
    assert isinstance(root, Candidate)
    made = complete_sketch(root, greedy_sketch(root.space))
    assert made is not None
    assert [p.tasks for p in joined_in(made)] == [(0, 2)]


def test_a_body_that_is_whole_in_lanes_is_joined_to_none_of_which_only_a_front_is(
    tmp_path: Path,
) -> None:
    """Kind: joined statements that run in lanes as the first of them do, though iterations of others conflict."""
    rng = np.random.default_rng(3)
    arrays = {
        "x": rng.uniform(0.5, 9.0, 77).astype(np.float32),
        "z": np.zeros(77, np.float32),
        "best": np.zeros(1, np.float32),
    }
    recording = record_sequence(one_after_another, tuple(arrays.values()), name="one")
    problem = normalise(recording)
    space = build_space(problem, checking.target(1, 32))
    names = [(t.name, t.loops[-1].name) for t in problem.tasks]
    fixed = [(f"dim_kind({name}.{loop}.inner)", "VECTOR") for name, loop in names]
    (a, i), (b, j) = names
    root = fix(space, [*fixed, (f"order({a}.{i}.outer,{b}.{j}.outer)", "MERGED")]).root()
    drawn = [checking.random_candidate(root, np.random.default_rng(k)) for k in range(6)]
    made = [c for c in drawn if isinstance(c, Candidate)]
    assert made
    (parts,) = space.variables.of_tasks["lane_parts"].values()
    assert {c.value(parts) for c in made} == {FRONT}
    assert not any(joined_in(c) for c in made)
    inputs = checking.make_inputs(recording, problem, arrays, {})
    sources = [checking.source_of(c) for c in made[:2]]
    assert not checking.fault(sources, inputs, tmp_path, Way(repeats=2), may_warn=True)
