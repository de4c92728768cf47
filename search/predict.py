"""Prediction of a candidate's time, in ns. It orders candidates and proves nothing.

Each resource of the bound takes longer than its best measured rate allows, by a factor of its own.
Two effects are in no bound. Sums wait for one another if a register tile has few of them: a core
may begin the next tile before. Caches hold recently used data (LRU), so tiles that exceed them are
evicted before their next use. Resources overlap in part: a p-norm of their times lies between the
largest and their sum. A machine has five factors. They are fitted to its own journals by least
squares in logarithms, and are 1 without measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..space.candidate import Candidate
from .bound.bounder import Bounder

Floats = npt.NDArray[np.float64]

FACTORS = ("memory", "caches", "operations", "ports", "launches")
NO_FACTORS = (1.0,) * len(FACTORS)
_OF_TERMS = {
    **dict.fromkeys(("memory read", "memory write", "memory", "streams", "tiles"), "memory"),
    **dict.fromkeys(("operations", "chain", "functions", "tails"), "operations"),
    **dict.fromkeys(("ports", "packing", "atomics"), "ports"),
    "launches": "launches",
}  # every other term is of a cache
_OPERATIONS = FACTORS.index("operations")
_AGAIN = [FACTORS.index("caches"), FACTORS.index("memory")]
_NORM = 4.0
# A factor is pulled to 1 as by so many measurements in which it alone matters, each an e-fold away.
_RIDGE = 0.5
_STEPS = 30
_MOST = 30.0  # times the best rate: what is slower has other reasons
_MOST_KNOWN = 1 << 12  # predictions that are remembered: a search asks for some several times
LEAST = 16  # measurements without which nothing is fitted


@dataclass(frozen=True)
class Predictor:
    """Predicts times, in ns, of candidates of one space from the terms of their bounds."""

    bounder: Bounder
    factors: Sequence[float] = NO_FACTORS
    _groups: npt.NDArray[np.int64] = field(init=False, repr=False, compare=False)
    _known: dict[bytes, float] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = [_OF_TERMS.get(name, "caches") for name in self.bounder.names]
        object.__setattr__(self, "_groups", np.array([FACTORS.index(name) for name in names]))

    def parts(self, candidate: Candidate) -> Floats:
        """Returns [n_factors]: the ns of the longest term in each group of resources."""
        parts = np.zeros(len(FACTORS))
        np.maximum.at(parts, self._groups, self.bounder.terms(candidate))
        if self.bounder.gpu is None:
            parts[_OPERATIONS] = max(parts[_OPERATIONS], self.bounder.sums_ns().sum())
            parts[_AGAIN] = np.maximum(parts[_AGAIN], self.bounder.lost_ns())
        return parts

    def ns(self, candidate: Candidate) -> float:
        """Returns the predicted ns of a candidate; for open choices, with the best values left."""
        key = candidate.domains.tobytes()
        if key not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = predicted(self.parts(candidate)[None, :], np.array(self.factors))
            self._known[key] = float(found[0])
        return self._known[key]


def predicted(parts: Floats, factors: Floats) -> Floats:
    """Returns [n]: predicted ns from `parts` ([n, n_factors])."""
    scaled = parts * factors
    busy = np.maximum(scaled[:, :-1], 0.0)
    most = np.maximum(busy.max(axis=1), 1e-9)
    found: Floats = most * ((busy / most[:, None]) ** _NORM).sum(axis=1) ** (1 / _NORM)
    found += scaled[:, -1]
    return found


def fitted(parts: Floats, times_ns: Floats) -> tuple[float, ...]:
    """Returns the factors that predict `times_ns` ([n]) best; 1 each with fewer than LEAST measurements.

    Gauss-Newton steps on the logarithms. Residuals near the median weigh more than far ones: a
    candidate may be slow for reasons that no term covers.
    """
    if len(times_ns) < LEAST:
        return NO_FACTORS
    logs, most = np.zeros(len(FACTORS)), np.log(_MOST)
    wanted = np.log(times_ns)
    for _ in range(_STEPS):
        now = np.log(predicted(parts, np.exp(logs)))
        slope = np.empty((len(wanted), len(FACTORS)))
        for k in range(len(FACTORS)):
            moved = logs.copy()
            moved[k] += 1e-4
            slope[:, k] = (np.log(predicted(parts, np.exp(moved))) - now) / 1e-4
        left = wanted - now
        weights = 1 / np.maximum(np.abs(left), 0.1)
        system = slope.T @ (weights[:, None] * slope) + _RIDGE * np.eye(len(FACTORS))
        step = np.linalg.solve(system, slope.T @ (weights * left) - _RIDGE * logs)
        logs = np.clip(logs + np.clip(step, -1.0, 1.0), 0.0, most)
    return tuple(float(x) for x in np.exp(logs))
