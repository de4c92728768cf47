"""Operands loaded a step ahead: a step multiplies what the one before loaded, the last one loads nothing, and results are right."""

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
from kernelscape.codegen.text import csyntax as c
from kernelscape.codegen.text.free_variables import identifiers
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, DeadEnd
from kernelscape.space.decisions import fix, restore
from kernelscape.testing.syntax import declared, innermost, program_of, sums

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
from .test_fragments import DEEP, product

AHEAD = {**MATMUL, "register_stages(multiply0)": "TWO"}
DEEP_AHEAD = {**DEEP, "size(multiply0.k.mid)": "4", "register_stages(multiply0)": "TWO"}


def steps_of(program):
    """The loop over the steps of the product."""
    (loop,) = (x for x in innermost(program) if sums(x, "c_acc"))
    return loop


@pytest.mark.parametrize("decisions", [AHEAD, DEEP_AHEAD], ids=["elements", "fragments"])
def test_steps_multiply_what_the_step_before_loaded(decisions):
    problem, _ = product(64, 32, 64)
    program = program_of(decided(problem, decisions))
    loop = steps_of(program)
    loaded = [x.name for x in declared(loop)]
    assert loaded and all(x.endswith("next") for x in loaded)
    used = set().union(*(identifiers((x.value,))[0] for x in sums(loop, "c_acc")))
    assert used.isdisjoint(loaded)
    moves = {x.target.name: x.value.name for x in loop.body if isinstance(x, c.Assign) and not x.op}
    assert list(moves.values()) == loaded
    assert set(moves) <= used
    # Of the last step there are the sums alone, behind the loop.
    total = len(sums(program, "c_acc"))
    assert total == 2 * len(sums(loop, "c_acc"))
    at_once = program_of(decided(problem, {**decisions, "register_stages(multiply0)": "ONE"}))
    assert len(sums(at_once, "c_acc")) == total // 2


@NEEDS_COMPILER[1]
@pytest.mark.parametrize("stages", ["COPY", "TWO_STAGES", "THREE_STAGES"])
@pytest.mark.parametrize("decisions", [AHEAD, DEEP_AHEAD], ids=["elements", "fragments"])
def test_a_product_that_loads_ahead_is_right(decisions, stages, tmp_path):
    """Also where the last tile of a sum has fewer steps, and where tiles of results are not full."""
    problem, inputs = product(37, 52, 29)
    staged = {f"staged(multiply0.{x})": stages for x in "ab"}
    source = gpu.source_of(decided(problem, {**decisions, **staged}))
    assert gpu.check(source, inputs, tmp_path) == "", source.text


@NEEDS_COMPILER[1]
@pytest.mark.parametrize("name", ["matmul", "matmul_strided", "sgemv", "atax"])
def test_random_candidates_that_load_ahead_are_right(name, tmp_path):
    case = case_of(name)
    space = fix(build_space(case.problem, gpu.target()), [("register_stages", "TWO")])
    root = space.root()
    assert isinstance(root, Candidate), root
    inputs, ahead = inputs_of(case), 0
    for candidate in drawn(root, 4, 4):
        loops = [n for x in loops_of(candidate) for n in x]
        assert all(t.loads_ahead for t in plan_of(candidate).tasks)
        assert sum(n.loads_ahead for n in loops) == len(plan_of(candidate).tasks)
        source = gpu.source_of(candidate)
        assert gpu.check(source, inputs, tmp_path) == "", source.text
        ahead += len([x for x in declared(program_of(candidate)) if x.name.endswith("_next")])
    assert ahead


@pytest.mark.skipif(not nvrtc_is_there(), reason="no NVRTC")
def test_the_compiler_of_cuda_takes_fragments_and_loads_ahead(nvrtc_folder):
    problem, _ = product(64, 32, 64)
    for decisions in (AHEAD, DEEP, DEEP_AHEAD, {**DEEP_AHEAD, "layout(multiply0.a)": "SWIZZLED"}):
        source = gpu.source_of(decided(problem, decisions))
        assert gpu.compiler_says(source, nvrtc_folder) == "", source.text


