"""Gathers in the bound: by lanes at a rate of their own, where each lane surely takes an element for itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernelscape.codegen.lower import lower
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.bound.explain import explain
from kernelscape.space import choices as ch
from kernelscape.space.backbone import INNER
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, Space
from kernelscape.space.families.gathers import ONE_BY_ONE, TRANSPOSED
from kernelscape.testing.machines import root_of, round_target

N, ROW, LOADS, GATHERS = 128, 5, 2.0, 1.6
nd: Any = types.ndarray()


@kernel
def picked(at: nd, x: nd, y: nd) -> None:
    for i in range(at.shape[0]):
        j = at[i]
        y[i] = x[j] * x[j]


@kernel
def rows(at: nd, x: nd, y: nd) -> None:
    for i in range(at.shape[0]):
        begin = at[i]
        t = 0.0
        for k in range(ROW):
            t += x[begin + 2 * k] * k
        y[i] = t


@kernel
def neighbours(at: nd, x: nd, y: nd) -> None:
    for i in range(at.shape[0]):
        y[i] = x[at[i]] * x[at[i] + 1]


@kernel
def by_eights(at: nd, x: nd, y: nd) -> None:
    for i in range(at.shape[0]):
        y[i] = x[at[i // 8]] * x[i]


def space_of(fn: Any, dtype: type = np.float32, gathers: float = GATHERS) -> Space:
    at, x, y = np.zeros(N, np.int32), np.zeros(N + 2 * ROW, dtype), np.zeros(N, dtype)
    target = round_target(loads_per_ns=LOADS, gathers_per_ns=gathers)
    return build_space(normalise(record_sequence(fn, (at, x, y))), target)


def ports_ns(space: Space, kind: int, loads: int | None = None) -> float:
    domains = root_of(space).domains.copy()
    domains[space.variables.kind[space.backbone.dim(0, "i", INNER)]] = kind
    for var in space.variables.of_tasks["gathers"].values() if loads is not None else ():
        domains[var] = loads
    return dict(Bounder(space).bound(domains).terms).get("ports", 0.0)


VECTOR, EITHER = 1 << ch.VECTOR, 1 << ch.VECTOR | 1 << ch.ABSENT


@pytest.mark.parametrize(("fn", "n"), [(picked, N), (rows, N * ROW)])
def test_lanes_take_each_element_at_the_rate_of_gathers(fn: Any, n: int) -> None:
    """Kind: lanes that gathered as fast as single elements are loaded."""
    space = space_of(fn)
    assert ports_ns(space, VECTOR) == pytest.approx(n / GATHERS)
    assert ports_ns(space, EITHER) < n / LOADS * 1.001


def test_who_gathers_faster_than_one_by_one_may_do_so_anywhere() -> None:
    space = space_of(picked, gathers=2 * LOADS)
    assert ports_ns(space, VECTOR) == ports_ns(space, EITHER) == pytest.approx(N / LOADS / 2)


def test_nothing_follows_where_gathers_were_not_measured() -> None:
    space = space_of(picked, gathers=0.0)
    assert ports_ns(space, VECTOR) == ports_ns(space, EITHER) == pytest.approx(N / LOADS)


def test_lanes_whose_indices_go_through_memory_take_two_loads() -> None:
    """Kind: a calibrated rate below that of another way to do the same."""
    space = space_of(picked, gathers=LOADS / 8)
    assert ports_ns(space, VECTOR) == pytest.approx(2 * N / LOADS)


def test_lanes_that_may_load_rows_do_not_gather() -> None:
    space = space_of(neighbours)
    assert space.variables.of_tasks["gathers"]
    both, single = 1 << ONE_BY_ONE | 1 << TRANSPOSED, N / LOADS
    assert ports_ns(space, VECTOR, both) == pytest.approx(single)
    assert ports_ns(space, VECTOR, 1 << TRANSPOSED) == pytest.approx(single)
    assert ports_ns(space, VECTOR, 1 << ONE_BY_ONE) == pytest.approx(N / GATHERS)


def test_lanes_that_may_have_one_element_in_common_do_not_gather() -> None:
    space = space_of(by_eights)
    assert ports_ns(space, VECTOR) == ports_ns(space, EITHER) > 0


@pytest.mark.parametrize("fn", [picked, rows, neighbours, by_eights])
def test_who_is_bounded_by_gathers_has_them(fn: Any) -> None:
    """The judge is the text: no candidate without a gather is as slow as one with them. No bound falls."""
    space = space_of(fn, gathers=LOADS / 8)
    bounder, root = Bounder(space), root_of(space)
    seen, most = set(), 2 * ports_ns(space, EITHER)  # of one core without gathers
    for seed in range(12):
        rng, at, before = np.random.default_rng(seed), root, 0.0
        while not at.is_complete:
            var = int(rng.choice(at.open_choices()))
            children = [c for _, c in at.expand(var) if isinstance(c, Candidate)]
            at = children[int(rng.integers(len(children)))]
            now = dict(bounder.bound(at).terms).get("ports", 0.0)
            assert now >= before
            before = now
        gathers = "lane_gather" in lower(plan_of(at)).prelude
        is_slow = before > most
        assert gathers or not is_slow
        seen.add(is_slow)
    assert seen == ({False} if fn is by_eights else {False, True})


def test_the_bound_says_at_which_rate_elements_are_gathered() -> None:
    space = space_of(picked, gathers=3.0)
    said = next(x for x in explain(Bounder(space).bound(root_of(space)), space) if "ports" in x)
    assert "3 gathered elements a ns" in said
