"""A surrogate: what a candidate may take, guessed from what measured ones took. It chooses what is built next and prunes nothing.

A bound says which resources are surely busy, not how well code uses them: most candidates below the cut are several times slower
than the best, and compiling them is what a search of small kernels spends its time on. Times are nearly products of what
decisions cost alone and in pairs, and that a few hundred measurements tell (experiments/surrogate.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..space.candidate import Candidate, Space

Floats = npt.NDArray[np.float64]
Masks = npt.NDArray[np.uint32]

LEAST = 16  # measurements without which nothing is guessed
KEPT = 384  # the fastest half and the latest half: a fit takes the cube of it, here about 10 ms
_WORST = 50.0  # times the best: slower ones, and what failed, are alike
_RIDGE = 0.3  # noise of the best, as a share of what agreement in a kind of a single choice weighs; it grows with the time


class Surrogate:
    """Kernel ridge regression (Saunders, Gammerman and Vovk 1998) of the logarithm of times on decisions and pairs of them.

    Two implementations are as alike as the decisions that they share: g, weighted by kind of choice, since there are many
    orders and few tile sizes. The kernel g + g^2 / G (G: all are shared) is that of a sum over single decisions and pairs.
    A candidate with open choices shares a decision as probably as one of its values does.
    """

    def __init__(self, space: Space) -> None:
        self._choices = [int(v) for v in space.searchable if len(space.choices[v].values) > 1]
        self._place = {space.choices[v].name: k for k, v in enumerate(self._choices)}
        self._values = [space.choices[v].values for v in self._choices]
        kinds = [space.choices[v].kind for v in self._choices]
        self._weights = np.array([kinds.count(kind) ** -0.5 for kind in kinds])
        self._decided: Masks = np.zeros((0, len(self._choices)), np.uint32)  # [n, n_choices]
        self._times: Floats = np.zeros(0)  # [n] ns, inf where it failed
        self._alike: Floats = np.zeros((0, 0))  # [n, n] g
        self._new: list[tuple[Masks, float]] = []
        self._pull: Floats | None = (
            None  # [n] of each measurement on those alike; None while too little is known
        )
        self._mean = 0.0

    def learn(self, candidate: Candidate, time_ns: float | None) -> None:
        """Take in the time of a complete candidate, None where it failed."""
        self._take(candidate.domains[self._choices], time_ns)

    def recall(
        self, root: Candidate, decisions: Sequence[tuple[str, str]], time_ns: float | None
    ) -> None:
        """Take in what an earlier session measured, by names; what this space does not know is passed over."""
        decided = root.domains[self._choices]
        for name, value in decisions:
            place = self._place.get(name)
            if place is None or value not in map(str, self._values[place]):
                return
            decided[place] = 1 << [str(v) for v in self._values[place]].index(value)
        if not (decided & (decided - np.uint32(1))).any():
            self._take(decided, time_ns)

    def _take(self, decided: Masks, time_ns: float | None) -> None:
        self._new.append((decided, np.inf if time_ns is None else time_ns))

    def expected(self, candidates: Sequence[Candidate]) -> Floats | None:
        """[n] logarithms of the times that candidates are expected to take, up to a constant; None while too little is known."""
        if self._new:
            self._fit()
        if self._pull is None:
            return None
        g = np.stack([self._shared(c.domains[self._choices]) for c in candidates])
        found: Floats = self._mean + self._kernel(g) @ self._pull
        return found

    def _fit(self) -> None:
        n_old = len(self._times)
        self._decided = np.concatenate([self._decided, np.stack([d for d, _ in self._new])])
        self._times = np.append(self._times, [t for _, t in self._new])
        self._new = []
        n = len(self._times)
        alike = np.empty((n, n))
        alike[:n_old, :n_old] = self._alike
        for k in range(n_old, n):
            alike[k, :] = alike[:, k] = self._shared(self._decided[k])
        self._alike = alike
        if n > KEPT:
            self._forget()
        if len(self._times) < LEAST or not np.isfinite(self._times).any():
            return
        ratios = np.minimum(self._times / self._times.min(), _WORST)
        logs = np.log(ratios)
        self._mean = float(np.average(logs, weights=1 / ratios))
        system = self._kernel(self._alike) + np.diag(_RIDGE * ratios)
        self._pull = np.linalg.solve(system, logs - self._mean)

    def _forget(self) -> None:
        fastest = np.argsort(self._times, kind="stable")[: KEPT // 2]
        latest = np.setdiff1d(np.arange(len(self._times)), fastest)[-(KEPT // 2) :]
        kept = np.union1d(fastest, latest)
        self._decided, self._times = self._decided[kept], self._times[kept]
        self._alike = self._alike[np.ix_(kept, kept)]

    def _shared(self, domains: Masks) -> Floats:
        """[n] weight of the decisions that a candidate shares with each measured one."""
        n_left = np.unpackbits(domains.view(np.uint8)).reshape(len(domains), -1).sum(1)
        found: Floats = ((self._decided & domains) != 0) @ (self._weights / n_left)
        return found

    def _kernel(self, g: Floats) -> Floats:
        found: Floats = g + g * g / self._weights.sum()
        return found
