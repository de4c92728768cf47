"""Copies of operands in shared memory: in stages, in every layout, with the barriers and waits that they need."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text import csyntax as c
from kernelscape.codegen.text.cprint import expression
from kernelscape.codegen.text.csyntax import Id
from kernelscape.codegen.write.grid_emission import BlockLayout
from kernelscape.codegen.write.shared_operands import locate
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.api.outcome import Failure
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.space.build import build_space
from kernelscape.space.choices import LAYOUT
from kernelscape.testing import checking, syntax

from . import gpu_cases, halo_cases, packed_cases
from .test_triangles import opened, rank_k

pytestmark = gpu_cases.NEEDS_COMPILER
SIZE_BYTES = {"float": 4, "double": 8, "int": 4, "long long": 8, "char": 1}
WAIT = "copy_async_wait<"
STAGES = {"TWO_STAGES": 2, "THREE_STAGES": 3}


def staged(a, b, sizes=5, **further):
    wanted = {**gpu_cases.MATMUL, "staged(multiply0.a)": a, "staged(multiply0.b)": b, **further}
    case = gpu_cases.case_of("matmul", sizes)
    return case, syntax.program_of(gpu_cases.decided(case.problem, wanted))


def shared(x):
    """The arrays that the threads of a block share."""
    return [n for n in syntax.declared(x) if n.is_shared]


def barriers(x):
    return [n for n in syntax.nodes(x) if isinstance(n, c.Barrier)]


def is_wait(x):
    return isinstance(x, c.Evaluate) and bool(syntax.calls(x.x, WAIT))


def test_a_tiled_product_stages_both_operands(tmp_path):
    case = gpu_cases.case_of("matmul", 5)
    program = syntax.program_of(gpu_cases.decided(case.problem, gpu_cases.MATMUL))
    source = gpu_cases.gpu.printed(program)
    assert len(source.launches) == 1
    assert [x.name for x in shared(program)] == ["a_tile", "b_tile"]
    assert gpu_cases.gpu.check(source, gpu_cases.inputs_of(case), tmp_path) == ""


def test_golden_staged_product(golden):
    """Text of a kernel: its bounds, shared arrays, asynchronous copies and barriers."""
    _, program = staged("TWO_STAGES", "COPY")
    golden(gpu_cases.gpu.printed(program).text, "matmul_staged.cu.txt")


def test_every_barrier_is_needed(tmp_path):
    """Without either barrier around a staged copy, the emulator finds threads that did not wait."""
    case = gpu_cases.case_of("matmul", 5)
    program = syntax.program_of(gpu_cases.decided(case.problem, gpu_cases.MATMUL))
    found = barriers(program)
    assert len(found) == 2
    for barrier in found:
        cut = syntax.without(program, lambda n, barrier=barrier: n is barrier)
        assert len(barriers(cut)) == 1
        said = gpu_cases.gpu.check(gpu_cases.gpu.printed(cut), gpu_cases.inputs_of(case), tmp_path)
        assert "with no barrier in between" in said


@pytest.mark.parametrize(
    ("a", "b", "sizes"),
    [*((a, b, 5) for a in [*STAGES, "COPY"] for b in STAGES), ("THREE_STAGES", "TWO_STAGES", 4)],
)
def test_the_next_tile_travels_while_one_is_used(a, b, sizes, tmp_path, nvrtc_folder):
    case, program = staged(a, b, sizes)
    source = gpu_cases.gpu.printed(program)
    least = min(STAGES.get(a, 3), STAGES[b])
    assert {n.function for n in syntax.calls(program, WAIT)} == {f"{WAIT}{least - 2}>"}
    (stage,) = (x.init for x in syntax.declared(program, "b_stage"))
    assert [n.b for n in syntax.nodes(stage) if isinstance(n, c.Bin) and n.op == "%"] == [
        c.number(STAGES[b])
    ]
    assert gpu_cases.gpu.check(source, gpu_cases.inputs_of(case), tmp_path) == "", source.text
    if gpu_cases.nvrtc_is_there():
        assert gpu_cases.gpu.compiler_says(source, nvrtc_folder) == ""


@pytest.mark.parametrize("stages", STAGES)
def test_one_barrier_a_tile_is_enough_for_travelling_copies(stages, tmp_path):
    """Each iteration waits, meets, starts the next copy and computes: nothing of it may be left out."""
    case, program = staged(stages, stages)
    (barrier,) = barriers(program)
    (wait,) = (n for n in syntax.nodes(program) if is_wait(n))
    assert syntax.is_before(program, wait, barrier)
    for left_out, said in ((barrier, "with no barrier in between"), (wait, "nan")):
        cut = syntax.without(program, lambda n, left_out=left_out: n == left_out)
        assert cut != program
        assert (
            said
            in gpu_cases.gpu.check(
                gpu_cases.gpu.printed(cut), gpu_cases.inputs_of(case), tmp_path
            ).lower()
        )


@pytest.mark.parametrize("layout", LAYOUT)
@pytest.mark.parametrize("stages", ["COPY", "TWO_STAGES"])
def test_every_layout_of_copies_is_right(layout, stages, tmp_path, nvrtc_folder):
    further = {f"layout(multiply0.{x})": layout for x in "ab"}
    case, program = staged(stages, stages, **further)
    source = gpu_cases.gpu.printed(program)
    assert any(isinstance(n, c.Bin) and n.op == "^" for n in syntax.nodes(program)) == (
        layout.endswith("SWIZZLED")
    )
    assert gpu_cases.gpu.check(source, gpu_cases.inputs_of(case), tmp_path) == "", source.text
    if gpu_cases.nvrtc_is_there():
        assert gpu_cases.gpu.compiler_says(source, nvrtc_folder) == ""


@pytest.mark.parametrize(("layout", "n_banks"), [("PLAIN", 4), ("ODD", 32), ("SWIZZLED", 8)])
def test_columns_of_a_copy_are_in_different_banks(layout, n_banks):
    """A block of 32 rows of 8 doubles: how many banks of 4 bytes hold one column."""
    tile = {"size(multiply0.k.mid)": "8", "size(multiply0.i.mid)": "32"}
    tile |= {"dim_kind(multiply0.i.inner)": "ABSENT", "size(multiply0.i.inner)": "1"}
    tile |= {"layout(multiply0.a)": layout}
    candidate = gpu_cases.decided(
        gpu_cases.case_of("matmul", 5).problem, {**gpu_cases.MATMUL, **tile}
    )
    task = plan_of(candidate).tasks[0]
    operand = next(o for o in task.copies if o.access.array == "a")
    block = BlockLayout.of(task, operand, candidate.space.problem.array("a"))
    assert [p.tile for p in block.loops] == [32, 8]

    def at(i, k):
        offsets = {"i": ({Id("i"): 1}, 0), "k": ({Id("k"): 1}, 0)}
        return eval(expression(locate(block, offsets, None)), {"i": i, "k": k})

    places = {at(i, k) for i in range(32) for k in range(8)}
    assert len(places) == 32 * 8 and max(places) < block.n_elements
    for k in range(8):
        words = (2 * at(i, k) + half for i in range(32) for half in range(2))
        assert len({word % 32 for word in words}) == n_banks


def test_more_shared_memory_than_a_kernel_has_unasked_is_asked_for(tmp_path, nvrtc_folder):
    large = {"size(multiply0.i.mid)": "32", "size(multiply0.j.mid)": "16"}
    large |= {"size(multiply0.i.inner)": "8"}
    case, program = staged("THREE_STAGES", "THREE_STAGES", **large)
    source = gpu_cases.gpu.printed(program)
    launch = source.launches[0]
    facts = gpu_cases.gpu.target()
    assert facts.shared_bytes_per_block < launch.shared_bytes <= facts.shared_bytes_per_block_most
    assert [(x.type, x.extent) for x in shared(program)] == [("char", 0)]
    assert gpu_cases.gpu.check(source, gpu_cases.inputs_of(case), tmp_path) == "", source.text
    short = replace(launch, shared_bytes=launch.shared_bytes // 2)
    said = gpu_cases.gpu.check(
        replace(source, launches=(short,)), gpu_cases.inputs_of(case), tmp_path
    )
    assert "past the end of shared_memory" in said
    if gpu_cases.nvrtc_is_there():
        assert gpu_cases.gpu.compiler_says(source, nvrtc_folder, ("a100",)) == ""
        device = open_device("cuda", DeviceOptions(build_folder=tmp_path, profile="h200"))
        report = device.reporter.report(source)
        assert not isinstance(report, Failure)
        assert report.launches[0].shared_bytes == launch.shared_bytes
        assert report.launches[0].blocks_per_core >= 1


@pytest.mark.parametrize("stages", ["COPY", *STAGES])
def test_a_vector_is_copied_for_all_rows_of_a_block(stages, tmp_path, nvrtc_folder):
    wanted = {
        "staged(gemv0.x)": stages,
        "dim_kind(gemv0.i.mid)": "THREAD",
        "size(gemv0.i.mid)": "16",
    }
    wanted |= {"dim_kind(gemv0.j.outer)": "LOOP", "size(gemv0.j.mid)": "8"}
    wanted |= {"dim_kind(gemv0.j.mid)": "LOOP", "size(gemv0.j.inner)": "1"}
    case = gpu_cases.case_of("sgemv", 6)
    program = syntax.program_of(gpu_cases.decided(case.problem, wanted))
    source = gpu_cases.gpu.printed(program)
    assert [(x.name, x.extent) for x in shared(program)] == [("x_tile", 8 * STAGES.get(stages, 1))]
    assert any(
        isinstance(x.init, c.Index) and syntax.array_of(x.init) == "x_tile"
        for x in syntax.declared(program)
    )
    assert gpu_cases.gpu.check(source, gpu_cases.inputs_of(case), tmp_path) == "", source.text
    apart = syntax.without(program, lambda n: isinstance(n, c.Barrier))
    assert (
        gpu_cases.gpu.check(gpu_cases.gpu.printed(apart), gpu_cases.inputs_of(case), tmp_path) != ""
    )
    if gpu_cases.nvrtc_is_there():
        assert gpu_cases.gpu.compiler_says(source, nvrtc_folder) == "", source.text


@pytest.mark.parametrize("name", ["matmul", "matmul_strided", "standardise", "heat", "gesummv"])
def test_shared_memory_of_random_candidates_is_there(name):
    """Declared arrays and what launches ask for; little memory, so that many random candidates would not fit."""
    most = 6 << 10
    little = replace(gpu_cases.gpu.target(), max_threads_per_block=256)
    little = replace(little, shared_bytes_per_block=most, shared_bytes_per_block_most=most)
    root = build_space(gpu_cases.case_of(name, 6).problem, little).root()
    used = []
    for candidate in gpu_cases.drawn(root, 7, 25):
        program = syntax.program_of(candidate)
        assert all(x.shared_bytes <= most for x in program.launches)
        for kernel in program.functions:
            sizes = (x.extent * SIZE_BYTES[x.type] for x in shared(kernel))
            used.append(sum(-(-size // 16) * 16 for size in sizes))
            assert used[-1] <= most, kernel
    assert max(used) > 256


def test_waiting_for_too_few_copies_is_found(tmp_path):
    case, program = staged("THREE_STAGES", "THREE_STAGES")
    right, wrong = (c.Call(f"{WAIT}{n}>", ()) for n in (1, 2))
    changed = syntax.rewritten(program, lambda n: wrong if n == right else n)
    assert changed != program
    assert (
        gpu_cases.gpu.check(gpu_cases.gpu.printed(changed), gpu_cases.inputs_of(case), tmp_path)
        != ""
    )


def test_copies_move_the_widest_pieces_that_are_aligned():
    """A row of b is whole vectors; one of a is padded by an element; odd sizes have no vectors."""
    layouts = {"layout(multiply0.a)": "ODD", "layout(multiply0.b)": "PADDED"}
    _, program = staged("TWO_STAGES", "TWO_STAGES", **layouts)
    pieces = {
        (n.function, syntax.array_of(n.args[0]))
        for n in syntax.calls(program, "copy_async")
        if n.args
    }
    assert pieces == {("copy_async8", "a_tile"), ("copy_async16", "b_tile")}
    _, program = staged("COPY", "COPY")
    moved = [
        n.args
        for n in syntax.calls(program, "store_f64x2")
        if syntax.array_of(n.args[0]) == "b_tile"
    ]
    assert moved
    for _, vector in moved:
        (loaded,) = syntax.calls(vector, "load_f64x2")
        assert syntax.array_of(loaded.args[0]) == "b"
    case, program = staged("TWO_STAGES", "TWO_STAGES", 4)
    n = {a.name: a for a in case.problem.arrays}["b"].shape[1]
    assert (
        n % 2 and syntax.calls(program, "copy_async") and not syntax.calls(program, "copy_async16")
    )


@pytest.mark.parametrize("name", ["two sweeps", "a turned one", "edges", "obstacles", "statements"])
def test_blocks_with_borders_compute_the_same(tmp_path, name):
    """Threads of a block copy what they read around their own elements, also where the block is cut by the end of the array."""
    recording, args = halo_cases.recorded(name)
    space = build_space(normalise(recording), gpu_cases.gpu.target())
    inputs = packed_cases.inputs_of(recording, args)
    for candidate in halo_cases.with_halos(space, 1, seed=2):
        assert (
            gpu_cases.gpu.check(
                gpu_cases.gpu.printed(syntax.program_of(candidate)), inputs, tmp_path
            )
            == ""
        )


def test_both_operands_of_one_array_are_copied(tmp_path):
    recording, arrays, problem, _ = opened(rank_k, 21, "f4", 32)
    space = build_space(problem, gpu_cases.gpu.target())
    root = space.root()
    for stages, var in zip((1, 2), space.variables.staged.values(), strict=True):
        root = root.decide(var, 1 << stages)
    (made,) = gpu_cases.drawn(root, 1, 1)
    assert len(plan_of(made).tasks[0].copies) == 2
    inputs = checking.make_inputs(recording, problem, arrays, {})
    assert gpu_cases.gpu.check(gpu_cases.gpu.source_of(made), inputs, tmp_path) == ""
