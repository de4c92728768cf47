"""Stores of a window that a later call of it overwrites unread: parts of calls lose them, or are left out.

Whoever looks at a field ends the window, so nobody sees such a value. An error ends it, too: a part that may fail counts as a
reader of everything. The removal saves work and costs none, so this is no choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from ..analysis.accesses import sites_of
from ..analysis.effects import region_of
from ..ir.access import AccessSet, Region, whole
from ..ir.domain import BOX
from ..ir.kernel import ArrayParam, ForActive, Placed, Update
from ..ir.structure import StructureTree
from ..transforms.dead_stores import without_unread
from ..transforms.merged_calls import IndependentPart, PlacedPart
from .body_stores import without_stores_to
from .coverage import stored_by
from .distribute import unique_loops


class LiveParts:
    """Parts of windows' calls without dead stores.

    `params`: all arrays by name. `placed`: those that are fields of `trees`.
    """

    def __init__(
        self,
        params: Mapping[str, ArrayParam],
        placed: Mapping[str, Placed],
        trees: Mapping[str, StructureTree],
    ) -> None:
        self._params, self._placed, self._trees = params, placed, trees
        self._made: dict[tuple[int, frozenset[str]], IndependentPart | None] = {}
        self._regions: dict[int, dict[str, list[Region]]] = {}
        self._seen: list[IndependentPart] = []  # keeps their identities

    def of(self, placings: Sequence[PlacedPart]) -> list[PlacedPart]:
        """Returns the parts of a window, in order, without dead stores and without parts that are left with no store.

        Equal parts that lose equal stores stay one object.
        """
        later: list[PlacedPart] = []  # in reverse order
        for x in reversed(placings):
            dead = frozenset(a for a in x.part.changed if not self._is_seen(x, a, later))
            part = self._without(x.part, dead) if dead else x.part
            if part is not None:
                later.append(x if part is x.part else replace(x, part=part))
        return later[::-1]

    def _is_seen(self, x: PlacedPart, array: str, later: Sequence[PlacedPart]) -> bool:
        """True if a later part may read what a part writes to an array, or it outlives the window."""
        if x.may_fail:
            return True
        for other in reversed(later):
            if other.may_fail or array in other.part.read:
                return True
            if array in other.part.changed and self._covers(other, x, array):
                return False
        return True

    def _covers(self, other: PlacedPart, x: PlacedPart, array: str) -> bool:
        """True if a later part surely overwrites all elements of an array that part `x` has written.

        Precondition: no cell is activated or deactivated between, nor by the two.
        """
        shape = self._params[array].shape
        if array in self._placed:  # written cells are active
            loop = other.part.loop
            if not isinstance(loop, ForActive):
                return False
            stored = stored_by(loop, self._trees[loop.tree], self._placed).get(array, ())
            return len(stored) == prod(shape[: len(shape) - len(loop.loops)])
        sure, written = (self._written(part).get(array, ()) for part in (other.part, x.part))
        return all(any(a.covers(b) for a in sure) for b in written)

    def _written(self, part: IndependentPart) -> Mapping[str, list[Region]]:
        """Returns the boxes that a part writes, by array: those that it surely overwrites are exact."""
        key = id(part)
        if key not in self._regions:
            self._seen.append(part)
            self._regions[key] = self._found(part)
        return self._regions[key]

    def _found(self, part: IndependentPart) -> dict[str, list[Region]]:
        """Returns the boxes of `_written`: whole arrays of a part that uses trees."""
        if part.trees:
            boxes = {a: whole(self._params[a].shape) for a in part.changed}
            return {a: [replace(box, is_exact=False)] for a, box in boxes.items()}
        found: dict[str, list[Region]] = {}
        for site in sites_of(unique_loops(part.body), ()):
            if site.writes and site.state.kind == "value":
                name = site.state.name
                written = AccessSet(BOX, site.loops, site.index, site.guard)
                box = region_of(written, self._params[name].shape)
                if not (box.is_exact and site.guard.is_exact):
                    box = self._inside(box, name)
                found.setdefault(name, []).append(box)
        return found

    def _inside(self, box: Region, array: str) -> Region:
        """Returns the part of a box in its array: loops of unknown lengths end there."""
        ends = zip(box.bounds, self._params[array].shape, strict=True)
        return Region(tuple((max(a, 0), min(b, n - 1)) for (a, b), n in ends), False)

    def _without(self, part: IndependentPart, dead: frozenset[str]) -> IndependentPart | None:
        """Returns a part without its stores to arrays `dead`, as far as it does not read them; None if it has no store left."""
        key = id(part), dead
        if key not in self._made:
            self._seen.append(part)
            self._made[key] = _without(part, dead)
        return self._made[key]


def _without(part: IndependentPart, dead: frozenset[str]) -> IndependentPart | None:
    """Returns the part without stores to `dead`; arrays that it reads elsewhere than in their own stores keep theirs."""
    with_result = {s.array for s in part.writes if isinstance(s, Update) and s.result}
    dead -= with_result
    while dead:
        left = replace(part, body=without_unread(without_stores_to(part.body, dead)))
        if not left.changed:
            return None
        if dead.isdisjoint(left.uses):
            return left
        dead -= left.uses.keys()
    return part
