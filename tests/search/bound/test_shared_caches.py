"""Bytes that cross into caches which hardware threads share: one line that is brought in serves all of them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from kernelscape.search.bound.bounder import Bounder
from kernelscape.space import choices as ch
from kernelscape.space.candidate import Candidate
from kernelscape.space.targets.target import CacheLevel
from kernelscape.testing.machines import IdealMachine, library_space, root_of, round_target

LINES = 16
SIZES = {
    "sgemv": {"m": 6, "n": 1024},
    "atax": {"m": 4, "n": 512},
    "matmul": {"m": 4, "n": 32, "k": 48},
}


@cache
def bounder(name: str, n_sharing: int, cores: int = 2) -> Bounder:
    level = CacheLevel(
        name="L1",
        capacity_bytes=64 * LINES * cores // n_sharing,
        read_bytes_per_ns=1e9,
        shared_by=n_sharing,
    )
    target = round_target(
        levels=(level,),
        cores=cores,
        vector_bytes=16,
        vector_registers=0,
        memory_read_bytes_per_ns=1.0,
        memory_mixed_bytes_per_ns=1.0,
    )
    return Bounder(library_space(name, target, **SIZES[name]))


def is_shared_out(made: Candidate) -> bool:
    return any(made.value(x) == ch.PARALLEL for x in made.space.variables.kind.values())


@pytest.mark.parametrize("name", SIZES)
def test_no_bytes_count_twice_that_two_threads_bring_into_one_cache(name: str) -> None:
    """Kind: segments of two threads at the same time, each of which counts the lines that both read."""
    known = bounder(name, 2)
    rng = np.random.default_rng(7)
    n_shared, nearest = 0, 0.0
    for _ in range(24):
        made = root_of(known.space).random_completion(rng)
        if not isinstance(made, Candidate) or not is_shared_out(made):
            continue
        n_bytes = float(known.tiles_ns(made).max())
        read = IdealMachine(made, LINES, n_threads=2).traffic(calls=1)[0]
        assert n_bytes <= read, (n_bytes, read)
        n_shared, nearest = n_shared + 1, max(nearest, n_bytes / max(read, 1.0))
    assert n_shared > 3
    assert nearest > 0.3


def test_a_thread_that_is_alone_on_a_cache_may_fill_it() -> None:
    """Kind: half a cache for one of two hardware threads, where a call uses no other."""
    level = CacheLevel(name="L1", capacity_bytes=256, read_bytes_per_ns=1.0, shared_by=2)
    last = CacheLevel(name="L2", capacity_bytes=1024, read_bytes_per_ns=1.0)
    target = round_target(levels=(level, last), cores=4)
    held = [target.of_threads(n).levels[0].capacity_bytes for n in (1, 2, 3)]
    assert held == [128, 256, 256]
