"""The innermost loop of a product in PTX: nearly all of its instructions are multiply-adds."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.library.matmul import multiply
from kernelscape.kernels.tasks.pipeline import normalise

from . import gpu_cases, ptx

pytestmark = pytest.mark.skipif(not gpu_cases.nvrtc_is_there(), reason="no NVRTC")

LEAST_SHARE = 0.8  # of multiply-adds; the rest are loads from shared memory, and the loop's own
# 16 x 16 threads of 8 x 8 results each, and a register tile along k, so that the compiler has the offsets as constants.
TILES = gpu_cases.MATMUL | {
    "size(multiply0.i.mid)": "16",
    "size(multiply0.j.mid)": "16",
    "size(multiply0.k.mid)": "4",
    "size(multiply0.i.inner)": "8",
    "size(multiply0.j.inner)": "8",
    "dim_kind(multiply0.k.inner)": "UNROLL",
    "size(multiply0.k.inner)": "4",
    "reduction(multiply0.k.inner)": "SEQUENTIAL",
}


def product(n):
    arrays = [np.zeros((n, n), np.float32) for _ in range(3)]
    recording = record_sequence(lambda a, b, c: multiply(a, b, c), arrays, "product")
    return normalise(recording)


@pytest.mark.compiler
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_the_innermost_loop_of_a_product_multiplies_and_adds(architecture):
    source = gpu_cases.gpu.source_of(gpu_cases.decided(product(1024), TILES))
    loops = list(ptx.innermost_loops(ptx.ptx_of(source.text, architecture)))
    most = max(loops, key=lambda names: names.count("fma.rn.f32"))
    share = most.count("fma.rn.f32") / len(most)
    assert share >= LEAST_SHARE, (share, sorted({n: most.count(n) for n in most}.items()))


def test_loops_are_found_in_ptx():
    text = """
$L__BB0_1:
    ld.global.f32 %f1, [%rd1];
$L__BB0_2:
    fma.rn.f32 %f2, %f1, %f1, %f2;
    @%p1 bra $L__BB0_2;
    @!%p2 bra $L__BB0_1;
    bra.uni $L__BB0_3;
$L__BB0_3:
    ret;
"""
    assert list(ptx.innermost_loops(text)) == [["fma.rn.f32", "bra"]]
