"""Warps of a block as rectangles of threads: each warp covers one, each iteration has one thread, and results are right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernelscape.codegen.describe import describe
from kernelscape.codegen.loops.verify import IllFormedError, verify
from kernelscape.codegen.passes.pipeline import launches_of
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.library.matmul import multiply
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.api.artifact import BuildReport
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.search.starts.complete import first_candidates
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, DeadEnd
from kernelscape.space.decisions import fix, restore, to_names
from kernelscape.testing import checking
from kernelscape.testing.syntax import declared, program_of, value

from .gpu_cases import (
    MATMUL,
    NEEDS_COMPILER,
    case_of,
    decided,
    drawn,
    gpu,
    inputs_of,
    nvrtc_is_there,
    root_of,
)

WARP = 32
CHOICE = "warp_tile(multiply0.i.mid,multiply0.j.mid)"
LEVEL = "thread_level(multiply0.i.mid,multiply0.j.mid)"
SQUARE = {**MATMUL, "size(multiply0.j.mid)": "16", LEVEL: "OUTER"}
# With threads along the sum, too: the slowest, and partial sums of a result are in several warps.
SUMMED = {
    **SQUARE,
    "size(multiply0.i.mid)": "8",
    "dim_kind(multiply0.k.mid)": "THREAD",
    "size(multiply0.k.mid)": "2",
    "thread_level(multiply0.i.mid,multiply0.k.mid)": "INNER",
    "thread_level(multiply0.j.mid,multiply0.k.mid)": "INNER",
}

ONE_LOOP = {"dim_kind(multiply0.j.mid)": "ABSENT", "size(multiply0.j.mid)": "1"}


def tiled(tile, decisions=SQUARE):
    """A product whose warps are rectangles."""
    case = case_of("matmul")
    return case, decided(case.problem, {**decisions, CHOICE: tile})


def threads_of(program, n_threads):
    """The indices of each thread along both loops of results, as its kernel computes them."""
    own = declared(program.functions[0], "tid", "t_i", "t_j")
    found = []
    for number in range(n_threads):
        names = {"threadIdx.x": number}
        for x in own:
            names[x.name] = value(x.init, names)
        found.append((names["t_i"], names["t_j"]))
    return found


@pytest.mark.parametrize("level", ["INNER", "OUTER"])
@pytest.mark.parametrize("tile", ["2X16", "4X8", "8X4", "16X2"])
def test_each_warp_is_a_rectangle_and_all_of_them_the_block(tile, level):
    """The loop that varies fastest from thread to thread does so in a warp, and from warp to warp."""
    sizes = {"size(multiply0.i.mid)": "32", "size(multiply0.j.mid)": "32"}
    program = program_of(tiled(tile, {**SQUARE, **sizes, LEVEL: level})[1])
    assert program.launches[0].block == (32 * 32, 1, 1)
    rows, columns = map(int, tile.split("X"))
    found = threads_of(program, 32 * 32)
    assert len(set(found)) == 32 * 32
    for first in range(0, len(found), WARP):
        i, j = min(found[first : first + WARP])
        inside = [(i + y, j + x) for y in range(rows) for x in range(columns)]
        assert i % rows == j % columns == 0
        if level == "INNER":
            inside.sort(key=lambda cell: cell[::-1])
        assert found[first : first + WARP] == inside
    assert found[WARP] == ((0, columns) if level == "OUTER" else (rows, 0))


@NEEDS_COMPILER[1]
@pytest.mark.parametrize("name", ["matmul", "matmul_strided", "gemver", "standardise"])
def test_random_candidates_with_rectangles_are_right(name, tmp_path):
    case = case_of(name)
    space = fix(build_space(case.problem, gpu.target()), [("warp_tile", "2X16|4X8|8X4|16X2")])
    root = space.root()
    assert isinstance(root, Candidate), root
    inputs = inputs_of(case)
    for candidate in drawn(root, 5, 3):
        assert any(t.warp_tile for t in plan_of(candidate).tasks)
        source = gpu.source_of(candidate)
        assert gpu.check(source, inputs, tmp_path) == "", source.text


@NEEDS_COMPILER[1]
def test_threads_along_a_sum_combine_beside_rectangles(tmp_path):
    case, made = tiled("4X8", SUMMED)
    (task,) = plan_of(made).tasks
    assert task.has_tree and task.threads[-1] == "k"
    source = gpu.source_of(made)
    assert gpu.check(source, inputs_of(case), tmp_path) == "", source.text


@pytest.mark.skipif(not nvrtc_is_there(), reason="no NVRTC")
@pytest.mark.parametrize("decisions", [SQUARE, SUMMED], ids=["square", "summed"])
def test_the_compiler_of_cuda_takes_rectangles(decisions, nvrtc_folder):
    source = gpu.source_of(tiled("4X8", decisions)[1])
    assert gpu.compiler_says(source, nvrtc_folder) == ""


@pytest.mark.parametrize(
    ("tile", "changed"),
    [
        ("4X8", {"size(multiply0.j.mid)": "4"}),
        ("8X4", {"size(multiply0.i.mid)": "4"}),
        ("4X8", {**ONE_LOOP, LEVEL: "NOT_THREADS"}),
        ("4X8", {"size(multiply0.j.mid)": "8"}),
        ("8X4", {"size(multiply0.i.mid)": "8", LEVEL: "INNER"}),
        ("4X8", {**SUMMED, "thread_level(multiply0.i.mid,multiply0.k.mid)": "OUTER"}),
    ],
    ids=["columns", "rows", "one loop", "rows of eight", "columns of eight", "a sum between"],
)
def test_rectangles_divide_the_two_fastest_loops_and_are_none_already(tile, changed):
    space = build_space(case_of("matmul").problem, gpu.target())
    linear = {**SQUARE, **changed, CHOICE: "LINEAR"}
    assert isinstance(restore(space, linear.items()), Candidate)
    assert isinstance(restore(space, {**linear, CHOICE: tile}.items()), DeadEnd)
    assert isinstance(restore(space, {**SQUARE, CHOICE: tile}.items()), Candidate)


def test_only_loops_that_operands_are_read_by_apart_have_rectangles():
    """One loop of a matrix-vector product is a sum, and each element of a sum of matrices is read once."""
    for name in ("sgemv", "bicgk", "madd", "vadd"):
        assert not root_of(case_of(name).problem).space.variables.warp_tile
    for name in ("matmul", "matmul_strided", "gemver"):
        assert len(root_of(case_of(name).problem).space.variables.warp_tile) == 1


def first_of_product():
    """The first candidate of a product with copied operands, and those before it."""
    arrays = [np.zeros((1024, 1024), np.float32) for _ in range(3)]
    problem = normalise(record_sequence(lambda a, b, c: multiply(a, b, c), arrays, "product"))
    firsts = first_candidates(build_space(problem, gpu.target()), limit=3)
    *others, made = [candidate for _, candidate in firsts]
    return made, others


def test_first_candidates_of_a_product_have_rectangles():
    """Eight threads are along the contiguous loop, and four along the other."""
    made, others = first_of_product()
    assert plan_of(made).tasks[0].copies
    assert plan_of(made).tasks[0].warp_tile == {"i": 4, "j": 8}
    assert not any(plan_of(x).tasks[0].warp_tile for x in others)


@pytest.mark.skipif(not nvrtc_is_there(), reason="no NVRTC")
@pytest.mark.parametrize("sheet", gpu.SHEETS)
def test_indices_of_rectangles_leave_a_product_its_registers(sheet, tmp_path):
    """It has 64 sums and its operands in 128 registers: with divisions of signed numbers some of them were spilled."""
    device = open_device("cuda", DeviceOptions(build_folder=tmp_path, profile=sheet))
    report = device.reporter.report(gpu.source_of(first_of_product()[0]))
    assert isinstance(report, BuildReport), report
    (launch,) = report.launches
    assert launch.registers <= 128 and launch.spill_bytes == 0


@kernel
def outer(x: types.ndarray(), y: types.ndarray(), t: types.ndarray()):
    for i in range(t.shape[0]):
        for j in range(t.shape[1]):
            t[i, j] = x[i] * y[j]


@kernel
def scale(t: types.ndarray(), x: types.ndarray(), y: types.ndarray(), c: types.ndarray()):
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            c[i, j] = t[j, i] + x[j] * y[i]


@kernel
def double(t: types.ndarray(), c: types.ndarray()):
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            c[i, j] = t[i, j] + t[i, j]


def passed(second):
    """A matrix that the next task reads, element by element: its recording, its problem, and the inputs."""
    rng = np.random.default_rng(1)
    n = 48
    vectors = [rng.standard_normal(n).astype(np.float32) for _ in range(2)]
    matrices = [np.zeros((n, n), np.float32) for _ in range(2)]

    def both(x, y, t, c):
        outer(x, y, t)
        scale(t, x, y, c) if second == "scale" else double(t, c)

    recording = record_sequence(both, [*vectors, *matrices], "passed")
    problem = normalise(recording)
    given = dict(zip((a.name for a in recording.arrays), [*vectors, *matrices], strict=True))
    return problem, checking.make_inputs(recording, problem, given, {})


def in_registers(second):
    """Decisions that pass the matrix in a register, between threads along both loops."""
    turned = {"i": "j", "j": "i"} if second == "scale" else {"i": "i", "j": "j"}
    wanted = {
        f"fused(outer0,{second}0)": "SAME_LAUNCH",
        f"mem_space(outer0->{second}0.t)": "REGISTER",
        "thread_level(outer0.i.mid,outer0.j.mid)": "OUTER",
    }
    for x, other in turned.items():
        wanted[f"order(outer0.{x}.outer,{second}0.{other}.outer)"] = "MERGED"
        wanted[f"size(outer0.{x}.mid)"] = "16"
    return wanted


@NEEDS_COMPILER[1]
def test_a_value_in_a_register_stays_in_its_thread(tmp_path):
    """A consumer whose loops are turned has turned rectangles; one without a choice has none."""
    problem, inputs = passed("scale")
    space = build_space(problem, gpu.target())
    first = "warp_tile(outer0.i.mid,outer0.j.mid)"
    second = "warp_tile(scale0.i.mid,scale0.j.mid)"
    wanted = {**in_registers("scale"), first: "4X8"}
    made = decided(problem, wanted)
    assert dict(to_names(made))[second] == "8X4"
    source = gpu.source_of(made)
    assert gpu.check(source, inputs, tmp_path) == "", source.text
    for other in ("LINEAR", "2X16", "4X8"):
        assert isinstance(restore(space, {**wanted, second: other}.items()), DeadEnd)
        apart = {**wanted, second: other, "mem_space(outer0->scale0.t)": "GLOBAL"}
        elsewhere = restore(space, apart.items())
        assert isinstance(elsewhere, Candidate), elsewhere
    problem, _ = passed("double")
    space, wanted = build_space(problem, gpu.target()), in_registers("double")
    assert isinstance(restore(space, {**wanted, first: "LINEAR"}.items()), Candidate)
    assert isinstance(restore(space, {**wanted, first: "4X8"}.items()), DeadEnd)


def test_warps_are_said_and_ill_formed_ones_refused():
    _, made = tiled("4X8")
    plan = plan_of(made)
    (launch,) = launches_of(plan, made.space.target)
    (said,) = describe(made)["threads"][:1]
    assert said.endswith("neighbours along j and i, in warps of 4 x 8 threads along i and j"), said
    assert "warps of 4 x 8 threads along i and j" in program_of(made).decisions[-1].split("; ")
    verify(launch, plan)
    (task,) = plan.tasks
    faults = [
        (replace(task, warp_tile={"i": 4, "k": 8}), "and threads along"),
        (replace(task, warp_tile={"i": 4, "j": 4}), "no rectangles"),
        (replace(task, warp_tile={"i": 1, "j": 32}), "no rectangles"),
    ]
    for wrong, said in faults:
        with pytest.raises(IllFormedError, match=said):
            verify(launch, replace(plan, tasks=(wrong,)))
