"""The constraint model of a space: declarations, frozen into flat arrays for the compiled filters.

Layout of a domain vector (uint32, bit v set while value v is possible): first the order of every
pair of related objects, row by row, both orientations kept as inverses and the diagonal MERGED;
then the other variables in the order of their declaration. Every position is a choice; the searcher
decides the `searchable` ones (order only for i < j).

Objects stand at places, and are related where these are near enough (`Places`); of all others the
order is that of their places, which is no choice. By default there is one place, and the row of
object i is i * n_objects + j for order(i, j).
"""

from __future__ import annotations

import hashlib
from collections import Counter as Multiset
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .declarations import (
    Budget,
    Choice,
    Clause,
    Counter,
    Declaration,
    Group,
    Literal,
    Table,
    Term,
)
from .order import (
    AFTER,
    ANY_ORDER,
    BEFORE,
    INNER,
    MERGED,
    ORDER_VALUES,
    composition_table,
    holds_order,
    inverse_mask,
    inverse_table,
)

# Kinds of constraint, the rungs of the filter ladder.
TABLE2, TABLE3, CLAUSE, SUM, PRODUCT, BUDGET = range(6)
LITERAL = -1  # where the weights of a term would begin: an entry of a budget that says whether its group counts
MAX_VALUES = 32
N_LAYOUT = 5  # fields of Arrays that say where orders are: no fingerprint needs them besides places

__all__ = ["Arrays", "Choice", "Group", "Literal", "Model", "ModelBuilder", "Places", "Term"]


class Arrays(NamedTuple):
    """What the compiled filters read. Constraint c owns scope[start[c] : start[c + 1]]."""

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