def loops_of(candidate):
    """The loops of each launch."""
    plan = plan_of(candidate)
    return [list(loop_ir.loops_in(x.nodes)) for x in launches_of(plan, candidate.space.target)]


THREADS = {"dim_kind(multiply0.k.mid)": "THREAD", "reduction(multiply0.k.mid)": "TREE"}
CUT = {"dim_kind(multiply0.k.inner)": "UNROLL", "size(multiply0.k.inner)": "3"}


@pytest.mark.parametrize(
    "changed",
    [{f"staged(multiply0.{x})": "DIRECT" for x in "ab"}, THREADS, CUT],
    ids=["memory", "steps of threads", "steps that are cut"],
)
def test_loads_ahead_are_of_whole_steps_of_a_loop(changed):
    problem, _ = product(64, 32, 64)
    space = build_space(problem, gpu.target())
    assert isinstance(restore(space, AHEAD.items()), Candidate)
    assert isinstance(restore(space, {**AHEAD, **changed}.items()), DeadEnd)
    at_once = {**AHEAD, **changed, "register_stages(multiply0)": "ONE"}
    assert isinstance(restore(space, at_once.items()), Candidate)


@kernel
def gemv(a: types.ndarray(), x: types.ndarray(), y: types.ndarray()):
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j] * x[j]
        y[i] = acc


def test_steps_of_two_tasks_are_no_steps_of_one():
    """Two sums over the rows of one matrix may have one loop of steps, which then loads nothing ahead for either."""

    def both(a, x, y, w, z):
        gemv(a, x, y)
        gemv(a, w, z)

    n = 48
    arrays = [np.zeros((n, n), np.float32), *(np.zeros(n, np.float32) for _ in range(4))]
    problem = normalise(record_sequence(both, arrays, "both"))
    space = build_space(problem, gpu.target())
    merged = {"fused(gemv0,gemv1)": "SAME_LAUNCH"}
    merged |= {f"order(gemv0.{x},gemv1.{x})": "MERGED" for x in ("i.outer", "j.outer", "j.mid")}
    merged |= {"dim_kind(gemv0.j.mid)": "LOOP", "dim_kind(gemv0.i.mid)": "THREAD"}
    assert isinstance(restore(space, merged.items()), Candidate)
    for name in ("gemv0", "gemv1"):
        ahead = {**merged, f"register_stages({name})": "TWO"}
        assert isinstance(restore(space, ahead.items()), DeadEnd)
    apart = {**merged, "order(gemv0.j.mid,gemv1.j.mid)": "BEFORE", "register_stages(gemv0)": "TWO"}
    del apart["order(gemv0.j.outer,gemv1.j.outer)"]
    assert isinstance(restore(space, apart.items()), Candidate)


def test_loads_ahead_are_said_and_ill_formed_ones_refused():
    problem, _ = product(64, 32, 64)
    made = decided(problem, AHEAD)
    plan = plan_of(made)
    (launch,) = launches_of(plan, made.space.target)
    assert "loads a step ahead" in show_launch(launch, plan)
    assert "loads operands a step ahead" in program_of(made).decisions[-1].split("; ")
    said = (
        "multiply0 loads the operands of a step from shared memory while the step before multiplies"
    )
    assert said in describe(made)["threads"]
    verify(launch, plan)

    def without_mark(nodes):
        return tuple(
            replace(n, children=without_mark(n.children), loads_ahead=n.level == 0)
            if isinstance(n, loop_ir.Loop)
            else n
            for n in nodes
        )

    with pytest.raises(IllFormedError, match="loads ahead around more than one register tile"):
        verify(replace(launch, nodes=without_mark(launch.nodes)), plan)
