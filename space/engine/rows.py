"""Positions, in a domain vector, of the orders of related object pairs.

Each object has a place (a number). Objects are related if their places are near enough
(`PlaceRelation`); their order is a choice. Unrelated objects are ordered as their places, which is
no choice. By default there is one place, and order(i, j) has position i * n_objects + j.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PlaceRelation:
    """Relation of objects by their places: objects at place p are related to those at places first[p] to last[p].

    The relation is symmetric, and both ends grow with p.
    """

    first: tuple[int, ...] = (0,)
    last: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        ends = tuple(zip(self.first, self.last, strict=True))
        assert all(first <= p <= last for p, (first, last) in enumerate(ends)), ends
        assert all(self.first[q] <= p for p, (_, q) in enumerate(ends)), ends
        assert list(self.first) == sorted(self.first) and list(self.last) == sorted(self.last), ends

    def are_related(self, p: int, q: int) -> bool:
        return self.first[p] <= q <= self.last[p]

    def blocks(self) -> Iterator[range]:
        """Yields the runs of places such that places of different runs are unrelated."""
        begin = 0
        for p in range(len(self.last)):
            if max(self.last[begin : p + 1]) == p:
                yield range(begin, p + 1)
                begin = p + 1


@dataclass(frozen=True)
class Rows:
    """Positions, in a domain vector, of the order of each pair of related objects."""

    place: tuple[int, ...]  # [n_objects]
    places: PlaceRelation
    start: tuple[int, ...]  # [n_objects + 1] where the row of each object begins
    related: tuple[tuple[int, ...], ...]  # by place: the objects of a row, increasing
    column: tuple[dict[int, int], ...]  # by place: where an object is in a row

    @staticmethod
    def of(place: Sequence[int], places: PlaceRelation) -> Rows:
        at: list[list[int]] = [[] for _ in places.first]
        for item, p in enumerate(place):
            at[p].append(item)
        known: dict[tuple[int, int], tuple[tuple[int, ...], dict[int, int]]] = {}
        for ends in zip(places.first, places.last, strict=True):
            if ends not in known:
                row = tuple(sorted(item for p in range(ends[0], ends[1] + 1) for item in at[p]))
                known[ends] = row, {item: k for k, item in enumerate(row)}
        rows = [known[ends] for ends in zip(places.first, places.last, strict=True)]
        start = [0]
        for p in place:
            start.append(start[-1] + len(rows[p][0]))
        related, column = tuple(row for row, _ in rows), tuple(column for _, column in rows)
        return Rows(tuple(place), places, tuple(start), related, column)

    @property
    def n_order(self) -> int:
        """Number of positions in the domain vector that are orders."""
        return self.start[-1]

    def position(self, x: int, y: int) -> int:
        """Returns the position of order(x, y). Raises KeyError if the two objects are not related."""
        return self.start[x] + self.column[self.place[x]][y]

    def are_related(self, x: int, y: int) -> bool:
        return self.places.are_related(self.place[x], self.place[y])

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yields (i, j) of every order, by position."""
        for x, p in enumerate(self.place):
            for y in self.related[p]:
                yield x, y

    def objects_of(self, places: Iterable[int]) -> list[int]:
        """Returns the objects at these places, increasing."""
        chosen = set(places)
        return [item for item, p in enumerate(self.place) if p in chosen]
