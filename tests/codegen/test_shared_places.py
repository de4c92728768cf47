"""Arrays that are never alive together lie in one place of a GPU block's shared memory."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.codegen.loops.ir import Launch
from kernelscape.codegen.lower import lower
from kernelscape.codegen.passes.barriers import tasks_in, users_in_shared
from kernelscape.codegen.passes.pipeline import GPU, launches_of
from kernelscape.codegen.passes.shared_places import share_places
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text import csyntax as c
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import ndarray, record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space.candidate import Candidate
from kernelscape.testing.checking import random_candidate
from kernelscape.testing.syntax import declared, nodes, rewritten

from . import gpu_cases

pytestmark = gpu_cases.NEEDS_COMPILER

APART = GPU.without(share_places)
NAMES = ("standardise", "heat", "bicgk", "gemver")


def with_places(name, n):
    """Plans of random candidates with launches in which arrays share a place, among the first `n`."""
    case = gpu_cases.case_of(name, 6)
    for candidate in gpu_cases.drawn(gpu_cases.root_of(case.problem), 7, n):
        plan = plan_of(candidate)
        launches = [x for x in launches_of(plan, gpu_cases.gpu.target()) if x.places]
        if launches:
            yield case, plan, launches


def shared_bytes(program):
    """Bytes of shared memory that the kernels of a program declare and their launches ask for, all together."""
    sizes = {"float": 4, "double": 8, "int": 4, "char": 1}
    found = (x for f in program.functions for x in declared(f) if x.is_shared)
    asked = sum(x.shared_bytes for x in program.launches)
    return asked + sum(x.extent * sizes[x.type] for x in found if x.extent)


@pytest.mark.parametrize("name", NAMES)
def test_no_node_of_a_block_uses_two_arrays_of_one_place(name):
    n = 0
    for _, plan, launches in with_places(name, 40):
        for launch in launches:
            users = dict(users_in_shared(launch, plan))
            for node in inside_the_grid(launch):
                alive = [launch.places[x] for x in launch.places if users[x] & tasks_in(node)]
                assert len(alive) == len(set(alive))
            n += len(launch.places)
    assert n >= 2


def inside_the_grid(launch: Launch):
    nodes = launch.nodes
    while len(nodes) == 1 and getattr(nodes[0], "is_parallel", False):
        nodes = nodes[0].children
    return nodes


@pytest.mark.parametrize("name", NAMES)
def test_results_are_right_and_less_memory_is_asked_for(name, tmp_path):
    case, plan, _ = next(with_places(name, 40))
    program, apart = lower(plan), lower(plan, passes=APART)
    assert shared_bytes(program) < shared_bytes(apart)
    source = gpu_cases.gpu.printed(program)
    assert gpu_cases.gpu.check(source, gpu_cases.inputs_of(case), tmp_path) == "", source.text


def test_arrays_of_one_place_need_a_barrier_between_them(tmp_path):
    """Without any barrier the emulator names a race: of candidates that have none where each array has its own memory."""
    drawn = (found for name in NAMES for found in with_places(name, 40))
    programs = ((case, lower(plan), lower(plan, passes=APART)) for case, plan, _ in drawn)
    found = next(
        (case, program)
        for case, program, apart in programs
        if count_of_barriers(program) > count_of_barriers(apart)
    )
    case, program = found[0], without_barriers(found[1])
    source = gpu_cases.gpu.printed(program)
    assert gpu_cases.gpu.check(source, gpu_cases.inputs_of(case), tmp_path) != ""


def count_of_barriers(program):
    return sum(isinstance(n, c.Barrier) for n in nodes(program))


def without_barriers(program):
    return rewritten(program, lambda n: None if isinstance(n, c.Barrier) else n)


@kernel
def sum_rows(x: types.ndarray(), s: types.ndarray()):
    for i in range(x.shape[0]):
        total = 0.0
        for j in range(x.shape[1]):
            total += x[i, j]
        s[i] = total


@kernel
def subtract(x: types.ndarray(), s: types.ndarray(), y: types.ndarray()):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] - s[i]


@kernel
def subtract_products(
    x: types.ndarray(), s: types.ndarray(), t: types.ndarray(), y: types.ndarray()
):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] - s[i] * t[i]


def twice(x, y):
    """A sequence that stores `s` twice, so that values of two tasks for it are in shared memory."""
    s = ndarray(x.dtype, (x.shape[0],), name="s")
    t = ndarray(x.dtype, (x.shape[0],), name="t")
    c = ndarray(x.dtype, x.shape, name="c")
    sum_rows(x, s)
    subtract(x, s, c)
    sum_rows(c, t)
    subtract_products(c, s, t, y)
    sum_rows(y, s)
    subtract(y, s, y)


def test_values_of_two_tasks_for_one_array_are_in_no_common_place():
    """Kind: two arrays in shared memory have one name for hazards, and one life was taken for both."""
    x, y = np.zeros((9, 13), np.float32), np.zeros((9, 13), np.float32)
    problem = normalise(record_sequence(twice, (x, y), "twice"))
    root, rng = gpu_cases.root_of(problem), np.random.default_rng(2)
    n, n_shared = 0, 0
    for _ in range(250):
        candidate = random_candidate(root, rng)
        if not isinstance(candidate, Candidate):
            continue
        plan = plan_of(candidate)
        for launch in launches_of(plan, gpu_cases.gpu.target()):
            names = [name for name, _ in users_in_shared(launch, plan)]
            several = {name for name in names if names.count(name) > 1}
            n += bool(several)
            n_shared += bool(launch.places)
            assert not several & launch.places.keys()
    assert min(n, n_shared) > 0
