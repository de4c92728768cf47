"""A search with several trials in flight: never more, each told once, in whatever order they come back."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.search import events as ev
from kernelscape.search.asking import Ask, Tell
from kernelscape.search.budget import Budget, Evaluations
from kernelscape.search.node import Node

from .searching import searched
from .toy import ToyBench, best_ns, first_open, random_space, toy_bound


class Slots:
    """Answers with the trial that was asked for last, or first."""

    def __init__(self, is_last: bool) -> None:
        self.bench, self.waiting, self.most = ToyBench(), [], 0
        self.is_last = is_last

    def __call__(self, ask: Ask) -> Tell:
        self.waiting += ask.trials
        self.most = max(self.most, len(self.waiting))
        trial = self.waiting.pop(-1 if self.is_last else 0)
        return Tell(trial.key, self.bench.one(trial.candidate))


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("limit", [None, 7])
@pytest.mark.parametrize("policy", ["threshold_ascent", "uct"])
def test_trials_in_flight_are_told_once_and_never_more(is_last, limit, policy) -> None:
    space, slots = random_space(np.random.default_rng(3)), Slots(is_last)
    budget = Budget(*([] if limit is None else [Evaluations(limit)]))
    events = list(
        searched(
            space.root(),
            budget=budget,
            rng=np.random.default_rng(1),
            answer=slots,
            bound=toy_bound(0.5),
            next_choice=first_open,
            policy=policy,
            batch=5,
            first=2,
            in_flight=5,
        )
    )
    finished = events[-1]
    assert isinstance(finished, ev.Finished)
    measured = [e for e in events if isinstance(e, ev.Evaluated) and e.origin == "measured"]
    assert len(measured) == len(slots.bench.measured) == len(set(slots.bench.measured))
    assert 2 <= slots.most <= 5
    if limit is None:
        assert (finished.status, finished.best.time_ns) == ("optimal", best_ns(space))
        assert not slots.waiting
    else:
        assert (finished.status, len(measured)) == ("eval_limit", limit)


def test_what_is_in_flight_weighs_on_its_path() -> None:
    root = Node(0, None, -1, 0, 0.0, None)
    child = Node(1, root, 0, 0, 0.0, None)
    child.weigh(2)
    child.weigh(-1)
    assert (root.n_in_flight, child.n_in_flight) == (1, 1)
