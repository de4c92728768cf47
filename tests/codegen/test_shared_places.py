"""Arrays that are never alive together lie in one place of a GPU block's shared memory."""

from __future__ import annotations

import pytest
from kernelscape.codegen.loops.ir import Launch
from kernelscape.codegen.lower import lower
from kernelscape.codegen.passes.barriers import tasks_in, users_in_shared
from kernelscape.codegen.passes.pipeline import GPU, launches_of
from kernelscape.codegen.passes.shared_places import share_places
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text import csyntax as c
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
