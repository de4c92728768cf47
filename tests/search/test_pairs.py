"""Pairs of candidates whose times differ by one choice: bound or prediction is higher for the slower one of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import ndarray, record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.predict import FACTORS, Predictor
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, Elsewhere, Space
from kernelscape.space.decisions import fix, restore, to_names
from kernelscape.space.targets.target import CacheLevel, Target
from kernelscape.testing.machines import library_space, root_of, round_target
from kernelscape.testing.port_counts import count_ports

N = 1 << 15
TASKS = ("doubled", "raised")
TILE = ("mid", "inner")
FLOW = "mem_space(doubled0->raised0.t)"
Names = Mapping[str, str]


@kernel
def doubled(x: types.ndarray(), t: types.ndarray()) -> None:
    for i in t:
        t[i] = 2.0 * x[i]


@kernel
def raised(t: types.ndarray(), y: types.ndarray()) -> None:
    for i in y:
        y[i] = t[i] + 1.0


def by_temporary(x: Any, y: Any) -> None:
    t = ndarray(x.dtype, x.shape, name="t")
    doubled(x, t)
    raised(t, y)


def both(x: Any, t: Any, y: Any) -> None:
    doubled(x, t)
    raised(t, y)


def space_of(sequence: Callable[..., None], n_arrays: int, target: Target, n: int = N) -> Space:
    arrays = [np.zeros(n, np.float32) for _ in range(n_arrays)]
    return build_space(normalise(record_sequence(sequence, arrays)), target)


def pair(space: Space, fast: Names, slow: Names) -> tuple[Candidate, Candidate]:
    """Returns a complete candidate with the decisions `fast`, and the one with `slow` in their places."""
    part = fix(space, fast.items())
    made = root_of(part).random_completion(np.random.default_rng(1))
    assert isinstance(made, Candidate)
    names = {**dict(to_names(made)), **slow}
    first, second = (restore(space, x.items()) for x in (dict(to_names(made)), names))
    assert isinstance(first, Candidate) and first.is_complete, first
    assert isinstance(second, Candidate) and second.is_complete, second
    return first, second


def terms(bounder: Bounder, made: Candidate) -> dict[str, float]:
    return dict(bounder.bound(made).terms)


def parts(predictor: Predictor, made: Candidate) -> dict[str, float]:
    return dict(zip(FACTORS, predictor.parts(made).tolist(), strict=True))


# --- store kept: the bound tells them apart ---------------------------------------------------------


@pytest.mark.parametrize("cache_bytes", [1 << 23, 1 << 12])
def test_a_temporary_that_is_stored(cache_bytes: int) -> None:
    """Kind: stores of temporaries for nothing, where a cache holds them. Beyond it bytes count too."""
    level = CacheLevel(name="L1", capacity_bytes=cache_bytes, read_bytes_per_ns=1e9)
    target = round_target(levels=(level,), loads_per_ns=1e9, stores_per_ns=1.0)
    space = space_of(by_temporary, 2, target)
    same = {f"size({t}0.i.{k})": "16" for t in TASKS for k in TILE}
    same |= {f"dim_kind({t}0.i.inner)": "VECTOR" for t in TASKS}
    elided, kept = (
        root_of(fix(space, {**same, **more}.items()))
        for more in ({FLOW: "REGISTER"}, {FLOW: "GLOBAL", "fused": "SEPARATE"})
    )
    bounder = Bounder(space)
    ports = [terms(bounder, c)["ports"] for c in (elided, kept)]
    assert ports == pytest.approx([N / 16, 2 * N / 16], rel=1e-3)
    assert bounder.ns(kept) > 1.5 * bounder.ns(elided)
    written = [terms(bounder, c).get("memory write", 0.0) for c in (elided, kept)]
    assert written[0] < written[1] if cache_bytes < 4 * N else not any(written)


def test_no_plan_stores_fewer_temporaries_than_are_counted() -> None:
    """Kind: a store that a merged loop leaves away. The judge runs the loop IR, and ancestors' bounds are no greater."""
    target = round_target(cores=1, vector_bytes=16, loads_per_ns=1e12, stores_per_ns=1.0)
    space = space_of(by_temporary, 2, target, n=5000)
    bounder, rng, n_kept = Bounder(space), np.random.default_rng(3), 0
    for _ in range(8):
        at, before = root_of(space), 0.0
        while not at.is_complete:
            children = [c for _, c in at.expand(int(rng.choice(at.open_choices())))]
            possible = [c for c in children if isinstance(c, Candidate)]
            if not possible:
                break
            at = possible[int(rng.integers(len(possible)))]
            ports = terms(bounder, at).get("ports", 0.0)
            assert ports >= before * (1 - 1e-9)
            before = ports
        if at.is_complete and (found := count_ports(at)).is_whole:
            assert before <= 1.001 * found.stores
            n_kept += dict(to_names(at))["store(doubled0.t)"] == "KEEP"
    assert n_kept > 1


def test_a_temporary_with_two_writers_may_be_stored_once() -> None:
    """Kind: a store that compilers leave away, since a merged loop overwrites it."""

    def twice(x: Any, y: Any, z: Any) -> None:
        t = ndarray(x.dtype, x.shape, name="t")
        for a, b in ((x, y), (y, z)):
            doubled(a, t)
            raised(t, b)

    rates = {"loads_per_ns": 1.0, "stores_per_ns": 1.0}
    rows = [
        Bounder(space_of(sequence, n_arrays, round_target(**rates))).tables.port
        for sequence, n_arrays in ((by_temporary, 2), (twice, 3))
    ]
    assert [any(x["store"] >= 0) for x in rows] == [True, False]


