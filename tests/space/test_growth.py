"""Spaces of long sequences: they grow with the tasks, and their components are spaces of their own."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.library import load, names
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space import build
from kernelscape.space import choices as ch
from kernelscape.space.backbone import objects
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.components import components_of
from kernelscape.space.engine import cpsat
from kernelscape.space.engine.propagate import constraint_blocks
from kernelscape.space.targets.cpu import CPU_KIND
from kernelscape.space.targets.kind import CPU
from kernelscape.testing import checking
from kernelscape.testing.components import add_up, scale
from kernelscape.testing.legality import illegal
from kernelscape.testing.machines import library_space
from kernelscape.testing.violations import violations

from .gpu_target import GPU


def chain(x, y, n_tasks):
    for t in range(n_tasks):
        scale(*((x, y) if t % 2 == 0 else (y, x)))


def recorded(n_tasks, extent=16):
    def sequence(x, y):
        chain(x, y, n_tasks)

    arrays = [np.zeros(extent, np.float32) for _ in range(2)]
    return record_sequence(sequence, arrays, "chain").unrolled()


def space_of(n_tasks, extent=16):
    return build_space(normalise(recorded(n_tasks, extent)), checking.target(2, 16))


def test_a_space_grows_with_its_tasks():
    """From 16 tasks on each more adds as many choices and constraints as the one before."""
    sizes = [(s.n_choices, len(s.model.declarations)) for s in map(space_of, (16, 32, 48))]
    first, second = (np.subtract(b, a) for a, b in pairwise(sizes))
    assert (first == second).all()


def test_tasks_that_are_far_apart_share_no_launch():
    space = space_of(20)
    near = {(t, u) for t, u in combinations(range(20), 2) if u - t < objects.LAUNCH_TASKS}
    assert set(space.variables.fused) == near
    assert len(space.backbone.components) == 1
    rng = np.random.default_rng(1)
    for _ in range(20):
        made = space.root().random_completion(rng)
        assert isinstance(made, Candidate)
        assert violations(space.model, made.assignment()) == []


def independent(x, y, s, z, w, n):
    """Maps of different lengths and sums, so that no loop may be shared from one pair of tasks to the next."""
    scale(x, y)
    add_up(y, s)
    scale(z, w)


@pytest.fixture
def two_together(monkeypatch):
    monkeypatch.setattr(objects, "LAUNCH_TASKS", 2)
    monkeypatch.setattr(objects, "LAUNCH_OBJECTS", 0)
    small = replace(CPU_KIND, mid_sizes=(1, 2), inner_sizes=(1, 4), most_whole=1)
    monkeypatch.setitem(build.KINDS, CPU, small)


def leaves(space):
    """Every implementation, found by deciding choice after choice."""
    found, open_ones = [], [space.root()]
    while open_ones:
        candidate = open_ones.pop()
        if not isinstance(candidate, Candidate):
            continue
        if candidate.is_complete:
            found.append(candidate)
            continue
        open_ones += [child for _, child in candidate.expand(int(candidate.open_choices()[0]))]
    return found


def problem_of(sequence, *extents):
    arguments = [np.zeros(n, np.float32) for n in extents]
    return normalise(record_sequence(sequence, arguments, "some"))


def three_maps(x, y, z, w):
    scale(x, y)
    scale(y, x)
    scale(z, w)


def assert_parted(space):
    """Each choice is in one component, and no constraint in two."""
    components = components_of(space)
    assert [c.tasks for c in components] == list(space.backbone.components)
    assert sorted(v for c in components for v in c.choices) == list(range(space.n_choices))
    component_of = {v: k for k, c in enumerate(components) for v in c.choices}
    blocks = np.empty(space.n_choices, np.int32)
    constraint_blocks(space.model.arrays, blocks)
    assert len({(block, component_of[v]) for v, block in enumerate(blocks)}) == len({*blocks})


@pytest.mark.parametrize("name", names())
def test_choices_of_all_kinds_belong_to_components(name, two_together):
    sizes = dict.fromkeys(load(name).sizes, 24)
    for target in (checking.target(2, 32), GPU):
        assert_parted(library_space(name, target, **sizes))


def test_components_are_spaces_of_their_own(two_together):
    """Two maps and one of another length: as many implementations as the two spaces have together, all of them legal."""
    space = build_space(problem_of(three_maps, 8, 8, 5, 5), checking.target(1, 16))
    assert space.backbone.components == (range(2), range(2, 3))
    assert_parted(space)
    found = leaves(space)

    def first(x, y):
        scale(x, y)
        scale(y, x)

    parts = [
        leaves(build_space(problem_of(sequence, n, n), checking.target(1, 16)))
        for sequence, n in ((first, 8), (scale, 5))
    ]
    assert len({c.key for c in found}) == len(found) == len(parts[0]) * len(parts[1]) > 10
    assert cpsat.count(space.model, space.model.initial, 100_000) == (len(found), True)
    for candidate in found:
        assert violations(space.model, candidate.assignment()) == []
        assert illegal(candidate) == ""


@pytest.mark.parametrize("n_tasks", [3, 4])
def test_no_launch_is_longer_than_it_may_be(two_together, n_tasks):
    """Launches of at most two maps in a row: every implementation of a chain is there, and counted by CP-SAT too."""
    space = build_space(problem_of(lambda x, y: chain(x, y, n_tasks), 4, 4), checking.target(1, 16))
    assert len(space.backbone.components) == 1
    found = leaves(space)
    assert cpsat.count(space.model, space.model.initial, 1_000_000) == (len(found), True)
    fused = {
        tuple(c.value(var) == ch.SAME_LAUNCH for var in space.variables.fused.values())
        for c in found
    }
    assert len(fused) == {3: 3, 4: 5}[n_tasks]  # ways to cut a chain into ones and twos
    assert all(illegal(c) == "" for c in found)
