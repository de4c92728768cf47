"""Surrogate model: predicts times of candidates from measured ones.

It selects the next builds and prunes nothing.
A bound counts the guaranteed load of resources, not how well code uses them. Most candidates below
the cut are several times slower than the best, and a search of small kernels spends its time on
compiling them. The costs of single decisions and of pairs of decisions distinguish many of them.
They are learned from a few hundred measurements: results are in experiments/results/surrogate.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from threading import Lock

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from ...space.candidate import Candidate, Space
from ...space.engine.jit import jit_flat
from ...space.engine.propagate import count_values

Floats = npt.NDArray[np.float64]
Masks = npt.NDArray[np.uint32]

LEAST = 16  # measurements without which nothing is guessed
KEPT = 384  # the fastest half and the latest half: a fit takes the cube of it
_WORST = 50.0  # times the best: slower ones, and what failed, are alike
_RIDGE = 0.3  # the noise of the best, in units of sharing the only choice of a kind; one of x times the best has x times as much


class KernelRidge:
    """Kernel ridge regression (Saunders, Gammerman and Vovk 1998) of log times on decisions and pairs of decisions.

    The similarity g of two implementations is the weight of their common decisions. Weights depend
    on the kind of choice, since there are many orders and few tile sizes. The kernel g + g^2 / G
    (G: the weight of all decisions) is that of a sum over single decisions and pairs. A candidate
    with open choices shares a decision with the probability that a random value of the choice does.

    With a prediction (search/predict.py) it learns the ratio of times to the `predicted` ones, in
    ns, and begins informed.
    """

    def __init__(self, space: Space, predicted: Callable[[Candidate], float] | None = None) -> None:
        self._predicted = predicted
        self._choices = [int(v) for v in space.searchable if len(space.choices[v].values) > 1]
        self._place = {space.choices[v].name: k for k, v in enumerate(self._choices)}
        self._bits = [
            {str(value): np.uint32(1 << k) for k, value in enumerate(space.choices[v].values)}
            for v in self._choices
        ]
        self._apart = [k for k, v in enumerate(self._choices) if v in space.variables.apart]
        kinds = [space.choices[v].kind for v in self._choices]
        self._weights = np.array([kinds.count(kind) ** -0.5 for kind in kinds])
        self._decided: Masks = np.zeros((len(self._choices), 0), np.uint32)  # [n_choices, n]
        self._times: Floats = np.zeros(0)  # [n] ns, inf where it failed
        self._foreseen: Floats = np.zeros(0)  # [n] logarithms of predicted times
        self._alike: Floats = np.zeros((0, 0))  # [n, n] g
        self._new: list[tuple[Masks, float, float]] = []
        # [n] of each measurement on those alike; None while too little is known
        self._pull: Floats | None = None
        self._mean = 0.0
        self._last: Masks = np.zeros(len(self._choices), np.uint32)  # a candidate, 0: nothing
        self._last_shared: Floats = np.zeros(0)  # [n] what it shares

    @property
    def is_ready(self) -> bool:
        """True if there are enough measurements for a prediction."""
        if self._new:
            self._fit()
        return self._pull is not None

    def learn(self, candidate: Candidate, time_ns: float | None) -> None:
        """Adds the time of a complete candidate; None if it failed. Those outside of the tree teach nothing about it."""
        if candidate.is_apart:
            return
        self._take(candidate.domains[self._choices], time_ns, self._log_predicted(candidate))

    def recall(
        self, root: Candidate, decisions: Sequence[tuple[str, str]], time_ns: float | None
    ) -> None:
        """Adds a measurement of an earlier session, by names of decisions.

        Ignored if the space lacks one of them.
        """
        decided = root.domains[self._choices]
        for name, value in decisions:
            place = self._place.get(name)
            if place is None or value not in self._bits[place]:
                return
            decided[place] = self._bits[place][value]
        if any(not decided[place] & 1 for place in self._apart):
            return
        if (decided & (decided - np.uint32(1))).any():
            return
        foreseen = 0.0
        if self._predicted is not None:
            domains = root.domains.copy()
            domains[self._choices] = decided
            made = root.space.candidate(domains)
            if not isinstance(made, Candidate):
                return  # of a space with other constraints
            foreseen = self._log_predicted(made)
        self._take(decided, time_ns, foreseen)

    def _log_predicted(self, candidate: Candidate) -> float:
        return 0.0 if self._predicted is None else float(np.log(self._predicted(candidate)))

    def _take(self, decided: Masks, time_ns: float | None, foreseen: float) -> None:
        self._new.append((decided, np.inf if time_ns is None else time_ns, foreseen))
        if len(self._new) > 2 * KEPT:  # nobody asks
            kept = _kept(np.array([t for _, t, _ in self._new]))
            self._new = [self._new[k] for k in kept]

    def expected(self, candidates: Sequence[Candidate]) -> Floats | None:
        """Returns [n]: expected logarithms of the candidates' times, up to a constant.

        It returns None with too few measurements.
        """
        if not self.is_ready:
            return None
        assert self._pull is not None
        found: Floats = self._mean + self._kernel(self._shared(candidates)) @ self._pull
        if self._predicted is not None:
            found += [self._log_predicted(c) for c in candidates]
        return found

    def _fit(self) -> None:
        n_old = len(self._times)
        times = np.append(self._times, [t for _, t, _ in self._new])
        foreseen = np.append(self._foreseen, [x for _, _, x in self._new])
        kept = _kept(times)
        old, new = kept[kept < n_old], kept[kept >= n_old]
        latest = [self._new[k - n_old][0] for k in new]
        self._decided = np.ascontiguousarray(  # along measurements, as it is read
            np.concatenate([self._decided[:, old], *(d[:, None] for d in latest)], axis=1)
        )
        self._times, self._foreseen, self._new = times[kept], foreseen[kept], []
        n = len(kept)
        self._last, self._last_shared = np.zeros_like(self._last), np.zeros(n)
        alike = np.empty((n, n))
        alike[: len(old), : len(old)] = self._alike[np.ix_(old, old)]
        for k in range(len(old), n):
            alike[k, :] = alike[:, k] = self._weights @ (self._decided == self._decided[:, k, None])
        self._alike = alike
        if n < LEAST or not np.isfinite(self._times).any():
            return
        ratios = np.minimum(self._times / self._times.min(), _WORST)
        logs = np.log(ratios) - self._foreseen
        self._mean = float(np.average(logs, weights=1 / ratios))
        system = self._kernel(self._alike) + np.diag(_RIDGE * ratios)
        with _one_thread():
            self._pull = np.linalg.solve(system, logs - self._mean)

    def _shared(self, candidates: Sequence[Candidate]) -> Floats:
        """Returns [n candidates, n measured]: the weight of the decisions that each pair has in common.

        Consecutive candidates are siblings, or parents and children, and so mostly equal.
        """
        domains = np.stack([c.domains[self._choices] for c in candidates])
        shared = np.empty((len(domains), len(self._times)))
        _share(domains, self._decided, self._weights, self._last, self._last_shared, shared)
        return shared

    def _kernel(self, g: Floats) -> Floats:
        found: Floats = g + g * g / self._weights.sum()
        return found


@jit_flat
def _share(
    domains: Masks,
    decided: Masks,
    weights: Floats,
    last: Masks,
    last_shared: Floats,
    shared: Floats,
) -> None:
    """Fills shared[k, j] with the weight of the decisions that candidate k has in common with measured candidate j.

    The weight of each choice is divided among its values left. `last`, `last_shared`: the previous
    candidate and its row, updated in place.
    """
    n_choices, n_measured = decided.shape
    for k in range(domains.shape[0]):
        for c in range(n_choices):
            now, before = domains[k, c], last[c]
            if now == before:
                continue
            last[c] = now
            won = weights[c] / count_values(np.int64(now))
            lost = weights[c] / count_values(np.int64(before)) if before else 0.0
            for j in range(n_measured):
                if decided[c, j] & now:
                    last_shared[j] += won
                if decided[c, j] & before:
                    last_shared[j] -= lost
        for j in range(n_measured):
            shared[k, j] = last_shared[j]


def _kept(times: Floats) -> npt.NDArray[np.int64]:
    """Returns the positions of the measurements to keep, increasing: the fastest half, and the latest of the others."""
    fastest = np.argsort(times, kind="stable")[: KEPT // 2]
    latest = np.setdiff1d(np.arange(len(times)), fastest)[-(KEPT // 2) :]
    return np.union1d(fastest, latest)


_turn = Lock()  # of what is the whole process's


@contextmanager
def _one_thread() -> Iterator[None]:
    """Context in which NumPy's BLAS uses one thread.

    Further threads spin after their work, on cores that compilers are about to use.
    """
    with _turn, _blas().limit(limits=1, user_api="blas"):
        yield


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()