def test_a_temporary_that_another_component_writes_may_be_stored_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kind: a component that knows only its own tasks."""
    space = space_of(by_temporary, 2, round_target(loads_per_ns=1.0, stores_per_ns=1.0))
    found = []
    for writes in (set[str](), {"t"}):
        monkeypatch.setattr(Space, "elsewhere", Elsewhere(writes=frozenset(writes)))
        found.append(any(x["store"] >= 0 for x in Bounder(space).tables.port))
    assert found == [True, False]


# --- the others: the prediction tells them apart, and the bounds are equal ----------------------------


def test_a_streaming_store_of_an_array_that_is_read_again() -> None:
    """Kind: streaming stores for the price of cached ones. No bound counts them: an address may make them plain stores."""
    space = space_of(both, 3, round_target(loads_per_ns=200.0))
    wanted = {FLOW: "GLOBAL", **{f"dim_kind({t}0.i.inner)": "VECTOR" for t in TASKS}}
    cached, streamed = pair(
        space,
        {**wanted, "cache(doubled0.t)": "DEFAULT", "cache(raised0.y)": "DEFAULT"},
        {"cache(doubled0.t)": "STREAM"},
    )
    predictor = Predictor(Bounder(space))
    assert predictor.bounder.ns(cached) == predictor.bounder.ns(streamed)
    assert parts(predictor, cached)["memory"] == 0
    # Written at 40 bytes a ns, and read again at 50.
    assert parts(predictor, streamed)["memory"] == pytest.approx(4 * N / 40 + 4 * N / 50)
    assert predictor.ns(streamed) > 1.5 * predictor.ns(cached)


def test_prefetches_take_loads() -> None:
    """Kind: software prefetches for nothing. No bound counts them: a compiler may leave hints away."""
    levels = tuple(
        CacheLevel(name=name, capacity_bytes=n, read_bytes_per_ns=400.0)
        for name, n in (("L1", 1 << 10), ("L2", 1 << 12))
    )
    m, n = 64, 128
    space = library_space("sgemv", round_target(loads_per_ns=2.0, levels=levels), m=m, n=n)
    predictor = Predictor(Bounder(space))
    wanted = {
        "dim_kind(gemv0.j.inner)": "VECTOR",
        "dim_kind(gemv0.i.outer)": "LOOP",
        "dim_kind(gemv0.j.outer)": "LOOP",
        "prefetch(gemv0)": "NONE",
    }
    for how in ("NEXT", "NEAR", "FAR"):
        plain, asked = pair(space, wanted, {"prefetch(gemv0)": how})
        assert predictor.bounder.ns(plain) == predictor.bounder.ns(asked)
        more = parts(predictor, asked)["loads"] - parts(predictor, plain)["loads"]
        assert more == pytest.approx(m * n / 16)  # one for each vector; a load takes a ns of a core
        assert predictor.ns(asked) > predictor.ns(plain)


@pytest.mark.parametrize(("l2_bytes", "is_slower"), [(1 << 13, True), (1 << 15, False)])
def test_blocks_of_all_threads_that_a_shared_cache_does_not_hold(
    l2_bytes: int, is_slower: bool
) -> None:
    """Kind: blocks of each thread that fit in a cache one by one. No bound counts them: threads might use it in turn."""
    levels = (
        CacheLevel(name="L1", capacity_bytes=1 << 10, read_bytes_per_ns=1000.0),
        CacheLevel(name="L2", capacity_bytes=l2_bytes, read_bytes_per_ns=400.0, shared_by=2),
        CacheLevel(name="L3", capacity_bytes=1 << 22, read_bytes_per_ns=20.0),
    )
    space = library_space(
        "matmul", round_target(loads_per_ns=64.0, levels=levels), m=64, n=128, k=64
    )
    t, sizes = "multiply0", {"i": (1, 4), "j": (4, 16), "k": (32, 1)}  # blocks of 8 KiB
    wanted = {
        f"size({t}.{x}.{k})": str(n) for x in sizes for k, n in zip(TILE, sizes[x], strict=True)
    }
    wanted |= {f"dim_kind({t}.{x}.outer)": "PARALLEL" if x == "i" else "LOOP" for x in sizes}
    wanted |= {f"order({t}.i.outer,{t}.{x}.outer)": "INNER" for x in "jk"}
    wanted |= {f"order({t}.i.outer,{t}.{x}.mid)": "OUTER" for x in "jk"}
    wanted |= {f"staged({t}.a)": "DIRECT", f"staged({t}.b)": "COPY", f"packed_by({t}.b)": "TEAM"}
    wanted |= {f"dim_kind({t}.j.inner)": "VECTOR"}
    of_team, of_threads = pair(space, wanted, {f"packed_by({t}.b)": "THREAD"})
    predictor = Predictor(Bounder(space))
    assert predictor.bounder.ns(of_team) == predictor.bounder.ns(of_threads)
    before, after = (predictor.ns(c) for c in (of_team, of_threads))
    assert after > 2 * before if is_slower else after == before
