"""Sums over blocks of which the last block to finish combines what all have left, in one launch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.testing import checking
from kernelscape.testing.syntax import calls, program_of

from . import gpu_cases
from .test_gpu_reductions import column_maxima, column_sums

pytestmark = gpu_cases.NEEDS_COMPILER
nd = types.ndarray()


@kernel
def add_column_sums(a: nd, out: nd):
    for j in range(a.shape[1]):
        for i in range(a.shape[0]):
            out[j] += a[i, j]


@kernel
def scale(a: nd, out: nd):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            a[i, j] = a[i, j] * 0.5 + out[0]


def stepping(a, out):
    for _ in range(4):
        column_sums(a, out)
        scale(a, out)


class Emulated:
    """A sequence on arrays whose sums are decided, and what the emulator says of its text."""

    def __init__(self, sequence, shape, dtype="float32", **decisions):
        draw = np.random.default_rng(5)
        if np.dtype(dtype).kind == "i":
            arrays = [draw.integers(-9, 9, shape).astype(dtype)]
        else:
            arrays = [draw.uniform(-1, 1, shape).astype(dtype)]
        arrays.append(np.zeros(shape[1], dtype))
        recording = record_sequence(sequence, arrays, "summed")
        problem = normalise(recording)
        names = [t.name for t in problem.tasks if t.is_reduction and len(t.loops) > 1]
        wanted = {f"reduction({name}.i.outer)": "LAST_BLOCK" for name in names}
        for name in names:
            wanted |= {f"{kind}({name}.{dim})": x for (kind, dim), x in decisions["sizes"].items()}
        self.program = program_of(gpu_cases.decided(problem, wanted))
        self.source = gpu_cases.gpu.printed(self.program)
        given = dict(zip((a.name for a in recording.arrays), arrays, strict=True))
        self.inputs = checking.make_inputs(recording, problem, given, {})

    def fault(self, folder, **texts):
        """The fault that the emulator finds in the text, "" for none; each name of `texts` is replaced by its value."""
        text = self.source.text
        for old, new in texts.items():
            assert old in text
            text = text.replace(old, new)
        return gpu_cases.gpu.check(replace(self.source, text=text), self.inputs, folder)


# Blocks of 16 rows, or of one: few parts or many, for groups of 8 columns, of which the last is cut.
FEW = {("size", "i.mid"): "16", ("size", "j.mid"): "8", ("dim_kind", "j.outer"): "PARALLEL"}
FEW |= {("size", "i.inner"): "1", ("size", "j.inner"): "1"}
MANY = FEW | {("size", "i.mid"): "1"}


@pytest.mark.parametrize("sizes", [FEW, MANY], ids=["few parts", "many parts"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_the_last_block_combines_what_all_have_left(sizes, dtype, tmp_path, nvrtc_folder):
    for sequence in (column_sums, column_maxima, add_column_sums):
        case = Emulated(lambda a, out, s=sequence: s(a, out), (70, 33), dtype, sizes=sizes)
        assert len(calls(case.program, "last_block_")) == 1
        assert case.fault(tmp_path) == "", case.source.text
        if gpu_cases.nvrtc_is_there():
            assert gpu_cases.gpu.compiler_says(case.source, nvrtc_folder) == "", case.source.text


def test_there_is_one_launch_a_sum_and_one_for_all_counters(tmp_path):
    """Also with steps: the last block leaves counters as it found them."""
    case = Emulated(stepping, (70, 33), sizes=FEW)
    tasks = [x.tasks for x in case.source.launches]
    assert tasks.count(()) == 1 and tasks[0] == ()
    assert len(tasks) == 1 + 4 * 2
    assert case.fault(tmp_path) == "", case.source.text
    assert case.fault(tmp_path, atomicInc="atomicAdd") != ""


def test_a_fence_is_missed(tmp_path):
    case = Emulated(lambda a, out: column_sums(a, out), (70, 33), sizes=FEW)
    behind = "    __threadfence();\n    __syncthreads();\n"
    for fences in (behind, "__threadfence();"):
        said = case.fault(tmp_path, **{fences: ""})
        assert "which another block of this launch wrote" in said
