"""Bound and first candidates of GPU spaces."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.bound.explain import explain, uses
from kernelscape.search.starts.complete import (
    complete_sketch,
    first_candidates,
    sketched_candidates,
)
from kernelscape.search.starts.proposals import greedy_sketch
from kernelscape.space.candidate import Candidate, Space
from kernelscape.space.decisions import fix, restore, to_names
from kernelscape.space.targets.target import CacheLevel, Target
from kernelscape.testing import gpu_checking
from kernelscape.testing.checking import random_candidate
from kernelscape.testing.gpu_machine import SimulatedGpu
from kernelscape.testing.machines import MEBI, library_space, root_of, round_target

LARGE = 1 << 24
LAUNCH_NS = 1000.0
L2_BYTES = 2 * MEBI


def gpu_target(**changes) -> Target:
    """Ten multiprocessors at one GHz; memory as in round_target."""
    facts = {
        "backend": "cuda",
        "cores": 10,
        "vector_bytes": 16,
        "levels": (
            CacheLevel(name="L1", capacity_bytes=2 * MEBI, read_bytes_per_ns=1280.0),
            CacheLevel(name="L2", capacity_bytes=L2_BYTES, read_bytes_per_ns=400.0),
        ),
        "f32_flops_per_ns": 2560.0,
        "f64_flops_per_ns": 1280.0,
        "launch_ns": LAUNCH_NS,
        "call_ns": 1.0,
        "barrier_ns": 16.0,
        "add_latency_ns": 4.0,
        "max_threads_per_block": 1024,
        "registers_per_core": 1 << 16,
        "shared_bytes_per_block": 48 << 10,
        "line_bytes": 32,
        "max_threads_per_core": 2048,
        "max_blocks_per_core": 32,
        "shared_bytes_per_core": 100 << 10,
        "core_read_bytes_per_ns": 64.0,
        "shared_bytes_per_ns": 1280.0,
        "instructions_per_ns": 40.0,
        "load_latency_ns": 20.0,
        "far_load_latency_ns": 200.0,
    }
    return round_target(**{**facts, **changes})


@cache
def gpu_space(name: str, **sizes: int) -> Space:
    return library_space(name, gpu_target(), **sizes)


def decided(space: Space, decisions: dict[str, str]) -> Candidate:
    made = restore(space, decisions.items())
    assert isinstance(made, Candidate), made
    return made


def terms(candidate: Candidate) -> dict[str, float]:
    return dict(Bounder(candidate.space).bound(candidate).terms)


# --- properties ---------------------------------------------------------------------------------


LARGE_SIZES: dict[str, dict[str, int]] = {
    "axpydot": {"n": 1 << 22},
    "gemver": {"m": 4096, "n": 4096},
    **{name: {} for name in ("bicgk", "atax", "matmul", "sgemvt", "matmul_strided", "madd")},
}


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from(sorted(LARGE_SIZES)),
    st.integers(0, 2**31),
)
def test_every_term_grows_along_descents(name, seed):
    space = gpu_space(name, **LARGE_SIZES[name])
    bounder, rng = Bounder(space), np.random.default_rng(seed)
    here = root_of(space)
    least = bounder.bound(here)
    while not here.is_complete:
        choice = int(rng.choice(here.open_choices()))
        children = [c for _, c in here.expand(choice) if isinstance(c, Candidate)]
        if not children:
            break
        here = children[rng.integers(len(children))]
        bound = bounder.bound(here)
        assert bound.ns >= least.ns * (1 - 1e-12)
        before = dict(least.terms)
        # What all phases together take, each term grows alone; of latencies a phase counts the longest.
        for name, ns in bound.terms:
            if name != "latency":
                assert ns >= before.get(name, 0.0) * (1 - 1e-12), name
        least = bound


SMALL = {
    "axpydot": {"n": 700},
    "waxpby": {"n": 1000},
    "bicgk": {"m": 24, "n": 40},
    "atax": {"m": 33, "n": 20},
    "gemver": {"m": 16, "n": 36},
    "madd": {"m": 20, "n": 33},
    "matmul": {"m": 20, "n": 18, "k": 24},
    "matmul_strided": {"m": 16, "n": 8, "k": 12},
}


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(sorted(SMALL)),
    st.integers(0, 2**31),
    st.sampled_from([2, 3, 10]),
    st.sampled_from([np.float32, np.float64]),
)
def test_no_bound_of_an_ancestor_is_above_the_simulated_gpu(name, seed, cores, dtype):
    target = gpu_target(cores=cores, launch_ns=0.5, call_ns=0.0)
    space = library_space(name, target, dtype, **SMALL[name])
    bounder, rng = Bounder(space), np.random.default_rng(seed)
    here = root_of(space)
    ns = bounder.ns(here)
    for choice in rng.permutation(space.searchable):
        if here.is_open(int(choice)):
            children = [c for _, c in here.expand(int(choice)) if isinstance(c, Candidate)]
            if not children:
                return
            here = children[int(rng.integers(len(children)))]
            ns = bounder.ns(here, ns)
    is_below_simulated(bounder, here, ns)


@pytest.mark.parametrize("name", ["atax", "waxpby"])
def test_no_bound_of_a_grid_that_stays_is_above_the_simulated_gpu(name):
    """Nests that exchange values follow one another; the barrier between them has no term, and saves a launch."""
    space = library_space(name, gpu_target(cores=2, launch_ns=0.5, call_ns=0.0), **SMALL[name])
    first, second = (t.name for t in space.problem.tasks[:2])
    root = decided(
        space,
        {f"team({first})": "WHOLE_GRID", f"fused({first},{second})": "SAME_LAUNCH"},
    )
    bounder = Bounder(space)
    rng = np.random.default_rng(4)
    drawn = [random_candidate(root, rng) for _ in range(12)]
    found = [c for c in drawn if isinstance(c, Candidate)]
    assert found
    for candidate in found:
        is_below_simulated(bounder, candidate, bounder.ns(candidate))


def is_below_simulated(bounder: Bounder, candidate: Candidate, ns: float = 0.0) -> None:
    """Asserts that no term of a complete candidate's bound is above the simulated machine. `ns`: bound of an ancestor."""
    simulated = SimulatedGpu(candidate)
    found = bounder.bound(candidate, ns)
    for resource, at_least in found.terms:
        if resource in simulated.busy:
            assert at_least <= simulated.busy[resource] * (1 + 1e-9), resource
    moved = dict(found.terms).get("memory", 0.0)
    assert ns <= max(simulated.ns, moved) * (1 + 1e-9)


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(["gemver", "matmul", "matmul_strided"]),
    st.integers(0, 2**31),
    st.sampled_from(["LINEAR", "2X16", "4X8", "8X4", "16X2", "2X16|4X8|8X4|16X2"]),
)
def test_no_bound_of_warps_is_above_the_simulated_gpu(name, seed, tiles):
    target = gpu_target(cores=2, launch_ns=0.5, call_ns=0.0)
    sizes = {"m": 32, "n": 40} | ({} if name == "gemver" else {"k": 12})
    space = fix(library_space(name, target, **sizes), [("warp_tile", tiles)])
    (pair,) = space.variables.warp_tile
    mids = [d.name for d in pair]
    root = restore(space, [(f"dim_kind({x})", "THREAD") for x in mids])
    assert isinstance(root, Candidate), root
    bounder, rng = Bounder(space), np.random.default_rng(seed)
    ns = bounder.ns(root)
    made = random_candidate(root, rng)
    if isinstance(made, Candidate):
        is_below_simulated(bounder, made, ns)


