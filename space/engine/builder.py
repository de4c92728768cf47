"""Model builder: collects objects, variables and constraints, and freezes them into flat arrays."""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Callable, Hashable, Iterable

import numpy as np
import numpy.typing as npt

from . import declarations
from .model import BUDGET, CLAUSE, LITERAL, MAX_VALUES, PRODUCT, SUM, TABLE2, TABLE3, Arrays, Model
from .order import (
    AFTER,
    ANY_ORDER,
    BEFORE,
    INNER,
    MERGED,
    ORDER_VALUES,
    composition_table,
    inverse_mask,
    inverse_table,
)
from .rows import PlaceRelation, Rows


class ModelBuilder:
    """Collects objects, then variables, then constraints, and freezes them into a Model."""

    def __init__(self, places: PlaceRelation | None = None) -> None:
        self.places = places or PlaceRelation()
        self._objects: list[str] = []
        self._leaves: list[bool] = []
        self._place: list[int] = []
        self._mirrors: list[int] = []  # [n_order] position of the inverse order
        self._layout: Rows | None = None
        self._choices: list[declarations.Choice] = []
        self._initial: list[int] = []
        self._declarations: list[declarations.Declaration] = []
        self._tables: dict[int, tuple[int, int]] = {}  # declaration -> (first row, width)
        self._shared: dict[Hashable, int] = {}  # share key and shape -> first row
        self._by_content: dict[bytes, int] = {}
        self._rows: list[npt.NDArray[np.uint32]] = []
        self._n_rows = 0

    # ---- objects and variables

    def add_object(self, name: str, leaf: bool = False, place: int = 0) -> int:
        """Adds an object at `place`, and returns its number.

        A leaf (a task body) contains nothing and never merges.
        """
        assert self._layout is None, "declare every object before the first variable"
        assert 0 <= place < len(self.places.first), f"{name} has no place {place}"
        self._objects.append(name)
        self._leaves.append(leaf)
        self._place.append(place)
        return len(self._objects) - 1

    @property
    def rows(self) -> Rows:
        """Positions of the orders of object pairs. No object can be added after the first use."""
        if self._layout is None:
            self._layout = Rows.of(self._place, self.places)
            for i, j in self._layout.pairs():
                names = (self._objects[i], self._objects[j])
                self._choices.append(declarations.Choice("order", names, ORDER_VALUES))
                self._initial.append(self._initial_order(i, j))
                self._mirrors.append(self._layout.position(j, i))
        return self._layout

    def order(self, x: int, y: int) -> int:
        """Returns the position of order(x, y).

        Raises KeyError if the two objects are not related (too far apart).
        """
        return self.rows.position(x, y)

    def add(
        self, kind: str, objects: tuple[str, ...], values: tuple[str, ...], mask: int | None = None
    ) -> int:
        """Adds a choice with 1 to 32 values, and returns its position.

        `mask`: the possible values (default: all).
        """
        assert self.rows is not None  # objects come first
        assert 1 <= len(values) <= MAX_VALUES, f"{kind}{objects} has {len(values)} values"
        self._choices.append(declarations.Choice(kind, objects, values))
        every = (1 << len(values)) - 1
        self._initial.append(every if mask is None else mask & every)
        return len(self._choices) - 1

    def restrict(self, var: int, mask: int) -> None:
        """Removes the values outside of `mask` from the initial domain of a choice."""
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
        """Requires predicate(value of `a`, value of `b`).

        Calls with equal `share` promise equal predicates, so the table is computed once per number
        of values.
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
        """Requires predicate(value of `a`, value of `b`, value of `c`); `share` as in `table2`."""
        self._add_table(name, (a, b, c), predicate, share)

    def clause(self, name: str, literals: Iterable[tuple[int, int]]) -> None:
        """Requires that at least one literal (variable, mask) is true: the variable's value is in the mask."""
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
        self._declarations.append(
            declarations.Clause(name, tuple(declarations.Literal(*item) for item in merged.items()))
        )

    def sum_at_most(self, name: str, terms: Iterable[declarations.Term], limit: int) -> None:
        """Requires that the sum of the terms is at most `limit`; weights are at least 0."""
        self._add_counter(declarations.Counter(name, tuple(terms), limit, is_product=False))

    def product_at_most(self, name: str, terms: Iterable[declarations.Term], limit: int) -> None:
        """Requires that the product of the terms is at most `limit`; weights are at least 1."""
        self._add_counter(declarations.Counter(name, tuple(terms), limit, is_product=True))

    def groups_at_most(self, name: str, groups: Iterable[declarations.Group], limit: int) -> None:
        """Requires that the sum of the groups' counts is at most `limit`; weights are at least 0."""
        budget = declarations.CountLimit(name, tuple(groups), limit)
        # Weights and products are clipped to limit + 1, so that no intermediate of the filter leaves int64.
        assert 0 <= limit < 1 << 31, name
        for any_of, terms in budget.groups:
            assert any_of and terms, name
            for term in terms:
                assert term.condition is None and len(term.weights) == self.n_values(term.var), name
                assert min(term.weights) >= 0, name
        self._declarations.append(budget)

    def _add_counter(self, counter: declarations.Counter) -> None:
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
        self._declarations.append(declarations.Table(name, scope, predicate))

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
        """Returns the model of all declarations so far. The builder can be extended and frozen again."""
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
    """Constraints as growing flat lists: one entry per constraint, or per position in its scope."""

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

    def add(self, declaration: declarations.Declaration, first_row: int, width: int) -> None:
        limit = 0
        if isinstance(declaration, declarations.Table):
            kind = TABLE2 if len(declaration.vars) == 2 else TABLE3
            for var in declaration.vars:
                self._entry(var)
        elif isinstance(declaration, declarations.Clause):
            kind = CLAUSE
            for var, mask in declaration.literals:
                self._entry(var, mask)
        elif isinstance(declaration, declarations.CountLimit):
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

    def _weights(self, term: declarations.Term, limit: int) -> int:
        clipped = tuple(min(weight, limit + 1) for weight in term.weights)
        if clipped not in self._weights_at:
            self._weights_at[clipped] = len(self.weights)
            self.weights.extend(clipped)
        return self._weights_at[clipped]

    def watches(
        self, n_vars: int, mirror: Callable[[int], int]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.uint32]]:
        """Returns, by variable (CSR form), the constraints to wake when the variable changes, each with a mask of values.

        While the variable's domain is within that mask, the constraint need not be woken.
        """
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
