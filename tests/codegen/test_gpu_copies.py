"""Copies of operands in shared memory: in stages, in every layout, with the barriers and waits that they need."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from kernelscape.codegen.c.cprint import expression
from kernelscape.codegen.c.csyntax import Id
from kernelscape.codegen.c.kernel_scene import BlockLayout
from kernelscape.codegen.c.shared_operands import locate
from kernelscape.codegen.plan import read_plan
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.runtime.worker.outcome import Failure
from kernelscape.space.build import build_space
from kernelscape.space.choices import LAYOUT

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

pytestmark = NEEDS_COMPILER
BARRIER = re.compile(r"^ *__syncthreads\(\);\n", re.MULTILINE)
DECLARED = re.compile(r"__shared__ __align__\(16\) ([a-z ]+) \w+\[(\d+)\]")
SIZE_BYTES = {"float": 4, "double": 8, "int": 4, "long long": 8}
STAGES = {"TWO_STAGES": 2, "THREE_STAGES": 3}


def staged(a, b, sizes=5, **further):
    wanted = {**MATMUL, "staged(multiply0.a)": a, "staged(multiply0.b)": b, **further}
    case = case_of("matmul", sizes)
    return case, gpu.source_of(decided(case.problem, wanted))


def test_a_tiled_product_stages_both_operands(tmp_path):
    case = case_of("matmul", 5)
    source = gpu.source_of(decided(case.problem, MATMUL))
    assert len(source.launches) == 1
    assert source.text.count("__shared__") == 2
    assert gpu.check(source, inputs_of(case), tmp_path) == ""


def test_every_barrier_is_needed(tmp_path):
    """Without either barrier around a staged copy, the emulator finds threads that did not wait."""
    case = case_of("matmul", 5)
    source = gpu.source_of(decided(case.problem, MATMUL))
    start = source.text.index("launch_0(")
    barriers = [m for m in BARRIER.finditer(source.text) if m.start() > start]
    assert len(barriers) == 2
    for barrier in barriers:
        cut = source.text[: barrier.start()] + source.text[barrier.end() :]
        said = gpu.check(replace(source, text=cut), inputs_of(case), tmp_path)
        assert "with no barrier in between" in said


@pytest.mark.parametrize(
    ("a", "b", "sizes"),
    [*((a, b, 5) for a in [*STAGES, "COPY"] for b in STAGES), ("THREE_STAGES", "TWO_STAGES", 4)],
)
def test_the_next_tile_travels_while_one_is_used(a, b, sizes, tmp_path, nvrtc_folder):
    case, source = staged(a, b, sizes)
    least = min(STAGES.get(a, 3), STAGES[b])
    assert f"copy_async_wait<{least - 2}>();" in source.text
    assert f"% {STAGES[b]} *" in source.text
    assert gpu.check(source, inputs_of(case), tmp_path) == "", source.text
    if nvrtc_is_there():
        assert gpu.compiler_says(source, nvrtc_folder) == ""


@pytest.mark.parametrize("stages", STAGES)
def test_one_barrier_a_tile_is_enough_for_travelling_copies(stages, tmp_path):
    """Each iteration waits, meets, starts the next copy and computes: nothing of it may be left out."""
    case, source = staged(stages, stages)
    body = source.text[source.text.index("launch_0(") :]
    assert body.count("__syncthreads();") == 1
    assert body.index("copy_async_wait<") < body.index("__syncthreads();")
    for left_out, said in (
        (r"__syncthreads\(\);", "with no barrier in between"),
        (r"copy_async_wait<\d>\(\);", "nan"),
    ):
        cut = re.sub(rf"^ *{left_out}\n", "", body, flags=re.MULTILINE)
        text = source.text.replace(body, cut)
        assert text != source.text
        assert said in gpu.check(replace(source, text=text), inputs_of(case), tmp_path).lower()


@pytest.mark.parametrize("layout", LAYOUT)
@pytest.mark.parametrize("stages", ["COPY", "TWO_STAGES"])
def test_every_layout_of_copies_is_right(layout, stages, tmp_path, nvrtc_folder):
    further = {f"layout(multiply0.{x})": layout for x in "ab"}
    case, source = staged(stages, stages, **further)
    assert ("^" in source.text[source.text.index("launch_0(") :]) == (layout == "SWIZZLED")
    assert gpu.check(source, inputs_of(case), tmp_path) == "", source.text
    if nvrtc_is_there():
        assert gpu.compiler_says(source, nvrtc_folder) == ""


@pytest.mark.parametrize(("layout", "n_banks"), [("PLAIN", 4), ("ODD", 32), ("SWIZZLED", 8)])
def test_columns_of_a_copy_are_in_different_banks(layout, n_banks):
    """A block of 32 rows of 8 doubles: how many banks of 4 bytes hold one column."""
    tile = {"size(multiply0.k.mid)": "8", "size(multiply0.i.mid)": "32"}
    tile |= {"dim_kind(multiply0.i.inner)": "ABSENT", "size(multiply0.i.inner)": "1"}
    tile |= {"layout(multiply0.a)": layout}
    candidate = decided(case_of("matmul", 5).problem, {**MATMUL, **tile})
    task = read_plan(candidate).tasks[0]
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
    case, source = staged("THREE_STAGES", "THREE_STAGES", **large)
    launch = source.launches[0]
    facts = gpu.target()
    assert facts.shared_bytes_per_block < launch.shared_bytes <= facts.shared_bytes_per_block_most
    assert (
        "extern __shared__" in source.text and "__shared__ __align__(16) double" not in source.text
    )
    assert gpu.check(source, inputs_of(case), tmp_path) == "", source.text
    short = replace(launch, shared_bytes=launch.shared_bytes // 2)
    said = gpu.check(replace(source, launches=(short,)), inputs_of(case), tmp_path)
    assert "past the end of shared_memory" in said
    if nvrtc_is_there():
        assert gpu.compiler_says(source, nvrtc_folder) == ""
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
    case = case_of("sgemv", 6)
    source = gpu.source_of(decided(case.problem, wanted))
    assert f"x_tile[{8 * STAGES.get(stages, 1)}]" in source.text
    kernel = source.text[source.text.index("launch_0(") :]
    assert re.search(r"= x_tile\[", kernel)
    assert gpu.check(source, inputs_of(case), tmp_path) == "", source.text
    without = BARRIER.sub("", source.text)
    assert gpu.check(replace(source, text=without), inputs_of(case), tmp_path) != ""
    if nvrtc_is_there():
        assert gpu.compiler_says(source, nvrtc_folder) == "", source.text


@pytest.mark.parametrize("name", ["matmul", "matmul_strided", "standardise", "heat", "gesummv"])
def test_shared_memory_of_random_candidates_is_there(name):
    """Declared arrays and what launches ask for; little memory, so that many random candidates would not fit."""
    most = 6 << 10
    little = replace(gpu.target(), max_threads_per_block=256)
    little = replace(little, shared_bytes_per_block=most, shared_bytes_per_block_most=most)
    root = build_space(case_of(name, 6).problem, little).root()
    used = []
    for candidate in drawn(root, 7, 25):
        source = gpu.source_of(candidate)
        assert all(x.shared_bytes <= most for x in source.launches)
        for kernel in source.text.split("__global__")[1:]:
            arrays = DECLARED.findall(kernel)
            used.append(sum(-(-int(n) * SIZE_BYTES[kind] // 16) * 16 for kind, n in arrays))
            assert used[-1] <= most, kernel
    assert max(used) > 256


def test_waiting_for_too_few_copies_is_found(tmp_path):
    case, source = staged("THREE_STAGES", "THREE_STAGES")
    text = source.text.replace("copy_async_wait<1>", "copy_async_wait<2>")
    assert text != source.text
    assert gpu.check(replace(source, text=text), inputs_of(case), tmp_path) != ""


def test_copies_move_the_widest_pieces_that_are_aligned(tmp_path):
    """A row of b is whole vectors; one of a is padded by an element; odd sizes have no vectors."""
    layouts = {"layout(multiply0.a)": "ODD", "layout(multiply0.b)": "PADDED"}
    _, source = staged("TWO_STAGES", "TWO_STAGES", **layouts)
    assert "copy_async8(&a_tile" in source.text and "copy_async16(&b_tile" in source.text
    _, source = staged("COPY", "COPY")
    assert re.search(r"store_\w+x\d\(&b_tile\[.*\], load_\w+x\d\(&b\[", source.text)
    case, source = staged("TWO_STAGES", "TWO_STAGES", 4)
    n = {a.name: a for a in case.problem.arrays}["b"].shape[1]
    assert n % 2 and "copy_async16(&" not in source.text
