"""A search whose inputs are given by name, whatever record they stand in, and whose questions a function answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any

from kernelscape.search import events as ev
from kernelscape.search.asking import Ask, Tell, answered
from kernelscape.search.budget import Budget
from kernelscape.search.inputs import Guidance, History, Oracle
from kernelscape.search.options import Batches, Limits, SearchOptions
from kernelscape.search.run import search


class Answers:
    """Answers a search by the outcomes of whole batches. Where `evaluate` gives fewer than asked for, no more will come."""

    def __init__(self, evaluate: Callable[[list[Any]], Sequence[ev.Outcome]]) -> None:
        self._evaluate = evaluate
        self._known: deque[Tell] = deque()

    def __call__(self, ask: Ask) -> Tell | None:
        if ask.trials:
            outcomes = self._evaluate([t.candidate for t in ask.trials])
            keys = (t.key for t in ask.trials)
            self._known.extend(Tell(k, o) for k, o in zip(keys, outcomes, strict=False))
        return self._known.popleft() if self._known else None


def searched(
    root: Any,
    *,
    budget: Budget,
    rng: Any,
    evaluate: Any = None,
    answer: Callable[[Ask], Tell | None] | None = None,
    **given: Any,
) -> Iterator[ev.Event]:
    """Events of a search. `batch` is short for batches of that size. Raises TypeError for a name that no record has."""

    def take(record: Any) -> Any:
        return record(**{f.name: given.pop(f.name) for f in fields(record) if f.name in given})

    given["size"] = given.pop("batch", 1)
    oracle, guidance, history = take(Oracle), take(Guidance), take(History)
    given["batches"], given["limits"] = take(Batches), take(Limits)
    options = take(SearchOptions)
    if given:
        raise TypeError(f"no record has {', '.join(given)}")
    found = search(root, oracle, guidance, history, budget, rng, options)
    return answered(found, answer or Answers(evaluate))
