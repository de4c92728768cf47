"""Instructions of a core, for predictions: hand-worked counts of loop nests, and pairs that bounds cannot tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.instructions import KINDS
from kernelscape.search.predict import FACTORS, Predictor
from kernelscape.space import choices as ch
from kernelscape.space.backbone import INNER, MID, OUTER
from kernelscape.space.candidate import Space
from kernelscape.space.engine.jit import end_interpreting, interpret
from kernelscape.space.targets.target import CacheLevel
from kernelscape.testing.machines import library_space, root_of, round_target

N = 256
POINTS = float(N**3)


def space_of(name: str, **sizes: int) -> Space:
    """Sixteen lanes, one load a ns on each core."""
    target = round_target(loads_per_ns=1.0)
    return library_space(name, round_target(loads_per_ns=float(target.cores)), **sizes)


def decided(
    space: Space,
    order: Sequence[str],
    vector: str,
    inner: dict[str, int],
    mid: dict[str, int] | None = None,
    copied: tuple[str, ...] = (),
) -> Any:
    """Domains of task 0 on one thread: its outer loops in this order, mid loops inside of them in the same order."""
    v = space.variables
    domains = root_of(space).domains.copy()
    for name in order:
        outer, middle, part = (space.backbone.dim(0, name, k) for k in (OUTER, MID, INNER))
        domains[v.kind[outer]] = 1 << ch.LOOP
        kinds = int(domains[v.kind[part]])
        domains[v.kind[part]] = 1 << ch.VECTOR if name == vector else kinds & ~(1 << ch.VECTOR)
        for d, size in ((part, inner.get(name, 1)), (middle, (mid or {}).get(name, 1))):
            domains[v.size[d]] = 1 << v.universe[d].index(size)
    ranked = [(name, k) for k in (OUTER, MID) for name in order]
    for at, (name, k) in enumerate(ranked):
        for other, m in ranked[at + 1 :]:
            if name != other:
                d, e = space.backbone.dim(0, name, k), space.backbone.dim(0, other, m)
                domains[space.model.order(d.order_id, e.order_id)] = 1 << ch.OUTSIDE
                domains[space.model.order(e.order_id, d.order_id)] = 1 << ch.INSIDE
    for operand, var in v.staged.items():
        domains[var] = 1 << (ch.COPY if operand.access.array in copied else ch.DIRECT)
    return domains


def counts(space: Space, *decisions: Any, **more: Any) -> dict[str, float]:
    parts = Predictor(Bounder(space)).parts(decided(space, *decisions, **more))
    return dict(zip(KINDS, parts[FACTORS.index(KINDS[0]) :].tolist(), strict=True))


def test_a_register_tile_shares_loads() -> None:
    space = space_of("matmul", m=N, n=N, k=N)
    # Four rows of two vectors: an element of A for each row, two vectors of B for all.
    tiled = counts(space, "ijk", "j", {"i": 4, "j": 32})
    assert tiled["loads"] == pytest.approx(POINTS / 32 + POINTS / 16 / 4)
    assert counts(space, "ijk", "", {})["loads"] == pytest.approx(2 * POINTS)


def test_lanes_far_apart_are_loaded_one_by_one_whatever_loop_is_innermost() -> None:
    """Kind: equal bounds of nests in which a compiler might keep gathered lanes, and does not."""
    space = space_of("matmul", m=N, n=N, k=N)
    bounder = Bounder(space)
    for order in ("ijk", "kji"):
        assert counts(space, order, "k", {"k": 16})["lanes"] == pytest.approx(POINTS)
        assert counts(space, order, "k", {"k": 16, "i": 4})["lanes"] == pytest.approx(POINTS / 4)
        assert counts(space, order, "j", {"j": 16})["lanes"] == 0
    copied = counts(space, "ijk", "k", {"k": 16}, copied=("b",))
    assert copied["lanes"] == 0
    assert copied["copies"] == pytest.approx(N * N * N)  # each row of A packs B again
    ports = [
        dict(bounder.bound(decided(space, order, "k", {"k": 16})).terms)["ports"]
        for order in ("kji", "ijk")
    ]
    assert ports[0] < ports[1] / 4


def test_sums_in_lanes_are_folded_behind_each_run_of_the_reduced_loop() -> None:
    space = space_of("matmul", m=N, n=N, k=N)
    assert counts(space, "ijk", "k", {"k": 16})["folds"] == N * N
    assert counts(space, "kij", "k", {"k": 16})["folds"] == N * N * N / 16
    assert counts(space, "ijk", "j", {"j": 16})["folds"] == 0


def test_blocks_are_copied_again_in_each_trip_around_them() -> None:
    """Kind: mid loops around a packed block, of which only outer ones were counted."""
    space = space_of("matmul", m=N, n=N, k=N)
    once = counts(space, "jki", "j", {"j": 16}, copied=("b",))
    assert once["copies"] == N * N
    again = counts(space, "ijk", "j", {"j": 16, "i": 4}, copied=("b",))
    assert again["copies"] == N * N * N / 4


def test_a_walk_along_columns_enters_a_line_and_a_page_in_each_step() -> None:
    space = space_of("sgemv", m=N, n=2048)
    by_rows, by_columns = (counts(space, order, "", {}) for order in ("ij", "ji"))
    assert by_rows["lines"] == by_rows["pages"] == 0
    assert by_columns["pages"] == N * 2048
    small = CacheLevel(name="L1", capacity_bytes=1 << 12, read_bytes_per_ns=640.0)
    large = CacheLevel(name="L2", capacity_bytes=1 << 24, read_bytes_per_ns=64.0)
    for level, some in ((small, True), (large, False)):
        target = round_target(loads_per_ns=1.0, levels=(level, large))
        space = library_space("sgemv", target, m=N, n=2048)
        assert bool(counts(space, "ji", "", {})["lines"]) == some


def test_open_choices_count_with_the_largest_tiles() -> None:
    """Kind: a prediction that falls when a choice is made, so that it prefers what is open."""
    space = library_space("matmul", round_target(loads_per_ns=1.0), m=N, n=N, k=N)
    predictor, rng = Predictor(Bounder(space)), np.random.default_rng(2)
    at = FACTORS.index("loads")
    least = predictor.parts(root_of(space))[at]
    for _ in range(20):
        c = root_of(space).random_completion(rng)
        assert c is None or predictor.parts(c)[at] >= least * (1 - 1e-9)


def test_interpreted_counts_are_those_of_compiled_code() -> None:
    """Kind: a column with the name of a method of records, which only interpreted code finds."""
    space = space_of("matmul", m=N, n=N, k=N)
    decisions = (space, "ijk", "k", {"k": 16, "i": 4})
    compiled = counts(*decisions, copied=("b",))
    interpret()
    try:
        assert counts(*decisions, copied=("b",)) == compiled
    finally:
        end_interpreting()
