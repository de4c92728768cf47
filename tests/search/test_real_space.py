"""Strategies on a space of the constraint engine."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from kernelscape.search.budget import Budget
from kernelscape.search.events import Finished, Outcome
from kernelscape.search.options import STRATEGIES
from kernelscape.search.tree.estimate import estimate_knuth
from kernelscape.space.candidate import Candidate, Space
from kernelscape.space.engine.builder import ModelBuilder
from kernelscape.testing.bare import bare_space
from kernelscape.testing.estimate_chen import estimate_chen
from kernelscape.tests.search.searching import searched

COST = np.random.default_rng(0).integers(0, 50, size=(6, 4)).astype(float)


def small_space() -> Space:
    builder = ModelBuilder()
    variables = [builder.add("size", (f"d{i}",), ("a", "b", "c", "d")) for i in range(len(COST))]
    for a, b in itertools.pairwise(variables):
        builder.table2("differ", a, b, lambda v, w: v != w, share="differ")
    builder.table3("spread", *variables[::2], lambda u, v, w: u + v + w >= 4)
    return bare_space(builder.freeze())


def bound(candidate: Candidate) -> float:
    possible = (candidate.domains[:, None] >> np.arange(4, dtype=np.uint32) & 1).astype(bool)
    return float(10.0 + np.where(possible, COST, np.inf).min(axis=1).sum())


def first_open(candidate: Candidate) -> int:
    return int(candidate.open_choices()[0])


def count_and_best(candidate: Candidate) -> tuple[int, float]:
    if candidate.is_complete:
        return 1, bound(candidate)
    n_leaves, best_ns = 0, np.inf
    for _, child in candidate.expand(first_open(candidate)):
        if isinstance(child, Candidate):
            n, time_ns = count_and_best(child)
            n_leaves, best_ns = n_leaves + n, min(best_ns, time_ns)
    return n_leaves, best_ns


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_finds_the_best(strategy: str) -> None:
    space = small_space()
    root = space.root()
    assert isinstance(root, Candidate)

    def evaluate(candidates: list[Candidate]) -> list[Outcome]:
        return [Outcome("ok", bound(c)) for c in candidates]

    def names(choice: int, value: int) -> tuple[str, str]:
        return space.choices[choice].name, space.choices[choice].values[value]

    *_, last = searched(
        root,
        bound=lambda c: 0.8 * bound(c),
        evaluate=evaluate,
        next_choice=first_open,
        strategy=strategy,
        budget=Budget(clock=lambda: 0.0),
        rng=np.random.default_rng(0),
        names=names,
    )
    assert isinstance(last, Finished)
    assert last.best is not None
    assert last.best.time_ns == count_and_best(root)[1]
    assert last.status == ("exhausted" if strategy == "random" else "optimal")


@pytest.mark.parametrize("estimator", [estimate_knuth, estimate_chen])
def test_estimates_its_size(estimator: object) -> None:
    root = small_space().root()
    assert isinstance(root, Candidate)
    found = estimator(root, next_choice=first_open, rng=np.random.default_rng(0), n_descents=500)  # type: ignore[operator]
    assert found.n_leaves.mean == pytest.approx(count_and_best(root)[0], rel=0.1)
