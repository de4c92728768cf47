"""Converts a model's declarations to OR-tools CP-SAT: counts implementations, proves dead ends, finds completions.

It shares the declarations and the set of order triples with the filters, but no filter. The order
needs a table for each of n^3 / 6 triples of objects, so this suits small numbers of objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
from ortools.sat.python import cp_model

from .declarations import Clause, Counter, CountLimit, Group, Literal, Table, Term
from .model import Model
from .order import INVERSE, triples

Domains = npt.NDArray[np.uint32]


class _Encoding:
    """Encoding of a model in CP-SAT: one variable per searchable choice.

    All other choices are functions of these.
    """

    def __init__(self, model: Model, domains: Domains) -> None:
        self.model = model
        self.domains = [int(domain) for domain in domains]
        self.cp = cp_model.CpModel()
        self.variables: dict[int, Any] = {}
        self._literals: dict[tuple[int, int], Any] = {}
        for var in range(model.n_vars):
            if var == self._canonical(var):
                values = cp_model.Domain.from_values(self._values(var))
                self.variables[var] = self.cp.new_int_var_from_domain(values, f"v{var}")
        self._add_order()
        for declaration in model.declarations:
            if isinstance(declaration, Table):
                self._add_table(declaration)
            elif isinstance(declaration, Clause):
                self._add_clause(declaration)
            elif isinstance(declaration, CountLimit):
                self._add_budget(declaration)
            else:
                self._add_counter(declaration)

    def _canonical(self, var: int) -> int:
        return min(var, int(self.model.arrays.mirror[var]))

    def _values(self, var: int) -> list[int]:
        return [value for value in range(32) if self.domains[var] >> value & 1]

    def _stored(self, var: int, value: int) -> int:
        """Returns the value of the canonical variable (searchable one of a pair of inverse orders) if `var` has `value`."""
        return value if var == self._canonical(var) else INVERSE[value]

    def _add_rows(
        self, scope: tuple[int, ...], rows: Sequence[tuple[int, ...]], *more: Any
    ) -> None:
        """Allows exactly the value tuples `rows` for the variables of `scope`, followed by the CP-SAT variables `more`."""
        columns = [self.variables[self._canonical(var)] for var in scope]
        stored = [
            (
                *(self._stored(var, value) for var, value in zip(scope, row, strict=False)),
                *row[len(scope) :],
            )
            for row in rows
        ]
        if stored:
            self.cp.add_allowed_assignments([*columns, *more], stored)
        else:
            self.cp.add_bool_or([])

    def _add_order(self) -> None:
        """Constrains each triple of objects with at least two related pairs to the order algebra.

        Unrelated objects are ordered as their places.
        """
        model, rows = self.model, sorted(triples())
        for a, p in enumerate(model.rows.place):
            for b, c in combinations((x for x in model.rows.related[p] if x != a), 2):
                if not model.rows.are_related(b, c):
                    value = model.relation((), b, c)
                    kept = [(row[0], row[2]) for row in rows if row[1] == value]
                    self._add_rows((model.order(a, b), model.order(a, c)), kept)
                elif a < b:
                    self._add_rows((model.order(a, b), model.order(b, c), model.order(a, c)), rows)

    def _add_table(self, table: Table) -> None:
        rows = [
            row
            for row in product(*(self._values(var) for var in table.vars))
            if table.predicate(*row)
        ]
        self._add_rows(table.vars, rows)

    def _literal(self, var: int, value: int) -> Any:
        if (var, value) not in self._literals:
            literal = self.cp.new_bool_var(f"v{var}={value}")
            self.cp.add(self.variables[var] == value).only_enforce_if(literal)
            self.cp.add(self.variables[var] != value).only_enforce_if(~literal)
            self._literals[var, value] = literal
        return self._literals[var, value]

    def _add_clause(self, clause: Clause) -> None:
        self.cp.add_bool_or(
            [
                self._literal(self._canonical(var), self._stored(var, value))
                for var, mask in clause.literals
                for value in self._values(var)
                if mask >> value & 1
            ]
        )

    def _add_counter(self, counter: Counter) -> None:
        counted = [self._contribution(term, counter) for term in counter.terms]
        if not counter.is_product:
            self.cp.add(sum(counted) <= counter.limit)
            return
        # Weights are at least one, so that every prefix of the product respects the limit as well.
        so_far: Any = 1
        for contribution in counted:
            prefix = self.cp.new_int_var(1, counter.limit, "prefix")
            self.cp.add_multiplication_equality(prefix, [so_far, contribution])
            so_far = prefix

    def _contribution(self, term: Term, counter: Counter) -> Any:
        neutral = 1 if counter.is_product else 0
        heavy = counter.limit + 1
        contribution = self.cp.new_int_var(0, heavy, "contribution")
        if term.condition is None or term.condition[0] == term.var:
            mask = term.condition[1] if term.condition else -1
            rows = [
                (value, min(term.weights[value] if mask >> value & 1 else neutral, heavy))
                for value in self._values(term.var)
            ]
            self._add_rows((term.var,), rows, contribution)
            return contribution
        condition, mask = term.condition
        pairs = [
            (asked, value, min(term.weights[value] if mask >> asked & 1 else neutral, heavy))
            for asked in self._values(condition)
            for value in self._values(term.var)
        ]
        self._add_rows((condition, term.var), pairs, contribution)
        return contribution

    def _add_budget(self, budget: CountLimit) -> None:
        self.cp.add(sum(self._counted(g, budget.limit) for g in budget.groups) <= budget.limit)

    def _counted(self, group: Group, limit: int) -> Any:
        """Returns a CP-SAT expression of a group's count.

        Factors of 0 or 1 come first, so that every prefix of the product is at most `limit` too.
        """
        are_there, weights = [self.is_any(*group.any_of)], []
        for term in group.terms:
            is_there = self.cp.new_bool_var("there")
            weight = self.cp.new_int_var(1, limit + 1, "weight")
            rows = [
                (value, int(n > 0), max(1, min(n, limit + 1)))
                for value, n in ((v, term.weights[v]) for v in self._values(term.var))
            ]
            self._add_rows((term.var,), rows, is_there, weight)
            are_there.append(is_there)
            weights.append(weight)
        so_far: Any = 1
        for factor in (*are_there, *weights):
            prefix = self.cp.new_int_var(0, max(1, limit), "prefix")
            self.cp.add_multiplication_equality(prefix, [so_far, factor])
            so_far = prefix
        return so_far

    def weighed(self, weights: Mapping[tuple[int, int], float]) -> Any:
        """Returns a CP-SAT expression: the sum of the weights of those (position, value) that are chosen."""
        return sum(
            weight * self._literal(self._canonical(var), self._stored(var, value))
            for (var, value), weight in weights.items()
            if self.domains[var] >> value & 1
        )

    def is_any(self, *literals: Literal) -> Any:
        """Returns a CP-SAT variable that is true if any of the literals holds."""
        is_any = self.cp.new_bool_var("any")
        chosen = [
            self._literal(self._canonical(var), self._stored(var, value))
            for var, mask in literals
            for value in self._values(var)
            if mask >> value & 1
        ]
        self.cp.add_max_equality(is_any, [*chosen, 0])
        return is_any

    def solved(self, solver: cp_model.CpSolver) -> Domains:
        """Returns the solution as a complete domain vector."""
        domains = np.empty(self.model.n_vars, np.uint32)
        for var in range(self.model.n_vars):
            stored = int(solver.value(self.variables[self._canonical(var)]))
            domains[var] = 1 << self._stored(var, stored)
        return domains


def _solver() -> cp_model.CpSolver:
    """Returns a deterministic solver, which has one worker."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    # Its handler of Ctrl-C would stay behind and replace ours.
    solver.parameters.catch_sigint_signal = False
    return solver


