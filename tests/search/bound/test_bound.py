"""The bound: hand-worked values, monotone, admissible on a simulated machine, with the JIT off."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.access import Access
from kernelscape.kernels.ir.affine import Affine
from kernelscape.kernels.ir.arrays import ArrayInfo
from kernelscape.kernels.ir.domain import Loop
from kernelscape.kernels.ir.kernel import Binary, Const, DType, Load, LoopIndex, Param, Select
from kernelscape.kernels.ir.task import Task
from kernelscape.kernels.library.matmul import multiply
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.bound.explain import explain
from kernelscape.search.bound.operations import SureOperations, named_flops
from kernelscape.search.bound.traffic import distinct_elements, line_bytes, read_bytes
from kernelscape.search.bound.weights import flops_of, products_of
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.sketches import Along, Fusion, Sketch, TileSizes
from kernelscape.space import choices as ch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, Space
from kernelscape.space.component_space import component_spaces
from kernelscape.space.targets.target import CacheLevel, Target
from kernelscape.testing.machines import (
    MEBI,
    IdealMachine,
    library_space,
    root_of,
    round_target,
)

HELD = 8 * MEBI  # in all caches of the round target
TINY = 16  # lines in the cache of the simulated machine
VECTORS = ("axpydot", "vadd", "waxpby", "sscal", "axpy")


@cache
def bounder(name: str, **sizes: int) -> Bounder:
    return Bounder(library_space(name, **sizes))


@cache
def tiny_space(name: str) -> Space:
    """One core with 1 KiB of cache and no registers, so that every effect of a cache shows."""
    return library_space(name, tiny_target(), n=2048 if name in VECTORS else 24)


def tiny_target() -> Target:
    return round_target(
        cores=1,
        vector_registers=0,
        levels=(CacheLevel(name="L1", capacity_bytes=64 * TINY, read_bytes_per_ns=1e9),),
        f32_flops_per_ns=1e9,
        f64_flops_per_ns=1e9,
        call_ns=0.0,
        launch_ns=0.0,
        add_latency_ns=0.0,
    )


@cache
def repeated_space(n_elements: int, count: int) -> Space:
    """A map, then steps that go there and back, and a sum."""

    def sequence(a: Any, b: Any, r: Any) -> None:
        _move(a, b)
        for _ in range(count):
            _move(b, a)
            _move(a, b)
        _add_up(a, r)

    arrays = [np.zeros(n, np.float64) for n in (n_elements, n_elements, 1)]
    problem = normalise(record_sequence(sequence, arrays))
    assert sorted(t.n_runs for t in problem.tasks) == [1, 1, count, count]
    return build_space(problem, tiny_target())


@kernel
def _move(a: types.ndarray(), b: types.ndarray()) -> None:  # type: ignore[valid-type]
    for i in range(a.shape[0] - 1):
        b[i] = 0.5 * (a[i] + a[i + 1])


@kernel
def _add_up(a: types.ndarray(), r: types.ndarray()) -> None:  # type: ignore[valid-type]
    acc = 0.0
    for i in range(a.shape[0]):
        acc += a[i]
    r[0] = acc


def terms(b: Bounder, candidate: Candidate) -> dict[str, float]:
    return dict(b.bound(candidate).terms)


def sketch(space: Space, wanted: Sketch) -> Candidate:
    made = complete_sketch(root_of(space), wanted)
    assert made is not None
    return made


# --- hand-worked values -------------------------------------------------------------------------


def test_axpydot_reads_three_vectors_and_writes_one() -> None:
    b = bounder("axpydot", n=2**24)
    vector = 4 * 2**24
    bound = b.bound(root_of(b.space))
    found = dict(bound.terms)
    assert found["memory read"] == pytest.approx((3 * vector - HELD) / 50, rel=1e-4)
    assert found["memory write"] == pytest.approx((vector - HELD) / 40, rel=1e-4)
    # z is written and read: a line of it that stays saves its way out and its way in.
    assert found["memory"] == pytest.approx((4 * vector - 2 * HELD) / 64, rel=1e-4)
    assert found["L3"] == pytest.approx((3 * vector - 2 * MEBI) / 200, rel=1e-4)
    assert found["operations"] == pytest.approx(4 * 2**24 / 500, rel=1e-4)
    assert bound.limiting == "memory"
    assert bound.ns == pytest.approx(found["memory"])


def test_a_call_is_not_added_to_the_work() -> None:
    """A core begins the next of several calls while it finishes the sums of the last."""
    b = bounder("sgemv", m=1, n=1)
    bound = b.bound(root_of(b.space))
    found = dict(bound.terms)
    assert found["launches"] == 100
    assert found["chain"] > 0
    assert bound.ns == pytest.approx(max(100, found["chain"]))


def test_axpydot_unfused_reads_z_again_and_starts_two_launches() -> None:
    b = bounder("axpydot", n=2**24)
    vector = 4 * 2**24
    bound = b.bound(sketch(b.space, Sketch(fusion=Fusion(launch=False, loops=False))))
    found = dict(bound.terms)
    assert len(bound.phases) == 2
    assert found["memory read"] == pytest.approx((4 * vector - 2 * HELD) / 50, rel=1e-4)
    assert found["launches"] == 100 + 2 * 400


@pytest.mark.parametrize(("fuse", "passes"), [(True, 1), (False, 2)])
def test_bicgk_reads_the_matrix_once_when_fused(fuse: bool, passes: int) -> None:
    b = bounder("bicgk", m=4096, n=4096)
    found = terms(
        b,
        sketch(
            b.space,
            Sketch(fusion=Fusion(launch=fuse, loops=fuse), tile=TileSizes(rows=2, vectors=2)),
        ),
    )
    expected = passes * (4 * 4096**2 - HELD) / 50
    assert found["memory read"] == pytest.approx(expected, rel=1e-3)


def test_gemver_moves_the_matrix_in_and_out_once_when_fused() -> None:
    b = bounder("gemver", m=4096, n=4096)
    found = terms(b, root_of(b.space))
    assert found["memory read"] == pytest.approx((4 * 4096**2 - HELD) / 50, rel=1e-2)
    assert found["memory write"] == pytest.approx((4 * 4096**2 - HELD) / 40, rel=1e-2)
    roofline = b.roofline()
    assert roofline.total_bytes == pytest.approx(2 * 4 * 4096**2, rel=1e-2)
    assert roofline.flops == pytest.approx(9 * 4096**2, rel=1e-2)


def test_matmul_is_limited_by_operations() -> None:
    b = bounder("matmul", m=1024, n=1024, k=1024)
    bound = b.bound(root_of(b.space))
    assert bound.limiting == "operations"
    assert dict(bound.terms)["operations"] == pytest.approx(2 * 1024**3 / 500, rel=1e-3)
    assert b.roofline().flops == pytest.approx(2 * 1024**3)


def test_one_thread_is_bounded_by_one_core() -> None:
    b = bounder("matmul", m=1024, n=1024, k=1024)
    alone = terms(b, sketch(b.space, Sketch(threads=Along(team=False))))["operations"]
    assert alone == pytest.approx(2 * 1024**3 / 500 * 2 / 1.3, rel=1e-3)


def test_scalar_code_is_bounded_by_scalar_rates_where_the_compiler_leaves_it_alone() -> None:
    assert scalar_slowdown() == pytest.approx(16 / 1.3, rel=1e-6)


@pytest.mark.parametrize(("rate", "slower"), [(500 / 8, 8 / 1.3), (0.0, 8 / 1.3), (1000.0, 1.0)])
def test_vectors_may_be_computed_in_halves(rate: float, slower: float) -> None:
    """Kind: lanes as the cost of scalar code, where cores begin as many single operations as halves of vectors (Zen 4)."""
    assert scalar_slowdown(scalar_f32_flops_per_ns=rate) == pytest.approx(slower, rel=1e-6)


def scalar_slowdown(**changes: float) -> float:
    """Operations of a product without vectors, over those that a compiler may put into vectors."""
    space = library_space("matmul", round_target(**changes), m=256, n=256, k=256)
    scalar = root_of(space)
    for d, var in space.variables.kind.items():
        if d.level == 2:
            made = scalar.decide(var, ~(1 << ch.VECTOR))
            assert isinstance(made, Candidate)
            scalar = made
    free, strict = Bounder(space, compiler_vectorises=True), Bounder(space)
    return terms(strict, scalar)["operations"] / terms(free, scalar)["operations"]


def test_sizes_in_cache_have_small_bounds() -> None:
    b = bounder("axpydot", n=2**15)
    found = terms(b, root_of(b.space))
    assert "memory read" not in found
    assert "L3" not in found
    assert b.ns(root_of(b.space)) < 1000


def test_a_dot_on_one_accumulator_waits_for_every_addition() -> None:
    b = bounder("axpydot", n=2**20)
    plain = sketch(b.space, Sketch(tile=TileSizes(vectors=1), threads=Along(team=False)))
    sizes = {d: v for d, v in b.space.variables.size.items() if d.loop.is_reduction}
    copies = np.prod([b.space.variables.universe[d][plain.value(v)] for d, v in sizes.items()])
    assert terms(b, plain)["chain"] == pytest.approx(2**20 * 0.3 / copies, rel=1e-3)


def test_explanation_names_resources_and_arrays() -> None:
    b = bounder("bicgk", m=4096, n=4096)
    text = "\n".join(explain(b.bound(root_of(b.space)), b.space))
    assert "limited by memory read" in text
    assert "a 67.1 MB" in text
    assert "GFLOP/s" in text


# --- properties ---------------------------------------------------------------------------------

SMALL = ("axpydot", "bicgk", "atax", "gemver", "sgemvt", "waxpby")


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(SMALL), st.integers(0, 2**31))
def test_bounds_grow_along_descents(name: str, seed: int) -> None:
    b = bounder(name, n=2**22 if name in ("axpydot", "waxpby") else 2048)
    rng = np.random.default_rng(seed)
    at = root_of(b.space)
    ns = b.ns(at)
    while not at.is_complete:
        var = int(rng.choice(at.open_choices()))
        children = [(b.ns(c, ns), c) for _, c in at.expand(var) if isinstance(c, Candidate)]
        if not children:
            return
        assert all(child_ns >= ns for child_ns, _ in children)
        ns, at = children[int(rng.integers(len(children)))]
        assert b.bound(at, ns).ns == ns


@settings(max_examples=12, deadline=None)
@given(st.sampled_from((*SMALL, "madd", "vadd", "sscal", "matmul")), st.integers(0, 2**31))
def test_bounds_of_all_ancestors_hold_on_a_simulated_machine(name: str, seed: int) -> None:
    _holds_on_a_simulated_machine(tiny_space(name), seed)


@settings(max_examples=5, deadline=None)
@given(st.sampled_from((40, 90, 150)), st.integers(0, 2**31))
def test_bounds_of_steps_hold_on_a_simulated_machine(n_elements: int, seed: int) -> None:
    """Lengths of arrays: a cache holds all of them, one of them, none."""
    _holds_on_a_simulated_machine(repeated_space(n_elements, 9), seed)


def test_steps_add_up() -> None:
    """Arrays beyond the caches are read in each step; what the caches hold may be there from the step before."""
    few, many = (Bounder(repeated_space(4096, n)) for n in (9, 99))
    terms = [dict(b.bound(root_of(b.space)).terms) for b in (few, many)]
    for name in ("memory read", "memory write", "operations"):
        assert terms[1][name] == pytest.approx(11 * terms[0][name], rel=0.1)
    held = Bounder(repeated_space(40, 99))
    assert "memory read" not in dict(held.bound(root_of(held.space)).terms)


def test_a_component_is_no_call() -> None:
    """Kind: facts of a call that count again for each of its components, whose bounds are added up."""
    call_ns = 1e6
    problem = repeated_space(40, 9).problem
    space = build_space(problem, replace(tiny_target(), call_ns=call_ns))
    default = sketch(space, Sketch(fusion=Fusion(launch=False, loops=False)))
    parts = component_spaces(root_of(space), default)
    bounds_ns = [len(p.places) * Bounder(p.space).ns(root_of(p.space)) for p in parts]
    assert len(bounds_ns) > 1
    assert 0 < sum(bounds_ns) < call_ns == Bounder(space).ns(root_of(space))


def _holds_on_a_simulated_machine(space: Space, seed: int) -> None:
    b = Bounder(space)
    rng = np.random.default_rng(seed)
    at, ns = root_of(space), b.ns(root_of(space))
    priority = rng.permutation(space.searchable)
    for var in priority:
        if not at.is_open(int(var)):
            continue
        children = [c for _, c in at.expand(int(var)) if isinstance(c, Candidate)]
        if not children:
            return
        at = children[int(rng.integers(len(children)))]
        ns = b.ns(at, ns)
    read, written = IdealMachine(at, TINY).traffic()
    t = space.target
    ideal = max(
        read / t.memory_read_bytes_per_ns,
        written / t.memory_write_bytes_per_ns,
        (read + written) / t.memory_mixed_bytes_per_ns,
    )
    assert ns <= ideal * (1 + 1e-6) + 1e-3


def test_the_bound_is_close_to_the_simulated_machine_for_a_fused_pass() -> None:
    space = tiny_space("madd")
    b = Bounder(space)
    made = sketch(space, Sketch(tile=TileSizes(vectors=1)))
    read, written = IdealMachine(made, TINY).traffic()
    assert b.ns(made) * 64 > 0.7 * (read + written)


def test_a_call_is_fast() -> None:
    b = bounder("gemver", m=4096, n=4096)
    root = root_of(b.space)
    b.ns(root)
    from time import thread_time  # the load of others is not in it

    best = min(_timed(lambda: b.ns(root), thread_time) for _ in range(200))
    assert best < 200e-6  # 20 us on a quiet machine


def _timed(call, clock) -> float:  # type: ignore[no-untyped-def]
    start = clock()
    call()
    return clock() - start


def two_products(a, b, c, ab, d) -> None:
    multiply(a, b, ab)
    multiply(ab, c, d)


def bounds_of_a_descent() -> list[float]:
    """Bounds of the roots of several spaces, and of some candidates below them."""
    problem = normalise(record_sequence(two_products, [np.zeros((96, 96)) for _ in range(5)]))
    spaces = [library_space("bicgk", m=256, n=256), build_space(problem, round_target())]
    found = []
    for space in spaces:
        b, at, rng = Bounder(space), root_of(space), np.random.default_rng(1)
        found.append(b.ns(at))
        open_ones = (int(v) for v in rng.permutation(space.searchable))
        for k, var in enumerate(open_ones):
            below = (
                [c for _, c in at.expand(var) if isinstance(c, Candidate)]
                if at.is_open(var)
                else []
            )
            at = below[int(rng.integers(len(below)))] if below else at
            if k % 8 == 0:
                found.append(b.ns(at))
    return found


def test_the_same_values_with_the_jit_off() -> None:
    """A machine without compiled code, and the first run of each version, compute bounds in Python: with overflows of NumPy's."""
    code = f"from {__name__} import bounds_of_a_descent\nprint(bounds_of_a_descent())"
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", code],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == repr(bounds_of_a_descent())


