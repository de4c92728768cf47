"""Loops whose tiles the blocks of a GPU take in turn: right in each order of blocks, and no longer than a list is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernelscape.codegen.loops import ir as loop_ir
from kernelscape.codegen.loops.verify import IllFormedError, verify
from kernelscape.codegen.passes.pipeline import launches_of
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.proposals import default_sketch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, DeadEnd
from kernelscape.space.decisions import fix, restore
from kernelscape.testing import sparse_emulation
from kernelscape.testing.sparse_emulation import Shape

from .gpu_cases import (
    NEEDS_COMPILER,
    case_of,
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


# By name of a sequence, loops of nests whose tiles blocks take in turn, with what they leave of a sum.
NESTS = {
    "results of a product": ("matmul", {"i": "1", "j": "1"}, ""),
    "results that the last block combines": ("matmul", {"i": "1", "j": "2"}, "LAST_BLOCK"),
    "a sum that blocks leave": ("matmul", {"k": "1"}, "PARTIALS"),
    "a sum that the last block combines": ("matmul", {"j": "1", "k": "2"}, "LAST_BLOCK"),
    "a sum that blocks add up": ("matmul", {"i": "2", "j": "1", "k": "1"}, "ATOMIC"),
}


def nest_in_turn(name):
    """A root of a library sequence with the decisions of `NESTS`."""
    sequence, strides, way = NESTS[name]
    case = case_of(sequence, 5)
    wanted = {f"grid_stride(multiply0.{loop}.outer)": n for loop, n in strides.items()}
    if way:
        wanted["reduction(multiply0.k.outer)"] = way
    root = restore(build_space(case.problem, gpu.target(CORES)), wanted.items())
    assert isinstance(root, Candidate), root
    return case, root, len(strides)


@NEEDS_COMPILER[1]
@pytest.mark.parametrize("name", NESTS)
def test_loops_of_a_nest_are_right(name, tmp_path):
    """Each by itself, and all of them; also copies of operands in shared memory, which are made for each tile."""
    case, root, n_loops = nest_in_turn(name)
    inputs = inputs_of(case)
    for candidate in drawn(root, 2, 3):
        assert len(loops_in_turn(candidate)) >= n_loops
        source = gpu.source_of(candidate)
        assert gpu.check(source, inputs, tmp_path) == "", source.text


@NEEDS_COMPILER[1]
def test_fused_tasks_of_a_nest_are_right(tmp_path):
    case = case_of("gesummv", 5)
    wanted = {
        "fused(scaled_gemv0,add_scaled_gemv0)": "SAME_LAUNCH",
        "team(scaled_gemv0)": "BLOCKS",
        "grid_stride(scaled_gemv0.i.outer)": "2",
    }
    root = restore(build_space(case.problem, gpu.target(CORES)), wanted.items())
    assert isinstance(root, Candidate), root
    for candidate in drawn(root, 3, 3):
        launch, loop = loops_in_turn(candidate)[0]
        assert {m.task for m in loop.members} == set(launch.tasks)
        source = gpu.source_of(candidate)
        assert gpu.check(source, inputs_of(case), tmp_path) == "", source.text


@NEEDS_COMPILER[1]
@pytest.mark.parametrize("staged", ["COPY", "TWO_STAGES", "THREE_STAGES"])
def test_blocks_copy_operands_for_each_of_their_tiles(staged, tmp_path):
    case = case_of("matmul", 5)
    wanted = {
        "grid_stride(multiply0.i.outer)": "1",
        "grid_stride(multiply0.j.outer)": "1",
        "dim_kind(multiply0.k.outer)": "LOOP",
        "size(multiply0.k.mid)": "4",
        "size(multiply0.k.inner)": "1",
        "staged(multiply0.a)": staged,
        "staged(multiply0.b)": staged,
    }
    root = restore(build_space(case.problem, gpu.target(CORES)), wanted.items())
    assert isinstance(root, Candidate), root
    for candidate in drawn(root, 3, 2):
        source = gpu.source_of(candidate)
        assert gpu.check(source, inputs_of(case), tmp_path) == "", source.text


def test_sums_of_blocks_in_turn_are_inside_loops_over_results():
    """Else a block would have a sum for each of the results in registers at once."""
    case = case_of("matmul", 5)
    wanted = {
        "grid_stride(multiply0.k.outer)": "1",
        "dim_kind(multiply0.i.outer)": "PARALLEL",
        "order(multiply0.i.outer,multiply0.k.outer)": "INNER",
    }
    for n in ("1", "NONE"):
        wanted["grid_stride(multiply0.k.outer)"] = n
        found = restore(build_space(case.problem, gpu.target(CORES)), wanted.items())
        assert isinstance(found, Candidate if n == "NONE" else DeadEnd)


@pytest.mark.skipif(not nvrtc_is_there(), reason="no NVRTC")
def test_the_compiler_of_cuda_takes_nests(tmp_path):
    sources = [gpu.source_of(drawn(nest_in_turn(name)[1], 2, 1)[0]) for name in NESTS]
    compiled(sources, tmp_path)
