"""Selection policies, which pick a child in a descent from the statistics of all siblings."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np


class Arm(Protocol):
    """Statistics of one child as a policy reads them; `Node` provides them.

    Times are in ns, ascending; logs are of ns.

    Times are in ns, ascending; logs are of times in ns.
    """

    @property
    def visits(self) -> int: ...
    @property
    def n_in_flight(self) -> int: ...
    @property
    def times(self) -> Sequence[float]: ...
    @property
    def bound_ns(self) -> float: ...
    @property
    def n_ok(self) -> int: ...
    @property
    def log_sum(self) -> float: ...
    @property
    def log_min(self) -> float: ...
    @property
    def log_max(self) -> float: ...


class AbstractPolicy(ABC):
    """Interface of a policy that picks one of the live children of a node."""

    @abstractmethod
    def select(
        self,
        arms: Sequence[Arm],
        live: Sequence[int],
        cut_ns: float,
        rng: np.random.Generator,
    ) -> int:
        """Returns an element of `live`, the non-empty list of positions of live children in `arms`.

        `arms`: all children, closed ones included. `cut_ns`: on the scale of the bounds of the
        arms; every live bound is below it.
        """


def pick_by_bound(
    bounds_ns: Sequence[float],
    cut_ns: float,
    rng: np.random.Generator,
    odds: Sequence[float] | None = None,
) -> int:
    """Returns an index drawn with probability ~ max(cut - bound, 0), or ~ 1 / bound without a cut, times `odds`.

    Source: Telamon, section 5.1. Uniform if all weights are zero, so that an index is always drawn.
    """
    n = len(bounds_ns)
    if n == 1:
        return 0
    if cut_ns < math.inf:
        weights = [cut_ns - b if b < cut_ns else 0.0 for b in bounds_ns]
    else:
        floor_ns = max(bounds_ns) * 1e-3  # a bound of zero shall win, not take all
        weights = [1.0 / (b if b > floor_ns else floor_ns) if floor_ns else 1.0 for b in bounds_ns]
    if odds is not None:
        weights = [w * o for w, o in zip(weights, odds, strict=True)]
    total = sum(weights)
    if not total > 0.0:
        return int(rng.random() * n)
    at = rng.random() * total
    last = 0
    for index, weight in enumerate(weights):
        if weight > 0.0:
            last = index
            at -= weight
            if at < 0.0:
                return index
    return last


def threshold_ascent_score(s: int, n: int, total: int, live: int, delta: float) -> float:
    """Returns (s + a + sqrt(2 s a + a^2)) / n with a = ln(2 N K / d) >= 0.

    Source: Streeter and Smith 2006; Telamon section 5.1. `s` of the `n` visits of this child gave a
    time at or below the threshold; `total` = N visits of all `live` = K children; `delta` = d.
    """
    a = max(0.0, math.log(2.0 * total * live / delta))
    return (s + a + math.sqrt(2.0 * s * a + a * a)) / n


class ThresholdAscent(AbstractPolicy):
    """Threshold Ascent on Graph: a bandit for the best of all draws, not for the best mean.

    The threshold is the `topk`-th best time over all children, closed ones too; only live children
    count in K and N.
    """

    def __init__(self, topk: int = 10, delta: float = 1.0) -> None:
        self._topk = topk
        self._delta = delta

    def select(
        self, arms: Sequence[Arm], live: Sequence[int], cut_ns: float, rng: np.random.Generator
    ) -> int:
        fresh = _unvisited(arms, live, cut_ns, rng)
        if fresh is not None:
            return fresh
        times = sorted(t for arm in arms for t in arm.times[: self._topk])
        threshold_ns = times[self._topk - 1] if len(times) >= self._topk else math.inf
        total = sum(_weight(arms[index]) for index in live)

        def score(index: int) -> float:
            arm = arms[index]
            s = min(self._topk, bisect_right(arm.times, threshold_ns))
            return threshold_ascent_score(s, _weight(arm), total, len(live), self._delta)

        return max(live, key=score)


class Uct(AbstractPolicy):
    """Upper confidence bounds on the mean log speed, normalised to [0, 1] over the siblings; a failure counts 0."""

    def __init__(self, exploration: float = math.sqrt(2.0)) -> None:
        self._exploration = exploration

    def select(
        self, arms: Sequence[Arm], live: Sequence[int], cut_ns: float, rng: np.random.Generator
    ) -> int:
        fresh = _unvisited(arms, live, cut_ns, rng)
        if fresh is not None:
            return fresh
        slowest = max(arm.log_max for arm in arms)
        span = slowest - min(arm.log_min for arm in arms)
        log_total = math.log(sum(_weight(arms[index]) for index in live))

        def score(index: int) -> float:
            arm = arms[index]
            reward = 0.0
            if arm.n_ok:
                speed = (arm.n_ok * slowest - arm.log_sum) / span if span > 0 else arm.n_ok
                reward = speed / _weight(arm)
            return reward + self._exploration * math.sqrt(log_total / _weight(arm))

        return max(live, key=score)


class ByBound(AbstractPolicy):
    """Policy: picks live children with probability ~ max(cut - bound, 0)."""

    def select(
        self, arms: Sequence[Arm], live: Sequence[int], cut_ns: float, rng: np.random.Generator
    ) -> int:
        return live[pick_by_bound([arms[index].bound_ns for index in live], cut_ns, rng)]


class Uniform(AbstractPolicy):
    """Policy: picks every live child with the same probability."""

    def select(
        self, arms: Sequence[Arm], live: Sequence[int], cut_ns: float, rng: np.random.Generator
    ) -> int:
        return live[int(rng.random() * len(live))]


def _weight(arm: Arm) -> int:
    """Returns the visits of an arm, plus a virtual loss for each candidate in flight below it."""
    return arm.visits + arm.n_in_flight


def _unvisited(
    arms: Sequence[Arm], live: Sequence[int], cut_ns: float, rng: np.random.Generator
) -> int | None:
    fresh = [index for index in live if not arms[index].visits]
    if not fresh:
        return None
    return fresh[pick_by_bound([arms[index].bound_ns for index in fresh], cut_ns, rng)]


POLICIES: dict[str, Callable[[], AbstractPolicy]] = {
    "threshold_ascent": ThresholdAscent,
    "uct": Uct,
    "by_bound": ByBound,
    "uniform": Uniform,
}
