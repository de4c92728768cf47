"""Grids that stay: dependent tasks in one launch, whose blocks are all resident and synchronise between them."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from kernelscape.codegen.loops import ir as loop_ir
from kernelscape.codegen.loops.text import show_launch
from kernelscape.codegen.loops.verify import IllFormedError, verify
from kernelscape.codegen.lower import lower
from kernelscape.codegen.passes.grid_barriers import place_grid_barriers
from kernelscape.codegen.passes.pipeline import PASSES, launches_of, verifying
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.api.outcome import Failure
from kernelscape.search.starts.complete import sketched_candidates
from kernelscape.space.build import build_space, widened
from kernelscape.space.candidate import Candidate, DeadEnd
from kernelscape.space.decisions import restore
from kernelscape.space.families.packing import DIRECT
from kernelscape.testing import checking, syntax
from kernelscape.testing.machines import library_space

from .gpu_cases import NEEDS_COMPILER, case_of, drawn, gpu, inputs_of, nvrtc_is_there

CORES = 2
nd = types.ndarray()


@kernel
def total(x: nd, s: nd):
    acc = 0.0
    for i in range(x.shape[0]):
        acc += x[i] * x[i]
    s[0] = acc


@kernel
def scale(x: nd, s: nd):
    for i in range(x.shape[0]):
        x[i] = x[i] * 0.5 + s[0]


@kernel
def offset(x: nd, s: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] = x[i] + s[0]


def three_steps(x, s, y):
    for _ in range(3):
        total(x, s)
        scale(x, s)


def once(x, s, y):
    total(x, s)
    offset(x, s, y)


@kernel
def twice(x: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] = 2.0 * x[i]


def three_in_a_row(x, y, z, w):
    twice(x, y)
    twice(y, z)
    twice(z, w)


def staying(problem, target=None, **decided):
    """A root in which the first two tasks of a problem are in a grid that stays."""
    first, second = (t.name for t in problem.tasks[:2])
    wanted = {f"team({first})": "WHOLE_GRID", f"fused({first},{second})": "SAME_LAUNCH"}
    return restore(build_space(problem, target or gpu.target(CORES)), (wanted | decided).items())


def sums_of_squares(way, calls=three_steps):
    """A sum over blocks, which the task behind it reads, in steps that repeat or once."""
    rng = np.random.default_rng(1)
    arrays = [rng.uniform(-1, 1, n).astype(np.float32) for n in (300, 1, 300)]
    recording = record_sequence(calls, arrays, "stepping")
    problem = normalise(recording)
    root = staying(problem, **{"reduction(total0.i.outer)": way})
    given = dict(zip((a.name for a in recording.arrays), arrays, strict=True))
    return root, checking.make_inputs(recording, problem, given, {})


def has_barrier(candidate):
    plan = plan_of(candidate)
    found = launches_of(plan, candidate.space.target)
    return any(isinstance(n, loop_ir.GridBarrier) for x in found for n in x.nodes)


@NEEDS_COMPILER[1]
@pytest.mark.parametrize("name", ["atax", "sgemvt", "gemver"])
def test_dependent_tasks_of_one_launch_are_right(name, tmp_path):
    case = case_of(name, 5)
    root = staying(case.problem)
    assert isinstance(root, Candidate), root
    found = drawn(root, 6, 3)
    assert any(map(has_barrier, found))
    with verifying():
        for candidate in found:
            source = gpu.source_of(candidate)
            assert gpu.check(source, inputs_of(case), tmp_path) == "", source.text


@NEEDS_COMPILER[1]
@pytest.mark.parametrize("calls", [three_steps, once])
@pytest.mark.parametrize("way", ["LAST_BLOCK", "ATOMIC"])
def test_sums_over_blocks_are_whole_behind_the_barrier(way, calls, tmp_path):
    """Also in steps: a barrier leaves its counters as it found them. Once, the sum alone is what blocks wait for."""
    root, inputs = sums_of_squares(way, calls)
    assert isinstance(root, Candidate), root
    for candidate in drawn(root, 2, 2):
        source = gpu.source_of(candidate)
        assert any(x.stays for x in source.launches)
        assert gpu.check(source, inputs, tmp_path) == "", source.text


def test_another_kernel_finishes_no_sum_of_such_a_launch():
    root, _ = sums_of_squares("PARTIALS")
    assert isinstance(root, DeadEnd)


@NEEDS_COMPILER[1]
def test_a_missing_barrier_is_found(tmp_path):
    case = case_of("sgemvt", 5)
    root = staying(case.problem)
    (candidate,) = drawn(root, 3, 1)
    plan = plan_of(candidate)
    passes = PASSES[plan.target.kind].without(place_grid_barriers)
    said = gpu.check(gpu.printed(lower(plan, passes)), inputs_of(case), tmp_path)
    assert "another block of this launch" in said


@NEEDS_COMPILER[1]
@pytest.mark.parametrize(("array", "is_written"), [("a", False), ("x", True)])
def test_what_a_launch_writes_is_not_read_through_the_read_only_cache(array, is_written, tmp_path):
    """The space has no such candidate: the barrier of the grid does not clear that cache."""
    case = case_of("sgemvt", 5)
    root = staying(case.problem, **{"staged(scaled_gemv0.x)": "DIRECT"})
    (candidate,) = drawn(root, 3, 1)
    plan = plan_of(candidate)
    first, last = (replace(t, load_hints={}) for t in plan.tasks)
    hinted = replace(plan, tasks=(first, replace(last, load_hints={array: "READ_ONLY"})))
    program = lower(hinted)
    assert syntax.calls(program, "__ldg")
    said = gpu.check(gpu.printed(program), inputs_of(case), tmp_path)
    assert ("of x through the read-only cache, and this launch wrote it" in said) == is_written, (
        said
    )
    assert is_written or not said


def test_all_blocks_are_resident_and_have_one_loop_of_the_grid():
    for name in ("atax", "gemver"):
        root = staying(case_of(name, 5).problem)
        target = root.space.target
        for candidate in drawn(root, 5, 12):
            plan = plan_of(candidate)
            for launch in launches_of(plan, target):
                tasks = [plan.tasks[t] for t in launch.tasks if plan.stays(t)]
                if not tasks:
                    continue
                (n_blocks,) = {p.n_blocks for t in tasks for p in t.loops if p.is_parallel}
                assert all(sum(p.is_parallel for p in t.loops) == 1 for t in tasks)
                n_threads = max(t.n_threads for t in tasks)
                assert n_blocks // CORES * n_threads <= target.max_threads_per_core


@pytest.mark.parametrize(("n_blocks", "fits"), [("8", True), ("16", False)])
def test_the_threads_of_all_blocks_are_resident(n_blocks, fits):
    """A multiprocessor has room for 2048 threads."""
    space = library_space("waxpby", gpu.target(CORES), n=1 << 16)
    assert space.target.max_threads_per_core == 2048
    first, second = (t.name for t in space.problem.tasks)
    wanted = {
        f"team({first})": "WHOLE_GRID",
        f"fused({first},{second})": "SAME_LAUNCH",
        f"grid_stride({first}.i.outer)": n_blocks,
        f"dim_kind({first}.i.mid)": "THREAD",
        f"size({first}.i.mid)": "256",
    }
    assert isinstance(restore(space, wanted.items()), Candidate) == fits


@pytest.mark.parametrize(
    ("n_blocks", "copies", "room", "fits"),
    [("8", "16", 1, True), ("8", "32", 1, False), ("4", "32", 1, True), ("8", "32", 2, True)],
)
def test_the_sums_of_all_blocks_are_resident(n_blocks, copies, room, fits):
    """A multiprocessor has 2^16 registers: 32 for each of its 2048 threads. A compiler that needs fewer widens the space."""
    space = library_space("atax", gpu.target(CORES), m=1 << 18, n=64)
    assert space.target.registers_per_core == 1 << 16
    first, second = (t.name for t in space.problem.tasks)
    wanted = {
        f"team({first})": "WHOLE_GRID",
        f"fused({first},{second})": "SAME_LAUNCH",
        f"grid_stride({first}.i.outer)": n_blocks,
        f"dim_kind({first}.i.mid)": "THREAD",
        f"size({first}.i.mid)": "256",
        f"size({first}.i.inner)": copies,
        f"dim_kind({first}.j.mid)": "ABSENT",
    }
    made = restore(widened(space, room), wanted.items())
    assert isinstance(made, Candidate) == fits, made
    assert fits or f"sums of all resident blocks of {first}" in made.why


def test_what_all_blocks_copy_is_resident():
    """A multiprocessor has shared memory of one KiB, a block may have all of it."""
    most = 1 << 10
    problem = case_of("atax", 5).problem
    root = staying(problem, replace(gpu.target(CORES), shared_bytes_per_core=most))
    for var in root.space.variables.staged.values():
        copied = [root.decide(var, 1 << k) for k in root.values(var) if k != DIRECT]
        root = next((c for c in copied if isinstance(c, Candidate)), root)
    n_bytes = []
    for candidate in drawn(root, 5, 12):
        plan = plan_of(candidate)
        for tasks in ([plan.tasks[t] for t in x.tasks] for x in launches_of(plan, plan.target)):
            (n_blocks,) = {p.n_blocks for t in tasks for p in t.loops if p.is_parallel}
            blocks = [
                prod(t.loop(name).tile for name in o.loops) * 4 * t.stages[o.site]
                for t in tasks
                for o in t.copies
            ]
            n_bytes.append(sum(blocks) * n_blocks // CORES)
    assert 0 < max(n_bytes) <= most


@pytest.mark.parametrize(
    ("first", "second", "launch", "fits"),
    [
        ("MERGED", "MERGED", "SAME_LAUNCH", False),
        ("MERGED", "BEFORE", "SEPARATE", False),
        ("MERGED", "BEFORE", "SAME_LAUNCH", True),
        ("BEFORE", "MERGED", "SAME_LAUNCH", True),
        ("BEFORE", "BEFORE", "SAME_LAUNCH", True),
        ("BEFORE", "BEFORE", "SEPARATE", True),
    ],
)
def test_the_tasks_of_a_grid_that_stays_are_not_all_one_nest(first, second, launch, fits):
    """In one nest nothing synchronises, and the program is that of blocks that do not: it is in the space once."""
    arrays = [np.zeros(64, np.float32) for _ in range(4)]
    problem = normalise(record_sequence(three_in_a_row, arrays, "three_in_a_row"))
    a, b, c = (t.name for t in problem.tasks)
    orders = {
        f"order({a}.i.outer,{b}.i.outer)": first,
        f"order({b}.i.outer,{c}.i.outer)": second,
        f"fused({b},{c})": launch,
    }
    made = staying(problem, **orders)
    if fits:
        assert has_barrier(*drawn(made, 1, 1))
    else:
        assert isinstance(made, DeadEnd)
        assert "in other loops" in made.why
        blocks = staying(problem, **orders, **{f"team({a})": "BLOCKS"})
        assert isinstance(blocks, Candidate)


def test_a_block_keeps_no_value_that_others_read():
    root = staying(case_of("atax", 5).problem)
    for space in ("SHARED", "REGISTER"):
        kept = staying(case_of("atax", 5).problem, **{"mem_space(gemv0->add_gemvt0.t)": space})
        assert isinstance(root, Candidate) and isinstance(kept, DeadEnd)


def test_ill_formed_grids_are_refused():
    root = staying(case_of("sgemvt", 5).problem)
    (candidate,) = drawn(root, 3, 1)
    plan = plan_of(candidate)
    (launch,) = launches_of(plan, root.space.target)
    verify(launch, plan)
    assert "barrier of the grid" in show_launch(launch, plan)
    loops = [n for n in launch.nodes if isinstance(n, loop_ir.Loop)]
    barrier = loop_ir.GridBarrier()
    faults = {
        "where blocks have parted": [replace(loops[0], children=(*loops[0].children, barrier))],
        "two barriers in a row": [barrier, barrier],
        "nests of one grid have": [loops[0], barrier, replace(loops[1], n_blocks=1)],
    }
    for words, nodes in faults.items():
        with pytest.raises(IllFormedError, match=words):
            verify(replace(launch, nodes=tuple(nodes)), plan)


def firsts(name):
    """First candidates of a sequence whose blocks synchronise, for the data sheet of an H200."""
    sizes = {"n": 4096} if name == "gemver" else {"m": 4096, "n": 4096}
    space = library_space(name, gpu.target(), **sizes)
    return [gpu.source_of(c) for _, c in sketched_candidates(space) if has_barrier(c)]


@pytest.mark.skipif(not nvrtc_is_there(), reason="no NVRTC")
@pytest.mark.parametrize("name", ["atax", "sgemvt", "gemver"])
def test_the_compiler_of_cuda_takes_them(name, nvrtc_folder):
    """For two architectures: first candidates of three sequences, one launch each."""
    sources = firsts(name)
    assert sources
    assert {len([x for x in s.launches if x.tasks]) for s in sources} == {1}
    assert gpu.compiler_says(sources[0], nvrtc_folder, ["a100"]) == ""
    device = gpu.device_for("h200", nvrtc_folder)
    for s in sources:  # with the registers that the compiler gives threads, all blocks are resident
        built = device.builder.build(s)
        assert not isinstance(built, Failure), built.advice
