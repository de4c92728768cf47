"""Neighbours: complete, legal, near, and part of the search."""

from collections import Counter

import numpy as np
import pytest
from kernelscape.search.budget import Budget, Evaluations
from kernelscape.search.events import Evaluated, Outcome
from kernelscape.search.learn.neighbourhood import Neighbourhood
from kernelscape.search.starts.complete import first_candidates
from kernelscape.search.tree.ordering import NextChoice
from kernelscape.space.candidate import Candidate
from kernelscape.testing.machines import library_space
from kernelscape.testing.violations import violations
from kernelscape.tests.search.searching import searched


@pytest.mark.parametrize("name", ["axpydot", "bicgk", "matmul"])
def test_neighbours_are_legal_and_mostly_near(name):
    space = library_space(name, n=64)
    centre = first_candidates(space, cpsat_seconds=0)[1][1]
    draw = Neighbourhood(space)
    rng = np.random.default_rng(1)
    changed = []
    for _ in range(400):
        found = draw(centre, rng)
        assert isinstance(found, Candidate)
        assert found.is_complete
        assert violations(space.model, found.assignment()) == []
        changed.append(int((found.domains != centre.domains)[space.searchable].sum()))
    assert min(changed) >= 1
    # A random completion differs in most of its open choices; a neighbour must not.
    random = [space.root().random_completion(rng) for _ in range(200)]
    far = [int((r.domains != centre.domains)[space.searchable].sum()) for r in random]
    assert np.median(changed) < 2 / 3 * np.median(far)


def evaluated(space, evaluate, n, neighbour):
    """The first n evaluations of a search from the default, without a bound."""
    events = searched(
        space.root(),
        bound=lambda c: 1.0,
        evaluate=evaluate,
        next_choice=NextChoice(space),
        budget=Budget(Evaluations(n)),
        rng=np.random.default_rng(3),
        incumbents=[c for _, c in first_candidates(space, cpsat_seconds=0)[:1]],
        neighbour=neighbour,
    )
    return [e for e in events if isinstance(e, Evaluated)]


def test_mcts_walks_near_the_best():
    space = library_space("axpydot", n=64)

    def evaluate(candidates):
        # The fastest implementation is the one with the smallest bit pattern: something to walk towards.
        return [Outcome("ok", 1e3 + float(c.domains.sum() % 9973), 0.0, "") for c in candidates]

    def tags(neighbour):
        return [e.tag for e in evaluated(space, evaluate, 80, neighbour)]

    with_draws = tags(Neighbourhood(space))
    assert with_draws.count("N") > len(with_draws) / 4
    assert "R" in with_draws or "M" in with_draws
    assert with_draws == tags(Neighbourhood(space))
    assert "N" not in tags(None)


def test_where_runs_are_long_most_time_stays_near_the_best():
    space = library_space("sgemv", m=4096, n=4096)
    first = first_candidates(space, cpsat_seconds=0)[0][1]

    def seconds_by_tag(far_s):
        def evaluate(candidates):
            return [outcome(c) for c in candidates]

        def outcome(c):
            n_changed = int((c.domains != first.domains).sum())
            spent_s = 1.0 if n_changed <= 6 else far_s
            return Outcome("ok", 1e3 + n_changed, 0.0, spent_s=spent_s)

        spent = Counter()
        for e in evaluated(space, evaluate, 120, Neighbourhood(space)):
            spent[e.tag] += e.outcome.spent_s
        return spent

    for far_s in (1.0, 20.0):
        spent = seconds_by_tag(far_s)
        of_all = {tag: s / sum(spent.values()) for tag, s in spent.items()}
        assert of_all["N"] > 0.4, of_all
        # Others have their turn, too, a smaller one while they find nothing.
        assert of_all["D"] > 0.08, of_all
        assert of_all["R"] + of_all.get("M", 0.0) > 0.08, of_all