# --- what each term counts -----------------------------------------------------------------------


def test_traffic_of_a_fused_launch():
    """Three arrays in, one out, less what L2 may hold; no time for more than one launch."""
    space = gpu_space("axpydot", n=LARGE)
    array = 4.0 * LARGE
    reads, moved = (3 * array + 4 - L2_BYTES) / 50, (4 * array - 2 * L2_BYTES) / 64
    found = terms(root_of(space))
    assert found["memory read"] == pytest.approx(reads, rel=1e-3)
    assert found["memory"] == pytest.approx(moved, rel=1e-3)
    assert found["L2"] == pytest.approx(3 * array / 400, rel=1e-3)  # L1 is empty at first
    assert Bounder(space).ns(root_of(space)) == pytest.approx(max(reads, moved), rel=1e-3)


def test_a_read_with_gaps_costs_the_sectors_that_it_touches():
    """Elements of A lie 32 apart: each takes a sector of 32 bytes, not a line of a CPU."""
    space = gpu_space("matmul_strided", m=4096, n=16, k=1024)
    elements = 4096 * 1024
    reads = (32 * elements + 4 * 1024 * 16 - L2_BYTES) / 50
    assert terms(root_of(space))["memory read"] == pytest.approx(reads, rel=1e-3)


def test_launches_overlap_with_work_but_each_takes_its_time():
    small = gpu_space("gemver", m=64, n=64)
    apart = dict(first_candidates(small, cpsat_seconds=0.2))["default"]
    n_launches = len(plan_of(apart).launches)
    assert n_launches == 3
    assert Bounder(small).ns(apart) >= n_launches * LAUNCH_NS
    assert Bounder(small).ns(root_of(small)) < n_launches * LAUNCH_NS


