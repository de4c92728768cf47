"""The rules of measuring, by a clock that is told what to say."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, cycle

import pytest
from kernelscape.runtime.api.outcome import Protocol
from kernelscape.runtime.measure.timing import (
    Sampler,
    in_pairs,
    interleave,
    measure,
    waited_ns,
)


class Clock:
    """A candidate of `call_ns`, times a repeating pattern of disturbances."""

    def __init__(self, call_ns, pattern=(1.0,), waits=(0,)):
        self.call_ns, self.n_runs = call_ns, 0
        self._pattern, self._waits, self.waited = cycle(pattern), cycle(waits), 0

    def run(self, n):
        self.n_runs += 1
        self.waited += next(self._waits)
        return n * self.call_ns * next(self._pattern)

    def sampler(self):
        return Sampler(self.run, waited_ns=lambda: self.waited)


def test_steady_candidate_needs_the_fewest_samples():
    m = measure(Clock(1000.0).sampler(), Protocol(min_samples=5))
    assert (m.time_ns, m.spread, m.n_samples, m.disturbed) == (1000.0, 0.0, 5, 0)


def test_calls_fill_a_sample():
    for call_ns in (3.0, 1e3, 9e5, 1e9):
        m = measure(Clock(call_ns).sampler(), Protocol(sample_ns=1e6))
        assert m.n_calls == 1 or 0.5e6 <= m.n_calls * call_ns <= 2e6


def test_a_clock_that_stands_still_ends():
    assert measure(Clock(1e-9).sampler(), Protocol()).n_calls == 1 << 20


def test_noise_takes_samples_until_the_limit():
    m = measure(Clock(1e5, (1.0, 1.5, 1.2)).sampler(), Protocol(max_samples=20, budget_ns=1e12))
    assert m.n_samples == 20
    assert m.spread > 0.05


def test_budget_ends_a_noisy_candidate():
    m = measure(Clock(1e8, (1.0, 1.5)).sampler(), Protocol(budget_ns=1e8))
    assert m.n_samples == 3


def test_hopeless_candidate_stops_at_once():
    m = measure(Clock(1000.0).sampler(), Protocol(cut_ns=100.0))
    assert m.stopped_early
    assert m.n_samples == 1


def test_slower_candidate_stops_after_a_few():
    m = measure(Clock(150.0, (1.0, 1.2)).sampler(), Protocol(cut_ns=100.0))
    assert m.stopped_early
    assert m.n_samples == 3


def test_disturbed_samples_are_thrown_away_but_not_for_ever():
    clock = Clock(1e6, pattern=(1.0, 3.0), waits=(0, 10**6))
    m = measure(clock.sampler(), Protocol(max_disturbed=100))
    assert (m.time_ns, m.n_samples) == (1e6, 5)
    assert m.disturbed >= 4
    clock = Clock(1e6, pattern=(1.0, 3.0, 2.0), waits=(10**5, 10**6, 2 * 10**5))
    m = measure(clock.sampler(), Protocol(max_disturbed=6))
    assert (m.n_samples, m.disturbed) == (3, 6)
    assert m.min_ns == 1e6


def test_hopeless_candidate_is_known_though_disturbed():
    m = measure(Clock(1e6, waits=(10**5,)).sampler(), Protocol(cut_ns=1e5))
    assert m.stopped_early
    assert m.n_samples == 1


def test_in_place_values_limit_the_calls():
    calls = 0

    def run(n):
        nonlocal calls
        calls += n
        return n * 10.0

    def restore():
        nonlocal calls
        calls = 1

    m = measure(Sampler(run, restore, lambda: calls > 100), Protocol())
    assert 1 <= m.n_calls < 100


def test_interleaved_candidates_meet_the_same_disturbance():
    order = []

    def recorder(name):
        def run(n):
            order.append(name)
            return n * 1e6

        return Sampler(run)

    measured = interleave([recorder("a"), recorder("b")], Protocol(min_samples=4))
    assert [m.time_ns for m in measured] == [1e6, 1e6]
    assert "".join(order[2:18]) == "aabbbbaaaabbbbaa"  # each sample is the second of two calls


def test_of_candidates_in_turn_the_state_of_the_machine_is_taken_off():
    """One is disturbed when memory is fast: by plain medians it would be the slowest of three, and it is the fastest."""
    slowness = [1.0, 2.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 1.0]
    turns = [[100.0 * s, 98.0 * s, 99.0 * s] for s in slowness]
    for turn in (0, 3, 5):
        turns[turn][1] = None
    plain = [sorted(x for x in column if x is not None) for column in zip(*turns, strict=True)]
    assert [x[len(x) // 2] for x in plain] == [100.0, 196.0, 99.0]
    paired = in_pairs(turns)
    assert [len(x) for x in paired] == [9, 6, 9]
    assert [max(x) / min(x) for x in paired] == pytest.approx([1, 1, 1])
    first, second, third = (x[0] for x in paired)
    assert second / first == pytest.approx(0.98)
    assert third / first == pytest.approx(0.99)


def test_several_are_measured_as_pairs_and_one_is_not():
    """The machine is half as fast in every second turn: what each takes is sure all the same."""
    clocks = [Clock(ns * 1e6, (1.0, 1.0, 2.0, 2.0)) for ns in (3.0, 4.0)]
    made = [Sampler(clock.run, restore=lambda: None) for clock in clocks]
    first, second = interleave(made, Protocol(min_samples=12, target_spread=0.0))
    assert first.spread > 0.2 and first.paired_spread == second.paired_spread == 0.0
    assert second.paired_ns / first.paired_ns == pytest.approx(4 / 3)
    (alone,) = interleave([Clock(3e6).sampler()], Protocol())
    assert alone.paired_ns is None


def test_of_candidates_in_turn_what_differs_between_them_stays():
    slow_now_and_then = [[10.0 + (turn % 4 == 0), 20.0 + turn % 2, 30.0] for turn in range(12)]
    first, second, third = in_pairs(slow_now_and_then)
    assert sorted(first)[6] == 10.0 and sorted(third)[6] == 30.0
    assert 20.0 <= sorted(second)[6] <= 21.0
    assert in_pairs([[1.0, None, None], [None, 2.0, None]]) == [[], [], []]


def test_what_another_candidate_left_in_the_caches_is_not_measured():
    last = []

    def candidate(name):
        def run(n):
            ns = n * 5e6 + (2e6 if last and last[-1] != name else 0.0)
            last.append(name)
            return ns

        return Sampler(run)

    measured = interleave([candidate("a"), candidate("b")], Protocol(min_samples=4))
    assert [m.time_ns for m in measured] == [5e6, 5e6]


def test_the_call_that_fills_a_sample_is_one():
    clock = Clock(2e8)
    m = measure(clock.sampler(), Protocol(min_samples=5, budget_ns=1.5e8))
    assert (m.n_calls, m.n_samples, clock.n_runs) == (1, 3, 3)
    clock = Clock(2e8)
    assert measure(clock.sampler(), Protocol(cut_ns=1e7)).stopped_early
    assert clock.n_runs == 1
    pair = [Clock(2e8), Clock(2e8)]
    interleave([c.sampler() for c in pair], Protocol(min_samples=5, budget_ns=1e9))
    assert pair[0].n_runs > 5  # of several, each sample is the second of two calls


def drifting(clock, most_calls):
    """A candidate whose values stay ordinary for so many calls after they are restored."""
    n_calls = 0

    def run(n):
        nonlocal n_calls
        n_calls += n
        return clock.run(n)

    def restore():
        nonlocal n_calls
        n_calls = 0

    return Sampler(run, restore, lambda: n_calls > most_calls)


@pytest.mark.parametrize(
    ("call_ns", "most_calls", "n_tries"),
    [
        (1e3, 0, 1),
        (1e3, 1, 5),  # of 1, 8, 4, 2 and 1 calls
        (1e8, 0, 0),  # as long as a sample: whatever the values are, later ones are no better
    ],
)
def test_one_call_that_is_no_sample_is_only_tried(call_ns, most_calls, n_tries):
    clock = Clock(call_ns)
    m = measure(drifting(clock, most_calls), Protocol(min_samples=5, budget_ns=1e12))
    assert (m.n_calls, m.n_samples, clock.n_runs) == (1, 5, n_tries + 5)


def test_a_first_short_call_gives_no_candidate_up():
    """It may be many times as long as the others, and where values drift at once no sample has more than one call."""
    clock = Clock(1e3, (100.0, *[1.0] * 100))
    m = measure(drifting(clock, 0), Protocol(cut_ns=1e3))
    assert not m.stopped_early
    assert (m.time_ns, m.n_calls) == (1e3, 1)


def test_a_disturbed_call_that_is_surely_long_is_not_tried_again():
    clock = Clock(2e8, waits=(10**8,))
    m = measure(clock.sampler(), Protocol(budget_ns=1e8))
    assert (clock.n_runs, m.disturbed, m.n_samples) == (3, 3, 3)  # the least disturbed count


@pytest.mark.parametrize(
    ("cut_ns", "run_ns", "is_hopeless"),
    [
        (None, 1e12, False),
        (1e5, 1.9e7, False),
        (1e5, 2.1e7, True),
        (5e7, 1.6e8, False),
        (5e7, 1.8e8, True),
        (1e8, 2.1e8, False),  # twice the time to beat, where that is long
        (1e8, 2.3e8, True),
    ],
)
def test_a_first_run_tells_what_is_hopeless(cut_ns, run_ns, is_hopeless):
    assert Protocol(cut_ns=cut_ns).is_hopeless(run_ns) == is_hopeless


@pytest.mark.parametrize(("cut_ns", "n_samples"), [(1e7, 3), (2e8, 1)])
def test_one_long_call_tells_that_a_candidate_is_slow(cut_ns, n_samples):
    """A candidate that takes 2.5 times as long as the best; near ones get all their samples."""
    m = measure(Clock(2.5 * cut_ns).sampler(), Protocol(cut_ns=cut_ns))
    assert (m.stopped_early, m.n_samples) == (True, n_samples)
    near = measure(Clock(1.2 * cut_ns).sampler(), Protocol(cut_ns=cut_ns))
    assert not near.stopped_early and near.n_samples >= 3


def test_waiting_never_shrinks():
    before = waited_ns()
    assert 0 <= before <= waited_ns()


def test_a_slow_candidate_that_is_always_disturbed_is_given_up():
    slow = Clock(1e7, (1.5, 1.4, 1.7), waits=(10**8,))
    m = measure(slow.sampler(), Protocol(cut_ns=2e6, budget_ns=1e12))
    assert m.stopped_early
    assert m.n_samples == 1
    assert m.time_ns == 1.4e7
    near = measure(Clock(5e6, waits=(10**8,)).sampler(), Protocol(cut_ns=2e6, budget_ns=1e12))
    assert not near.stopped_early


def test_beside_other_work_a_ratio_is_sure_where_times_are_not():
    """Both are always disturbed, by what lasts for a few samples: alone, times are two to four times what they should be."""
    load = cycle((4.0, 4.0, 2.0, 2.0, 3.0, 3.0, 2.5, 2.5))

    def busy(call_ns):
        clock = Clock(call_ns, waits=(10**7,))
        plain = clock.run
        clock.run = lambda n: plain(n) * next(load)
        return clock

    protocol = Protocol(budget_ns=1e12)
    alone = measure(busy(8e6).sampler(), protocol)
    assert alone.time_ns > 1.5 * 8e6 and alone.disturbed >= protocol.max_disturbed
    made = [
        Sampler(c.run, restore=lambda: None, waited_ns=lambda c=c: c.waited)
        for c in (busy(10e6), busy(8e6))
    ]
    control, found = interleave(made, replace(protocol, control_ns=10e6))
    assert control.time_ns == 10e6
    assert found.time_ns == pytest.approx(8e6, rel=0.05)
    assert found.ratio == pytest.approx(0.8, rel=0.05)
    assert found.n_samples < alone.disturbed
    assert found.is_disturbed


def test_beside_a_control_a_slow_candidate_is_given_up():
    pair = [Clock(1e6).sampler(), Clock(5e6).sampler()]
    _, found = interleave(pair, Protocol(cut_ns=1e6, control_ns=1e6))
    assert found.stopped_early
    assert (found.n_samples, found.time_ns) == (3, 5e6)


def test_where_most_samples_of_turns_are_disturbed_their_ratios_count():
    """The kind: samples that are thrown away although what stands beside them says how slow the machine was."""
    load = cycle((1.0, 1.0, 5.0, 5.0))
    clocks = [Clock(ns * 1e6, waits=(10**9,)) for ns in (3.0, 4.0)]

    def run(clock):
        return lambda n: Clock.run(clock, n) * next(load)

    made = [Sampler(run(c), restore=lambda: None, waited_ns=lambda c=c: c.waited) for c in clocks]
    first, second = interleave(made, Protocol(min_samples=8, max_disturbed=8))
    assert second.paired_ns / first.paired_ns == pytest.approx(4 / 3)


def test_a_ratio_that_would_be_the_best_is_not_so_by_chance():
    """The kind: the least of many noisy numbers. In the first pairs the control is disturbed, and the candidate seems fast."""
    n_runs = count()

    def run_control(n):
        k = next(n_runs)
        return n * 1e8 * (3.0 if k < 4 else 1.0)

    pair = [Sampler(run_control), Clock(1e8).sampler()]
    protocol = Protocol(control_ns=1e8, claims_below_ns=9e7, budget_ns=1.0)
    _, found = interleave(pair, protocol)
    assert found.n_samples == 7  # the median is that of an undisturbed pair
    assert found.ratio == 1.0
    pair = [Clock(1e8).sampler(), Clock(1e8).sampler()]
    _, slower = interleave(pair, protocol)
    assert slower.n_samples == 3


def test_pairs_of_seconds_take_no_whole_search():
    """The kind: a program that takes seconds, of which one candidate was measured in a minute."""
    control, candidate = Clock(2e9), Clock(1e9)
    protocol = Protocol(control_ns=2e9, claims_below_ns=2e9)
    _, found = interleave([control.sampler(), candidate.sampler()], protocol)
    assert (found.ratio, found.n_samples) == (0.5, 3)
    assert control.n_runs <= 4 and candidate.n_runs <= 4


def test_a_ratio_is_no_smaller_than_that_of_the_least_samples():
    """The kind: other work that meets the control alone makes an equal candidate eight times as fast."""
    load = cycle((8.0, 9.0, 3.0, 8.0, 1.0, 20.0, 7.0))
    pair = [Sampler(lambda n: n * 1e8 * next(load)), Clock(1e8).sampler()]
    protocol = Protocol(control_ns=1e8, claims_below_ns=9e7, budget_ns=1.0)
    _, found = interleave(pair, protocol)
    assert found.ratio == 1.0 and found.time_ns == 1e8


def test_a_long_call_is_tried_once_however_it_was_disturbed():
    clock = Clock(1e8, waits=(10**9,))
    measure(clock.sampler(), Protocol(budget_ns=1.0))
    assert clock.n_runs == 3
