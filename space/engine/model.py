"""Constraint model of a space: declarations, frozen into flat arrays for the compiled filters (`builder.py` makes it).

Layout of a domain vector (uint32, bit v set while value v is possible): first the orders of all
pairs of related objects, row by row, both orientations as inverses of each other, the diagonal
MERGED. Then the other choices follow in the order of their declaration. Every position is a choice;
a searcher decides the `searchable` ones (orders only for i < j).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .declarations import (
    Choice,
    Declaration,
)
from .order import (
    AFTER,
    BEFORE,
    inverse_mask,
)
from .rows import Rows

# Kinds of constraint, the rungs of the filter ladder.
TABLE2, TABLE3, CLAUSE, SUM, PRODUCT, BUDGET = range(6)
LITERAL = -1  # where the weights of a term would begin: an entry of a budget that says whether its group counts
MAX_VALUES = 32
N_LAYOUT = 5  # fields of Arrays that say where orders are: no fingerprint needs them besides places


class Arrays(NamedTuple):
    """Flat arrays that the compiled filters read. Constraint c has scope[start[c] : start[c + 1]]."""

    owner: npt.NDArray[np.int32]  # [n_order] object i of order(i, j), by position
    neighbour: npt.NDArray[np.int32]  # [n_order] object j; increasing in each row
    row: npt.NDArray[np.int32]  # [n_objects + 1] where the rows of objects begin
    place: npt.NDArray[np.int32]  # [n_objects]
    row_set: npt.NDArray[np.int32]  # [n_objects] equal for objects related to the same ones
    composition: npt.NDArray[np.uint32]  # [32, 32] masks of (a,b), (b,c) -> mask of (a,c)
    inverse: npt.NDArray[np.uint32]  # [32] mask of (i,j) -> mask of (j,i)
    mirror: npt.NDArray[
        np.int32
    ]  # [n_vars] position of the inverse order variable; others: themselves
    kind: npt.NDArray[np.uint8]  # [n_constraints]
    start: npt.NDArray[np.int32]  # [n_constraints + 1]
    first_row: npt.NDArray[np.int32]  # [n_constraints] of a table, in rows
    width: npt.NDArray[
        np.int32
    ]  # [n_constraints] of a table: number of values of its middle variable
    limit: npt.NDArray[np.int64]  # [n_constraints] of a counter
    scope: npt.NDArray[np.int32]  # [n_scope] variable: of a table, a literal, the weight of a term
    scope_mask: npt.NDArray[np.uint32]  # [n_scope] of a literal, or of the condition of a term
    scope_condition: npt.NDArray[np.int32]  # [n_scope] variable of a term's condition, -1 for none
    scope_weights: npt.NDArray[np.int32]  # [n_scope] where the weights of a term begin, or LITERAL
    rows: npt.NDArray[np.uint32]  # values (a) or (a, b) -> mask of the last variable
    weights: npt.NDArray[np.int64]
    watch_start: npt.NDArray[np.int32]  # [n_vars + 1]; mirrors have no watches of their own
    watch: npt.NDArray[np.int32]  # constraint to wake
    watch_mask: npt.NDArray[np.uint32]  # of a literal: wake only when it is false; 0: wake always
    searchable: npt.NDArray[np.int32]  # [n_searchable] increasing


@dataclass(frozen=True, eq=False)
class Model:
    """A constraint model: choices, declarations (constraints as predicates), and the arrays compiled from them."""

    objects: tuple[str, ...]
    rows: Rows
    choices: tuple[Choice, ...]  # [n_vars]
    initial: npt.NDArray[np.uint32]  # [n_vars] domains before any propagation
    declarations: tuple[Declaration, ...]  # [n_constraints]
    arrays: Arrays

    @property
    def n_vars(self) -> int:
        return len(self.choices)

    @property
    def searchable(self) -> npt.NDArray[np.int32]:
        return self.arrays.searchable

    def order(self, x: int, y: int) -> int:
        """Returns the position of order(x, y). Raises KeyError if the two objects are not related."""
        return self.rows.position(x, y)

    @cached_property
    def positions(self) -> dict[str, int]:
        """Position of every choice by name, both orientations of orders included."""
        return {choice.name: var for var, choice in enumerate(self.choices)}

    @cached_property
    def key(self) -> str:
        """Fingerprint of names, values, initial domains, declaration names and compiled tables."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr(self.objects).encode())
        if self.rows.n_order < len(self.objects) ** 2:
            digest.update(repr((self.rows.place, self.rows.places)).encode())
        for choice in self.choices[self.rows.n_order :]:
            digest.update(f"{choice.name}={'|'.join(choice.values)};".encode())
        for declaration in self.declarations:
            digest.update(f"{type(declaration).__name__} {declaration.name};".encode())
        digest.update(self.initial.tobytes())
        for array in self.arrays[N_LAYOUT:]:
            digest.update(np.asarray(array).tobytes())
        return digest.hexdigest()

    def narrow(self, domains: npt.NDArray[np.uint32], var: int, mask: int) -> None:
        """Intersects the domain of `var` with `mask`, and that of the inverse order accordingly, without propagation."""
        mirror = int(self.arrays.mirror[var])
        domains[var] &= mask
        if mirror != var:
            domains[mirror] = inverse_mask(int(domains[var]))

    def relation(self, values: Sequence[int] | npt.NDArray[np.int64], x: int, y: int) -> int:
        """Returns the value of order(x, y); for unrelated objects, the order of their places."""
        if self.rows.are_related(x, y):
            return int(values[self.rows.position(x, y)])
        return BEFORE if self.rows.place[x] < self.rows.place[y] else AFTER

    def relation_matrix(
        self,
        values: Sequence[int] | npt.NDArray[np.int64],
        objects: Sequence[int] | None = None,
    ) -> list[list[int]]:
        """Returns the matrix of order(i, j) for the given objects (None: all), for `order.forest`."""
        chosen = range(len(self.objects)) if objects is None else objects
        return [[self.relation(values, x, y) for y in chosen] for x in chosen]
