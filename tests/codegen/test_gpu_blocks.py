"""Blocks of one, two and three dims: their threads are where the decisions put them, whatever the order in which they run."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text import csyntax as c
from kernelscape.codegen.text.cprint import expression
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.testing import checking
from kernelscape.testing.syntax import declared, loops, names_in, nodes, program_of

from . import gpu_cases

pytestmark = gpu_cases.NEEDS_COMPILER

FUSED = {
    "fused(add_two_outer0,add_scaled_gemvt0)": "SAME_LAUNCH",
    "order(add_two_outer0.i.outer,add_scaled_gemvt0.i.outer)": "MERGED",
    "order(add_two_outer0.j.outer,add_scaled_gemvt0.j.outer)": "MERGED",
}


def threads(task, **sizes):
    """Decisions that share loops of a task out to threads, those of neighbours first; its other loops have none."""
    wanted = {f"dim_kind({task}.{x}.mid)": "THREAD" for x in sizes}
    wanted |= {f"size({task}.{x}.mid)": str(n) for x, n in sizes.items()}
    names = list(sizes)
    for x in names:
        for y in names:
            if x < y:
                level = "INNER" if names.index(x) < names.index(y) else "OUTER"
                wanted[f"thread_level({task}.{x}.mid,{task}.{y}.mid)"] = level
    return wanted


def constants(x):
    """Returns the constants of a kernel, as C writes them."""
    return {(n.name, expression(n.init)) for n in declared(x) if n.constant}


def digits(x):
    """Returns the values computed from the number of a thread in its block, as C writes them."""
    return {
        expression(n)
        for n in nodes(x)
        if isinstance(n, c.Bin) and n.op in "/%" and n.a == c.Id("tid")
    }


def assert_right(source, inputs, folder, nvrtc_folder):
    assert gpu_cases.gpu.check(source, inputs, folder) == "", source.text
    if gpu_cases.nvrtc_is_there():
        assert gpu_cases.gpu.compiler_says(source, nvrtc_folder) == "", source.text


SHAPES = [
    ({"j": 32}, (32, 1, 1)),
    ({"j": 32, "i": 2}, (32, 2, 1)),
    ({"i": 8, "j": 8}, (8, 8, 1)),
    ({"k": 8, "j": 16}, (8, 16, 1)),
    ({"j": 16, "k": 4}, (16, 4, 1)),
    ({"j": 8, "i": 4, "k": 2}, (8, 4, 2)),
    ({"k": 4, "i": 2, "j": 16}, (4, 2, 16)),
    ({"j": 4, "i": 4}, (32, 1, 1)),  # less than a warp
]


@pytest.mark.parametrize("sizes", [4, 6])
@pytest.mark.parametrize(("along", "block"), SHAPES, ids=lambda x: "".join(map(str, x)))
def test_a_block_has_the_shape_of_its_threads(along, block, sizes, tmp_path, nvrtc_folder):
    """Of a product at odd sizes: its results, and what it sums up, over threads."""
    case = gpu_cases.case_of("matmul", sizes)
    wanted = {f"dim_kind(multiply0.{x}.mid)": "ABSENT" for x in "ijk" if x not in along}
    program = program_of(gpu_cases.decided(case.problem, wanted | threads("multiply0", **along)))
    source = gpu_cases.gpu.printed(program)
    assert source.launches[0].block == block
    if block[1] > 1:
        own = {(f"t_{x}", f"(int)threadIdx.{axis}") for axis, x in zip("xyz", along, strict=False)}
        assert own <= constants(program)
    assert_right(source, gpu_cases.inputs_of(case), tmp_path, nvrtc_folder)


@pytest.mark.parametrize("staged", ["COPY", "TWO_STAGES"])
def test_all_threads_of_a_block_copy(staged, tmp_path, nvrtc_folder):
    """Panels of 8 x 8 and 8 x 16 elements, by 64 threads in two dims and by 128 in three."""
    case = gpu_cases.case_of("matmul", 6)
    wanted = {"dim_kind(multiply0.k.outer)": "LOOP", "dim_kind(multiply0.i.outer)": "PARALLEL"}
    wanted |= {f"staged(multiply0.{x})": staged for x in "ab"}
    wanted |= {f"size(multiply0.{x}.inner)": "1" for x in "ijk"}
    flat = {"dim_kind(multiply0.k.mid)": "LOOP", "size(multiply0.k.mid)": "8"}
    for own in (flat | threads("multiply0", j=16, i=4), threads("multiply0", j=8, i=4, k=4)):
        program = program_of(gpu_cases.decided(case.problem, wanted | own))
        source = gpu_cases.gpu.printed(program)
        copying = [x for x in loops(program) if x.var == "e"]
        assert copying and {x.lo for x in copying} == {c.Id("tid")}
        assert {x.step for x in copying} == {prod(source.launches[0].block)}
        (tid,) = declared(program, "tid")
        axes = {
            f"threadIdx.{x}" for x, n in zip("xyz", source.launches[0].block, strict=True) if n > 1
        }
        assert names_in(tid) == axes
        assert_right(source, gpu_cases.inputs_of(case), tmp_path, nvrtc_folder)


def test_tasks_that_count_alike_share_the_axes(tmp_path, nvrtc_folder):
    case = gpu_cases.case_of("gemver", 4)
    own = [threads(t, j=16, i=4) for t in ("add_two_outer0", "add_scaled_gemvt0")]
    program = program_of(gpu_cases.decided(case.problem, FUSED | own[0] | own[1]))
    source = gpu_cases.gpu.printed(program)
    assert (16, 4, 1) in [x.block for x in source.launches]
    assert not digits(program.functions[0])
    assert_right(source, gpu_cases.inputs_of(case), tmp_path, nvrtc_folder)


def test_tasks_that_count_otherwise_share_one_number(tmp_path, nvrtc_folder):
    """Threads are given to other data from one task to the next, with a barrier in between."""
    case = gpu_cases.case_of("gemver", 4)
    own = [threads("add_two_outer0", j=16, i=4), threads("add_scaled_gemvt0", i=4, j=16)]
    program = program_of(gpu_cases.decided(case.problem, FUSED | own[0] | own[1]))
    source, first = gpu_cases.gpu.printed(program), program.functions[0]
    assert source.launches[0].block == (64, 1, 1)
    wanted = {"tid % 16", "tid / 16", "tid % 4", "tid / 4"}
    assert wanted <= digits(first) & {x for _, x in constants(first)}
    assert "threadIdx.y" not in names_in(first)
    assert any(isinstance(n, c.Barrier) for n in nodes(first))
    assert_right(source, gpu_cases.inputs_of(case), tmp_path, nvrtc_folder)


@kernel
def add_along_rows(a: types.ndarray(), b: types.ndarray(), c: types.ndarray()):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            for k in range(a.shape[2]):
                for m in range(a.shape[3]):
                    c[i, j, k, m] = a[i, j, k, m] + b[j, m]


@pytest.mark.parametrize(
    ("along", "block"),
    [({"m": 4, "k": 4, "j": 2, "i": 2}, (64, 1, 1)), ({"m": 4, "k": 4, "i": 2}, (4, 4, 2))],
    ids=["four", "three"],
)
def test_threads_along_four_loops_are_counted_in_one_number(along, block, tmp_path, nvrtc_folder):
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, s).astype(np.float32) for s in ((3, 3, 7, 5), (3, 5))]
    arrays.append(np.zeros((3, 3, 7, 5), np.float32))
    recording = record_sequence(lambda a, b, c: add_along_rows(a, b, c), arrays, "rows")
    problem = normalise(recording)
    wanted = {f"dim_kind(add_along_rows0.{x}.mid)": "ABSENT" for x in "ijkm" if x not in along}
    source = gpu_cases.gpu.source_of(
        gpu_cases.decided(problem, wanted | threads("add_along_rows0", **along))
    )
    assert source.launches[0].block == block
    given = dict(zip(("a", "b", "c"), arrays, strict=True))
    assert_right(
        source, checking.make_inputs(recording, problem, given, {}), tmp_path, nvrtc_folder
    )


def test_blocks_of_random_candidates():
    """As many threads as the task that has most, in whole warps; one, two and three dims all occur."""
    seen = set()
    for name in ("gemver", "matmul", "atax", "sgemvt"):
        for candidate in gpu_cases.drawn(
            gpu_cases.root_of(gpu_cases.case_of(name, 6).problem), 3, 60
        ):
            plan, program = plan_of(candidate), program_of(candidate)
            blocks = [x.block for x in program.launches]
            bounds = {f.name: f.block_threads for f in program.functions}
            seen |= {sum(n > 1 for n in block) for block in blocks}
            assert max(map(prod, blocks)) >= max(t.n_threads for t in plan.tasks)
            for launch in program.launches:
                n = prod(launch.block)
                assert n % 32 == 0 and n <= 1024 and launch.block[2] <= 64
                assert bounds[launch.kernel] == n
    assert seen == {1, 2, 3}
