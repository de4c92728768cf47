"""Search by components: a tree each, combinations that try all of them at once, and outcomes of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from kernelscape.search import events as ev
from kernelscape.search.asking import Tell, answered
from kernelscape.search.budget import Budget, Evaluations
from kernelscape.search.components.component_inputs import (
    UNIT_NS,
    ComponentInputs,
    Coupling,
    Division,
)
from kernelscape.search.components.component_search import search_components
from kernelscape.search.components.tree import ComponentTree
from kernelscape.search.inputs import Guidance, History, Oracle
from kernelscape.search.options import Batches, SearchOptions
from kernelscape.tests.search.searching import Answers
from kernelscape.tests.search.toy import ToyCandidate, ToySpace, first_open

N_CHOICES, N_VALUES = 3, 4  # of each component: 64 implementations


@dataclass(frozen=True)
class ToySequence:
    """A toy sequence: the choices of its components follow one another, and `places` has the equal ones of each tree."""

    space: ToySpace
    places: tuple[tuple[int, ...], ...]
    share: float = 0.5  # of the least time that the bound knows; 0: it knows nothing
    factors: tuple[float, ...] = (
        1.0,
    )  # of all times, by the value of the last choice, which concerns all components
    layout: int = 0  # its value in the default
    only_least: bool = False
    knows_layout: bool = True  # whether the bound of a component depends on it
    least: float = 1.0  # of the bound at a root, what is sure of all implementations

    def choices(self, place: int) -> range:
        return range(place * N_CHOICES, (place + 1) * N_CHOICES)

    def component_ns(self, candidate: ToyCandidate) -> tuple[float, ...]:
        values = candidate.assignment()
        places = sorted(p for every in self.places for p in every)
        factor = self.factors[values[-1]]
        return tuple(
            factor * (1.0 + sum(self.space.cost[c][values[c]] for c in self.choices(p)))
            for p in places
        )

    def default(self) -> ToyCandidate:
        layout = 1 << self.layout
        return ToyCandidate(self.space, (*(1 for _ in self.space.cost[:-1]), layout))

    def join(self, parts: Sequence[ToyCandidate]) -> ToyCandidate:
        domains = list(self.default().domains)
        for places, part in zip(self.places, parts, strict=True):
            own = [part.domains[c] for c in self.choices(places[0])]
            for place in places:
                for c, domain in zip(self.choices(place), own, strict=True):
                    domains[c] = domain
        return ToyCandidate(self.space, tuple(domains))

    def part(self, candidate: ToyCandidate, k: int) -> ToyCandidate | None:
        if candidate.domains[-1] != 1 << self.layout:
            return None
        domains = list(self.default().domains)
        for c in self.choices(self.places[k][0]):
            domains[c] = candidate.domains[c]
        return ToyCandidate(self.space, tuple(domains))

    def bound(self, k: int) -> Callable[[ToyCandidate], float]:
        places = self.places[k]

        def bound(candidate: ToyCandidate) -> float:
            open_costs = (
                min(x for v, x in enumerate(self.space.cost[c]) if candidate.domains[c] >> v & 1)
                for c in self.choices(places[0])
            )
            factor = self.factors[self.layout] if self.knows_layout else min(self.factors)
            return self.share * factor * len(places) * (1.0 + sum(open_costs))

        return bound

    def least_ns(self, k: int) -> float:
        """The bound of a component at its root, at its best over the last choice."""
        bound = replace(self, layout=self.factors.index(min(self.factors))).bound(k)
        return self.least * bound(self.space.root())

    def division(self, known: Sequence[dict[bytes, ev.Outcome]] = ()) -> Division[ToyCandidate]:
        inputs = []
        for k, places in enumerate(self.places):
            domains = list(self.default().domains)
            for c in self.choices(places[0]):
                domains[c] = (1 << N_VALUES) - 1
            inputs.append(
                ComponentInputs(
                    name=f"c{k}",
                    places=places,
                    root=ToyCandidate(self.space, tuple(domains)),
                    oracle=Oracle(bound=self.bound(k)),
                    guidance=Guidance(next_choice=first_open),
                    history=History(
                        outcomes=known[k] if known else {}, incumbents=[self.default()]
                    ),
                    least_ns=self.least_ns(k),
                    holds_anywhere=not self.knows_layout,
                )
            )
        return Division(
            components=inputs,
            join=self.join,
            part=self.part,
            bound_ns=sum,
            coupling=None if len(self.factors) == 1 else self.coupling(),
            only_least=self.only_least,
        )

    def coupling(self) -> Coupling[ToyCandidate]:
        default = self.default()

        def applied(candidate: ToyCandidate, other: ToyCandidate) -> ToyCandidate:
            return ToyCandidate(self.space, (*candidate.domains[:-1], other.domains[-1]))

        def under(candidate: ToyCandidate) -> Division[ToyCandidate]:
            return replace(self, layout=candidate.assignment()[-1]).division()

        every = (1 << len(self.factors)) - 1
        inputs = ComponentInputs(
            name="all",
            places=(),
            root=ToyCandidate(self.space, (*default.domains[:-1], every)),
            oracle=Oracle(bound=lambda c: 0.0),
            guidance=Guidance(next_choice=first_open),
            history=History(
                outcomes={default.key: ev.Outcome("ok", UNIT_NS)}, incumbents=[default]
            ),
        )
        return Coupling(inputs=inputs, applied=applied, under=under)

    def best_ns(self) -> float:
        return self.space.offset_ns + min(self.factors) * sum(
            1.0 + sum(min(r) for r in self._rows(p)) for p in range(self.n_places)
        )

    @property
    def n_places(self) -> int:
        return sum(map(len, self.places))

    def _rows(self, place: int) -> list[tuple[float, ...]]:
        return [self.space.cost[c] for c in self.choices(place)]


def sequence(
    n_components: int,
    n_places: int = 1,
    seed: int = 0,
    share: float = 0.5,
    factors: tuple[float, ...] = (1.0,),
) -> ToySequence:
    rng = np.random.default_rng(seed)
    cost: list[tuple[float, ...]] = []
    places: list[tuple[int, ...]] = []
    for k in range(n_components):
        rows = [tuple(map(float, rng.integers(0, 100, N_VALUES))) for _ in range(N_CHOICES)]
        places.append(tuple(range(k * n_places, (k + 1) * n_places)))
        cost += rows * n_places
    cost.append((0.0,) * len(factors))
    return ToySequence(ToySpace(tuple(cost)), tuple(places), share, factors)


class Bench:
    """Times of whole candidates with those of their components; `fails` says which candidates fail."""

    def __init__(
        self, s: ToySequence, fails: Callable[[ToyCandidate], str | None] = lambda c: None
    ):
        self.s, self.fails, self.measured = s, fails, list[ToyCandidate]()

    def __call__(self, candidates: list[ToyCandidate]) -> list[ev.Outcome]:
        return [self.one(c) for c in candidates]

    def one(self, candidate: ToyCandidate) -> ev.Outcome:
        assert candidate.is_complete
        self.measured.append(candidate)
        status = self.fails(candidate)
        if status is not None:
            return ev.Outcome(status, detail="told to fail")
        parts = self.s.component_ns(candidate)
        whole_ns = self.s.space.offset_ns + sum(parts)
        return ev.Outcome("ok", whole_ns, component_ns=parts)


def explored(
    s: ToySequence, bench: Bench, *rules: Any, seed: int = 0, batch: int = 8, **given: Any
) -> list[ev.Event]:
    found = search_components(
        s.space.root(),
        s.division(),
        Oracle(bound=lambda c: 1.0),
        History(incumbents=[s.default()]),
        Budget(*rules, clock=lambda: 0.0),
        np.random.default_rng(seed),
        SearchOptions(batches=Batches(size=batch), **given),
    )
    return list(answered(found, Answers(bench)))


def until_best(s: ToySequence, **given: Any) -> int:
    """The number of evaluations until the best of all combinations is measured."""
    events = explored(s, Bench(s), **given)
    at = [e for e in events if isinstance(e, ev.NewIncumbent)][-1]
    assert at.best.time_ns == s.best_ns()
    return at.evaluations


@pytest.mark.parametrize("seed", range(4))
def test_evaluations_do_not_grow_with_the_number_of_components(seed: int) -> None:
    """A bound that knows nothing leaves each tree with 64 implementations, and all of them together with 64 ** 12."""
    few, many = (until_best(sequence(n, seed=seed, share=0.0), seed=seed) for n in (3, 12))
    assert max(few, many) <= 100


def test_equal_components_are_one_tree() -> None:
    s = sequence(3, n_places=4)
    bench = Bench(s)
    events = explored(s, bench)
    table = events[-3]
    assert isinstance(table, ev.Components)
    assert [row.places for row in table.components] == [4, 4, 4]
    assert [row.tried for row in table.components] <= [64, 64, 64]
    assert sum(row.share or 0.0 for row in table.components) == pytest.approx(1.0)
    for candidate in bench.measured:
        parts = s.component_ns(candidate)
        assert all(len(set(parts[4 * k : 4 * k + 4])) == 1 for k in range(3))
    last = events[-1]
    assert isinstance(last, ev.Finished)
    assert last.best is not None
    assert (last.status, last.best.time_ns) == ("exhausted", s.best_ns())


def test_a_failure_is_that_of_one_component() -> None:
    """A combination fails with any of its parts: halves of it find which one it was, and no other is taken for it."""
    s = sequence(8)
    bad = (3 * N_CHOICES, 2)  # a value of the first choice of the fourth component

    def fails(candidate: ToyCandidate) -> str | None:
        return "crash" if candidate.domains[bad[0]] == 1 << bad[1] else None

    events = explored(s, Bench(s, fails))
    table, last = events[-3], events[-1]
    assert isinstance(table, ev.Components)
    assert isinstance(last, ev.Finished)
    rows = [
        min(x for v, x in enumerate(r) if (c, v) != bad) for c, r in enumerate(s.space.cost[:-1])
    ]
    assert last.best is not None
    assert last.best.time_ns == s.space.offset_ns + 8 + sum(rows)
    assert last.tally.crash > 0
    assert all(row.is_explored for row in table.components)


def test_trials_without_times_are_timed_apart() -> None:
    """Outcomes without times of components are those of the whole: what the best of the others leave is a component's."""
    s = sequence(2)
    n_timed = 0

    class Blind(Bench):
        def one(self, candidate: ToyCandidate) -> ev.Outcome:
            nonlocal n_timed
            n_timed += 1
            outcome = super().one(candidate)
            return outcome if n_timed <= 3 else replace(outcome, component_ns=())

    last = explored(s, Blind(s))[-1]
    assert isinstance(last, ev.Finished)
    assert last.best is not None
    assert last.best.time_ns == s.best_ns()


