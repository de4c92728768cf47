"""The innermost loop of a product in PTX: nearly all of its instructions are multiply-adds."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.library.matmul import multiply
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.api.errors import DeviceError
from kernelscape.runtime.cuda import nvrtc
from kernelscape.search.starts.complete import first_candidates
from kernelscape.space.build import build_space
from kernelscape.space.decisions import restore
from kernelscape.testing import gpu_checking

from . import ptx

MOST_SHARE = 0.9  # of a first candidate
LEAST_SHARE = 0.8  # of multiply-adds; the rest are loads from shared memory, and the loop's own
# 16 x 16 threads of 8 x 8 results each, and a register tile along k, so that the compiler has the offsets as constants.
TILES = {
    "dim_kind(multiply0.i.outer)": "PARALLEL",
    "dim_kind(multiply0.j.outer)": "PARALLEL",
    "dim_kind(multiply0.k.outer)": "LOOP",
    "dim_kind(multiply0.i.mid)": "THREAD",
    "dim_kind(multiply0.j.mid)": "THREAD",
    "dim_kind(multiply0.k.mid)": "LOOP",
    "size(multiply0.i.mid)": "16",
    "size(multiply0.j.mid)": "16",
    "size(multiply0.k.mid)": "4",
    "dim_kind(multiply0.i.inner)": "UNROLL",
    "size(multiply0.i.inner)": "8",
    "dim_kind(multiply0.j.inner)": "VECTOR",
    "size(multiply0.j.inner)": "8",
    "dim_kind(multiply0.k.inner)": "UNROLL",
    "size(multiply0.k.inner)": "4",
    "reduction(multiply0.k.inner)": "SEQUENTIAL",
    "staged(multiply0.a)": "COPY",
    "staged(multiply0.b)": "COPY",
}


def product(n):
    arrays = [np.zeros((n, n), np.float32) for _ in range(3)]
    recording = record_sequence(lambda a, b, c: multiply(a, b, c), arrays, "product")
    return normalise(recording)


def instructions_of(candidate, architecture):
    """The names of the instructions in the loop with most multiply-adds."""
    try:
        nvrtc.library()
    except DeviceError as e:
        pytest.skip(str(e))
    source = gpu_checking.source_of(candidate)
    loops = ptx.innermost_loops(ptx.ptx_of(source.text, architecture))
    return max(loops, key=lambda names: names.count("fma.rn.f32"))


def share_of(names):
    """The share of multiply-adds."""
    return names.count("fma.rn.f32") / len(names)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_the_innermost_loop_of_a_product_multiplies_and_adds(architecture):
    made = restore(build_space(product(1024), gpu_checking.target()), TILES.items()).complete()
    most = instructions_of(made, architecture)
    assert share_of(most) >= LEAST_SHARE, sorted({n: most.count(n) for n in most}.items())


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_first_candidates_of_a_product_have_fragments_of_both_operands(architecture):
    """Each load from shared memory is a vector, and serves sixteen multiply-adds, along memory and in transposed copies."""
    firsts = first_candidates(build_space(product(1024), gpu_checking.target()), limit=8)
    plans = [(plan_of(candidate).tasks[0], candidate) for _, candidate in firsts]
    made = [(t.layouts["a"], t.stages["a"], x) for t, x in plans if "a" in t.fragments]
    ways = [(layout, stages) for layout, stages, _ in made]
    transposed = [("TRANSPOSED_PADDED", n) for n in (2, 1)]
    assert ways == [transposed[0], ("PADDED", 2), ("PADDED", 3), transposed[1]]
    for way, (*_, candidate) in zip(ways, made, strict=True):
        most = instructions_of(candidate, architecture)
        loads = [n for n in most if n.startswith("ld.")]
        assert set(loads) == {"ld.shared.v4.f32"}, (way, gpu_checking.source_of(candidate).key)
        assert most.count("fma.rn.f32") == 16 * len(loads), way
        assert share_of(most) >= MOST_SHARE, sorted({n: most.count(n) for n in most}.items())


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_no_register_is_moved_where_operands_are_loaded_ahead(architecture):
    """Two steps are written out, so that each of both has registers of its own."""
    ahead = {**TILES, "fragments(multiply0.a)": "IN_VECTORS", "register_stages(multiply0)": "TWO"}
    space = build_space(product(1024), gpu_checking.target())
    most = instructions_of(restore(space, ahead.items()).complete(), architecture)
    assert "mov.f32" not in most
    assert share_of(most) >= LEAST_SHARE, sorted({n: most.count(n) for n in most}.items())


@pytest.mark.parametrize("fragments", ["ELEMENTS", "IN_VECTORS"])
def test_swizzled_rows_are_read_in_vectors_where_that_is_decided(fragments):
    """A compiler joins loads of neighbours by itself where it sees that they are, as in rows that are not swizzled."""
    rows = {"layout(multiply0.a)": "SWIZZLED", "fragments(multiply0.a)": fragments}
    space = build_space(product(1024), gpu_checking.target())
    most = instructions_of(restore(space, {**TILES, **rows}.items()).complete(), "sm_80")
    n_elements = 32 if fragments == "ELEMENTS" else 0  # 8 rows, 4 steps
    found = most.count("ld.shared.f32"), most.count("ld.shared.v4.f32")
    assert found == (n_elements, 8 + (32 - n_elements) // 4)


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
