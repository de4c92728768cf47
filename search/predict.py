"""Prediction of a candidate's time, in ns. It orders candidates and proves nothing.

Each resource of the bound takes longer than its best measured rate allows, by a factor of its own.
Three effects are in no bound. Sums wait for one another if a register tile has few of them: a core
may begin the next tile before. Caches hold recently used data (LRU), so tiles that exceed them are
evicted before their next use. Threads that share a cache fill it together. Streaming stores go to
memory, and later reads of the array come from it: a bound may not count them, since at an unaligned
address they are plain stores. A core's instructions are counted as the loop nest is written
(search/instructions.py), and take their times one after the other. Resources overlap in part: a
p-norm of their times lies between the largest and their sum. Each resource and each kind of
instruction has a factor on a machine. They are fitted to its own journals by least squares in
logarithms, and are 1 without measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..space.candidate import Candidate
from . import instructions
from .bound.bounder import Bounder
from .bound.common import Mask
from .instructions import KINDS

Floats = npt.NDArray[np.float64]

_RESOURCES = ("memory", "caches", "operations", "ports", "launches")
FACTORS = (*_RESOURCES, *KINDS)
NO_FACTORS = (1.0,) * len(FACTORS)
_OF_TERMS = {
    **dict.fromkeys(("memory read", "memory write", "memory", "streams", "tiles"), "memory"),
    **dict.fromkeys(("operations", "chain", "functions", "tails"), "operations"),
    **dict.fromkeys(("ports", "packing", "atomics"), "ports"),
    "launches": "launches",
}  # every other term is of a cache
_OPERATIONS = FACTORS.index("operations")
_MEMORY, _LAUNCHES = FACTORS.index("memory"), FACTORS.index("launches")
_AGAIN = [FACTORS.index("caches"), FACTORS.index("memory")]
_NORM = 4.0
# A factor is pulled to 1 as by so many measurements in which it alone matters, each an e-fold away.
_RIDGE = 0.5
_STEPS = 30
_MOST = 30.0  # times the best rate: what is slower has other reasons
_MOST_OF_LOADS = 3.0  # what loads wait for is counted as lines, and with the caches
_LEAST = 1 / 8  # of the time of a load: a core starts several instructions at once
_MOST_KNOWN = 1 << 12  # predictions that are remembered: a search asks for some several times
LEAST = 16  # measurements without which nothing is fitted


@dataclass(frozen=True)
class Predictor:
    """Predicts times, in ns, of candidates of one space from the terms of their bounds."""

    bounder: Bounder
    factors: Sequence[float] = NO_FACTORS
    _groups: npt.NDArray[np.int64] = field(init=False, repr=False, compare=False)
    _work: instructions.InstructionTables | None = field(init=False, repr=False, compare=False)
    _counting: tuple[Floats, ...] = field(init=False, repr=False, compare=False)
    _known: dict[bytes, float] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = [_OF_TERMS.get(name, "caches") for name in self.bounder.names]
        object.__setattr__(self, "_groups", np.array([FACTORS.index(name) for name in names]))
        space = self.bounder.space
        most = max((len(task.loops) for task in space.problem.tasks), default=0)
        scratch = (np.ones(2 * most), np.ones(most), np.zeros(len(KINDS)), np.zeros(len(KINDS)))
        object.__setattr__(self, "_counting", scratch)
        tables = (
            instructions.instruction_tables(space, self.bounder.tables)
            if self.bounder.gpu is None
            else None
        )
        object.__setattr__(self, "_work", tables)

    def parts(self, candidate: Candidate | Mask) -> Floats:
        """Returns [n_factors]: the ns of the longest term in each group of resources."""
        parts = np.zeros(len(FACTORS))
        np.maximum.at(parts, self._groups, self.bounder.terms(candidate))
        if self._work is not None:
            domains = candidate.domains if isinstance(candidate, Candidate) else candidate
            parts[len(_RESOURCES) :] = self._instructions_ns(self._work, domains)
            streamed = instructions.streamed_bytes(self._work, domains)
            again = instructions.streamed_bytes_read(self._work, domains)
            rates = self.bounder.tables.write_rate, self.bounder.tables.rate[-1]
            parts[_MEMORY] = max(parts[_MEMORY], streamed / rates[0] + again / rates[1])
            parts[_OPERATIONS] = max(parts[_OPERATIONS], self.bounder.sums_ns().sum())
            parts[_AGAIN] = np.maximum(parts[_AGAIN], self.bounder.lost_ns())
        return parts

    def _instructions_ns(self, work: instructions.InstructionTables, domains: Mask) -> Floats:
        """Returns [len(KINDS)]: the ns of each kind of instruction on the busiest core, each as long as a load."""
        tables, target = self.bounder.tables, self.bounder.space.target
        parallel = self.bounder.parallel()
        instructions.count_instructions(work, domains, parallel, tables.cores, *self._counting)
        unit_ns = (
            target.cores / target.loads_per_ns if target.loads_per_ns else instructions.UNIT_NS
        )
        return self._counting[-1] * unit_ns

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
    scaled = np.maximum(parts * factors, 0.0)
    n = len(_RESOURCES)
    busy = np.column_stack([scaled[:, :_LAUNCHES], scaled[:, n:].sum(axis=1)])
    most = np.maximum(busy.max(axis=1), 1e-9)
    found: Floats = most * ((busy / most[:, None]) ** _NORM).sum(axis=1) ** (1 / _NORM)
    found += scaled[:, _LAUNCHES]
    return found


def fitted(parts: Floats, times_ns: Floats) -> tuple[float, ...]:
    """Returns the factors that predict `times_ns` ([n]) best; 1 each with fewer than LEAST measurements.

    Gauss-Newton steps on the logarithms. Residuals near the median weigh more than far ones: a
    candidate may be slow for reasons that no term covers.
    """
    if len(times_ns) < LEAST:
        return NO_FACTORS
    logs = np.zeros(len(FACTORS))
    most = np.log([_MOST_OF_LOADS if x == "loads" else _MOST for x in FACTORS])
    least = np.array([0.0] * len(_RESOURCES) + [np.log(_LEAST)] * len(KINDS))
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
        logs = np.clip(logs + np.clip(step, -1.0, 1.0), least, most)
    return tuple(float(x) for x in np.exp(logs))
