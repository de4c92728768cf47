"""Estimators against trees that can be counted."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.search.tree.estimate import estimate_knuth
from kernelscape.testing.estimate_chen import estimate_chen
from kernelscape.tests.search.toy import ToyCandidate, ToySpace, first_open, random_space

ESTIMATORS = {"knuth": estimate_knuth, "chen": estimate_chen}


def dead_end_share(candidate: ToyCandidate) -> float:
    """The probability that a uniform descent over live children ends dead."""
    if candidate.is_complete:
        return 0.0
    live = [c for _, c in candidate.expand(first_open(candidate)) if isinstance(c, ToyCandidate)]
    return sum(map(dead_end_share, live)) / len(live) if live else 1.0


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("seed", range(4))
def test_unbiased_on_trees_with_dead_ends(name: str, seed: int) -> None:
    space = random_space(np.random.default_rng(seed), n_choices=6, n_forbidden=10)
    estimate = ESTIMATORS[name](
        space.root(), next_choice=first_open, rng=np.random.default_rng(9), n_descents=3000
    )
    n_leaves = len(list(space.implementations()))
    # Two more half widths than 95 %, so that the fixed seed is not a lucky one.
    slack = 2 * (estimate.n_leaves.high - estimate.n_leaves.mean)
    assert estimate.n_leaves.mean == pytest.approx(n_leaves, abs=slack + 1e-9)
    assert estimate.n_leaves.mean == pytest.approx(n_leaves, rel=0.1)
    assert estimate.dead_end_share.mean == pytest.approx(dead_end_share(space.root()), abs=0.04)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_exact_on_a_regular_tree(name: str) -> None:
    space = ToySpace(((0.0, 1.0, 2.0),) * 7)
    estimate = ESTIMATORS[name](
        space.root(), next_choice=first_open, rng=np.random.default_rng(0), n_descents=5
    )
    assert estimate.n_leaves.mean == estimate.n_leaves.low == estimate.n_leaves.high == 3**7
    assert estimate.dead_end_share.mean == 0.0
    assert estimate.dead_end_share.high > 0.0
    assert estimate.mean_depth == 7


@pytest.mark.parametrize("name", ESTIMATORS)
def test_keep_counts_a_part(name: str) -> None:
    space = ToySpace(((0.0, 1.0, 2.0),) * 4)
    estimate = ESTIMATORS[name](
        space.root(),
        next_choice=first_open,
        rng=np.random.default_rng(0),
        n_descents=5,
        keep=lambda candidate: candidate.domains[0] != 0b001,
    )
    assert estimate.n_leaves.mean == 2 * 3**3
