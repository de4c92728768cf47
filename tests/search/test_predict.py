"""Predictions: factors are found again, and nothing is fitted to little."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.predict import (
    FACTORS,
    LEAST,
    NO_FACTORS,
    Predictor,
    fitted,
    predicted,
)
from kernelscape.space.candidate import Candidate
from kernelscape.testing.machines import library_space, root_of, round_target


def drawn(n: int) -> tuple[Predictor, list[Candidate]]:
    space = library_space("gesummv", round_target(loads_per_ns=10.0), m=1024, n=1024)
    rng = np.random.default_rng(4)
    made = (root_of(space).random_completion(rng) for _ in range(n))
    return Predictor(Bounder(space)), [c for c in made if isinstance(c, Candidate)]


def test_factors_of_a_machine_are_found_again() -> None:
    """Kind: a prediction that ranks by the wrong resource. A machine that is slow in one of them must show."""
    rng = np.random.default_rng(3)
    parts = np.exp(rng.uniform(3.0, 9.0, (400, len(FACTORS))))
    wanted = np.array([3.0, 1.5, 2.0, 1.2, 4.0, 2.0, 8.0, 5.0, 1.5, 9.0, 3.0])
    times_ns = predicted(parts, wanted) * np.exp(rng.normal(0.0, 0.05, 400))
    half = fitted(parts[::2], times_ns[::2])
    assert half == pytest.approx(wanted, rel=0.15)
    foreseen = predicted(parts[1::2], np.array(half))
    assert np.median(np.abs(np.log(foreseen / times_ns[1::2]))) < 0.06


def test_resources_that_were_not_busy_keep_their_factor() -> None:
    parts = np.zeros((50, len(FACTORS)))
    parts[:, 0] = np.linspace(1e3, 1e5, 50)
    found = fitted(parts, 2.0 * parts[:, 0])
    assert found[0] == pytest.approx(2.0, rel=0.05)
    assert found[1:] == pytest.approx(NO_FACTORS[1:])


def test_nothing_is_fitted_to_little() -> None:
    parts = np.ones((LEAST - 1, len(FACTORS)))
    assert fitted(parts, 5.0 * parts[:, 0]) == NO_FACTORS


def test_a_prediction_is_never_below_the_largest_resource() -> None:
    predictor, candidates = drawn(20)
    for c in candidates:
        most = max(ns for _, ns in predictor.bounder.bound(c).terms)
        assert predictor.ns(c) >= most * (1 - 1e-9)