# --- footprints and operations --------------------------------------------------------------------

I, J = Affine(0, (("i", 1),)), Affine(0, (("j", 1),))
MATRIX = ArrayInfo("a", DType.f32, (64, 64), "input")
LOOPS = (Loop("i", 64, False), Loop("j", 64, False))


def load(*axes: Affine) -> Load:
    names = [LoopIndex(a.terms[0][0]) for a in axes]
    return Load("a", tuple(names), DType.f32)


def task(value: object) -> Task:
    return Task("t", "t", LOOPS, Access("c", (I, J)), DType.f32, value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("axes", "elements"),
    [
        ((I, J), 64 * 64),
        ((I, I), 64),  # a diagonal
        ((Affine(0, (("i", 1), ("j", 1))),), 127),  # i + j
        ((Affine(0, (("i", 64), ("j", 1))),), 64 * 64),
        ((Affine(3, ()),), 1),
        ((Affine(0, (("i", 10), ("j", 10))),), 127),
    ],
)
def test_distinct_elements(axes: tuple[Affine, ...], elements: int) -> None:
    found = distinct_elements(Access("a", axes), {"i": 64, "j": 64})
    exact = {
        tuple(sum(c * v for (_, c), v in zip(a.terms, _values(a, i, j), strict=True)) for a in axes)
        for i in range(64)
        for j in range(64)
    }
    assert found == elements <= len(exact)