def test_what_blocks_leave_takes_another_launch():
    space = gpu_space("sgemv", m=64, n=4096)
    apart = decided(space, {"dim_kind(gemv0.j.outer)": "LOOP"})
    over_blocks = {"dim_kind(gemv0.j.outer)": "PARALLEL", "reduction(gemv0.j.outer)": "PARTIALS"}
    shared = decided(space, over_blocks)
    assert terms(apart)["launches"] == terms(root_of(space))["launches"] == 1 + LAUNCH_NS
    assert terms(shared)["launches"] == 1 + 2 * LAUNCH_NS


ROWS = {"dim_kind(add0.i.outer)": "PARALLEL", "dim_kind(add0.j.outer)": "PARALLEL"}
N = 1024


def added(n: int = N, **sizes: str) -> dict[str, float]:
    """The terms of C = A + B for n x n, with kinds and sizes as given, as in `i_mid="THREAD 32"`."""
    wanted = dict(ROWS)
    for key, value in sizes.items():
        loop, level = key.split("_")
        kind, _, size = value.partition(" ")
        wanted[f"dim_kind(add0.{loop}.{level})"] = kind
        wanted |= {f"size(add0.{loop}.{level})": size} if size else {}
    return terms(decided(gpu_space("madd", m=n, n=n), wanted))


def test_neighbours_in_a_warp_share_sectors():
    absent = {"i_inner": "ABSENT", "j_inner": "ABSENT"}
    along = added(i_mid="ABSENT", j_mid="THREAD 256", **absent)["L1"]
    across = added(i_mid="THREAD 256", j_mid="ABSENT", **absent)["L1"]
    mixed = added(i_mid="THREAD 64", j_mid="THREAD 4", **absent)["L1"]
    wide = added(i_mid="THREAD 256", j_mid="ABSENT", i_inner="ABSENT", j_inner="VECTOR 4")["L1"]
    elements = 3 * N * N
    assert along == pytest.approx(elements * 4 / 1280, rel=2e-3)
    assert across == pytest.approx(elements * 32 / 1280, rel=2e-3)
    assert mixed == pytest.approx(elements * 8 / 1280, rel=2e-3)
    assert wide == pytest.approx(mixed, rel=0.03)
    # While the mapping is open, neighbours may be neighbours.
    assert added(i_mid="THREAD 256")["L1"] == pytest.approx(along, rel=2e-3)


def test_few_threads_leave_lanes_and_schedulers_idle():
    one = added(i_mid="ABSENT", j_mid="ABSENT", i_inner="ABSENT", j_inner="ABSENT")
    warp = added(i_mid="ABSENT", j_mid="THREAD 32", i_inner="ABSENT", j_inner="ABSENT")
    assert one["operations"] == pytest.approx(32 * N * N / 2560, rel=1e-3)
    assert warp["operations"] == pytest.approx(N * N / 2560, rel=1e-3)
    assert one["issue"] == pytest.approx(32 * warp["issue"], rel=1e-3)


def test_few_blocks_leave_multiprocessors_idle():
    tiles = {"i_mid": "THREAD 32", "j_mid": "THREAD 32"}
    four = added(512, i_inner="UNROLL 8", j_inner="UNROLL 8", **tiles)
    many = added(i_inner="ABSENT", j_inner="ABSENT", **tiles)
    assert four["operations"] == pytest.approx(512 * 512 / 2560 * 10 / 4)
    assert four["L2"] == pytest.approx(2 * 4 * 512 * 512 / (4 * 64))
    # 1024 blocks on 10 multiprocessors: one of them has 103.
    assert many["operations"] == pytest.approx(N * N / 2560 * 10 * 103 / 1024)
    assert many["L2"] == pytest.approx(2 * 4 * N * N / 400)


PRODUCT = {
    "dim_kind(multiply0.i.outer)": "PARALLEL",
    "dim_kind(multiply0.j.outer)": "PARALLEL",
    "dim_kind(multiply0.k.outer)": "LOOP",
    "dim_kind(multiply0.k.mid)": "LOOP",
    "size(multiply0.k.mid)": "16",
    "dim_kind(multiply0.i.mid)": "THREAD",
    "size(multiply0.i.mid)": "16",
    "dim_kind(multiply0.j.mid)": "THREAD",
    "size(multiply0.j.mid)": "16",
    "dim_kind(multiply0.k.inner)": "ABSENT",
}


