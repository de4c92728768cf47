"""A brute-force solver on plain Python sets; it shares no code with the package.

Orders are found as laminar families of intervals: two objects are merged when their intervals are
equal, nested when one contains the other, in sequence when they are apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product

BEFORE, AFTER, INNER, OUTER, MERGED = range(5)

Matrix = tuple[tuple[int, ...], ...]
Constraint = Callable[[Sequence[int]], bool]


def relation(a: tuple[int, int], b: tuple[int, int]) -> int | None:
    """Order of two half-open intervals, None if they cross."""
    if a == b:
        return MERGED
    if a[1] <= b[0]:
        return BEFORE
    if b[1] <= a[0]:
        return AFTER
    if b[0] <= a[0] and a[1] <= b[1]:
        return INNER
    if a[0] <= b[0] and b[1] <= a[1]:
        return OUTER
    return None


@cache
def orders(n_objects: int) -> frozenset[Matrix]:
    """Every matrix of relations that some forest of `n_objects` objects shows."""
    ends = range(2 * n_objects)
    intervals = [(a, b) for a in ends for b in ends if a < b]
    families: list[tuple[tuple[int, int], ...]] = [()]
    for _ in range(n_objects):
        families = [
            (*family, new)
            for family in families
            for new in intervals
            if all(relation(new, old) is not None for old in family)
        ]
    return frozenset(
        tuple(tuple(relation(a, b) for b in family) for a in family) for family in families
    )


def solutions(
    n_objects: int, domains: Sequence[set[int]], constraints: Sequence[Constraint]
) -> Iterator[tuple[int, ...]]:
    """Every assignment (orders row by row, then the other variables) within the domains."""
    others = domains[n_objects * n_objects :]
    for matrix in sorted(orders(n_objects)) if n_objects else [()]:
        order = tuple(value for row in matrix for value in row)
        if any(value not in domains[var] for var, value in enumerate(order)):
            continue
        for rest in product(*map(sorted, others)):
            values = order + rest
            if all(constraint(values) for constraint in constraints):
                yield values


def used_values(found: Sequence[tuple[int, ...]], n_vars: int) -> list[set[int]]:
    """For every variable, the values that some solution uses."""
    return [{values[var] for values in found} for var in range(n_vars)]
