"""A small space whose implementations can be listed: binary constraints, checked only when both
choices are decided.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from kernelscape.search.events import Outcome
from kernelscape.space.candidate import DeadEnd


@dataclass(frozen=True)
class ToySpace:
    """`cost[c][v]` ns add up to the time of an implementation; `forbidden` holds pairs ((c, v),
    (c', v')).
    """

    cost: tuple[tuple[float, ...], ...]
    forbidden: frozenset[tuple[tuple[int, int], tuple[int, int]]] = frozenset()
    offset_ns: float = 100.0

    def root(self) -> ToyCandidate:
        return ToyCandidate(self, tuple((1 << len(row)) - 1 for row in self.cost))

    def allows(self, values: tuple[int, ...]) -> bool:
        return not any(values[a] == v and values[b] == w for (a, v), (b, w) in self.forbidden)

    def implementations(self) -> Iterator[tuple[int, ...]]:
        for values in itertools.product(*(range(len(row)) for row in self.cost)):
            if self.allows(values):
                yield values

    def time_ns(self, values: tuple[int, ...]) -> float:
        return self.offset_ns + sum(row[v] for row, v in zip(self.cost, values, strict=True))


@dataclass(frozen=True)
class ToyCandidate:
    space: ToySpace = field(compare=False, repr=False)
    domains: tuple[int, ...]

    @property
    def is_apart(self) -> bool:
        return False

    @property
    def is_complete(self) -> bool:
        return all(d & (d - 1) == 0 for d in self.domains)

    @property
    def key(self) -> bytes:
        return repr(self.domains).encode()

    def open_choices(self) -> tuple[int, ...]:
        return tuple(c for c, d in enumerate(self.domains) if d & (d - 1))

    def values(self, choice: int) -> tuple[int, ...]:
        return tuple(
            v for v in range(self.domains[choice].bit_length()) if self.domains[choice] >> v & 1
        )

    def assignment(self) -> tuple[int, ...]:
        return tuple(d.bit_length() - 1 for d in self.domains)

    def decide(self, choice: int, mask: int) -> ToyCandidate | DeadEnd:
        """No propagation beyond a check of decided pairs, so that dead ends are met late."""
        domain = self.domains[choice] & mask
        domains = (*self.domains[:choice], domain, *self.domains[choice + 1 :])
        if not domain:
            return DeadEnd(str(choice), "no value left")
        for (a, v), (b, w) in self.space.forbidden:
            if domains[a] == 1 << v and domains[b] == 1 << w:
                return DeadEnd(str(choice), f"{a}={v} forbids {b}={w}")
        return ToyCandidate(self.space, domains)

    def expand(self, choice: int) -> tuple[tuple[int, ToyCandidate | DeadEnd], ...]:
        return tuple((v, self.decide(choice, 1 << v)) for v in self.values(choice))

    def random_completion(self, rng: np.random.Generator) -> ToyCandidate | DeadEnd:
        at: ToyCandidate | DeadEnd = self
        while isinstance(at, ToyCandidate) and not at.is_complete:
            choice = at.open_choices()[0]
            values = at.values(choice)
            at = at.decide(choice, 1 << values[int(rng.integers(len(values)))])
        return at


def random_space(
    rng: np.random.Generator, n_choices: int = 5, n_values: int = 3, n_forbidden: int = 6
) -> ToySpace:
    cost = tuple(
        tuple(float(x) for x in rng.integers(0, 100, size=int(rng.integers(2, n_values + 1))))
        for _ in range(n_choices)
    )
    forbidden = set()
    for _ in range(n_forbidden):
        a, b = sorted(rng.choice(n_choices, size=2, replace=False).tolist())
        forbidden.add(((a, int(rng.integers(len(cost[a])))), (b, int(rng.integers(len(cost[b]))))))
    return ToySpace(cost, frozenset(forbidden))


def first_open(candidate: ToyCandidate) -> int:
    return candidate.open_choices()[0]


def toy_bound(share: float = 1.0) -> Callable[[ToyCandidate], float]:
    """The best sum that the domains allow, times `share`: admissible and monotone."""

    def bound(candidate: ToyCandidate) -> float:
        total = candidate.space.offset_ns
        for row, domain in zip(candidate.space.cost, candidate.domains, strict=True):
            total += min(cost for v, cost in enumerate(row) if domain >> v & 1)
        return share * total

    return bound


class ToyBench:
    """Evaluates at the true time; counts calls; fails where told."""

    def __init__(self, fails: Callable[[tuple[int, ...]], str | None] = lambda values: None):
        self.fails = fails
        self.measured: list[tuple[int, ...]] = []
        self.batches: list[int] = []

    def __call__(self, candidates: list[ToyCandidate]) -> list[Outcome]:
        self.batches.append(len(candidates))
        return [self.one(candidate) for candidate in candidates]

    def one(self, candidate: ToyCandidate) -> Outcome:
        assert candidate.is_complete
        values = candidate.assignment()
        self.measured.append(values)
        status = self.fails(values)
        if status is not None:
            return Outcome(status, detail="told to fail")
        return Outcome("ok", candidate.space.time_ns(values), key=str(values))


def best_ns(space: ToySpace) -> float:
    return min((space.time_ns(v) for v in space.implementations()), default=math.inf)