def product(more: dict[str, str] | None = None, **facts) -> dict[str, float]:
    """The terms of a product whose blocks take a tile each."""
    space = library_space("matmul", gpu_target(**facts), m=N, n=N, k=N)
    a_tile = {f"grid_stride(multiply0.{loop}.outer)": "NONE" for loop in "ijk"}
    return terms(decided(space, PRODUCT | a_tile | (more or {})))


def tile_of(rows: int) -> dict[str, str]:
    kind = "ABSENT" if rows == 1 else "UNROLL"
    return {
        f"{what}(multiply0.{loop}.inner)": value
        for loop in "ij"
        for what, value in (("dim_kind", kind), ("size", str(rows)))
    }


def test_register_tiles_save_loads():
    """Each thread loads every element that it uses: a tile of 4 x 4 loads a quarter of what one of 1 x 1 does."""
    direct = {"staged(multiply0.a)": "DIRECT", "staged(multiply0.b)": "DIRECT"}
    small, large = product(tile_of(1) | direct), product(tile_of(4) | direct)
    quant = 10 * ceil(4096 / 10) / 4096, 10 * ceil(256 / 10) / 256
    # Of A sixteen threads want one element, and of B a sector holds as many as a warp has.
    assert small["L1"] == pytest.approx(N**3 * (32 / 16 + 32 / 32) / 1280 * quant[0], rel=0.01)
    assert large["L1"] == pytest.approx(N**3 / 4 * (32 / 16 + 32 / 32) / 1280 * quant[1], rel=0.01)
    assert small["issue"] > 1.9 * large["issue"]
    assert "shared memory" not in small


def test_staged_operands_are_loaded_from_shared_memory():
    staged = {"staged(multiply0.a)": "COPY", "staged(multiply0.b)": "COPY"}
    found = product(tile_of(4) | staged)
    quant = 10 * ceil(256 / 10) / 256
    # Requests of 16 bytes a lane at best: a byte of bandwidth an element.
    assert found["shared memory"] == pytest.approx(2 * N**3 / 4 / 1280 * quant)
    assert found["L1"] < product(tile_of(4))["L1"] + 4 * N * N
    # A barrier for each of the 64 tiles of k.
    plain = product(tile_of(4) | staged, barrier_ns=1000.0)
    assert plain["latency"] >= 64 * 1000.0


LEVEL = "thread_level(multiply0.i.mid,multiply0.j.mid)"
WARPS = "warp_tile(multiply0.i.mid,multiply0.j.mid)"


def test_warps_pay_for_the_distinct_elements_that_they_read():
    """A request brings 16 bytes a thread in the time of 128; what fewer than four threads share costs more than that."""
    staged = {"staged(multiply0.a)": "COPY", "staged(multiply0.b)": "COPY"} | tile_of(4)
    both = {
        "size(multiply0.i.mid)": "32",
        "size(multiply0.j.mid)": "32",
        **dict.fromkeys((f"size(multiply0.{x}.inner)" for x in "ij"), "2"),
    }
    requests = product(staged | both)["shared memory"] / 2  # of one operand
    found = {
        tile: product(staged | both | {WARPS: tile})["shared memory"] / requests
        for tile in ("2X16", "4X8", "8X4", "16X2")
    }
    assert found == pytest.approx({"2X16": 3.0, "4X8": 2.0, "8X4": 2.0, "16X2": 3.0})
    # Row by row all threads of a warp share the elements of one operand, and none those of the other.
    rows = {WARPS: "LINEAR", LEVEL: "OUTER"}
    assert product(staged | both | rows)["shared memory"] / requests == pytest.approx(5.0)
    assert product(staged | both | {WARPS: "LINEAR"})["shared memory"] == pytest.approx(
        2 * requests
    )


def test_a_reduction_in_one_thread_waits_for_every_addition():
    space = gpu_space("sgemv", m=64, n=1 << 16)
    wanted = {
        "dim_kind(gemv0.i.outer)": "PARALLEL",
        "dim_kind(gemv0.j.outer)": "LOOP",
        "dim_kind(gemv0.j.inner)": "UNROLL",
        "size(gemv0.j.inner)": "4",
    }
    alone = decided(space, wanted | {"dim_kind(gemv0.j.mid)": "LOOP"})
    shared = decided(
        space, wanted | {"dim_kind(gemv0.j.mid)": "THREAD", "size(gemv0.j.mid)": "256"}
    )
    assert terms(alone)["latency"] == pytest.approx(((1 << 14) - 1) * 4.0 + 200, rel=1e-3)
    assert terms(shared)["latency"] == pytest.approx(63 * 4.0 + 200)
    assert terms(root_of(space))["latency"] < 300