@pytest.mark.parametrize("limit", [1, 5, 37, 38, 39])
def test_a_limit_of_evaluations_holds(limit: int) -> None:
    s = sequence(5)
    bench = Bench(s)
    last = explored(s, bench, Evaluations(limit))[-1]
    assert isinstance(last, ev.Finished)
    assert (last.status, len(bench.measured), last.tally.evaluations) == (
        "eval_limit",
        limit,
        limit,
    )
    assert last.best is not None
    if limit > 1:  # the last measurement is one of the best that all of them have shown
        least = map(min, zip(*map(s.component_ns, bench.measured), strict=True))
        assert last.best.time_ns == s.space.offset_ns + sum(least)


def test_equal_seeds_give_equal_events_and_others_do_not() -> None:
    s = sequence(4)
    first, again, other = (explored(s, Bench(s), Evaluations(40), seed=k) for k in (1, 1, 2))
    assert first == again
    assert first != other


def test_known_outcomes_are_not_measured_again() -> None:
    s = sequence(3)
    before = Bench(s)
    explored(s, before, Evaluations(30))
    known: list[dict[bytes, ev.Outcome]] = [{} for _ in s.places]
    for candidate in before.measured:
        for k, ns in enumerate(s.component_ns(candidate)):
            known[k].setdefault(part_key(s, candidate, k), ev.Outcome("ok", ns))
    after = Bench(s)
    search_again = search_components(
        s.space.root(),
        s.division(known),
        Oracle(bound=lambda c: 1.0),
        History(incumbents=[s.default()]),
        Budget(clock=lambda: 0.0),
        np.random.default_rng(1),
        SearchOptions(batches=Batches(size=8)),
    )
    *_, table, _, last = answered(search_again, Answers(after))
    assert isinstance(last, ev.Finished)
    assert last.best is not None
    assert last.best.time_ns == s.best_ns()
    fresh = [len({part_key(s, c, k) for c in after.measured} - known[k].keys()) for k in range(3)]
    assert isinstance(table, ev.Components)
    assert all(
        row.tried == len(known[k]) + n
        for k, (row, n) in enumerate(zip(table.components, fresh, strict=True))
    )


