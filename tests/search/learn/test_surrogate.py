"""The surrogate: what it learns from measurements, and what a search gains by it."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from kernelscape.search.budget import Budget, Evaluations
from kernelscape.search.events import Evaluated, Outcome, Tally
from kernelscape.search.learn import surrogate as sg
from kernelscape.search.learn.neighbourhood import Neighbourhood
from kernelscape.search.learn.surrogate import LEAST, KernelRidge
from kernelscape.search.ledger import Ledger, Request
from kernelscape.search.starts.complete import first_candidates
from kernelscape.search.tree.mcts import Pace
from kernelscape.search.tree.ordering import NextChoice
from kernelscape.space.candidate import Candidate
from kernelscape.space.decisions import to_names
from kernelscape.testing.machines import library_space, root_of
from kernelscape.tests.search.searching import searched
from threadpoolctl import threadpool_info, threadpool_limits

SPACE = library_space("bicgk", n=256)


@cache
def drawn(n: int) -> tuple[Candidate, ...]:
    """Distinct random implementations."""
    rng, found = np.random.default_rng(1), {}
    while len(found) < n:
        made = root_of(SPACE).random_completion(rng)
        if isinstance(made, Candidate):
            found[made.key] = made
    return tuple(found.values())


def machine(seed: int = 2):
    """ns of an implementation on a machine where decisions cost what they cost, alone and in pairs."""
    rng = np.random.default_rng(seed)
    n = len(SPACE.searchable)
    alone = rng.normal(0, 0.15, (n, 32))
    pairs = [(*rng.choice(n, 2, replace=False), rng.normal(0, 0.3, (32, 32))) for _ in range(20)]

    def time_ns(c: Candidate) -> float:
        values = np.log2(c.domains[SPACE.searchable]).astype(int)
        log = alone[np.arange(n), values].sum()
        return 1e6 * math.exp(log + sum(costs[values[a], values[b]] for a, b, costs in pairs))

    return time_ns


def rank_correlation(x, y) -> float:
    ranks = [np.argsort(np.argsort(values)) for values in (x, y)]
    return float(np.corrcoef(*ranks)[0, 1])


def taught(candidates, time_ns) -> KernelRidge:
    s = KernelRidge(SPACE)
    for c in candidates:
        s.learn(c, time_ns(c))
    return s


def test_it_ranks_what_it_has_not_seen() -> None:
    known, unseen, time_ns = drawn(400)[:200], drawn(400)[200:], machine()
    s = taught(known, time_ns)
    times = [time_ns(c) for c in unseen]
    expected = s.expected(unseen)
    assert rank_correlation(expected, times) > 0.6
    fastest = np.argsort(times)[:20]
    assert np.isin(fastest, np.argsort(expected)[:100]).mean() > 0.8
    # Other batches of the same measurements come to the same.
    batched = taught(known[:50], time_ns)
    batched.expected(unseen)
    for c in known[50:]:
        batched.learn(c, time_ns(c))
    np.testing.assert_allclose(batched.expected(unseen), expected, atol=1e-7)


def test_one_thread_solves_and_others_have_theirs_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def threads() -> list[int]:
        return [x["num_threads"] for x in threadpool_info() if x["user_api"] == "blas"]

    seen = []
    solve = np.linalg.solve

    def noting(*given: np.ndarray) -> np.ndarray:
        seen.append(threads())
        return solve(*given)

    with threadpool_limits(2, "blas"):
        monkeypatch.setattr(np.linalg, "solve", noting)
        assert taught(drawn(40), lambda c: 1.0 + int(c.domains[0])).is_ready
        assert seen and all(set(n) == {1} for n in seen)
        assert set(threads()) == {2}


def test_it_says_nothing_of_little() -> None:
    s = taught(drawn(400)[: LEAST - 1], machine())
    assert s.expected(drawn(400)[-3:]) is None
    s.learn(drawn(400)[LEAST], 5.0)
    assert len(s.expected(drawn(400)[-3:])) == 3


def test_failures_are_slow_and_nothing_is_known_of_failures_alone() -> None:
    half = [k % 2 == 0 for k in range(100)]
    some = drawn(400)[:100]
    s = KernelRidge(SPACE)
    for c in some[:LEAST]:
        s.learn(c, None)
    assert s.expected(some) is None
    s = KernelRidge(SPACE)
    for c, fails in zip(some, half, strict=True):
        s.learn(c, None if fails else 100.0)
    expected = s.expected(some)
    assert expected[half].mean() > expected[~np.array(half)].mean() + 0.5


def test_what_is_open_is_expected_of_its_values_together() -> None:
    time_ns = machine()
    s = taught(drawn(400)[:200], time_ns)
    root = root_of(SPACE)
    at = root.random_completion(np.random.default_rng(5))
    for choice in map(int, root.open_choices()[:10]):
        children = [c for _, c in root.expand(choice) if isinstance(c, Candidate)]
        if len(children) > 1:
            expected = s.expected([*children, root])
            assert expected[:-1].min() - 0.2 < expected[-1] < expected[:-1].max() + 0.2
    assert np.isfinite(s.expected([root, at])).all()


def test_the_fastest_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sg, "KEPT", 60)
    time_ns = machine()
    s = taught(drawn(400)[:300], time_ns)
    s.expected(drawn(400)[-1:])
    times = np.array([time_ns(c) for c in drawn(400)[:300]])
    kept = set(s._times.tolist())
    assert len(kept) == 60
    assert set(np.sort(times)[:30].tolist()) <= kept
    assert set(times[-30:].tolist()) <= kept
    # What it says now is what one that saw only those would say.
    again = taught([c for c in drawn(400)[:300] if time_ns(c) in kept], time_ns)
    np.testing.assert_allclose(again.expected(drawn(400)[300:]), s.expected(drawn(400)[300:]))


def test_it_recalls_by_name() -> None:
    time_ns, s = machine(), KernelRidge(SPACE)
    for c in drawn(400)[:40]:
        s.recall(root_of(SPACE), to_names(c), time_ns(c))
    same = taught(drawn(400)[:40], time_ns)
    np.testing.assert_allclose(s.expected(drawn(400)), same.expected(drawn(400)))
    before = s.expected(drawn(400))
    c = drawn(400)[50]
    s.recall(root_of(SPACE), [("size(of nothing)", "1"), *to_names(c)], 1.0)
    s.recall(root_of(SPACE), [(n, "no such value") for n, _ in to_names(c)], 1.0)
    s.recall(root_of(SPACE), [], 1.0)
    np.testing.assert_allclose(s.expected(drawn(400)), before, atol=1e-7)


def best_after(n: int, seed: int, with_it: bool) -> tuple[float, list[Evaluated]]:
    time_ns = machine()

    def evaluate(candidates):
        return [Outcome("ok", time_ns(c)) for c in candidates]

    events = searched(
        root_of(SPACE),
        bound=lambda c: 1.0,
        evaluate=evaluate,
        next_choice=NextChoice(SPACE),
        budget=Budget(Evaluations(n), clock=lambda: 0.0),
        rng=np.random.default_rng(seed),
        incumbents=[c for _, c in first_candidates(SPACE, cpsat_seconds=0)[:1]],
        neighbour=Neighbourhood(SPACE),
        surrogate=KernelRidge(SPACE) if with_it else None,
        batch=4,
    )
    found = [e for e in events if isinstance(e, Evaluated)]
    return min(e.outcome.time_ns for e in found), found


def test_a_search_with_it_is_ahead_of_one_without() -> None:
    ahead = [best_after(120, seed, True)[0] / best_after(120, seed, False)[0] for seed in range(7)]
    assert np.median(ahead) < 0.95


def test_a_slow_state_of_the_machine_says_nothing_of_decisions() -> None:
    class Noted(KernelRidge):
        def learn(self, candidate, time_ns):
            learnt.append(time_ns)

    learnt: list[float | None] = []
    outcomes = [Outcome("ok", 100.0), Outcome("ok", 300.0, slowness=3.0), Outcome("crash")]
    events = searched(
        root_of(SPACE),
        bound=lambda c: 1.0,
        evaluate=lambda candidates: [outcomes[len(learnt)] for _ in candidates],
        next_choice=NextChoice(SPACE),
        budget=Budget(Evaluations(3), clock=lambda: 0.0),
        rng=np.random.default_rng(1),
        surrogate=Noted(SPACE),
    )
    assert len(list(events)) > 3
    assert learnt == [100.0, 100.0, None]


def test_equal_seeds_make_equal_searches() -> None:
    first, again = ([e.key for e in best_after(60, 3, True)[1]] for _ in range(2))
    assert first == again


def test_a_candidate_is_known_without_its_text_until_it_is_withdrawn() -> None:
    a, b = drawn(400)[:2]
    ledger = Ledger(lambda c: None, {})
    for c, bound_ns in ((a, 1.0), (b, 9.0)):
        ledger.ask(Request(c, c.key, bound_ns, "N", None, False))
    assert ledger.was_asked(a)
    assert ledger.was_asked(b)
    ledger.withdraw(5.0)
    assert ledger.was_asked(a)
    assert not ledger.was_asked(b)


def test_what_finds_nothing_becomes_rarer() -> None:
    tally, pace = Tally(), Pace("D", 3, 2)

    def in_vain(n: int) -> int:
        for _ in range(n):
            pace.was_in_vain(tally)
        return pace.period

    assert [in_vain(1), in_vain(1), in_vain(2), in_vain(2), in_vain(20)] == [3, 6, 12, 24, 24]
    assert pace.share == 1 / 24
    pace.was_worth_it(tally)
    assert pace.period == 3
    assert in_vain(1) == 3
    never, always = Pace("D", 0, 0), Pace("D", 2, 0)
    always.was_in_vain(tally)
    assert (never.share, never.is_due(), always.period) == (0.0, False, 2)


@pytest.mark.parametrize(("first", "second"), [(4, 12), (4, 3), (2, 24)])
def test_two_paces_do_not_starve_one_another(first: int, second: int) -> None:
    paces, done = (Pace("D", first, 0), Pace("M", second, 0)), [0, 0]
    for _ in range(240):
        for k in [k for k, pace in enumerate(paces) if pace.is_due()][:1]:
            paces[k].done()
            done[k] += 1
    assert done[0] == 240 // first
    assert done[1] >= 0.7 * 240 / second


def test_a_share_of_the_time_counts_from_when_it_became_so() -> None:
    tally, pace = Tally(), Pace("D", 2, 1)
    tally.spend("D", 50.0)
    tally.spend("N", 50.0)
    assert not pace.is_over(tally)
    pace.was_in_vain(tally)  # a quarter from now on
    assert not pace.is_over(tally)
    tally.spend("N", 10.0)
    tally.spend("D", 3.0)
    assert not pace.is_over(tally)
    tally.spend("D", 1.0)
    assert pace.is_over(tally)


@pytest.mark.parametrize("seed", range(4))
def test_small_spaces_are_still_proved(seed: int) -> None:
    space = library_space("sscal", n=8)

    def time_ns(c: Candidate) -> float:
        return 1e3 + float(c.domains.sum() % 97)

    def finished(**how):
        *_, last = searched(
            root_of(space),
            bound=lambda c: 1.0,
            evaluate=lambda candidates: [Outcome("ok", time_ns(c)) for c in candidates],
            next_choice=NextChoice(space),
            budget=Budget(clock=lambda: 0.0),
            rng=np.random.default_rng(seed),
            batch=4,
            **how,
        )
        return last

    last = finished(neighbour=Neighbourhood(space), surrogate=KernelRidge(space))
    every = finished(strategy="exhaustive")
    assert last.status == every.status == "optimal"
    assert last.best.time_ns == every.best.time_ns
    assert last.tally.evaluations == every.tally.evaluations


@pytest.mark.parametrize("is_compiled", [True, False])
def test_what_is_shared_is_the_sum_over_choices_in_whatever_order_it_is_asked(
    is_compiled, monkeypatch
):
    """Each choice's weight, shared out among the values that are left."""
    share = sg._share
    if not is_compiled:  # what only compiled functions call cannot be called from Python
        share = getattr(share, "py_func", share)
        counted = getattr(sg.count_values, "py_func", sg.count_values)
        monkeypatch.setattr(sg, "count_values", counted)
    rng = np.random.default_rng(3)
    n_choices, n = 6, 9
    decided = np.uint32(1) << rng.integers(0, 5, (n_choices, n)).astype(np.uint32)
    domains = rng.integers(1, 32, (12, n_choices)).astype(np.uint32)
    weights = rng.random(n_choices)
    n_left = np.array([[int(d).bit_count() for d in row] for row in domains])
    meets = (domains[:, :, None] & decided[None]) != 0
    wanted = np.einsum("kc,kcj->kj", weights / n_left, meets)
    last, last_shared = np.zeros(n_choices, np.uint32), np.zeros(n)
    for order in (np.arange(12), rng.permutation(12)):
        found = np.empty((12, n))
        share(domains[order], decided, weights, last, last_shared, found)
        np.testing.assert_allclose(found, wanted[order], atol=1e-12)
