"""Adaptive timing: chooses the number of calls per sample, and the number of samples.

The rules are independent of the timed program: a `Sampler` provides the clock, so that tests need none.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median, quantiles

from ..api.outcome import Measurement, Protocol

_MAX_CALLS = 1 << 20
_LEAST_SAMPLES = 3  # the least that a median and a spread mean anything for
_FULL = 0.7  # share of its length that makes a sample long enough
DISTURBED = 0.01  # share of a sample that its threads may wait for a core
_ENOUGH_DISTURBED = 4  # the fastest of so many disturbed samples is hardly ever ...
_DISTURBED_FACTOR = 4.0  # ... so many times as long as an undisturbed one
_ENOUGH_KEPT = 0.5  # least share of undisturbed samples: with fewer, all samples count, relative to the others of their turns
_CLAIMED_PAIRS = 11  # least pairs before a candidate counts as the best ...
_CLAIMED_NS = 4e9  # ... unless pairs are so long that these would take all the time of a search
_WIDE = 0.25  # a spread of ratios that says little of their median
_SURE = 0.01  # the spread of a median of ratios, about: their own over the root of their number


@dataclass(frozen=True)
class Sampler:
    """Timing interface of a candidate.

    `run(n)` calls it n times and returns the nanoseconds of all n. `restore()`, where the sequence updates arrays in place,
    brings back their first contents and makes one call, outside any timed window. `drifted()` is true if repeated calls have
    driven values to infinity, NaN or denormals (denormals slow the arithmetic itself). `waited_ns()` is the time that this
    process's threads have spent waiting for a core so far.
    """

    run: Callable[[int], float]
    restore: Callable[[], None] | None = None
    drifted: Callable[[], bool] | None = None
    waited_ns: Callable[[], int] | None = None


class Series:
    """The samples of one candidate, taken one at a time so that several candidates can be interleaved.

    `is_alone`: the call that determined the number of calls counts as the first sample if it was long enough. So a search spends
    less time on long calls.
    """

    def __init__(self, sampler: Sampler, protocol: Protocol, *, is_alone: bool = True) -> None:
        self._sampler = sampler
        self._protocol = protocol
        self._times: list[float] = []  # nanoseconds a call
        self._disturbed: list[tuple[float, float]] = []  # share spent waiting, nanoseconds a call
        self._spent_ns = 0.0
        self._stopped_early = False
        self.last_ns = 0.0
        """Nanoseconds a call of the last sample, disturbed or not."""
        self._last_try = (0.0, 0.0)  # nanoseconds, and how many of them its threads waited
        self._n_calls = self._choose_calls()
        # In-place values may also allow only one call. Where that is short, the first call does not represent the others.
        is_full = self._last_try[0] >= _FULL * protocol.sample_ns
        if is_alone and self._n_calls == 1 and is_full:
            self._take(*self._last_try)

    @property
    def is_finished(self) -> bool:
        """True if the protocol requires no more samples."""
        p, n_times, n_disturbed = self._protocol, len(self._times), len(self._disturbed)
        if self._stopped_early or n_times >= p.max_samples or n_disturbed >= p.max_disturbed:
            return True
        if n_times >= p.min_samples and spread(self._times) <= p.target_spread:
            return True
        # Where other work keeps disturbing, undisturbed samples are worth twice the budget more.
        if self._spent_ns >= 3 * p.budget_ns:
            return n_times + n_disturbed >= _LEAST_SAMPLES
        return self._spent_ns >= p.budget_ns and n_times >= _LEAST_SAMPLES

    @property
    def spent_ns(self) -> float:
        """Nanoseconds of all timed calls so far."""
        return self._spent_ns

    @property
    def n_calls(self) -> int:
        """Number of calls per sample."""
        return self._n_calls

    def warm(self) -> None:
        """Makes one call before a sample that follows another candidate's.

        The lines of the other candidate are still in the caches, and its written lines have yet to leave. Sequences that are
        restored make this call anyway. It counts for the budget, not for the result.
        """
        if self._sampler.restore is None:
            self._spent_ns += self._sampler.run(1)

    def step(self) -> float | None:
        """Takes one sample, in ns per call; None if other work disturbed it, so that it is set aside."""
        n_times = len(self._times)
        elapsed_ns, waited_ns = self._sample(self._n_calls)
        self.last_ns = elapsed_ns / self._n_calls
        self._take(elapsed_ns, waited_ns)
        return self._times[-1] if len(self._times) > n_times else None

    def _take(self, elapsed_ns: float, waited_ns: float) -> None:
        self._spent_ns += elapsed_ns
        call_ns = elapsed_ns / self._n_calls
        # Waiting times add up over threads, so the remainder is shorter than an undisturbed sample.
        if waited_ns <= DISTURBED * elapsed_ns:
            self._times.append(call_ns)
            self._stopped_early = self._is_hopeless(min(self._times))
        elif self._is_hopeless((elapsed_ns - waited_ns) / self._n_calls):
            self._times.append(call_ns)
            self._stopped_early = True
        else:
            self._disturbed.append((waited_ns / elapsed_ns, call_ns))
            self._stop_if_surely_slow()

    def _stop_if_surely_slow(self) -> None:
        """Ends the series of a slow candidate on a busy machine, where undisturbed samples may never come."""
        cut_ns, n_disturbed = self._protocol.cut_ns, len(self._disturbed)
        if cut_ns is None or n_disturbed < _ENOUGH_DISTURBED:
            return
        least_ns = min(t for _, t in self._disturbed)
        if least_ns > _DISTURBED_FACTOR * cut_ns:
            self._times.append(least_ns)
            self._stopped_early = True

    def result(self) -> Measurement:
        """Returns the measurement so far, from the undisturbed samples if there are enough of them."""
        n_missing = 0 if self._stopped_early else max(0, _LEAST_SAMPLES - len(self._times))
        times = self._times + [t for _, t in sorted(self._disturbed)[:n_missing]]
        return Measurement(
            time_ns=median(times),
            spread=spread(times),
            min_ns=min(times),
            n_samples=len(times),
            n_calls=self._n_calls,
            disturbed=len(self._disturbed),
            stopped_early=self._stopped_early,
            quantiles_ns=five_numbers(times),
        )

    def _is_hopeless(self, call_ns: float) -> bool:
        return _is_beyond_cut(call_ns, len(self._times), self._protocol)

    def _sample(self, n_calls: int) -> tuple[float, float]:
        """Takes a sample of `n_calls` calls. Returns its ns, and the ns in which its threads waited for a core."""
        s = self._sampler
        if s.restore is not None:
            s.restore()
        if s.waited_ns is None:
            return s.run(n_calls), 0.0
        before_ns = s.waited_ns()
        elapsed_ns = s.run(n_calls)
        return elapsed_ns, s.waited_ns() - before_ns

    def _choose_calls(self) -> int:
        """Doubles the calls until a sample is long enough; halves them while in-place values leave the normal range."""
        s, goal_ns = self._sampler, self._protocol.sample_ns
        n_calls = 1
        while True:
            elapsed_ns = self._try(n_calls)
            if s.drifted is not None and s.drifted():
                break
            if elapsed_ns >= _FULL * goal_ns or n_calls >= _MAX_CALLS:
                return n_calls
            growth = min(8.0, max(2.0, goal_ns / max(elapsed_ns, 1.0)))
            n_calls = min(_MAX_CALLS, int(n_calls * growth))
        while n_calls > 1 and s.drifted():
            n_calls //= 2
            self._try(n_calls)
        return n_calls

    def _try(self, n_calls: int) -> float:
        """Returns the approximate ns of n calls, without known delays by other work."""
        times = []
        for _ in range(3):
            elapsed_ns, waited_ns = self._last_try = self._sample(n_calls)
            times.append(max(elapsed_ns - waited_ns, 0.05 * elapsed_ns))
            is_long = times[-1] >= self._protocol.sample_ns
            if is_long or waited_ns <= DISTURBED * elapsed_ns:
                break
        return min(times)


def _is_beyond_cut(call_ns: float, n_samples: int, protocol: Protocol) -> bool:
    """True if the fastest of `n_samples` samples is so far above the time to beat that more will not help."""
    if protocol.cut_ns is None:
        return False
    is_few = n_samples <= protocol.min_samples // 2
    factor = protocol.factor_of_first if is_few else protocol.later_factor
    return call_ns > factor * protocol.cut_ns


def measure(sampler: Sampler, protocol: Protocol) -> Measurement:
    """Times one candidate until its spread is small, it is clearly slower than the cut, or its budget is spent."""
    series = Series(sampler, protocol)
    while not series.is_finished:
        series.step()
    return series.result()


def interleave(
    samplers: Sequence[Sampler], protocol: Protocol, beside: Callable[[], None] | None = None
) -> list[Measurement]:
    """Times several candidates alternately, sample by sample, so that a change of the machine affects all of them.

    The order rotates from round to round. All are sampled until every one is finished or has the most samples. `beside` is called
    before each round, and each candidate once before its sample. `in_pairs` removes slowdowns of the machine longer than a round.
    If the protocol has a control time, the first of two is the control, and the other is timed as a ratio to it.
    """
    if protocol.control_ns is not None:
        control, candidate = samplers
        return list(measure_beside(control, candidate, protocol, protocol.control_ns))
    is_alone = len(samplers) == 1
    series = [Series(s, protocol, is_alone=is_alone) for s in samplers]
    turns: list[list[float | None]] = []
    disturbed_too: list[list[float | None]] = []
    for turn in range(protocol.max_samples + protocol.max_disturbed):
        if all(s.is_finished for s in series):
            break
        if beside is not None:
            beside()
        taken: list[float | None] = [None] * len(series)
        every: list[float | None] = [None] * len(series)
        for k in range(len(series)):
            which = (turn + k) % len(series)
            if not is_alone:
                series[which].warm()
            taken[which] = series[which].step()
            every[which] = series[which].last_ns
        turns.append(taken)
        disturbed_too.append(every)
    measured = [s.result() for s in series]
    if is_alone or not turns:
        return measured
    told = turns if _share_kept(turns) >= _ENOUGH_KEPT else disturbed_too
    return [_with_paired(m, samples) for m, samples in zip(measured, in_pairs(told), strict=True)]


def _share_kept(turns: Sequence[Sequence[float | None]]) -> float:
    samples = [x for taken in turns for x in taken]
    return sum(x is not None for x in samples) / len(samples)


def measure_beside(
    control: Sampler, candidate: Sampler, protocol: Protocol, control_ns: float
) -> tuple[Measurement, Measurement]:
    """Times two programs alternately on a machine with other work, which affects both.

    All samples count. A pair gives the ratio of the candidate to the control. Both times are scaled to a control that takes
    `control_ns`. If ratios differ widely, other work may have disturbed the control more often: then the candidate is no faster
    than the ratio of both least samples.

    Ends once the median of the ratios is sure, or they are surely beyond the cut, or the budget is spent. A candidate that
    seems to be below the claimed limit gets many samples: among many candidates, some seem so by chance.
    """
    both = [Series(s, protocol, is_alone=False) for s in (control, candidate)]
    ratios: list[float] = []
    least_ns = [math.inf, math.inf]
    n_disturbed, is_early = 0, False
    while not _is_sure(ratios, sum(s.spent_ns for s in both), protocol, control_ns):
        is_kept = True
        for which in (0, 1) if len(ratios) % 2 else (1, 0):
            if both[which].n_calls > 1:  # a long call hardly notices what the caches hold
                both[which].warm()
            is_kept &= both[which].step() is not None
            least_ns[which] = min(least_ns[which], both[which].last_ns)
        ratios.append(both[1].last_ns / both[0].last_ns)
        n_disturbed += not is_kept
        # One pair alone says little: other work may have met one half of it.
        n = len(ratios)
        is_early = n >= _LEAST_SAMPLES and _is_beyond_cut(min(ratios) * control_ns, n, protocol)
        if is_early:
            break
    ratio, n = median(ratios), len(ratios)
    if spread(ratios) > _WIDE:
        ratio = max(ratio, least_ns[1] / least_ns[0])
    times = [control_ns * r for r in ratios]
    measured = Measurement(
        time_ns=ratio * control_ns,
        spread=spread(ratios),
        min_ns=min(times),
        n_samples=n,
        n_calls=both[1].n_calls,
        disturbed=n_disturbed,
        stopped_early=is_early,
        quantiles_ns=five_numbers(times),
        ratio=ratio,
    )
    first = Measurement(control_ns, 0.0, control_ns, n, both[0].n_calls, n_disturbed, ratio=1.0)
    return first, measured


def _is_sure(
    ratios: Sequence[float], spent_ns: float, protocol: Protocol, control_ns: float
) -> bool:
    """True if more pairs would hardly change the median ratio, or the budget is spent."""
    n = len(ratios)
    if n < _LEAST_SAMPLES:
        return False
    claims_below_ns = protocol.claims_below_ns
    is_claimed = claims_below_ns is not None and median(ratios) * control_ns < claims_below_ns
    if is_claimed and n < _CLAIMED_PAIRS and spent_ns < _CLAIMED_NS:
        return False
    if n >= protocol.max_samples or spent_ns >= protocol.budget_ns:
        return True
    return n >= protocol.min_samples and spread(ratios) <= _SURE * n**0.5


def in_pairs(turns: Sequence[Sequence[float | None]]) -> list[list[float]]:
    """Returns, by candidate, samples in ns per call normalised to the machine's usual speed.

    `turns` are rounds of samples, one of each candidate or None. The slowness of a round is the median over its
    samples, each divided by the median of its candidate. Rounds with less than half of the candidates are dropped.
    """
    columns = [[x for x in column if x is not None] for column in zip(*turns, strict=True)]
    usual = [median(column) if column else 0.0 for column in columns]
    found: list[list[float]] = [[] for _ in columns]
    for taken in turns:
        present = [(k, x) for k, x in enumerate(taken) if x is not None]
        if 2 * len(present) < len(columns) or len(present) < 2:
            continue
        slowness = median(x / usual[k] for k, x in present)
        for k, x in present:
            found[k].append(x / slowness)
    return found


def _with_paired(measured: Measurement, samples: Sequence[float]) -> Measurement:
    if len(samples) < _LEAST_SAMPLES:
        return measured
    return replace(measured, paired_ns=median(samples), paired_spread=spread(samples))


def waited_ns() -> int:
    """Nanoseconds in which threads of this process were ready but had no core, so far (Linux; 0 elsewhere)."""
    total = 0
    try:
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/schedstat", "rb", buffering=0) as f:
                total += int(f.read(128).split()[1])
    except (OSError, IndexError, ValueError):
        return total
    return total


def five_numbers(times: Sequence[float]) -> tuple[float, ...]:
    """Least, quartiles and greatest of `times`; a single time is repeated."""
    inner = quantiles(times, n=4, method="inclusive") if len(times) > 1 else 3 * list(times)
    return (min(times), *inner, max(times))


def spread(times: Sequence[float]) -> float:
    """Half the inter-quartile range of `times` divided by their median; 0.0 for fewer than two times."""
    if len(times) < 2:
        return 0.0
    q1, _, q3 = quantiles(times, n=4, method="inclusive")
    return (q3 - q1) / 2 / median(times)