def part_key(s: ToySequence, candidate: ToyCandidate, k: int) -> bytes:
    part = s.part(candidate, k)
    assert part is not None
    return part.key


def test_what_concerns_all_components_is_decided_above_them() -> None:
    """The kind: a choice of one component that changes the times of others, whose trees then compare times of two programs."""
    s = sequence(4, share=0.0, factors=(1.0, 1.3, 0.5))
    bench = Bench(s)
    last = explored(s, bench)[-1]
    assert isinstance(last, ev.Finished)
    assert last.best is not None
    assert (last.status, last.best.time_ns) == ("exhausted", s.best_ns())
    assert {c.assignment()[-1] for c in bench.measured} == {0, 1, 2}


@pytest.mark.parametrize("seed", range(4))
def test_best_candidates_that_exclude_each_other_fail_together_alone(seed: int) -> None:
    """The kind: the best of two components fail beside each other, and every trial beside both is taken for a failure."""
    s = sequence(4, share=0.0, seed=seed)
    least = [row.index(min(row)) for row in s.space.cost[: 2 * N_CHOICES]]

    def fails(candidate: ToyCandidate) -> str | None:
        return "wrong" if list(candidate.assignment()[: len(least)]) == least else None

    events = explored(s, Bench(s, fails), seed=seed)
    table, last = events[-3], events[-1]
    assert isinstance(table, ev.Components)
    assert isinstance(last, ev.Finished)
    assert last.best is not None
    assert last.tally.bad <= 4  # the best of all, as these change
    found = zip(last.best.outcome.component_ns, table.components, strict=True)
    assert sum(ns == row.time_ns for ns, row in found) == 3  # one of the two gives way
    best = [row.time_ns or 0.0 for row in table.components]
    assert s.space.offset_ns + sum(best) == s.best_ns()


