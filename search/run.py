"""Single entry point `search`: takes an oracle, guidance and history, and yields events and requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import cast

import numpy as np

from ..plugins import load_plugin
from ..space.candidate import DeadEnd
from . import events as ev
from .asking import Search
from .budget import Budget
from .candidate import SearchCandidate
from .inputs import C, Guidance, History, Oracle
from .options import SearchOptions, strategies
from .tree.baselines import Beam, BoundFirst, Exhaustive, RandomSampling
from .tree.exploration import RELATIVE_SLACK, AbstractStrategy, Exploration
from .tree.mcts import Mcts

# Warm starts: one of them is hardly ever as slow as what a plain compiler makes.
_BEFORE_INCUMBENTS = 3

_MAKERS: dict[str, Callable[[SearchOptions], AbstractStrategy]] = {
    "mcts": lambda options: Mcts(options.policy, options.focus),
    "random": lambda options: RandomSampling(),
    "beam": lambda options: Beam(),
    "bound": lambda options: BoundFirst(),
    "exhaustive": lambda options: Exhaustive(),
}


def search(
    root: C | DeadEnd,
    oracle: Oracle[C],
    guidance: Guidance[C],
    history: History[C],
    budget: Budget,
    rng: np.random.Generator,
    options: SearchOptions | None = None,
) -> Search:
    """Searches the completions of `root` for the fastest; the last event is `Finished`.

    Equal seeds, guidance and outcomes give equal events.

    The caller sends a `Tell` for each `Ask` among the events (`answered` of asking.py does), or
    None if it will measure no more: then the search ends.

    Statuses: `optimal` if everything was evaluated or closed under a cut whose bounds are trusted;
    `infeasible` if nothing valid exists; `exhausted` if the strategy has nothing left to try but
    proved nothing; else the status of the stopping rule.

    Raises ValueError for an unknown strategy, policy or focus, or an incumbent that is not
    complete.
    """
    options = options or SearchOptions()
    if isinstance(root, DeadEnd):
        maker_of(options)
        return _dead_from_the_start(options.strategy, root)
    return begin(root, oracle, guidance, history, budget, rng, options)[1]


def maker_of(options: SearchOptions) -> Callable[[], AbstractStrategy]:
    """Returns a function that creates the strategy.

    Raises ValueError at once for an unknown strategy, policy or focus.
    """
    strategy = options.strategy
    if strategy not in strategies():
        raise ValueError(f"unknown strategy {strategy!r}; strategies are {', '.join(strategies())}")
    own = _MAKERS.get(strategy)
    make = partial(own or load_plugin("strategies", strategy), options)
    make()
    return make


def begin(
    root: C,
    oracle: Oracle[C],
    guidance: Guidance[C],
    history: History[C],
    budget: Budget,
    rng: np.random.Generator,
    options: SearchOptions,
) -> tuple[Exploration, Search]:
    """Returns the state of a search, and the search itself. Raises ValueError as `search` does."""
    make = maker_of(options)
    exploration = opened(root, oracle, guidance, history, budget, rng, options)
    return exploration, _run(exploration, first_candidates(exploration), make)


def opened(
    root: C,
    oracle: Oracle[C],
    guidance: Guidance[C],
    history: History[C],
    budget: Budget,
    rng: np.random.Generator,
    options: SearchOptions,
) -> Exploration:
    """Returns the state of a search that has started; alarms of the history count.

    Raises ValueError for incomplete incumbents.
    """
    for candidate in history.incumbents:
        _check_complete(candidate)
    exploration = Exploration(
        root,
        # The search returns the caller's own candidates, so their type is preserved.
        cast(Oracle[SearchCandidate], oracle),
        cast(Guidance[SearchCandidate], guidance),
        cast(History[SearchCandidate], history),
        budget,
        rng,
        options,
    )
    for key in history.doubted:
        exploration.incumbent.alarm(key)
    exploration.tally.alarms = exploration.incumbent.alarms
    started = ev.Started(options.strategy, exploration.bound_ns, len(history.outcomes))
    exploration.events.append(started)
    return exploration


def first_candidates(exploration: Exploration) -> Iterator[tuple[ev.Tag, SearchCandidate]]:
    """Yields (tag, candidate) for incumbents and warm starts of the history, in the order of measurement."""
    remaining = exploration.budget.remaining_evaluations(0)
    batch = exploration.batch if remaining is None else min(exploration.batch, remaining)
    history = exploration.history
    room = max(0, min(batch - len(history.incumbents), _BEFORE_INCUMBENTS))
    return _firsts(history.incumbents, history.warm_starts, room)


def _check_complete(candidate: SearchCandidate) -> None:
    if not candidate.is_complete:
        raise ValueError("an incumbent leaves choices open")


def _firsts(
    incumbents: Sequence[SearchCandidate], warm_starts: Iterable[SearchCandidate], n_before: int
) -> Iterator[tuple[ev.Tag, SearchCandidate]]:
    """Yields the first `n_before` warm starts, then the incumbents, then the other warm starts."""
    warm = iter(warm_starts)
    for candidate in islice(warm, n_before):
        yield "W", candidate
    for candidate in incumbents:
        yield "U", candidate
    for candidate in warm:
        yield "W", candidate


def measure_firsts(
    exploration: Exploration, firsts: Iterable[tuple[ev.Tag, SearchCandidate]]
) -> Search:
    """Measures the first candidates, and adopts the outcomes of the history."""
    for tag, candidate in firsts:
        if exploration.stop_status() is not None:
            break
        _check_complete(candidate)
        least_ns = 0.0 if candidate.is_apart else exploration.root_bound_ns
        bound_ns = max(least_ns, float(exploration.oracle.bound(candidate)))
        yield from exploration.submit(candidate, bound_ns, tag, None)
        yield from drain(exploration)
    if exploration.stop_status() is None:
        yield from exploration.advance()
    _adopt_history(exploration)
    yield from drain(exploration)


def _run(
    exploration: Exploration,
    firsts: Iterable[tuple[ev.Tag, SearchCandidate]],
    make: Callable[[], AbstractStrategy],
) -> Search:
    strategy = make()
    yield from measure_firsts(exploration, firsts)
    while (status := exploration.stop_status()) is None:
        exploration.pruning.refresh()
        is_done = exploration.tree.is_closed or not (yield from strategy.step(exploration))
        if is_done and exploration.ledger.n_waiting:
            yield from exploration.flush()
            is_done = False
        if (wider := exploration.guidance.widened()) is not None:
            yield from exploration.flush()
            exploration.begin_again(wider)
            strategy = make()
        elif is_done:
            status = conclude(exploration)
            break
        exploration.after_step()
        yield from drain(exploration)
    yield from finish(exploration, status)


def finish(exploration: Exploration, status: str) -> Iterator[ev.Event]:
    """Yields the last events of a search: a row of the log, and `Finished`."""
    yield from drain(exploration)
    yield exploration.row(
        "F" if exploration.incumbent.best is None else exploration.incumbent.best.tag, False
    )
    yield ev.Finished(
        status=status,
        best=exploration.incumbent.best,
        top=exploration.incumbent.top(exploration.options.n_top),
        bound_ns=exploration.claimed_bound_ns(),
        gap=exploration.gap,
        tally=exploration.tally.copy(),
        elapsed_s=exploration.elapsed_s,
    )


def drain(exploration: Exploration) -> Iterator[ev.Event]:
    """Yields the events since the last call, and removes them."""
    told = exploration.events.copy()
    exploration.events.clear()
    yield from told


def _adopt_history(exploration: Exploration) -> None:
    """Counts the outcomes of the history.

    The best of them sets the cut although its candidate is not available.
    """
    history = exploration.history.outcomes
    for outcome in history.values():
        exploration.tally.count(outcome.status)
    timed = [(o.time_ns, key, o) for key, o in history.items() if o.time_ns is not None]
    for _, key, outcome in sorted(timed, key=lambda entry: entry[:2]):
        if key not in exploration.history.apart:
            root_ns = exploration.root_bound_ns * exploration.pruning.factor
            exploration.check_admissible(outcome, root_ns, key)
        exploration.rank(outcome, key, "W", None, -1)


def conclude(exploration: Exploration) -> str:
    """Returns the final status of a search that has nothing left to try."""
    is_closed = exploration.tree.is_closed
    best_ns = exploration.incumbent.best_ns
    if best_ns is None:
        return "infeasible" if is_closed else "exhausted"
    if not is_closed or exploration.incumbent.is_by_ratio:
        return "exhausted"
    if not exploration.has_pruned_by_bound:  # every implementation was evaluated
        return "optimal"
    if exploration.incumbent.alarms:
        return "exhausted"
    if exploration.bound_ns >= best_ns * (1 - RELATIVE_SLACK):
        return "optimal"
    gap, share = exploration.gap, exploration.budget.gap_share
    return "gap_limit" if gap is not None and gap <= share + RELATIVE_SLACK else "exhausted"


def _dead_from_the_start(strategy: str, root: DeadEnd) -> Search:
    yield ev.Started(strategy, 0.0, 0)
    yield ev.DeadEndMet(0, 0, "M", root.why)
    yield ev.Finished("infeasible", None, (), None, None, ev.Tally(), 0.0)
