"""Bound and first candidates of GPU spaces."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from kernelscape.codegen.plan import read_plan
from kernelscape.search.bound import Bounder
from kernelscape.search.first import first_candidates
from kernelscape.space.candidate import Candidate, Space
from kernelscape.space.target import CacheLevel
from kernelscape.tests.search.machines import MEBI, library_space, root_of, round_target

LARGE = 1 << 24
LAUNCH_NS = 1000.0


@cache
def gpu_space(name: str, **sizes: int) -> Space:
    """Ten multiprocessors with 8 MiB in registers and caches; no rate but those of round_target."""
    target = round_target(
        backend="cuda",
        cores=10,
        vector_bytes=16,
        levels=(
            CacheLevel(name="L1", capacity_bytes=2 * MEBI, read_bytes_per_ns=1000.0),
            CacheLevel(name="L2", capacity_bytes=2 * MEBI, read_bytes_per_ns=400.0),
        ),
        launch_ns=LAUNCH_NS,
        max_threads_per_block=1024,
        registers_per_core=(4 * MEBI) // (4 * 10),
        shared_bytes_per_block=48 << 10,
        line_bytes=32,
    )
    return library_space(name, target, **sizes)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("axpydot", {"n": LARGE}), ("bicgk", {}), ("gemver", {"m": 4096, "n": 4096}), ("matmul", {})],
)
def test_bound_is_monotone_and_counts_neither_chains_nor_scalar_code(name, sizes):
    space = gpu_space(name, **sizes)
    bounder, rng = Bounder(space), np.random.default_rng(0)
    for _ in range(5):
        here, least = root_of(space), 0.0
        while not here.is_complete:
            bound = bounder.bound(here)
            assert bound.ns >= least * (1 - 1e-12)
            assert "chain" not in dict(bound.terms)
            least = bound.ns
            choice = int(rng.choice(here.open_choices()))
            children = [c for _, c in here.expand(choice) if isinstance(c, Candidate)]
            if not children:
                break
            here = children[rng.integers(len(children))]


def test_traffic_of_a_fused_launch():
    """Three arrays in, one out, less what registers and caches may hold; no time for more than one launch."""
    space = gpu_space("axpydot", n=LARGE)
    array = 4.0 * LARGE
    held = 8 * MEBI
    ns = Bounder(space).ns(root_of(space))
    reads, moved = (3 * array + 4 - held) / 50, (4 * array - 2 * held) / 64
    assert ns == pytest.approx(max(reads, moved), rel=0.02)


def test_a_read_with_gaps_costs_the_sectors_that_it_touches():
    """Elements of A lie 32 apart: each takes a sector of 32 bytes, not a line of a CPU."""
    space = gpu_space("matmul_strided", m=4096, n=16, k=1024)
    elements, held = 4096 * 1024, 8 * MEBI
    reads = (32 * elements + 4 * 1024 * 16 - held) / 50
    assert Bounder(space).ns(root_of(space)) == pytest.approx(reads, rel=0.02)


def test_launches_overlap_with_work_but_each_takes_its_time():
    small = gpu_space("gemver", m=64, n=64)
    apart = dict(first_candidates(small, cpsat_seconds=0.2))["default"]
    n_launches = len(read_plan(apart).launches)
    assert n_launches == 3
    assert Bounder(small).ns(apart) >= n_launches * LAUNCH_NS
    assert Bounder(small).ns(root_of(small)) < n_launches * LAUNCH_NS


@pytest.mark.parametrize("name", ["axpydot", "sgemv", "sgemvt", "bicgk", "matmul"])
def test_first_candidates_use_blocks_and_threads(name):
    found = first_candidates(gpu_space(name), cpsat_seconds=0.2)
    assert found[0][0] == "default"
    assert len(found) >= 6
    for tag, candidate in found:
        if tag == "cpsat":  # wants many values, and gets some
            continue
        tasks = read_plan(candidate).tasks
        assert all(t.is_parallel and t.n_threads >= 32 for t in tasks), tag