def test_bounds_hold_under_all_choices_that_concern_all_components() -> None:
    """The kind: a bound on the implementations with one layout, claimed for those with all of them."""
    s = sequence(12, share=1.0, factors=(1.0, 0.5))
    events = explored(s, Bench(s))
    claimed = [e.bound_ns for e in events if isinstance(e, ev.Row)]
    assert claimed and all(ns is not None and ns <= s.best_ns() for ns in claimed)


@pytest.mark.parametrize("factors", [(1.0,), (1.0, 1.3, 0.5)])
def test_bounds_of_components_that_hold_for_all_implementations_are_summed(
    factors: tuple[float, ...],
) -> None:
    """The kind: no bound at all where a choice concerns all components, or bodies may be written otherwise."""
    plain = replace(sequence(6, 2, share=1.0, factors=factors), least=0.25)
    changes = ({}, {"only_least": True}, {"knows_layout": False})
    claimed = []
    for s in (replace(plain, **change) for change in changes):
        rows = [e.bound_ns or 0.0 for e in explored(s, Bench(s)) if isinstance(e, ev.Row)]
        assert rows == sorted(rows)  # they never fall where another layout is adopted
        claimed.append(rows[-1])
    least = sum(map(plain.least_ns, range(len(plain.places))))
    assert 1.0 < least < plain.best_ns() / 2
    is_coupled = len(factors) > 1
    assert claimed == pytest.approx([least if is_coupled else 4 * least, least, 4 * least])


def test_a_tree_under_another_layout_keeps_what_the_one_before_has_shown() -> None:
    """The kind: a bound that falls where a layout is adopted, or is claimed again though a time was below it."""
    s = replace(sequence(1, share=1.0, factors=(1.0, 0.5)), least=0.25, knows_layout=False)
    (inputs,) = s.division().components

    def tree(inputs: ComponentInputs[ToyCandidate], earlier: ComponentTree | None) -> ComponentTree:
        budget, options = Budget(clock=lambda: 0.0), SearchOptions(batches=Batches(size=2))
        rng = np.random.default_rng(0)
        return ComponentTree(inputs, {}, budget, rng, options, earlier)

    first = tree(inputs, None)
    assert first.anywhere_ns == pytest.approx(4 * inputs.least_ns)
    for trial in first.trials:
        first.tell(Tell(trial.key, ev.Outcome("ok", inputs.least_ns)))
    assert first.factor < 1.0
    shown_ns = first.anywhere_ns
    for _ in range(2):
        for trial in first.trials:
            first.tell(Tell(trial.key, ev.Outcome("ok", 200 * inputs.least_ns)))
    assert first.bound_ns == pytest.approx(shown_ns * first.factor)  # once
    assert first.anywhere_ns == shown_ns
    then = tree(replace(inputs, holds_anywhere=False), first)
    assert (then.factor, then.anywhere_ns) == (first.factor, first.anywhere_ns)
