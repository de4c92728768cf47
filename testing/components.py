"""Kernels of sequences of several components, and candidates that differ in one of these."""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

import numpy as np

from ..kernels.frontend.kernel import kernel, types
from ..space.candidate import Candidate
from ..space.components import components_of
from .checking import random_candidate


@kernel
def scale(x: types.ndarray(), y: types.ndarray()) -> None:
    for i in range(x.shape[0]):
        y[i] = 0.5 * x[i] + 1.0


@kernel
def turn(x: types.ndarray(), y: types.ndarray()) -> None:
    for i in range(x.shape[0]):
        y[i] = 0.25 * x[x.shape[0] - 1 - i]


@kernel
def add_up(x: types.ndarray(), s: types.ndarray()) -> None:
    for i in range(x.shape[0]):
        s[0] += x[i]


def two_candidates(root: Candidate) -> tuple[Candidate, Candidate]:
    """Returns two random completions."""
    rng = np.random.default_rng(3)
    first, other = random_candidate(root, rng), random_candidate(root, rng)
    assert isinstance(first, Candidate)
    assert isinstance(other, Candidate)
    return first, other


def exchanged(first: Candidate, other: Candidate, component: int) -> Candidate:
    """Returns the first candidate with the decisions of the other about one component."""
    domains = first.domains.copy()
    choices = list(components_of(first.space)[component].choices)
    domains[choices] = other.domains[choices]
    found = first.space.candidate(domains)
    assert isinstance(found, Candidate)
    return found