def _values(a: Affine, i: int, j: int) -> list[int]:
    return [{"i": i, "j": j}[name] for name, _ in a.terms]


def test_strided_reads_move_whole_lines() -> None:
    wide = replace(MATRIX, shape=(64, 64 * 32))
    strided = Access("a", (I, Affine(0, (("j", 32),))))
    assert line_bytes(strided, {"i": 64, "j": 64}, wide) == 64 * 64 * 64
    assert line_bytes(Access("a", (I, J)), {"i": 64, "j": 64}, MATRIX) == 4 * 64 * 64
    assert line_bytes(Access("a", (I, Affine(5, ()))), {"i": 64, "j": 64}, MATRIX) == 64 * 64


def test_loads_under_conditions_are_not_sure() -> None:
    x = Param("x", DType.f32)
    zero = Param("zero", DType.bool_)
    assert read_bytes(task(load(I, J)), MATRIX) == 4 * 64 * 64
    assert read_bytes(task(Select(zero, load(I, J), x, DType.f32)), MATRIX) == 0


@pytest.mark.parametrize(("name", "rate"), [("vadd", 750.0), ("sscal", 250.0), ("axpy", 500.0)])
def test_additions_may_run_beside_multiply_adds(name: str, rate: float) -> None:
    """Kind: the peak of multiply-adds as that of additions, which some cores make in units of their own (Zen, Golden Cove)."""
    n = 2**20
    space = library_space(name, round_target(f32_mixed_flops_per_ns=750.0), n=n)
    found = terms(Bounder(space), root_of(space))["operations"]
    flops = {"vadd": 2, "sscal": 1, "axpy": 2}[name]
    assert found == pytest.approx(flops * n / rate)
    text = " ".join(explain(Bounder(space).bound(root_of(space)), space))
    assert "at 500 GFLOP/s (f32, with further additions 750)" in text


