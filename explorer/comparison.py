"""Comparison of two stored results: their times, and the decisions in which they differ."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..runtime.records.record import BestFile
from .results import stored_best


@dataclass(frozen=True)
class Comparison:
    """Two stored results `a` and `b`, with notes on differences that make their times hard to compare."""

    a: BestFile
    b: BestFile

    @property
    def ratio(self) -> float:
        """Time of `b` divided by the time of `a`."""
        return self.b.time_ns / self.a.time_ns

    @property
    def is_within_noise(self) -> bool:
        """True if the difference of the times is at most the sum of both spreads."""
        return abs(self.ratio - 1) <= self.a.spread + self.b.spread

    @property
    def differing(self) -> dict[str, tuple[str | None, str | None]]:
        """Values of `a` and `b` by name of each choice in which they differ; None if one has no such choice."""
        of_a, of_b = dict(self.a.decisions), dict(self.b.decisions)
        names = dict.fromkeys((*of_a, *of_b))
        return {n: (of_a.get(n), of_b.get(n)) for n in names if of_a.get(n) != of_b.get(n)}

    @property
    def n_alike(self) -> int:
        return len(dict(self.a.decisions)) - sum(x is not None for x, _ in self.differing.values())

    @property
    def notes(self) -> tuple[str, ...]:
        a, b = self.a, self.b
        found = []
        if a.problem_key != b.problem_key:
            found.append("they compute different things, or at different sizes")
        elif a.space_key != b.space_key:
            found.append("their spaces differ: another version, machine or target")
        if (a.target, a.conditions.machine) != (b.target, b.conditions.machine):
            found.append("they were measured on different machines")
        if a.conditions.compiler != b.conditions.compiler:
            found.append("different compilers built them")
        if a.fixed != b.fixed:
            found.append("different decisions were fixed before the search")
        return tuple(found)


def compare(a: str | Path, b: str | Path) -> Comparison:
    """Compares two results, each a run directory or a best.json. Raises RecordError."""
    return Comparison(stored_best(Path(a)), stored_best(Path(b)))
