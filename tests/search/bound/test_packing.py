"""Bytes of packed blocks between levels: where a block lies, it is read once more than in its copy."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from kernelscape.search.bound.bounder import Bounder
from kernelscape.space import choices as ch
from kernelscape.space.backbone import INNER, MID, OUTER
from kernelscape.space.candidate import Candidate
from kernelscape.space.targets.target import CacheLevel
from kernelscape.testing.machines import IdealMachine, library_space, root_of, round_target

LINES = 8  # of the first cache, which is simulated
HELD = 64 * LINES
# From the outermost loop inwards.
DIMS = (*((name, OUTER) for name in "kji"), *((name, MID) for name in "kji"))


@cache
def product(m: int, n: int, k: int) -> Bounder:
    target = round_target(
        cores=1,
        vector_bytes=16,
        vector_registers=0,
        levels=(
            CacheLevel(name="L1", capacity_bytes=HELD, read_bytes_per_ns=1e9),
            CacheLevel(name="L2", capacity_bytes=1 << 20, read_bytes_per_ns=1.0),
        ),
        memory_read_bytes_per_ns=1e9,
        memory_mixed_bytes_per_ns=1e9,
    )
    return Bounder(library_space("matmul", target, m=m, n=n, k=k))


def in_blocks(bounder: Bounder, sizes: dict[str, tuple[int, int]], staged: int) -> Candidate:
    """A product with mid and inner `sizes` of its loops, and its second operand read as `staged` says."""
    space = bounder.space
    b, v, domains = space.backbone, space.variables, root_of(space).domains.copy()
    for name, both in sizes.items():
        for level, size in zip((MID, INNER), both, strict=True):
            d = b.dim(0, name, level)
            domains[v.size[d]] = 1 << v.universe[d].index(size)
    for at, x in enumerate(DIMS):
        for y in DIMS[:at]:
            if x[0] != y[0]:
                order = space.model.order(b.dim(0, *x).order_id, b.dim(0, *y).order_id)
                domains[order] = 1 << ch.INSIDE
    for operand, var in v.staged.items():
        domains[var] = 1 << (staged if operand.access.array == "b" else ch.DIRECT)
    found = space.candidate(domains)
    assert isinstance(found, Candidate)
    return found


@pytest.mark.parametrize("n_blocks", [1, 2])
def test_a_block_beyond_a_cache_is_read_twice(n_blocks: int) -> None:
    """Kind: packed blocks that cost what they cost where they lie."""
    m, n, k = 4, 16, 16 * n_blocks
    bounder = product(m, n, k)
    sizes = {"i": (1, 4), "j": (4, 4), "k": (4, 4)}
    direct, packed = (in_blocks(bounder, sizes, x) for x in (ch.DIRECT, ch.COPY))
    tiles = [float(bounder.tiles_ns(c).max()) for c in (direct, packed)]
    block = 4 * n * 16
    operand = 4 * m * 16
    assert tiles[1] >= n_blocks * (2 * block + operand - 2 * HELD) > tiles[0]
    made = packed.random_completion(np.random.default_rng(1))
    assert isinstance(made, Candidate)
    assert bounder.tiles_ns(made).max() <= IdealMachine(made, LINES).traffic(calls=1)[0]


def test_no_packed_product_reads_fewer_bytes() -> None:
    bounder, rng, n_checked = product(8, 32, 24), np.random.default_rng(2), 0
    space = bounder.space
    for operand, var in space.variables.staged.items():
        packed = root_of(space).decide(var, 1 << ch.COPY)
        assert isinstance(packed, Candidate), operand.name
        for _ in range(10):
            at, before = packed, bounder.tiles_ns(packed).max()
            while not at.is_complete:
                var = int(rng.choice(at.open_choices()))
                children = [c for _, c in at.expand(var) if isinstance(c, Candidate)]
                if not children:
                    break
                at = children[int(rng.integers(len(children)))]
                after = bounder.tiles_ns(at).max()
                assert after >= before * (1 - 1e-9)
                before = after
            if at.is_complete:
                assert before <= IdealMachine(at, LINES).traffic(calls=1)[0]
                n_checked += 1
    assert n_checked > 10