class _Counting(cp_model.CpSolverSolutionCallback):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self.count = 0
        self._limit = limit

    def on_solution_callback(self) -> None:
        self.count += 1
        if self.count >= self._limit:
            self.stop_search()


def count(model: Model, domains: Domains, limit: int) -> tuple[int, bool]:
    """Returns the number of implementations within `domains`, at most `limit`, and True if these are all."""
    encoding = _Encoding(model, domains)
    solver = _solver()
    solver.parameters.enumerate_all_solutions = True
    counting = _Counting(limit)
    status = solver.solve(encoding.cp, counting)
    return counting.count, status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)


def projections(
    model: Model, domains: Domains, literals: Sequence[Literal], limit: int, seed: int = 0
) -> tuple[list[Domains], bool]:
    """Returns an implementation for each combination of truth values that `literals` can have within `domains`.

    At most `limit` of them, and True if these are all. `seed`: of random hints, so that combinations in a row are not alike.
    Deterministic (one worker).
    """
    encoding = _Encoding(model, domains)
    solver = _solver()
    are_true = [encoding.is_any(literal) for literal in literals]
    found: list[Domains] = []
    cp: Any = encoding.cp
    rng = np.random.default_rng(seed)

    def hint() -> None:
        cp.clear_hints()
        for x in are_true:
            cp.add_hint(x, bool(rng.integers(2)))

    hint()
    while solver.solve(cp) in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        if len(found) == limit:
            return found, False
        found.append(encoding.solved(solver))
        cp.add_bool_or([~x if solver.value(x) else x for x in are_true])
        hint()
    return found, True


