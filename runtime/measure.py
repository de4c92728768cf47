"""Adaptive timing: how many calls make a sample, how many samples make a measurement.

Nothing here knows what is timed: a `Sampler` gives the clock, so that the rules can be tested
without one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from .outcome import Measurement, Protocol

_MAX_CALLS = 1 << 20


@dataclass(frozen=True)
class Sampler:
    """What the rules need from a candidate.

    `run(n)` calls it n times and returns the nanoseconds of all n. `restore()`, where the
    sequence updates arrays in place, brings back their first contents and makes one call, outside
    any timed window. `drifted()` says whether repeated calls have driven values to infinity, NaN
    or denormals (denormals slow the arithmetic itself). `waited_ns()` is the time that this
    process's threads have spent waiting for a core so far.
    """

    run: Callable[[int], float]
    restore: Callable[[], None] | None = None
    drifted: Callable[[], bool] | None = None
    waited_ns: Callable[[], int] | None = None


class Series:
    """The samples of one candidate, taken one at a time so that several candidates can be
    interleaved.
    """

    def __init__(self, sampler: Sampler, protocol: Protocol) -> None:
        self._sampler = sampler
        self._protocol = protocol
        self._times: list[float] = []
        self._spent_ns = 0.0
        self._disturbed = 0
        self._stopped_early = False
        self._n_calls = self._choose_calls()

    @property
    def is_finished(self) -> bool:
        """Whether the protocol asks for no more samples."""
        p, times = self._protocol, self._times
        if not times:
            return False
        if self._stopped_early or len(times) >= p.max_samples:
            return True
        if len(times) >= p.min_samples and _spread(times) <= p.target_spread:
            return True
        # Three samples are the least that a median and a spread mean anything for.
        return self._spent_ns >= p.budget_ns and len(times) >= min(3, p.min_samples)

    def step(self) -> None:
        """Take one sample; a disturbed one is thrown away while the bound on discards allows it."""
        elapsed_ns, disturbed = self._sample()
        self._spent_ns += elapsed_ns
        if disturbed:
            self._disturbed += 1
            if self._disturbed <= self._protocol.max_disturbed:
                return
        self._times.append(elapsed_ns / self._n_calls)
        self._stopped_early = self._is_hopeless()

    def result(self) -> Measurement:
        """The measurement so far; at least one sample must have been kept."""
        assert self._times
        return Measurement(
            time_ns=median(self._times),
            spread=_spread(self._times),
            min_ns=min(self._times),
            n_samples=len(self._times),
            n_calls=self._n_calls,
            disturbed=self._disturbed,
            stopped_early=self._stopped_early,
        )

    def _is_hopeless(self) -> bool:
        p = self._protocol
        if p.cut_ns is None:
            return False
        fastest_ns = min(self._times)
        if fastest_ns > p.first_factor * p.cut_ns:
            return True
        return len(self._times) > p.min_samples // 2 and fastest_ns > p.later_factor * p.cut_ns

    def _sample(self) -> tuple[float, bool]:
        s = self._sampler
        if s.restore is not None:
            s.restore()
        if s.waited_ns is None:
            return s.run(self._n_calls), False
        before_ns = s.waited_ns()
        elapsed_ns = s.run(self._n_calls)
        return elapsed_ns, s.waited_ns() - before_ns > 0.01 * elapsed_ns

    def _choose_calls(self) -> int:
        """Double the calls until a sample is long enough; halve them while in-place values do not
        stay ordinary.
        """
        s, goal_ns = self._sampler, self._protocol.sample_ns
        n_calls = 1
        while True:
            elapsed_ns = self._try(n_calls)
            if s.drifted is not None and s.drifted():
                break
            if elapsed_ns >= 0.7 * goal_ns or n_calls >= _MAX_CALLS:
                return n_calls
            growth = min(8.0, max(2.0, goal_ns / max(elapsed_ns, 1.0)))
            n_calls = min(_MAX_CALLS, int(n_calls * growth))
        while n_calls > 1 and s.drifted():
            n_calls //= 2
            self._try(n_calls)
        return n_calls

    def _try(self, n_calls: int) -> float:
        if self._sampler.restore is not None:
            self._sampler.restore()
        return self._sampler.run(n_calls)


def measure(sampler: Sampler, protocol: Protocol) -> Measurement:
    """Time one candidate until its spread is small, it is clearly slower than the cut, or its
    budget is spent.
    """
    series = Series(sampler, protocol)
    while not series.is_finished:
        series.step()
    return series.result()


def interleave(samplers: Sequence[Sampler], protocol: Protocol) -> list[Measurement]:
    """Time several candidates sample by sample in turn, so that a change of the machine's state
    meets all of them.

    The order rotates from round to round; all take part until every one is finished or has the
    most samples.
    """
    series = [Series(s, protocol) for s in samplers]
    for turn in range(protocol.max_samples + protocol.max_disturbed):
        if all(s.is_finished for s in series):
            break
        k = turn % max(1, len(series))
        for s in series[k:] + series[:k]:
            s.step()
    return [s.result() for s in series]


def waited_ns() -> int:
    """Nanoseconds that the threads of this process have been ready to run but were not running
    (Linux; 0 elsewhere).
    """
    total = 0
    try:
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/schedstat", "rb", buffering=0) as f:
                total += int(f.read(128).split()[1])
    except (OSError, IndexError, ValueError):
        return total
    return total


def _spread(times: Sequence[float]) -> float:
    if len(times) < 2:
        return 0.0
    q1, _, q3 = quantiles(times, n=4, method="inclusive")
    return (q3 - q1) / 2 / median(times)
