"""Declarations of a constraint model in plain Python: choices, and constraints as predicates (`holds`).

A predicate judges a complete assignment. Filters are derived from the same declarations, but share
no code with the predicates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple


@dataclass(frozen=True)
class Choice:
    """A decision variable: its kind, the names of the objects that it is about (such as tasks and loop dims), and its values.

    Value number v is bit v of its domain.
    """

    kind: str
    objects: tuple[str, ...]
    values: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.kind}({','.join(self.objects)})"

    def mask(self, *values: str) -> int:
        """Returns the domain, as a bit mask, that holds exactly the named values."""
        return sum(1 << self.values.index(value) for value in set(values))


class Literal(NamedTuple):
    """True if the value of choice `var` is in `mask`."""

    var: int
    mask: int


class Term(NamedTuple):
    """Counts `weights[value of var]` if `condition` is None or true, else nothing (0 in sums, 1 in products)."""

    condition: tuple[int, int] | None  # (var, mask)
    var: int
    weights: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Constraint: a predicate over the values of two or three choices."""

    name: str
    vars: tuple[int, ...]
    predicate: Callable[..., bool]

    def holds(self, values: Sequence[int]) -> bool:
        return bool(self.predicate(*(values[var] for var in self.vars)))


@dataclass(frozen=True, slots=True)
class Clause:
    """Constraint: at least one literal is true."""

    name: str
    literals: tuple[Literal, ...]

    @property
    def vars(self) -> tuple[int, ...]:
        return tuple(literal.var for literal in self.literals)

    def holds(self, values: Sequence[int]) -> bool:
        return any(mask >> values[var] & 1 for var, mask in self.literals)


@dataclass(frozen=True, slots=True)
class Counter:
    """Constraint: the sum (or the product, with `is_product`) of the terms is at most `limit`."""

    name: str
    terms: tuple[Term, ...]
    limit: int
    is_product: bool

    @property
    def vars(self) -> tuple[int, ...]:
        conditions = [term.condition[0] for term in self.terms if term.condition]
        return (*conditions, *(term.var for term in self.terms))

    def holds(self, values: Sequence[int]) -> bool:
        counted = [
            term.weights[values[term.var]]
            for term in self.terms
            if term.condition is None or term.condition[1] >> values[term.condition[0]] & 1
        ]
        return (prod(counted) if self.is_product else sum(counted)) <= self.limit


class Group(NamedTuple):
    """Counts the product of its terms' weights if any literal of `any_of` is true, else 0.

    Its terms have no condition.
    """

    any_of: tuple[Literal, ...]
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class CountLimit:
    """Constraint: the sum of the groups' counts is at most `limit`."""

    name: str
    groups: tuple[Group, ...]
    limit: int

    @property
    def vars(self) -> tuple[int, ...]:
        literals = (literal.var for group in self.groups for literal in group.any_of)
        return (*literals, *(term.var for group in self.groups for term in group.terms))

    def holds(self, values: Sequence[int]) -> bool:
        total = 0
        for any_of, terms in self.groups:
            if any(mask >> values[var] & 1 for var, mask in any_of):
                total += prod(term.weights[values[term.var]] for term in terms)
        return total <= self.limit


Declaration = Table | Clause | Counter | CountLimit
