"""Knuth's estimator of the size of a space, from random descents (Telamon, section 5.3).

It estimates, without bias, the number of leaves of the tree in which `next_choice` decides the
order: complete candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...space.candidate import DeadEnd
from ..candidate import SearchCandidate

NORMAL_95 = 1.96


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % confidence interval (normal approximation, cut off at zero)."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class SpaceEstimate:
    """Estimate of a space: its number of leaves (implementations), from `n_descents` uniform random descents.

    `dead_end_share`: share of descents that end in a dead end. `mean_depth`: mean number of
    decisions per descent.
    """

    method: str
    n_descents: int
    n_leaves: Interval
    dead_end_share: Interval
    mean_depth: float


def estimate_knuth(
    root: SearchCandidate,
    *,
    next_choice: Callable[[SearchCandidate], int],
    rng: np.random.Generator,
    n_descents: int = 1000,
    keep: Callable[[SearchCandidate], bool] | None = None,
) -> SpaceEstimate:
    """Returns an estimate of a space's size: the mean product of branching factors along random descents (Knuth 1975).

    The product is zero if a descent ends in a dead end. `keep`: candidates for which it is False
    are left out, for instance those whose bound exceeds a cut.
    """
    products = np.empty(n_descents)
    n_dead = 0
    depth = 0
    for descent in range(n_descents):
        at, product = root, 1.0
        while not at.is_complete:
            live = live_children(at, next_choice(at), keep)
            product *= len(live)
            if not live:
                n_dead += 1
                break
            depth += 1
            at = live[int(rng.random() * len(live))]
        products[descent] = product
    return SpaceEstimate(
        "knuth", n_descents, interval(products), _share(n_dead, n_descents), depth / n_descents
    )


def live_children(
    candidate: SearchCandidate,
    choice: int,
    keep: Callable[[SearchCandidate], bool] | None,
) -> list[SearchCandidate]:
    """Returns the children of a candidate by one choice, without dead ends, and without those for which `keep` is False."""
    return [
        child
        for _, child in candidate.expand(choice)
        if not isinstance(child, DeadEnd) and (keep is None or keep(child))
    ]


def interval(samples: np.ndarray) -> Interval:
    """Returns the mean of independent samples with its confidence interval. No sample is below zero."""
    mean = float(samples.mean())
    error = float(samples.std(ddof=1)) / math.sqrt(len(samples)) if len(samples) > 1 else mean
    return Interval(mean, max(0.0, mean - NORMAL_95 * error), mean + NORMAL_95 * error)


def _share(hits: int, n: int) -> Interval:
    """Returns Wilson's confidence interval of the share `hits` / `n`, which does not collapse at shares of zero and one."""
    z2 = NORMAL_95**2
    share = hits / n
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = NORMAL_95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return Interval(share, max(0.0, middle - half), min(1.0, middle + half))
