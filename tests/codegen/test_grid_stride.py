"""Loops whose tiles the blocks of a GPU take in turn: right in each order of blocks, and no longer than a list is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernelscape.codegen.loops import ir as loop_ir
from kernelscape.codegen.loops.verify import IllFormedError, verify
from kernelscape.codegen.lower import lower
from kernelscape.codegen.passes.map_grid import blocks_along
from kernelscape.codegen.passes.pipeline import launches_of, verifying
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.proposals import default_sketch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.decisions import fix, restore
from kernelscape.testing import sparse_emulation
from kernelscape.testing.sparse_emulation import Shape

from .gpu_cases import (
    MATMUL,
    NEEDS_COMPILER,
    case_of,
    decided,
    drawn,
    gpu,
    inputs_of,
    nvrtc_is_there,
)
from .test_gpu_trees import compiled

CORES = 2
# Of 18 elements, and of 24 in a table.
POINTERS = Shape((("pointer", (6, 3)), ("bitmasked", (3, 2))), 0, 2)
HASHED = Shape((("dense", (2, 1)), ("hash", (3, 4)), ("dense", (2, 2))), 1, 3)
CALLS = [("store", 5), ("bump", 0), ("drop", 3), ("store", 35), ("bump", 0)]


def loops_in_turn(candidate):
    """Each launch that has one, with its loop whose tiles blocks take in turn."""
    plan = plan_of(candidate)
    return [
        (launch, n)
        for launch in launches_of(plan, candidate.space.target)
        for n in loop_ir.loops_in(launch.nodes)
        if n.schedule is loop_ir.Schedule.GRID_STRIDE
    ]


def in_turn(name, sizes=5, stride="1|2"):
    """A root of a library sequence, all of whose loops that may have blocks in turn have them."""
    case = case_of(name, sizes)
    root = fix(build_space(case.problem, gpu.target(CORES)), [("grid_stride", stride)]).root()
    assert isinstance(root, Candidate), root
    return case, root


@pytest.mark.compiler
@NEEDS_COMPILER[1]
@pytest.mark.parametrize("name", ["axpydot", "vadd", "waxpby"])
def test_sums_and_maps_are_right(name, tmp_path):
    """Also partial results of blocks, and results that blocks add up: a block leaves one for all of its tiles."""
    case, root = in_turn(name)
    inputs = inputs_of(case)
    assert inputs
    for candidate in drawn(root, 4, 3):
        assert loops_in_turn(candidate)
        source = gpu.source_of(candidate)
        assert gpu.check(source, inputs, tmp_path) == "", source.text


@pytest.mark.parametrize("way", ["PARTIALS", "ATOMIC", "LAST_BLOCK"])
@NEEDS_COMPILER[1]
def test_a_block_leaves_one_sum_for_all_of_its_tiles(way, tmp_path):
    case = case_of("axpydot", 6)
    root = restore(
        build_space(case.problem, gpu.target(CORES)),
        [("reduction(dot0.i.outer)", way), ("grid_stride(dot0.i.outer)", "2")],
    )
    (candidate,) = drawn(root, 1, 1)
    source = gpu.source_of(candidate)
    assert gpu.check(source, inputs_of(case), tmp_path) == "", source.text
    (grid,) = {x.grid[0] for x in source.launches if 1 in x.tasks}
    assert grid == 2 * CORES
    left = [x.grid[0] for x in source.launches if not x.tasks]  # kernels that begin and end the sum
    assert left == [1]


@NEEDS_COMPILER[1]
@pytest.mark.parametrize("shape", [POINTERS, HASHED])
def test_loops_over_lists_leave_what_the_reference_leaves(shape, tmp_path):
    recording, before = sparse_emulation.recorded(shape, CALLS)
    decided = [("grid_stride", "1|2")]
    said = sparse_emulation.fault(
        recording, before, 3, tmp_path, n_candidates=2, decided=decided, cores=CORES
    )
    assert said == ""


def long_list():
    """The default of a loop over a list of many elements."""
    shape = Shape((("pointer", (64, 64)), ("bitmasked", (4, 2))), 0, 2)
    recording, _ = sparse_emulation.recorded(shape, [("bump", 0)])
    made = complete_sketch(
        root := build_space(normalise(recording), gpu.target(CORES)).root(),
        default_sketch(root.space),
    )
    assert isinstance(made, Candidate)
    return made


def test_a_loop_over_a_list_ends_where_the_list_does():
    made = long_list()
    ((_, loop),) = loops_in_turn(made)
    assert loop.n_blocks == 8 * CORES
    assert len(loop.ends) == 1
    source = gpu.source_of(made)
    (launch,) = (x for x in source.launches if 1 in x.tasks)
    assert launch.grid == (1, 1, 8 * CORES)


@pytest.mark.skipif(not nvrtc_is_there(), reason="no NVRTC")
def test_the_compiler_of_cuda_takes_them(tmp_path):
    _, root = in_turn("axpydot", 6)
    compiled([gpu.source_of(x) for x in (long_list(), *drawn(root, 4, 2))], tmp_path)


def test_ill_formed_loops_of_blocks_are_refused():
    made = long_list()
    plan = plan_of(made)
    ((launch, loop),) = loops_in_turn(made)
    verify(launch, plan)
    faults = {
        "blocks for": replace(loop, n_blocks=-(-loop.extent // loop.step)),
        "0 blocks for": replace(loop, n_blocks=0),
        "block a tile, and ends": replace(loop, schedule=loop_ir.Schedule.GRID, n_blocks=0),
    }
    for words, fault in faults.items():
        with pytest.raises(IllFormedError, match=words):
            verify(replace(launch, nodes=(fault,)), plan)


def strided(candidate, n_blocks):
    """The plan of a candidate, in which so many blocks take the tiles of each loop of results that has more."""

    def loop(p):
        has_more = p.is_parallel and not p.loop.is_reduction and blocks_along(p) > n_blocks
        return replace(p, n_blocks=n_blocks) if has_more else p

    plan = plan_of(candidate)
    tasks = tuple(replace(t, loops=tuple(map(loop, t.loops))) for t in plan.tasks)
    assert tasks != plan.tasks
    return replace(plan, tasks=tasks)


@NEEDS_COMPILER[1]
def test_blocks_fill_shared_memory_for_each_of_their_tiles(tmp_path):
    """The space has no such nests, what writes them does."""
    case = case_of("matmul", 6)
    with verifying():
        source = gpu.printed(lower(strided(decided(case.problem, MATMUL), 1)))
    assert gpu.check(source, inputs_of(case), tmp_path) == "", source.text
