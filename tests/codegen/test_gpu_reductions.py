"""Reductions of generated CUDA text: over the threads of a block, over blocks, and what is added to what."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from kernelscape.kernels.language.kernel import kernel, types
from kernelscape.kernels.language.record import ndarray, record_sequence
from kernelscape.kernels.offload.pipeline import normalise
from kernelscape.testing import checking

from .gpu_cases import (
    NEEDS_COMPILER,
    case_of,
    decided,
    drawn,
    gpu,
    inputs_of,
    nvrtc_is_there,
    root_of,
)
from .sums_cases import recorded, together

pytestmark = NEEDS_COMPILER


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


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("by", [column_sums, column_maxima, column_minima], ids=lambda k: k.name)
def test_blocks_reduce_into_one_result(by, dtype, tmp_path, nvrtc_folder):
    rng = np.random.default_rng(1)
    arrays = [rng.integers(-9, 9, (70, 33)).astype(dtype), np.zeros(33, dtype)]
    recording = record_sequence(lambda a, out: by(a, out), arrays, "columns")
    problem = normalise(recording)
    name = next(t.name for t in problem.tasks if t.is_reduction)
    wanted = {f"reduction({name}.i.outer)": "ATOMIC", f"size({name}.i.mid)": "16"}
    wanted |= {f"dim_kind({name}.j.inner)": "UNROLL", f"size({name}.j.inner)": "2"}
    source = gpu.source_of(decided(problem, wanted))
    inputs = checking.make_inputs(
        recording, problem, dict(zip(("a", "out"), arrays, strict=True)), {}
    )
    assert "atomic" in source.text[source.text.index("launch_0(") :]
    assert gpu.check(source, inputs, tmp_path) == "", source.text
    if nvrtc_is_there():
        assert gpu.compiler_says(source, nvrtc_folder) == "", source.text


def test_a_plain_sum_is_set_and_added_to_where_it_belongs(tmp_path):
    case = case_of("axpydot", 6)
    source = gpu.source_of(decided(case.problem, {"reduction(dot0.i.outer)": "ATOMIC"}))
    text = source.text
    assert "r_sum" not in text and "sets what the blocks add to" in text
    assert gpu.check(source, inputs_of(case), tmp_path) == "", text
    started = next(x for x in source.launches if len(x.arguments) == 1)
    left = tuple(x for x in source.launches if x is not started)
    assert gpu.check(replace(source, launches=left), inputs_of(case), tmp_path) != ""
    added = re.compile(r"^( *)atomic_add_f\d\d\(&(.*), (\w+)\);", re.MULTILINE)
    plain = added.sub(r"\1\2 += \3;", text)
    assert plain != text
    said = gpu.check(replace(source, text=plain), inputs_of(case), tmp_path)
    assert "another block of this launch" in said or "no barrier in between" in said


def test_a_sum_that_is_finished_later_has_three_launches(tmp_path):
    case = case_of("gesummv", 6)
    source = gpu.source_of(decided(case.problem, {"reduction(scaled_gemv0.j.outer)": "ATOMIC"}))
    assert re.search(
        r"sets what the blocks add to.*combines what the blocks left", source.text, re.S
    )
    assert gpu.check(source, inputs_of(case), tmp_path) == "", source.text


@pytest.mark.parametrize(
    ("name", "m", "n"), [("gesummv", 33, 17), ("three_rows", 7, 29), ("two_totals", 1, 101)]
)
def test_sums_of_which_one_waits_for_another_in_one_loop(tmp_path, name, m, n, nvrtc_folder):
    recording, arrays, scalars = recorded(name, m, n)
    problem = normalise(recording)
    inputs = checking.make_inputs(recording, problem, arrays, scalars)
    for candidate in drawn(together(root_of(problem)), m, 4):
        source = gpu.source_of(candidate)
        assert gpu.check(source, inputs, tmp_path) == "", source.text
        if nvrtc_is_there():
            assert gpu.compiler_says(source, nvrtc_folder) == "", source.text


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
    source = gpu.source_of(decided(problem, {"reduction(add_column_sums0.i.outer)": "ATOMIC"}))
    assert len(source.launches) == 1 and "atomic_add_f32(&out[" in source.text
    given = dict(zip(("a", "out"), arrays, strict=True))
    inputs = checking.make_inputs(recording, problem, given, {})
    assert gpu.check(source, inputs, tmp_path) == "", source.text


@kernel
def plane_sums(a: types.ndarray(), out: types.ndarray()):
    for i in range(a.shape[0]):
        acc = a[i, 0, 0] - a[i, 0, 0]
        for j in range(a.shape[1]):
            for k in range(a.shape[2]):
                acc += a[i, j, k]
        out[i] = acc


@pytest.mark.parametrize("way", ["PARTIALS", "ATOMIC"])
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
    source = gpu.source_of(decided(problem, wanted))
    n_blocks = -(-shape[1] // 16) * -(-shape[2] // (8 * int(inner)))
    summed = max(source.launches, key=lambda x: prod(x.grid))
    assert prod(summed.grid) % n_blocks == 0
    given = dict(zip(("a", "out"), arrays, strict=True))
    inputs = checking.make_inputs(recording, problem, given, {})
    assert gpu.check(source, inputs, tmp_path) == "", source.text
    if nvrtc_is_there():
        assert gpu.compiler_says(source, nvrtc_folder) == "", source.text


def test_what_a_sum_is_added_to_is_set_first(tmp_path):
    case = case_of("gemver", 4)
    wanted = {"reduction(add_scaled_gemvt0.i.outer)": "ATOMIC"}
    assert any(t.name == "add_scaled_gemvt0" and t.finish for t in case.problem.tasks)
    source = gpu.source_of(decided(case.problem, wanted))
    assert "add_scaled_gemvt0: combines" not in source.text
    assert gpu.check(source, inputs_of(case), tmp_path) == "", source.text


def test_warps_meet_to_reduce(tmp_path):
    case = case_of("sgemv", 6)
    wanted = {
        "dim_kind(gemv0.i.outer)": "PARALLEL",
        "dim_kind(gemv0.j.outer)": "LOOP",
        "dim_kind(gemv0.j.mid)": "THREAD",
        "size(gemv0.j.mid)": "128",
        "dim_kind(gemv0.i.mid)": "THREAD",
        "size(gemv0.i.mid)": "4",
    }
    source = gpu.source_of(decided(case.problem, wanted))
    assert source.launches[0].block == (4, 128, 1)
    assert re.search(r"block_add_f\d\d\(warp_add_f\d\d\(", source.text)
    assert gpu.check(source, inputs_of(case), tmp_path) == ""


@kernel
def total(a: types.ndarray(), out: types.ndarray()):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[0] += a[i, j]


def test_every_index_that_is_declared_is_used():
    """What stays in registers from a constant to its sum is indexed by nothing, and NVRTC warns of what is not used."""
    recording = record_sequence(
        lambda out: total(ndarray(np.float32, (13, 13)), out), [np.zeros(1, np.float32)], "of_zeros"
    )
    n_in_registers = 0
    for candidate in drawn(root_of(normalise(recording)), 1, 400):
        text = gpu.source_of(candidate).text
        n_in_registers += "stays on chip" in text and "_value" in text
        for name in re.findall(r"const int (\w+) =", text):
            assert len(re.findall(rf"\b{name}\b", text)) > 1, text
    assert n_in_registers > 5
