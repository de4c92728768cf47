"""`search`: the one entry. It is handed its world (bound, evaluation, clock, random numbers) and
yields events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

import numpy as np

from ..space.engine.candidate import DeadEnd
from . import events as ev
from .budget import Budget
from .incumbent import BoundScale
from .ledger import Ledger
from .options import SearchOptions
from .tree.baselines import Beam, BoundFirst, Exhaustive, RandomSampling
from .tree.exploration import (
    RELATIVE_SLACK,
    AbstractStrategy,
    Ahead,
    Announce,
    Expected,
    Exploration,
    Neighbour,
    Surrogate,
)
from .tree.mcts import Mcts
from .tree.tree import SearchCandidate

_BEFORE_INCUMBENTS = (
    3  # warm starts: one of them is hardly ever as slow as what a plain compiler makes
)

Widened = Callable[[], SearchCandidate | None]

STRATEGIES: dict[str, Callable[[SearchOptions], AbstractStrategy]] = {
    "mcts": lambda options: Mcts(options.policy, options.focus),
    "random": lambda options: RandomSampling(),
    "beam": lambda options: Beam(),
    "bound": lambda options: BoundFirst(),
    "exhaustive": lambda options: Exhaustive(),
}


def _plain_names(choice: int, value: int) -> tuple[str, str]:
    return str(choice), str(value)


def search(
    root: SearchCandidate | DeadEnd,
    *,
    bound: Callable[[SearchCandidate], float],
    evaluate: Callable[[list[SearchCandidate]], Sequence[ev.Outcome]],
    next_choice: Callable[[SearchCandidate], int],
    strategy: str = "mcts",
    budget: Budget,
    rng: np.random.Generator,
    incumbents: Sequence[SearchCandidate] = (),
    warm_starts: Iterable[SearchCandidate] = (),
    ahead: Ahead = lambda candidate, n_to_come: None,
    announce: Announce = lambda candidate, provenance: None,
    implementation_key: Callable[[SearchCandidate], bytes | None] | None = None,
    known: Mapping[bytes, ev.Outcome] | None = None,
    alarmed: Collection[bytes] = (),
    scale: BoundScale | None = None,
    neighbour: Neighbour | None = None,
    expected: Expected | None = None,
    surrogate: Surrogate | None = None,
    widened: Widened = lambda: None,
    names: Callable[[int, int], tuple[str, str]] = _plain_names,
    options: SearchOptions | None = None,
) -> Iterator[ev.Event]:
    """Search the completions of `root` for the fastest; the last event is `Finished`.

    `bound(candidate)` is a lower bound in ns on all completions. `evaluate` measures distinct complete candidates, a
    batch at once (see `SearchOptions`), and answers in their order. `ahead(candidate, n)` is told of one that is to be
    measured, together with at most n more, so that work on it may begin; the cut may still overtake it.
    `announce(candidate, provenance)` is told of the same, before, how it was come by.
    `next_choice(candidate)` is the decision order: an open choice. `incumbents` (tag U) and `warm_starts` (tag W) are
    complete candidates measured first: the former, which may be slow, behind a few of the latter, so that they are
    given up early. Implementations of equal `implementation_key` (None: the candidate key) are measured once.
    `known` outcomes, by that key, are not measured again and set the first cut: that is how a search is resumed.
    `scale`, which the caller may lower at any time and the search lowers after a time below its bound,
    multiplies every bound. `alarmed` are keys of implementations once found faster than their bound: the gap stays
    withdrawn. `neighbour(centre, rng)` draws a complete candidate near a good one; `mcts` alternates between the tree
    and such draws. `expected(candidate)` is a guess in ns that rollouts weigh values by where it is above the bound.
    `surrogate` learns from all that is measured; of several draws `mcts` measures the one that it expects most of.
    `widened()` gives the root of a wider space, with the same choices, once what was measured shows that this one
    leaves too much out. `names(choice, value)` gives the names that events use. Equal seeds and outcomes give equal
    events.

    Statuses: `optimal` when all was evaluated or closed under a cut whose bounds may be believed;
    `infeasible` when nothing valid exists; `exhausted` when the strategy has nothing left to try
    but proved nothing; else the rule that was hit.

    Raises ValueError for an unknown strategy, policy or focus, or an incumbent that is not
    complete.
    """
    options = options or SearchOptions()
    if strategy not in STRATEGIES:
        raise ValueError(f"unknown strategy {strategy!r}; strategies are {', '.join(STRATEGIES)}")
    make = partial(STRATEGIES[strategy], options)
    chosen = make()  # an unknown policy is an error of the caller, at once
    for candidate in incumbents:
        _check_complete(candidate)
    if isinstance(root, DeadEnd):
        return _dead_from_the_start(strategy, root)
    known = known or {}
    world = Exploration(
        root,
        bound=bound,
        next_choice=next_choice,
        ledger=Ledger(evaluate, implementation_key, known),
        budget=budget,
        rng=rng,
        options=options,
        scale=scale,
        names=names,
        neighbour=neighbour,
        expected=expected,
        surrogate=surrogate,
        ahead=ahead,
        announce=announce,
    )
    for key in alarmed:
        world.incumbent.alarm(key)
    world.tally.alarms = world.incumbent.alarms
    world.told.append(ev.Started(strategy, world.bound_ns, len(known)))
    remaining = budget.remaining_evaluations(0)
    room = (world.batch if remaining is None else min(world.batch, remaining)) - len(incumbents)
    firsts = _firsts(incumbents, warm_starts, max(0, min(room, _BEFORE_INCUMBENTS)))
    return _run(world, chosen, firsts, known, make, widened)


def _check_complete(candidate: SearchCandidate) -> None:
    if not candidate.is_complete:
        raise ValueError("an incumbent leaves choices open")


def _firsts(
    incumbents: Sequence[SearchCandidate], warm_starts: Iterable[SearchCandidate], n_before: int
) -> Iterator[tuple[ev.Tag, SearchCandidate]]:
    """`n_before` of the warm starts, the incumbents, and the other warm starts."""
    warm = iter(warm_starts)
    for candidate in islice(warm, n_before):
        yield "W", candidate
    for candidate in incumbents:
        yield "U", candidate
    for candidate in warm:
        yield "W", candidate


def _run(
    world: Exploration,
    strategy: AbstractStrategy,
    firsts: Iterable[tuple[ev.Tag, SearchCandidate]],
    known: Mapping[bytes, ev.Outcome],
    make: Callable[[], AbstractStrategy],
    widened: Widened,
) -> Iterator[ev.Event]:
    for tag, candidate in firsts:
        if world.stop_status() is not None:
            break
        _check_complete(candidate)
        bound_ns = max(world.root_bound_ns, float(world.bound(candidate)))
        world.submit(candidate, bound_ns, tag, None)
        yield from _drain(world)
    if world.stop_status() is None:
        world.flush()
    _adopt_known(world, known)
    yield from _drain(world)
    while (status := world.stop_status()) is None:
        world.pruning.refresh()
        is_done = world.tree.is_closed or not strategy.step(world)
        if is_done and world.ledger.n_waiting:
            world.flush()
            is_done = False
        if (wider := widened()) is not None:
            world.flush()
            world.begin_again(wider)
            strategy = make()
        elif is_done:
            status = _conclude(world)
            break
        world.after_step()
        yield from _drain(world)
    yield from _drain(world)
    yield world.row("F" if world.incumbent.best is None else world.incumbent.best.tag, False)
    yield ev.Finished(
        status=status,
        best=world.incumbent.best,
        top=world.incumbent.top(world.options.n_top),
        bound_ns=world.claimed_bound_ns(),
        gap=world.gap,
        tally=world.tally.copy(),
        elapsed_s=world.elapsed_s,
    )


def _drain(world: Exploration) -> Iterator[ev.Event]:
    told = world.told.copy()
    world.told.clear()
    yield from told


def _adopt_known(world: Exploration, known: Mapping[bytes, ev.Outcome]) -> None:
    """Count the outcomes handed in, and let the best of them cut although their candidates are not
    at hand.
    """
    for outcome in known.values():
        world.tally.count(outcome.status)
    timed = [(o.time_ns, key, o) for key, o in known.items() if o.time_ns is not None]
    for _, key, outcome in sorted(timed, key=lambda entry: entry[:2]):
        assert outcome.time_ns is not None
        root_ns = world.root_bound_ns * world.pruning.factor
        world.check_admissible(outcome.time_ns, root_ns, key, 0, None)
        world.rank(outcome, key, "W", None, -1)


def _conclude(world: Exploration) -> str:
    """The status of a search that has nothing left to do."""
    is_closed = world.tree.is_closed
    best_ns = world.incumbent.best_ns
    if best_ns is None:
        return "infeasible" if is_closed else "exhausted"
    if not is_closed:
        return "exhausted"
    if not world.has_pruned_by_bound:  # every implementation was evaluated
        return "optimal"
    if world.incumbent.alarms:
        return "exhausted"
    if world.bound_ns >= best_ns * (1 - RELATIVE_SLACK):
        return "optimal"
    gap, share = world.gap, world.budget.gap_share
    return "gap_limit" if gap is not None and gap <= share + RELATIVE_SLACK else "exhausted"


def _dead_from_the_start(strategy: str, root: DeadEnd) -> Iterator[ev.Event]:
    yield ev.Started(strategy, 0.0, 0)
    yield ev.DeadEndMet(0, 0, "M", root.why)
    yield ev.Finished("infeasible", None, (), None, None, ev.Tally(), 0.0)
