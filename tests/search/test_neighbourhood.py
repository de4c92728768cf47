"""Neighbours: complete, legal, near, and part of the search."""

import numpy as np
import pytest
from kernelscape.search.budget import Budget, Evaluations
from kernelscape.search.events import Evaluated, Outcome
from kernelscape.search.first import first_candidates
from kernelscape.search.neighbourhood import Neighbourhood
from kernelscape.search.ordering import NextChoice
from kernelscape.search.run import search
from kernelscape.space.candidate import Candidate
from kernelscape.tests.search.machines import library_space


@pytest.mark.parametrize("name", ["axpydot", "bicgk", "matmul"])
def test_neighbours_are_legal_and_mostly_near(name):
    space = library_space(name, n=64)
    centre = first_candidates(space, cpsat_seconds=0)[1][1]
    draw = Neighbourhood(space)
    rng = np.random.default_rng(1)
    changed = []
    for _ in range(60):
        found = draw(centre, rng)
        assert isinstance(found, Candidate)
        assert found.is_complete
        assert space.model.violations(found.assignment()) == []
        changed.append(int((found.domains != centre.domains)[space.searchable].sum()))
    assert min(changed) >= 1
    # A random completion differs in most of its open choices; a neighbour must not.
    random = [space.root().random_completion(rng) for _ in range(20)]
    far = [int((r.domains != centre.domains)[space.searchable].sum()) for r in random]
    assert np.median(changed) < 2 / 3 * np.median(far)


def test_mcts_walks_near_the_best():
    space = library_space("axpydot", n=64)

    def evaluate(candidates):
        # The fastest implementation is the one with the smallest bit pattern: something to walk towards.
        return [Outcome("ok", 1e3 + float(c.domains.sum() % 9973), 0.0, "") for c in candidates]

    def tags(neighbour):
        events = search(
            space.root(),
            bound=lambda c: 1.0,
            evaluate=evaluate,
            next_choice=NextChoice(space),
            budget=Budget(Evaluations(80)),
            rng=np.random.default_rng(3),
            incumbents=[c for _, c in first_candidates(space, cpsat_seconds=0)[:1]],
            neighbour=neighbour,
        )
        return [e.tag for e in events if isinstance(e, Evaluated)]

    with_draws = tags(Neighbourhood(space))
    assert with_draws.count("N") > len(with_draws) / 4
    assert "R" in with_draws or "M" in with_draws
    assert with_draws == tags(Neighbourhood(space))
    assert "N" not in tags(None)
