"""Policies: the formula by hand, and what every policy must do."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from kernelscape.search.node import Node
from kernelscape.search.tree.policies import POLICIES, pick_by_bound, threshold_ascent_score


@dataclass
class PlainArm:
    visits: int = 0
    times: tuple[float, ...] = ()
    bound_ns: float = 1.0
    n_in_flight: int = 0

    @property
    def n_ok(self) -> int:
        return len(self.times)

    @property
    def log_sum(self) -> float:
        return sum(map(math.log, self.times))

    @property
    def log_min(self) -> float:
        return min(map(math.log, self.times), default=math.inf)

    @property
    def log_max(self) -> float:
        return max(map(math.log, self.times), default=-math.inf)


@pytest.mark.parametrize(
    ("s", "n", "total", "live", "delta", "score"),
    [
        # a = ln(2 N K / d)
        (0, 1, 1, 1, 2.0, 0.0),  # a = ln 1 = 0
        (3, 4, 1, 1, 2.0, 0.75),  # a = 0: the plain share
        (3, 4, 1, 1, 8.0, 0.75),  # ln < 0 counts as 0
        (0, 5, 5, 2, 1.0, 2 * math.log(20) / 5),  # s = 0: 2 a / n
        (
            2,
            10,
            10,
            3,
            1.0,
            (2 + math.log(60) + math.sqrt(4 * math.log(60) + math.log(60) ** 2)) / 10,
        ),
        (10, 20, 100, 4, 1.0, 1.5020185),
    ],
)
def test_threshold_ascent_formula(
    s: int, n: int, total: int, live: int, delta: float, score: float
) -> None:
    assert threshold_ascent_score(s, n, total, live, delta) == pytest.approx(score, rel=1e-6)


class TestThresholdAscent:
    policy = POLICIES["threshold_ascent"]()

    def test_follows_the_best_times_not_the_mean(self) -> None:
        often_good = PlainArm(40, tuple([100.0] * 10))
        rarely_great = PlainArm(40, (*[50.0] * 6, *[900.0] * 4))
        rng = np.random.default_rng(0)
        arms = [often_good, rarely_great]
        # The tenth best of both is 100, so all of the first and six of the second count.
        assert self.policy.select(arms, [0, 1], math.inf, rng) == 0
        arms = [PlainArm(40, tuple([100.0] * 10)), PlainArm(40, tuple([99.0] * 10))]
        assert self.policy.select(arms, [0, 1], math.inf, rng) == 1

    def test_closed_arms_set_the_threshold_but_are_not_taken(self) -> None:
        closed = PlainArm(10, tuple([10.0] * 10))
        arms = [closed, PlainArm(9, (20.0,) * 9), PlainArm(10, ())]
        # Nothing live is at the threshold of 10, so the fewest visits win.
        assert self.policy.select(arms, [1, 2], math.inf, np.random.default_rng(0)) == 1


@pytest.mark.parametrize("name", sorted(POLICIES))
class TestEveryPolicy:
    def test_takes_only_what_is_live(self, name: str) -> None:
        policy = POLICIES[name]()
        rng = np.random.default_rng(0)
        arms = [
            PlainArm(int(v), tuple(sorted(rng.random(int(v)) + 1)), float(b))
            for v, b in zip(rng.integers(0, 9, 12), rng.random(12), strict=True)
        ]
        for live in ([0], [11], [3, 7], [1, 2, 5, 8]):
            for cut_ns in (math.inf, 2.0):
                assert policy.select(arms, live, cut_ns, rng) in live

    def test_without_a_single_time(self, name: str) -> None:
        policy = POLICIES[name]()
        arms = [PlainArm(2), PlainArm(1), PlainArm(3)]
        assert policy.select(arms, [0, 2], math.inf, np.random.default_rng(0)) in (0, 2)

    def test_repeats_with_the_seed(self, name: str) -> None:
        arms = [PlainArm(0, (), 1.0), PlainArm(0, (), 2.0), PlainArm(0, (), 3.0)]
        picks = [
            [POLICIES[name]().select(arms, [0, 1, 2], 4.0, rng) for _ in range(20)]
            for rng in (np.random.default_rng(5), np.random.default_rng(5))
        ]
        assert picks[0] == picks[1]


class TestPickByBound:
    def test_probability_is_the_distance_to_the_cut(self) -> None:
        rng = np.random.default_rng(1)
        picks = [pick_by_bound([10.0, 40.0, 50.0, 70.0], 50.0, rng) for _ in range(20_000)]
        shares = np.bincount(picks, minlength=4) / len(picks)
        assert shares == pytest.approx([0.8, 0.2, 0.0, 0.0], abs=0.02)

    def test_odds_weigh_beside_the_bound(self) -> None:
        rng = np.random.default_rng(0)
        odds = [1.0, 2.0, 5.0]
        picks = [pick_by_bound([10.0, 40.0, 50.0], 50.0, rng, odds) for _ in range(20_000)]
        assert picks.count(0) / len(picks) == pytest.approx(40 / 60, abs=0.02)
        assert picks.count(2) == 0

    def test_before_a_cut_it_is_one_over_the_bound(self) -> None:
        rng = np.random.default_rng(1)
        picks = [pick_by_bound([1.0, 3.0], math.inf, rng) for _ in range(20_000)]
        assert np.mean(picks) == pytest.approx(0.25, abs=0.02)

    @pytest.mark.parametrize("bounds", [[0.0, 0.0], [0.0, 5.0], [5.0, 5.0], [9.0, 9.0]])
    @pytest.mark.parametrize("cut_ns", [math.inf, 5.0])
    def test_something_is_always_drawn(self, bounds: list[float], cut_ns: float) -> None:
        assert pick_by_bound(bounds, cut_ns, np.random.default_rng(0)) in (0, 1)


def test_nodes_keep_their_best_times_and_pass_them_up() -> None:
    root = Node(0, None, -1, -1, 1.0, None)
    child = Node(1, root, 0, 0, 1.0, None)
    for time_ns in (5.0, 3.0, 9.0, 1.0, 4.0):
        child.record(time_ns, 3)
    root.record(2.0, 3)
    assert child.times == [1.0, 3.0, 4.0]
    assert root.times == [1.0, 2.0, 3.0]
    assert (child.n_ok, root.n_ok) == (5, 6)
    assert child.log_max == pytest.approx(math.log(9.0))
