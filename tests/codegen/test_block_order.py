"""Blocks of a grid in bands of rows: each tile has one block, those that start together form a rectangle, results are right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernelscape.codegen.describe import describe
from kernelscape.codegen.loops import ir as loop_ir
from kernelscape.codegen.loops.text import show_launch
from kernelscape.codegen.loops.verify import IllFormedError, verify
from kernelscape.codegen.passes.pipeline import launches_of
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, DeadEnd
from kernelscape.space.decisions import fix, restore
from kernelscape.testing.checking import random_candidate
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

ROWS, COLUMNS = 19, 14  # of a grid with tiles of 2 x 4 results
SMALL = {
    "size(multiply0.i.mid)": "2",
    "size(multiply0.i.inner)": "1",
    "dim_kind(multiply0.i.inner)": "ABSENT",
    "size(multiply0.j.mid)": "4",
    "size(multiply0.j.inner)": "1",
    "dim_kind(multiply0.j.inner)": "ABSENT",
    "order(multiply0.i.outer,multiply0.j.outer)": "OUTER",
}
SPLIT = {**MATMUL, "dim_kind(multiply0.k.outer)": "PARALLEL"}


def banded(band, decisions=MATMUL, sizes=4):
    """A product whose blocks start in bands, of which the last is not full."""
    case = case_of("matmul", sizes)
    return case, decided(case.problem, {**decisions, "block_order(multiply0)": f"BANDS_{band}"})


@pytest.mark.parametrize("band", [4, 8, 16])
def test_bands_have_all_blocks_and_go_column_by_column(band):
    _, made = banded(band, {**MATMUL, **SMALL})
    program = program_of(made)
    (launch,) = program.launches
    assert launch.grid == (COLUMNS, ROWS, 1)
    found = []
    for number in range(ROWS * COLUMNS):
        names = {"blockIdx.x": number % COLUMNS, "blockIdx.y": number // COLUMNS}
        for own in declared(program, "block", "band", "height", "row", "column"):
            names[own.name] = value(own.init, names)
        found.append((names["row"], names["column"]))
    assert found == [
        (row, column)
        for first in range(0, ROWS, band)
        for column in range(COLUMNS)
        for row in range(first, min(first + band, ROWS))
    ]


@NEEDS_COMPILER[1]
@pytest.mark.parametrize("name", ["matmul", "matmul_strided"])
def test_random_products_in_bands_are_right(name, tmp_path):
    case = case_of(name)
    space = fix(build_space(case.problem, gpu.target()), [("block_order", "BANDS_4|BANDS_8")])
    root = space.root()
    assert isinstance(root, Candidate), root
    inputs = inputs_of(case)
    for candidate in drawn(root, 5, 4):
        assert any(n.band > 1 for x in loops_of(candidate) for n in x)
        source = gpu.source_of(candidate)
        assert gpu.check(source, inputs, tmp_path) == "", source.text


@NEEDS_COMPILER[1]
@pytest.mark.parametrize("way", ["PARTIALS", "ATOMIC", "LAST_BLOCK"])
def test_blocks_in_bands_combine_their_sums(way, tmp_path):
    case, made = banded(4, {**SPLIT, "reduction(multiply0.k.outer)": way})
    source = gpu.source_of(made)
    assert max(len([n for n in x.grid if n > 1]) for x in source.launches) == 3
    assert gpu.check(source, inputs_of(case), tmp_path) == "", source.text


@pytest.mark.skipif(not nvrtc_is_there(), reason="no NVRTC")
def test_the_compiler_of_cuda_takes_bands_of_blocks(nvrtc_folder):
    for decisions in (MATMUL, SPLIT):
        source = gpu.source_of(banded(8, decisions)[1])
        assert gpu.compiler_says(source, nvrtc_folder) == "", source.text


def two_products():
    """Two products of one matrix, which may share a launch."""

    @kernel
    def multiply(a: types.ndarray(), b: types.ndarray(), c: types.ndarray()):
        for i in range(a.shape[0]):
            for j in range(b.shape[1]):
                acc = 0.0
                for k in range(a.shape[1]):
                    acc += a[i, k] * b[k, j]
                c[i, j] = acc

    def both(a, b, d, c, e):
        multiply(a, b, c)
        multiply(a, d, e)

    arrays = [np.zeros((40, 40), np.float32) for _ in range(5)]
    return normalise(record_sequence(both, arrays, "both"))


def test_a_launch_has_one_order_of_blocks():
    problem = two_products()
    together = {"fused(multiply0,multiply1)": "SAME_LAUNCH", "block_order(multiply0)": "BANDS_8"}
    own = restore(build_space(problem, gpu.target()), together.items())
    assert isinstance(own, Candidate), own
    rng = np.random.default_rng(1)
    made = [x for _ in range(12) if isinstance(x := random_candidate(own, rng), Candidate)]
    assert made
    for candidate in made:
        assert [t.band for t in plan_of(candidate).tasks] == [8, 8]
    other = {**together, "block_order(multiply1)": "BANDS_4"}
    assert isinstance(restore(build_space(problem, gpu.target()), other.items()), DeadEnd)
    apart = {**other, "fused(multiply0,multiply1)": "SEPARATE"}
    assert isinstance(restore(build_space(problem, gpu.target()), apart.items()), Candidate)


def test_only_products_have_bands_and_only_in_a_grid_of_two_dims():
    for name in ("sgemv", "bicgk", "vadd"):
        assert not root_of(case_of(name).problem).space.variables.of_tasks["block_order"]
    one_dim = {**MATMUL, "dim_kind(multiply0.j.outer)": "LOOP", "block_order(multiply0)": "BANDS_4"}
    space = build_space(case_of("matmul").problem, gpu.target())
    assert isinstance(restore(space, one_dim.items()), DeadEnd)


def loops_of(candidate):
    """The loops of each launch."""
    plan = plan_of(candidate)
    return [list(loop_ir.loops_in(x.nodes)) for x in launches_of(plan, candidate.space.target)]


def test_bands_are_said_and_ill_formed_ones_refused():
    _, made = banded(8)
    plan = plan_of(made)
    (launch,) = launches_of(plan, made.space.target)
    assert "grid, in bands of 8" in show_launch(launch, plan)
    assert "multiply0 starts its blocks in bands of 8 rows" in describe(made)["threads"]
    assert "blocks in bands of 8 rows" in program_of(made).decisions[-1].split("; ")
    rows = next(n for n in loop_ir.loops_in(launch.nodes) if n.band > 1)
    columns = next(n for n in loop_ir.loops_in(rows.children) if n.is_parallel)
    verify(launch, plan)
    inside = replace(rows, band=1, children=(replace(columns, band=8),))
    for fault in (replace(rows, band=0), inside):
        with pytest.raises(IllFormedError, match="in bands is not around one loop of blocks"):
            verify(replace(launch, nodes=(fault,)), plan)
