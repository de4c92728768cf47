"""A search whose inputs are given by name, whatever record they stand in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from kernelscape.search import events as ev
from kernelscape.search.budget import Budget
from kernelscape.search.inputs import Guidance, History, Oracle
from kernelscape.search.options import Batches, Limits, SearchOptions
from kernelscape.search.run import search


def searched(root: Any, *, budget: Budget, rng: Any, **given: Any) -> Iterator[ev.Event]:
    """Events of a search. `batch` is short for batches of that size. Raises TypeError for a name that no record has."""

    def take(record: Any) -> Any:
        return record(**{f.name: given.pop(f.name) for f in fields(record) if f.name in given})

    given["size"] = given.pop("batch", 1)
    oracle, guidance, history = take(Oracle), take(Guidance), take(History)
    given["batches"], given["limits"] = take(Batches), take(Limits)
    options = take(SearchOptions)
    if given:
        raise TypeError(f"no record has {', '.join(given)}")
    return search(root, oracle, guidance, history, budget, rng, options)
