"""Data that is gone through again and again: the best mix of measured ways, an LRU machine that is calibrated, chains of passes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import kernelscape as ks
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.bound import streams
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.sketches import Sketch, TileSizes
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, Elsewhere, Space
from kernelscape.space.engine.order import forest
from kernelscape.space.targets.target import CacheLevel, StreamCurve, Target
from kernelscape.testing.machines import (
    MEBI,
    IdealMachine,
    library_space,
    root_of,
    round_target,
)

TINY = 16  # lines in the cache of the simulated machine
HELD = 64 * TINY
VECTORS = ("axpydot", "vadd", "waxpby", "sscal", "axpy")


@pytest.mark.parametrize(
    ("read", "written", "ns"),
    [
        (100.0, 0.0, 2.0),  # reads alone
        (0.0, 80.0, 2.0),
        (60.0, 60.0, 2.0),  # the measured mix
        (160.0, 60.0, 4.0),  # the mix, and the rest of the reads alone
        (60.0, 140.0, 4.0),
    ],
)
def test_the_best_mix_of_ways(read: float, written: float, ns: float) -> None:
    x, y = np.array([50.0, 0.0, 30.0]), np.array([0.0, 40.0, 30.0])
    assert streams.least_time(np.array([x, y]), 3, read, written) == pytest.approx(ns)


def curve(kind: str, reads: int, writes: int, rates: tuple[float, float]) -> StreamCurve:
    """Returns the curve of a machine of one cache: `rates` in it and from memory."""
    n_arrays = 1 if kind == "scale" else reads + writes
    sizes = [HELD // 2 // n_arrays, (HELD + 64 * n_arrays) // n_arrays]
    return StreamCurve(
        kind=kind,
        cores=1,
        read_bytes=tuple(n * reads for n in sizes),
        written_bytes=tuple(n * writes for n in sizes),
        bytes_per_ns=rates,
    )


def lru_target(**changes: object) -> Target:
    """One core with 1 KiB of LRU cache; memory reads 50, writes 40, both together 66.7 bytes a ns: so do arrays that do not fit."""
    both = 200 / 3
    ways = (("read", 1, 0, 50.0), ("write", 0, 1, 40.0), ("copy", 1, 1, both))
    ways += (("scale", 1, 1, both), ("triad", 2, 1, both), ("read3_write", 3, 1, both))
    return round_target(
        cores=1,
        vector_registers=0,
        levels=(CacheLevel(name="L1", capacity_bytes=HELD, read_bytes_per_ns=1e9),),
        f32_flops_per_ns=1e9,
        call_ns=0.0,
        launch_ns=0.0,
        add_latency_ns=0.0,
        memory_mixed_bytes_per_ns=both,
        streams=tuple(curve(kind, r, w, (1e9, rate)) for kind, r, w, rate in ways),
        **changes,
    )


@cache
def lru_space(name: str) -> Space:
    return library_space(name, lru_target(), n=2048 if name in VECTORS else 24)


def lru_ns(candidate: Candidate) -> float:
    """Returns the time of a complete candidate on the simulated machine at the rates of its target, loop nest by loop nest."""
    t, machine = candidate.space.target, IdealMachine(candidate, TINY)
    values = candidate.assignment()[: len(machine.b.order_names) ** 2]
    machine.run()
    ns = 0.0
    for tree in forest(candidate.space.model.relation_matrix(values)):
        machine.read = machine.written = 0
        machine.walk(tree, {})
        ns += max(
            machine.read / t.memory_read_bytes_per_ns,
            machine.written / t.memory_write_bytes_per_ns,
            (machine.read + machine.written) / t.memory_mixed_bytes_per_ns,
        )
    return ns


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(("axpydot", "bicgk", "atax", "gesummv", "gemver", "waxpby", "vadd", "madd")),
    st.integers(0, 2**31),
)
@example("gemver", 43217)  # two tasks read a copy of all that another has written
def test_bounds_grow_and_hold_on_a_machine_that_is_calibrated(name: str, seed: int) -> None:
    space = lru_space(name)
    b, rng = Bounder(space), np.random.default_rng(seed)
    at, ns = root_of(space), b.ns(root_of(space))
    for var in rng.permutation(space.searchable):
        if not at.is_open(int(var)):
            continue
        children = [c for _, c in at.expand(int(var)) if isinstance(c, Candidate)]
        if not children:
            return
        at = children[int(rng.integers(len(children)))]
        ns = b.ns(at, ns)
    assert ns <= lru_ns(at) * (1 + 1e-6) + 1e-3


@pytest.mark.parametrize("name", ["vadd", "waxpby", "madd", "gesummv"])
def test_nothing_stays_of_what_is_larger_than_the_cache(name: str) -> None:
    """The credit of the whole cache in each phase is gone: the bound is what a fused pass takes."""
    space = lru_space(name)
    made = complete_sketch(root_of(space), Sketch(tile=TileSizes(vectors=1)))
    assert made is not None
    assert Bounder(space).ns(made) > 0.95 * lru_ns(made)
    old = replace(space, target=replace(space.target, streams=()))
    assert Bounder(old).ns(made) < Bounder(space).ns(made)


def test_curves_of_slow_memory_count_as_if_it_were_as_fast_as_ever() -> None:
    space = lru_space("vadd")
    fast = lru_target(memory_read_bytes_per_ns=100.0)
    before, after = (
        dict(Bounder(s).bound(root_of(s)).terms)["streams"]
        for s in (space, replace(space, target=fast))
    )
    assert after == pytest.approx(before / 2, rel=1e-3)


@pytest.mark.parametrize("n_threads", [1, 2, 4])
def test_calls_of_fewer_threads_count_memory_at_its_best_too(n_threads: int) -> None:
    alone = curve("read", 1, 0, (1e9, 20.0))
    target = lru_target(memory_read_bytes_per_ns=100.0)
    target = replace(target, cores=4, streams=(alone, replace(target.streams[0], cores=4)))
    found = {c.cores: rates for c, rates in streams.at_best(target.of_threads(n_threads))}
    assert list(found[1]) == pytest.approx([1e9, 40.0], rel=1e-3)


def test_how_arrays_are_gone_through() -> None:
    problem = library_space("axpydot", n=2**16).problem
    names = [a.name for a in problem.arrays]
    found = dict(zip(names, streams.passes(problem, Elsewhere()).tolist(), strict=True))
    assert (found["w"], found["v"], found["u"]) == (streams.ONCE, streams.ONCE, streams.ONCE)
    assert found["z"] == streams.BY_EACH
    assert streams.is_fresh(problem, 0, "z")
    product = library_space("matmul", m=64, n=64, k=64).problem
    assert set(streams.passes(product, Elsewhere()).tolist()) == {streams.ANYHOW}
    in_place = library_space("sscal", n=2**16).problem
    assert not streams.is_fresh(in_place, 0, "x")


# --- chains -------------------------------------------------------------------------------------


@ks.kernel
def gemv(a: ks.types.ndarray(), x: ks.types.ndarray(), y: ks.types.ndarray()):  # type: ignore[no-untyped-def]
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j] * x[j]
        y[i] = acc


def chain(n: int) -> Space:
    """y = A^n x, one product after the other."""

    def powers(a, x, y):  # type: ignore[no-untyped-def]
        for k in range(n):
            source, sink = (x, y) if k % 2 == 0 else (y, x)
            gemv(a, source, sink)

    a, x, y = (np.zeros(s, np.float32) for s in ((2048, 2048), 2048, 2048))
    return build_space(normalise(record_sequence(powers, (a, x, y))), round_target())


def test_a_pass_ends_where_the_next_one_needs_all_of_it() -> None:
    """A product needs all of the one before: at best every second pass over the matrix is saved, however long the chain is."""
    bounds = {n: Bounder(chain(n)).ns(root_of(chain(n))) for n in (2, 6, 12)}
    pass_ns = (4 * 2048**2 - 8 * MEBI) / 50
    assert bounds[6] >= 2.9 * pass_ns
    assert bounds[12] >= 5.9 * pass_ns
    assert bounds[2] < bounds[6] < bounds[12]