@kernel
def greatest(a: types.ndarray(), r: types.ndarray()) -> None:
    acc = a[0]
    for i in range(a.shape[0]):
        acc = max(acc, a[i])
    r[0] = acc


def test_steps_of_a_maximum_are_no_additions() -> None:
    """Kind: the latency of an addition for each step, where the maximum of two takes one cycle (Zen)."""

    def sequence(a: object, r: object) -> None:
        greatest(a, r)

    arrays = np.zeros(2**16, np.float32), np.zeros(1, np.float32)
    space = build_space(normalise(record_sequence(sequence, arrays)), round_target())
    assert space.problem.tasks[-1].is_reduction
    assert "chain" not in terms(Bounder(space), root_of(space))


def test_operations_invariant_in_a_loop_run_once() -> None:
    alpha, x = Param("alpha", DType.f32), Load("x", (LoopIndex("j"),), DType.f32)

    def times(a: object, b: object) -> Binary:
        return Binary("mul", a, b, DType.f32)  # type: ignore[arg-type]

    scaled = task(times(times(alpha, load(I, J)), x))
    assert SureOperations().count(scaled) == (64 * 64, 0)  # alpha * x[j] can be made first
    assert named_flops(scaled) == 2 * 64 * 64
    two = Const(2.0, DType.f32)
    doubled = SureOperations().amounts(task(times(two, load(I, J))))
    assert (flops_of(doubled), products_of(doubled)) == ((64 * 64, 0), (0, 0))  # x + x as well
    assert products_of(SureOperations().amounts(scaled)) == (64 * 64, 0)
    counter = SureOperations()
    assert counter.count(task(times(load(I, J), x))) == (64 * 64, 0)
    assert counter.count(task(times(x, load(I, J)))) == (0, 0)  # the same value again