@pytest.mark.parametrize(
    ("facts", "resident"),
    [
        ({}, 8),
        ({"max_threads_per_core": 1024}, 4),
        ({"max_blocks_per_core": 2}, 2),
        ({"shared_bytes_per_core": 50 << 10}, 6),
        ({"registers_per_core": 256 * 16 * 3}, 3),
    ],
)
def test_blocks_that_have_no_room_wait(facts, resident):
    """256 threads with 16 sums each, 8 KiB of copies: threads, blocks, shared memory or registers limit what runs at once."""
    staged = {"staged(multiply0.a)": "COPY", "staged(multiply0.b)": "COPY"}
    found = product(tile_of(4) | staged, cores=2, **facts)
    waves = ceil(256 / (2 * resident))
    assert found["latency"] == pytest.approx(waves * ((N - 1) * 4.0 + 20.0), rel=1e-6)


def test_what_is_not_known_counts_for_nothing():
    """A target that only says what targets said before has its bound still."""
    facts = gpu_target()
    names = [f for f in facts.__dataclass_fields__ if f.endswith(("_per_core", "latency_ns"))]
    kept = ("registers_per_core", "add_latency_ns")
    bare = replace(
        facts,
        # Zeros of each fact's type: others are another type of the bound, which numba would compile once more.
        **{n: type(getattr(facts, n))(0) for n in names if n not in kept},
        core_read_bytes_per_ns=0.0,
        shared_bytes_per_ns=0.0,
        instructions_per_ns=0.0,
    )
    full = Bounder(gpu_space("matmul"))
    space = library_space("matmul", bare)
    bounder = Bounder(space)
    for _, candidate in first_candidates(gpu_space("matmul"), cpsat_seconds=0.1)[::3]:
        found = bounder.bound(Candidate(space, candidate.domains))
        assert 0 < found.ns <= full.ns(candidate) * (1 + 1e-12)
        assert not {"issue", "shared memory"} & {name for name, _ in found.terms}


def test_every_term_is_explained():
    space = gpu_space("matmul")
    staged = next(c for sketch, c in sketched_candidates(space) if sketch.packing is not None)
    bounder = Bounder(space)
    bound = bounder.bound(staged)
    text = "\n".join(explain(bound, space))
    for name, _ in bound.terms:
        assert f"{name}: " in text
    assert "shared memory: " in text
    assert "L2 may hold" in text
    amounts = {use.resource: (use.amount, use.unit) for use in uses(bounder, bound)}
    assert amounts["operations"][1] == "flop"
    assert amounts["issue"][0] > 0


@pytest.mark.parametrize("name", ["axpydot", "sgemv", "sgemvt", "bicgk", "matmul"])
def test_first_candidates_use_blocks_and_threads(name):
    found = first_candidates(gpu_space(name), cpsat_seconds=0.2)
    assert found[0][0] == "default"
    assert len(found) >= 6
    for tag, candidate in found:
        if tag == "cpsat":  # wants many values, and gets some
            continue
        tasks = plan_of(candidate).tasks
        assert all(t.is_parallel and t.n_threads >= 32 for t in tasks), tag


def test_the_best_first_candidate_of_a_product_is_near_the_peak():
    """Tiles of 128 x 128 leave half of 132 multiprocessors idle. Smaller ones do not, and wait for instructions to start."""
    target = gpu_checking.target()
    space = library_space("matmul", target, m=1024, n=1024, k=1024)
    bounder, peak_ns = Bounder(space), 2 * 1024**3 / target.f32_flops_per_ns
    found = [(sketch, bounder.bound(c)) for sketch, c in sketched_candidates(space, limit=8)]
    least = min((bound for _, bound in found), key=lambda bound: bound.ns)
    assert 1.0 <= least.ns / peak_ns <= 1.18
    assert least.limiting == "issue"
    packed = [bound for sketch, bound in found if sketch.packing is not None]
    assert max(bound.ns for bound in packed) >= 1.6 * peak_ns
    assert all(dict(bound.terms)["shared memory"] < peak_ns for bound in packed)


def test_sums_of_which_one_waits_for_another_keep_their_threads():
    """In one loop they would be a thread's own."""
    space = gpu_space("gesummv", m=1024, n=1024)
    greedy = complete_sketch(root_of(space), greedy_sketch(space))
    assert greedy is not None
    assert dict(to_names(greedy))["dim_kind(scaled_gemv0.j.mid)"] == "THREAD"