@dataclass(frozen=True)
class Places:
    """Which objects are related: those at place p with those at places first[p] to last[p].

    The relation is symmetric, and both ends grow with p. What is not related is in the order of its places.
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
        """Runs of places that no relation leaves."""
        begin = 0
        for p in range(len(self.last)):
            if max(self.last[begin : p + 1]) == p:
                yield range(begin, p + 1)
                begin = p + 1


@dataclass(frozen=True)
class Rows:
    """Where the order of two objects stands in a domain vector."""

    place: tuple[int, ...]  # [n_objects]
    places: Places
    start: tuple[int, ...]  # [n_objects + 1] where the row of each object begins
    related: tuple[tuple[int, ...], ...]  # by place: the objects of a row, increasing
    column: tuple[dict[int, int], ...]  # by place: where an object is in a row

    @staticmethod
    def of(place: Sequence[int], places: Places) -> Rows:
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
        """Number of positions that are orders."""
        return self.start[-1]

    def position(self, x: int, y: int) -> int:
        """Of order(x, y); KeyError where the two are not related."""
        return self.start[x] + self.column[self.place[x]][y]

    def are_related(self, x: int, y: int) -> bool:
        return self.places.are_related(self.place[x], self.place[y])

    def pairs(self) -> Iterator[tuple[int, int]]:
        """(i, j) of every order, by position."""
        for x, p in enumerate(self.place):
            for y in self.related[p]:
                yield x, y

    def objects_of(self, places: Iterable[int]) -> list[int]:
        """The objects at these places, increasing."""
        chosen = set(places)
        return [item for item, p in enumerate(self.place) if p in chosen]


@dataclass(frozen=True, eq=False)
class Model:
    """Choices, declarations (the truths) and the arrays compiled from them."""

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
        """Position of order(x, y); KeyError where the two are not related."""
        return self.rows.position(x, y)

    @cached_property
    def positions(self) -> dict[str, int]:
        """Position of every choice by name, both orientations of order included."""
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
        """Intersect a domain with `mask`, and its mirror with the inverse; no propagation."""
        mirror = int(self.arrays.mirror[var])
        domains[var] &= mask
        if mirror != var:
            domains[mirror] = inverse_mask(int(domains[var]))

    def relation(self, values: Sequence[int] | npt.NDArray[np.int64], x: int, y: int) -> int:
        """Value of order(x, y), which is that of places where the two are not related."""
        if self.rows.are_related(x, y):
            return int(values[self.rows.position(x, y)])
        return BEFORE if self.rows.place[x] < self.rows.place[y] else AFTER

    def relation_matrix(
        self,
        values: Sequence[int] | npt.NDArray[np.int64],
        objects: Sequence[int] | None = None,
    ) -> list[list[int]]:
        """[n, n] value of order(i, j) between these objects (all, if none are given), for `order.forest`."""
        chosen = range(len(self.objects)) if objects is None else objects
        return [[self.relation(values, x, y) for y in chosen] for x in chosen]

    def violations(self, values: Sequence[int] | npt.NDArray[np.int64]) -> list[str]:
        """Names of what a complete assignment (value per position) breaks, judged by the truths."""
        plain = [int(value) for value in values]
        broken = [
            f"domain of {self.choices[var].name}"
            for var in range(self.n_vars)
            if not int(self.initial[var]) >> plain[var] & 1
        ]
        blocks = (self.rows.objects_of(block) for block in self.rows.places.blocks())
        if not all(holds_order(self.relation_matrix(plain, block)) for block in blocks):
            broken.append("order algebra")
        return broken + [d.name for d in self.declarations if not d.holds(plain)]


class ModelBuilder:
    """Collects objects, then variables, then constraints, and freezes them into a Model."""

    def __init__(self, places: Places | None = None) -> None:
        self.places = places or Places()
        self._objects: list[str] = []
        self._leaves: list[bool] = []
        self._place: list[int] = []
        self._mirrors: list[int] = []  # [n_order] position of the inverse order
        self._layout: Rows | None = None
        self._choices: list[Choice] = []
        self._initial: list[int] = []
        self._declarations: list[Declaration] = []
        self._tables: dict[int, tuple[int, int]] = {}  # declaration -> (first row, width)
        self._shared: dict[Hashable, int] = {}  # share key and shape -> first row
        self._by_content: dict[bytes, int] = {}
        self._rows: list[npt.NDArray[np.uint32]] = []
        self._n_rows = 0

    # ---- objects and variables

    def add_object(self, name: str, leaf: bool = False, place: int = 0) -> int:
        """Declare an object. A leaf (a statement body) contains nothing and never merges."""
        assert self._layout is None, "declare every object before the first variable"
        assert 0 <= place < len(self.places.first), f"{name} has no place {place}"
        self._objects.append(name)
        self._leaves.append(leaf)
        self._place.append(place)
        return len(self._objects) - 1

    @property
    def rows(self) -> Rows:
        """Where orders are; no object can follow."""
        if self._layout is None:
            self._layout = Rows.of(self._place, self.places)
            for i, j in self._layout.pairs():
                names = (self._objects[i], self._objects[j])
                self._choices.append(Choice("order", names, ORDER_VALUES))
                self._initial.append(self._initial_order(i, j))
                self._mirrors.append(self._layout.position(j, i))
        return self._layout

    def order(self, x: int, y: int) -> int:
        """Position of order(x, y), between objects by index; KeyError where the two are not related."""
        return self.rows.position(x, y)

    def add(
        self, kind: str, objects: tuple[str, ...], values: tuple[str, ...], mask: int | None = None
    ) -> int:
        """Declare a variable with 1 to 32 values, of which `mask` (default: all) are possible."""
        assert self.rows is not None  # objects come first
        assert 1 <= len(values) <= MAX_VALUES, f"{kind}{objects} has {len(values)} values"
        self._choices.append(Choice(kind, objects, values))
        every = (1 << len(values)) - 1
        self._initial.append(every if mask is None else mask & every)
        return len(self._choices) - 1

    def restrict(self, var: int, mask: int) -> None:
        """Remove values from the initial domain."""
        self._initial[var] &= mask
        mirror = self._mirror(var)
        if mirror != var:
            self._initial[mirror] &= inverse_mask(mask & ANY_ORDER)

    def n_values(self, var: int) -> int:
        return len(self._choices[var].values)

    def _initial_order(self, i: int, j: int) -> int:
        if i == j:
            return 1 << MERGED
        apart = 1 << BEFORE | 1 << AFTER
        match self._leaves[i], self._leaves[j]:
            case False, False:
                return ANY_ORDER
            case True, True:
                return apart
            case True, False:
                return apart | 1 << INNER
        return apart | inverse_mask(1 << INNER)

    def _mirror(self, var: int) -> int:
        return self._mirrors[var] if var < len(self._mirrors) else var

    # ---- constraints

    def table2(
        self,
        name: str,
        a: int,
        b: int,
        predicate: Callable[[int, int], bool],
        share: Hashable = None,
    ) -> None:
        """Require predicate(value of a, value of b).

        Equal `share` promises the same predicate, which is then tabulated once a shape.
        """
        self._add_table(name, (a, b), predicate, share)

    def table3(
        self,
        name: str,
        a: int,
        b: int,
        c: int,
        predicate: Callable[[int, int, int], bool],
        share: Hashable = None,
    ) -> None:
        """Require predicate(value of a, value of b, value of c); `share` as in `table2`."""
        self._add_table(name, (a, b, c), predicate, share)

    def clause(self, name: str, literals: Iterable[tuple[int, int]]) -> None:
        """Require that at least one (variable, mask) has its value in its mask."""
        merged: dict[
            int, int
        ] = {}  # one literal a variable, else the filter could miss that only one variable is left
        for var, mask in literals:
            mirror = self._mirror(var)
            canonical = min(var, mirror)
            mask &= (1 << self.n_values(var)) - 1
            merged[canonical] = merged.get(canonical, 0) | (
                mask if canonical == var else inverse_mask(mask)
            )
        assert merged, f"clause {name} has no literal"
        self._declarations.append(Clause(name, tuple(Literal(*item) for item in merged.items())))

    def sum_at_most(self, name: str, terms: Iterable[Term], limit: int) -> None:
        """Require that the sum of the terms is at most `limit`; weights are not negative."""
        self._add_counter(Counter(name, tuple(terms), limit, is_product=False))

    def product_at_most(self, name: str, terms: Iterable[Term], limit: int) -> None:
        """Require that the product of the terms is at most `limit`; weights are positive."""
        self._add_counter(Counter(name, tuple(terms), limit, is_product=True))

    def groups_at_most(self, name: str, groups: Iterable[Group], limit: int) -> None:
        """Require that the sum of what the groups count is at most `limit`; weights are not negative."""
        budget = Budget(name, tuple(groups), limit)
        # Weights and products are clipped to limit + 1, so that no intermediate of the filter leaves int64.
        assert 0 <= limit < 1 << 31, name
        for any_of, terms in budget.groups:
            assert any_of and terms, name
            for term in terms:
                assert term.condition is None and len(term.weights) == self.n_values(term.var), name
                assert min(term.weights) >= 0, name
        self._declarations.append(budget)

    def _add_counter(self, counter: Counter) -> None:
        neutral = 1 if counter.is_product else 0
        # Weights are clipped to limit + 1, so that no intermediate of the filter leaves int64.
        assert neutral <= counter.limit < (1 << 31 if counter.is_product else 1 << 61), counter.name
        for term in counter.terms:
            assert len(term.weights) == self.n_values(term.var), counter.name
            assert min(term.weights) >= neutral, counter.name
        self._declarations.append(counter)

    def _add_table(
        self, name: str, scope: tuple[int, ...], predicate: Callable[..., bool], share: Hashable
    ) -> None:
        shape = tuple(self.n_values(var) for var in scope)
        known = None if share is None else self._shared.get((share, shape))
        if known is None:
            known = self._tabulate(shape, predicate)
            if share is not None:
                self._shared[share, shape] = known
        self._tables[len(self._declarations)] = known, shape[1]
        self._declarations.append(Table(name, scope, predicate))

    def _tabulate(self, shape: tuple[int, ...], predicate: Callable[..., bool]) -> int:
        last = range(shape[-1])
        rows = np.array(
            [
                sum(1 << value for value in last if predicate(*map(int, prefix), value))
                for prefix in np.ndindex(*shape[:-1])
            ],
            np.uint32,
        )
        content = bytes(shape) + rows.tobytes()
        known = self._by_content.get(content)
        if known is None:
            known = self._by_content[content] = self._n_rows
            self._rows.append(rows)
            self._n_rows += len(rows)
        return known

    # ---- freezing

    def freeze(self) -> Model:
        """The model; the builder may go on and be frozen again."""
        rows = self.rows
        names = Multiset(choice.name for choice in self._choices)
        twice = [name for name, times in names.items() if times > 1]
        assert not twice, f"choices declared twice: {twice[:5]}"
        return Model(
            objects=tuple(self._objects),
            rows=rows,
            choices=tuple(self._choices),
            initial=np.array(self._initial, np.uint32),
            declarations=tuple(self._declarations),
            arrays=self._arrays(),
        )

    def _arrays(self) -> Arrays:
        rows, n_vars = self.rows, len(self._choices)
        flat = _Flat()
        for position, declaration in enumerate(self._declarations):
            flat.add(declaration, *self._tables.get(position, (0, 0)))
        watch_start, watch, watch_mask = flat.watches(n_vars, self._mirror)
        searchable = [var for var, mirror in enumerate(self._mirrors) if var < mirror]
        pairs = np.array(list(rows.pairs()), np.int32).reshape(-1, 2)
        sets: dict[tuple[int, ...], int] = {}
        row_set = [sets.setdefault(row, len(sets)) for row in rows.related]
        return Arrays(
            owner=pairs[:, 0].copy(),
            neighbour=pairs[:, 1].copy(),
            row=np.array(rows.start, np.int32),
            place=np.array(rows.place, np.int32),
            row_set=np.array([row_set[p] for p in rows.place], np.int32),
            composition=composition_table(),
            inverse=inverse_table(),
            mirror=np.array([self._mirror(var) for var in range(n_vars)], np.int32),
            kind=np.array(flat.kind, np.uint8),
            start=np.array(flat.start, np.int32),
            first_row=np.array(flat.first_row, np.int32),
            width=np.array(flat.width, np.int32),
            limit=np.array(flat.limit, np.int64),
            scope=np.array(flat.scope, np.int32),
            scope_mask=np.array(flat.scope_mask, np.uint32),
            scope_condition=np.array(flat.scope_condition, np.int32),
            scope_weights=np.array(flat.scope_weights, np.int32),
            rows=np.concatenate([*self._rows, np.zeros(1, np.uint32)]),
            weights=np.array([*flat.weights, 0], np.int64),
            watch_start=watch_start,
            watch=watch,
            watch_mask=watch_mask,
            searchable=np.array([*searchable, *range(rows.n_order, n_vars)], np.int32),
        )


class _Flat:
    """The constraints as growing lists, one entry a constraint or a scope position."""

    def __init__(self) -> None:
        self.kind: list[int] = []
        self.start: list[int] = [0]
        self.first_row: list[int] = []
        self.width: list[int] = []
        self.limit: list[int] = []
        self.scope: list[int] = []
        self.scope_mask: list[int] = []
        self.scope_condition: list[int] = []
        self.scope_weights: list[int] = []
        self.weights: list[int] = []
        self._weights_at: dict[tuple[int, ...], int] = {}

    def add(self, declaration: Declaration, first_row: int, width: int) -> None:
        limit = 0
        if isinstance(declaration, Table):
            kind = TABLE2 if len(declaration.vars) == 2 else TABLE3
            for var in declaration.vars:
                self._entry(var)
        elif isinstance(declaration, Clause):
            kind = CLAUSE
            for var, mask in declaration.literals:
                self._entry(var, mask)
        elif isinstance(declaration, Budget):
            kind, limit = BUDGET, declaration.limit
            for any_of, terms in declaration.groups:
                for var, mask in any_of:
                    self._entry(var, mask, weights=LITERAL)
                for term in terms:
                    self._entry(term.var, weights=self._weights(term, limit))
        else:
            kind, limit = (PRODUCT if declaration.is_product else SUM), declaration.limit
            for term in declaration.terms:
                condition, mask = term.condition or (-1, 0)
                self._entry(term.var, mask, condition, self._weights(term, limit))
        self.kind.append(kind)
        self.start.append(len(self.scope))
        self.first_row.append(first_row)
        self.width.append(width)
        self.limit.append(limit)

    def _entry(self, var: int, mask: int = 0, condition: int = -1, weights: int = 0) -> None:
        self.scope.append(var)
        self.scope_mask.append(mask)
        self.scope_condition.append(condition)
        self.scope_weights.append(weights)

    def _weights(self, term: Term, limit: int) -> int:
        clipped = tuple(min(weight, limit + 1) for weight in term.weights)
        if clipped not in self._weights_at:
            self._weights_at[clipped] = len(self.weights)
            self.weights.extend(clipped)
        return self._weights_at[clipped]

    def watches(
        self, n_vars: int, mirror: Callable[[int], int]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.uint32]]:
        """Per variable, in CSR form: the constraints to wake, and the literal that can spare it."""
        wakes: list[dict[int, int]] = [{} for _ in range(n_vars)]
        for constraint, kind in enumerate(self.kind):
            for entry in range(self.start[constraint], self.start[constraint + 1]):
                var = self.scope[entry]
                canonical = min(var, mirror(var))
                mask = self.scope_mask[entry] if kind == CLAUSE else 0
                wakes[canonical][constraint] = mask  # clauses already name canonical variables
                if self.scope_condition[entry] >= 0:
                    condition = self.scope_condition[entry]
                    wakes[min(condition, mirror(condition))][constraint] = 0
        counts = [len(wake) for wake in wakes]
        start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        watch = np.array([c for wake in wakes for c in wake], np.int32)
        watch_mask = np.array([m for wake in wakes for m in wake.values()], np.uint32)
        return start, watch, watch_mask
