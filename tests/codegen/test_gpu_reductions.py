"""Reductions of generated CUDA text: over the threads of a block, over blocks, and what is added to what."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from math import prod

import numpy as np
import pytest
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text import csyntax as c
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import ndarray, record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.testing import checking
from kernelscape.testing.syntax import array_of, calls, declared, names_in, program_of, rewritten

from . import gpu_cases
from .sums_cases import recorded, together

pytestmark = gpu_cases.NEEDS_COMPILER
LONGEST = 12_000  # characters of a random text: others take seconds each


@kernel
def column_sums(a: types.ndarray(), out: types.ndarray()):
    for j in range(a.shape[1]):
        acc = a[0, j] - a[0, j]
        for i in range(a.shape[0]):
            acc += a[i, j]
        out[j] = acc


@kernel
def column_maxima(a: types.ndarray(), out: types.ndarray()):
    for j in range(a.shape[1]):
        acc = a[0, j]
        for i in range(a.shape[0]):
            acc = max(acc, a[i, j])
        out[j] = acc


@kernel
def column_minima(a: types.ndarray(), out: types.ndarray()):
    for j in range(a.shape[1]):
        acc = a[0, j]
        for i in range(a.shape[0]):
            acc = min(acc, a[i, j])
        out[j] = acc


def columns(a, sums, most, least):
    column_sums(a, sums)
    column_maxima(a, most)
    column_minima(a, least)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_blocks_reduce_into_one_result(dtype, tmp_path, nvrtc_folder):
    rng = np.random.default_rng(1)
    arrays = [rng.integers(-9, 9, (70, 33)).astype(dtype), *(np.zeros(33, dtype) for _ in range(3))]
    recording = record_sequence(columns, arrays, "columns")
    problem = normalise(recording)
    names = [t.name for t in problem.tasks if t.is_reduction]
    assert len(names) == 3
    wanted = {f"reduction({name}.i.outer)": "ATOMIC" for name in names}
    wanted |= {f"size({name}.i.mid)": "16" for name in names}
    wanted |= {f"dim_kind({name}.j.inner)": "UNROLL" for name in names}
    wanted |= {f"size({name}.j.inner)": "2" for name in names}
    program = program_of(gpu_cases.decided(problem, wanted))
    source = gpu_cases.gpu.printed(program)
    given = dict(zip((a.name for a in recording.arrays), arrays, strict=True))
    inputs = checking.make_inputs(recording, problem, given, {})
    assert {n.function.split("_")[1] for n in calls(program, "atomic_")} == {"add", "max", "min"}
    assert gpu_cases.gpu.check(source, inputs, tmp_path) == "", source.text
    if gpu_cases.nvrtc_is_there():
        assert gpu_cases.gpu.compiler_says(source, nvrtc_folder) == "", source.text


def added_plainly(x):
    """A statement that adds atomically as one that does not."""
    match x:
        case c.Evaluate(c.Call("atomic_add_f64", (c.Un("&", place), added))):
            return c.Assign(place, added, "+")
    return x


def test_a_plain_sum_is_set_and_added_to_where_it_belongs(tmp_path):
    case = gpu_cases.case_of("axpydot", 6)
    program = program_of(gpu_cases.decided(case.problem, {"reduction(dot0.i.outer)": "ATOMIC"}))
    source = gpu_cases.gpu.printed(program)
    assert {array_of(n.args[0]) for n in calls(program, "atomic_")} == {"r"}
    assert gpu_cases.gpu.check(source, gpu_cases.inputs_of(case), tmp_path) == "", source.text
    started = next(x for x in source.launches if len(x.arguments) == 1)
    left = tuple(x for x in source.launches if x is not started)
    assert (
        gpu_cases.gpu.check(replace(source, launches=left), gpu_cases.inputs_of(case), tmp_path)
        != ""
    )
    plain = rewritten(program, added_plainly)
    assert not calls(plain, "atomic_")
    said = gpu_cases.gpu.check(gpu_cases.gpu.printed(plain), gpu_cases.inputs_of(case), tmp_path)
    assert "another block of this launch" in said or "no barrier in between" in said


def kinds_of_launches(source, case, name):
    """The launches of a task: those without one set what its blocks add to, before it, or combine what they left."""
    launches = source.launches
    task = [t.name for t in case.problem.tasks].index(name)
    (k,) = (k for k, x in enumerate(launches) if task in x.tasks)
    found = ["set"] * (k > 0 and not launches[k - 1].tasks)
    return [*found, "sum", *["combine"] * (k + 1 < len(launches) and not launches[k + 1].tasks)]


def test_a_sum_that_is_finished_later_has_three_launches(tmp_path, golden):
    case = gpu_cases.case_of("gesummv", 6)
    program = program_of(
        gpu_cases.decided(case.problem, {"reduction(scaled_gemv0.j.outer)": "ATOMIC"})
    )
    source = gpu_cases.gpu.printed(program)
    golden("\n".join((*(f.comment for f in program.functions), "")), "gesummv_gpu.words.txt")
    assert kinds_of_launches(source, case, "scaled_gemv0") == ["set", "sum", "combine"]
    assert gpu_cases.gpu.check(source, gpu_cases.inputs_of(case), tmp_path) == "", source.text


@pytest.mark.parametrize(
    ("name", "m", "n"), [("gesummv", 33, 17), ("three_rows", 7, 29), ("two_totals", 1, 101)]
)
def test_sums_of_which_one_waits_for_another_in_one_loop(tmp_path, name, m, n, nvrtc_folder):
    recording, arrays, scalars = recorded(name, m, n)
    problem = normalise(recording)
    inputs = checking.make_inputs(recording, problem, arrays, scalars)
    candidates = islice(gpu_cases.drawing(together(gpu_cases.root_of(problem)), m), 40)
    short = (s for s in map(gpu_cases.gpu.source_of, candidates) if len(s.text) <= LONGEST)
    sources = list(islice(short, 4))
    assert len(sources) == 4
    for source in sources:
        assert gpu_cases.gpu.check(source, inputs, tmp_path) == "", source.text
        if gpu_cases.nvrtc_is_there():
            assert gpu_cases.gpu.compiler_says(source, nvrtc_folder) == "", source.text


@kernel
def add_column_sums(a: types.ndarray(), out: types.ndarray()):
    for j in range(a.shape[1]):
        for i in range(a.shape[0]):
            out[j] += a[i, j]


def test_blocks_add_to_what_a_result_held_before(tmp_path):
    rng = np.random.default_rng(2)
    arrays = [rng.uniform(-1, 1, s).astype(np.float32) for s in ((70, 33), (33,))]
    recording = record_sequence(lambda a, out: add_column_sums(a, out), arrays, "columns")
    problem = normalise(recording)
    program = program_of(
        gpu_cases.decided(problem, {"reduction(add_column_sums0.i.outer)": "ATOMIC"})
    )
    source = gpu_cases.gpu.printed(program)
    assert len(source.launches) == 1
    assert {array_of(n.args[0]) for n in calls(program, "atomic_add_f32")} == {"out"}
    given = dict(zip(("a", "out"), arrays, strict=True))
    inputs = checking.make_inputs(recording, problem, given, {})
    assert gpu_cases.gpu.check(source, inputs, tmp_path) == "", source.text


@kernel
def plane_sums(a: types.ndarray(), out: types.ndarray()):
    for i in range(a.shape[0]):
        acc = a[i, 0, 0] - a[i, 0, 0]
        for j in range(a.shape[1]):
            for k in range(a.shape[2]):
                acc += a[i, j, k]
        out[i] = acc


@pytest.mark.parametrize("way", ["PARTIALS", "ATOMIC", "LAST_BLOCK"])
@pytest.mark.parametrize("inner", ["1", "2"])
@pytest.mark.parametrize("shape", [(3, 70, 33), (1, 37, 65)], ids=str)
def test_two_reduced_loops_are_shared_out_to_blocks(way, inner, shape, tmp_path, nvrtc_folder):
    """Each block leaves what it sums up in a place of its own, or adds it; one that were counted twice or not would show."""
    arrays = [np.random.default_rng(3).uniform(-1, 1, shape).astype(np.float32)]
    arrays.append(np.zeros(shape[0], np.float32))
    recording = record_sequence(lambda a, out: plane_sums(a, out), arrays, "planes")
    problem = normalise(recording)
    name = next(t.name for t in problem.tasks if len(t.loops) > 1 and t.is_reduction)
    wanted = {f"reduction({name}.{x}.outer)": way for x in "jk"}
    wanted |= {f"size({name}.j.mid)": "16", f"size({name}.k.mid)": "8"}
    wanted |= {f"size({name}.j.inner)": "1", f"size({name}.k.inner)": inner}
    source = gpu_cases.gpu.source_of(gpu_cases.decided(problem, wanted))
    n_blocks = -(-shape[1] // 16) * -(-shape[2] // (8 * int(inner)))
    summed = max(source.launches, key=lambda x: prod(x.grid))
    assert prod(summed.grid) % n_blocks == 0
    given = dict(zip(("a", "out"), arrays, strict=True))
    inputs = checking.make_inputs(recording, problem, given, {})
    assert gpu_cases.gpu.check(source, inputs, tmp_path) == "", source.text
    if gpu_cases.nvrtc_is_there():
        assert gpu_cases.gpu.compiler_says(source, nvrtc_folder) == "", source.text


def test_what_a_sum_is_added_to_is_set_first(tmp_path):
    case = gpu_cases.case_of("gemver", 4)
    wanted = {"reduction(add_scaled_gemvt0.i.outer)": "ATOMIC"}
    assert any(t.name == "add_scaled_gemvt0" and t.finish for t in case.problem.tasks)
    source = gpu_cases.gpu.source_of(gpu_cases.decided(case.problem, wanted))
    assert kinds_of_launches(source, case, "add_scaled_gemvt0") == ["set", "sum"]
    assert gpu_cases.gpu.check(source, gpu_cases.inputs_of(case), tmp_path) == "", source.text


def test_warps_meet_to_reduce(tmp_path):
    case = gpu_cases.case_of("sgemv", 6)
    wanted = {
        "dim_kind(gemv0.i.outer)": "PARALLEL",
        "dim_kind(gemv0.j.outer)": "LOOP",
        "dim_kind(gemv0.j.mid)": "THREAD",
        "size(gemv0.j.mid)": "128",
        "dim_kind(gemv0.i.mid)": "THREAD",
        "size(gemv0.i.mid)": "4",
    }
    program = program_of(gpu_cases.decided(case.problem, wanted))
    source = gpu_cases.gpu.printed(program)
    assert source.launches[0].block == (4, 128, 1)
    met = calls(program, "block_add_")
    assert met and all(isinstance(n.args[0], c.Call) for n in met)
    assert {n.args[0].function for n in met} == {"warp_add_f32"}
    assert gpu_cases.gpu.check(source, gpu_cases.inputs_of(case), tmp_path) == ""


@kernel
def total(a: types.ndarray(), out: types.ndarray()):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[0] += a[i, j]


def test_every_index_that_is_declared_is_used():
    """Values in registers from a constant to its sum need no index, and NVRTC warns of unused variables."""
    recording = record_sequence(
        lambda out: total(ndarray(np.float32, (13, 13)), out), [np.zeros(1, np.float32)], "of_zeros"
    )
    n_in_registers = 0
    for candidate in gpu_cases.drawn(gpu_cases.root_of(normalise(recording)), 1, 150):
        program = program_of(candidate)
        stored = all(t.is_stored for t in plan_of(candidate).tasks)
        n_in_registers += not stored and any("_value" in n.name for n in declared(program))
        for f in program.functions:
            used = names_in(f)
            for x in declared(f):
                assert not (x.constant and x.type == "int") or x.name in used, f
    assert n_in_registers > 5