def complete(
    model: Model,
    domains: Domains,
    objective: Mapping[tuple[int, int], float] | None = None,
    seconds: float | None = None,
) -> Domains | None:
    """Returns a complete domain vector within `domains`; None if there is none or time ran out.

    Without a time limit, None proves that there is no implementation. `objective`: weights of
    (position, value); the sum over the chosen values is minimised, as far as `seconds` allow.
    Deterministic (one worker) unless the limit ends it.
    """
    encoding = _Encoding(model, domains)
    if objective:
        encoding.cp.minimize(encoding.weighed(objective))
    solver = _solver()
    if seconds is not None:
        solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(encoding.cp)
    return encoding.solved(solver) if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None


def fewest_classes(
    n: int,
    may: Sequence[tuple[int, int]],
    must: Sequence[tuple[int, int]],
    refused: Sequence[Sequence[tuple[int, int]]],
    hint: Iterable[tuple[int, int]] = (),
    effort: float = inf,
) -> tuple[list[tuple[int, int]], bool] | None:
    """Returns a partition of `n` items into the fewest classes, as pairs of items in one class, and if it is proved the best.

    It returns None if none is found.
    Only pairs of `may` can be in one class; all pairs of `must` are. Of each entry of `refused` at
    least one pair is in different classes. In each pair the smaller item is first. The solver
    begins at the pairs `hint`, and ends after `effort` (its deterministic time, about seconds).
    """
    cp = cp_model.CpModel()
    same: dict[tuple[int, int], Any] = {p: cp.new_bool_var(f"same{p}") for p in sorted(may)}
    for a, b, c in combinations(range(n), 3):
        for x, y, z in (
            ((a, b), (b, c), (a, c)),
            ((a, b), (a, c), (b, c)),
            ((a, c), (b, c), (a, b)),
        ):
            if x in same and y in same:
                cp.add_bool_or([~same[x], ~same[y], *([same[z]] if z in same else [])])
    for pair in must:
        cp.add(same[pair] == 1)
    for pairs in refused:
        cp.add_bool_or([~same[pair] for pair in pairs])
    begins = [cp.new_bool_var(f"begins{t}") for t in range(n)]
    for t in range(n):
        cp.add_bool_or([begins[t], *(x for (_, b), x in same.items() if b == t)])
    cp.minimize(sum(begins))
    hinted = {*hint}
    for pair, x in same.items():
        cp.add_hint(x, pair in hinted)
    solver = _solver()
    solver.parameters.max_deterministic_time = effort
    status = solver.solve(cp)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return [pair for pair, x in same.items() if solver.value(x)], status == cp_model.OPTIMAL
