"""State that all strategies share (results, pending requests, events), and the operations that keep it consistent."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np

from .. import events as ev
from ..asking import Ask, Asking, Trial
from ..budget import Budget, SearchProgress
from ..candidate import SearchCandidate
from ..incumbent import DOUBTED, Incumbent
from ..inputs import Guidance, History, Oracle
from ..ledger import Answer, Ledger, Request
from ..node import CLOSED_EVALUATED, IN_FLIGHT, OPEN, Node
from ..options import SearchOptions
from .pruning import Pruning
from .tree import SearchTree

# Two bounds this close (relatively) are one: summation order must not raise alarms or events.
RELATIVE_SLACK = 1e-9
_KNOWN_FOR_EACH = 8  # measured before, for each of a batch that has grown
_BATCH_S = 1.0  # that a batch which has grown takes to run
_ROW_EVERY_S = 1.0  # a line of the log is due


class AbstractStrategy(ABC):
    """Interface of a search strategy, which performs one step at a time."""

    @abstractmethod
    def step(self, exploration: Exploration) -> Asking[bool]:
        """Performs one step. Returns False if nothing is left to do except waiting for evaluations in flight."""


class Exploration:
    """State of one running search. Operations append to `events`, which the caller drains."""

    def __init__(
        self,
        root: SearchCandidate,
        oracle: Oracle[SearchCandidate],
        guidance: Guidance[SearchCandidate],
        history: History[SearchCandidate],
        budget: Budget,
        rng: np.random.Generator,
        options: SearchOptions,
    ) -> None:
        self.oracle = oracle
        self.guidance = guidance
        self.history = history
        self.budget = budget
        self.rng = rng
        self.options = options
        self.ledger = Ledger(oracle.key, history.outcomes)
        self._weighed: dict[bytes, list[Node]] = {}  # by key of what is in flight
        self.tally = ev.Tally()
        self.events: list[ev.Event] = []
        self.incumbent = Incumbent(
            cut_gap=budget.gap_share if options.cut_at_gap else 0.0,
            prune=options.prune,
            n_top=options.n_top,
        )
        self._plant(root)
        self.is_interrupted = False
        self.least_evaluated_ns = math.inf  # stored (unscaled) bound of what was measured
        self.n_open_below = 0  # nodes of the trees of components
        self._last_bound_ns = self.bound_ns  # that an event said
        self.last_tag: ev.Tag = "M"  # of what was done last
        self._start_s = budget.clock()
        self._row_s = 0.0

    def _plant(self, root: SearchCandidate) -> None:
        self.root = root
        self.root_bound_ns = float(self.oracle.bound(root))
        self.tree = SearchTree(root, self.root_bound_ns, max_held=self.options.limits.max_held)
        self.pruning = Pruning(
            self.tree, self.incumbent, self.oracle.scale, self.tally, self.events
        )

    def begin_again(self, root: SearchCandidate) -> None:
        """Restarts with the root of a wider space: the tree is new, measurements remain.

        No measurement may be pending.
        """
        self._plant(root)
        self.pruning.refresh()
        self.events.append(ev.Widened(self.root_bound_ns * self.pruning.factor))

    # ------------------------------------------------------------------ what is known

    @property
    def elapsed_s(self) -> float:
        return self.budget.clock() - self._start_s

    @property
    def cut_ns(self) -> float:
        """Cut on stored (unscaled) bounds, in ns: only candidates with a bound below it can be worth exploring."""
        return self.pruning.cut_ns

    @property
    def bound_ns(self) -> float:
        """Global lower bound in ns: no implementation is faster. It is scaled, and at most the best time."""
        floor_ns = min(self.tree.open_bound_ns(), self.pruning.floor_ns) * self.pruning.factor
        best_ns = self.incumbent.best_ns
        return floor_ns if best_ns is None else min(floor_ns, best_ns)

    @property
    def gap(self) -> float | None:
        return self.incumbent.gap(self.bound_ns)

    @property
    def has_pruned_by_bound(self) -> bool:
        return self.pruning.floor_ns < math.inf

    def stop_status(self) -> str | None:
        if self.is_interrupted:
            return "interrupted"
        progress = SearchProgress(
            elapsed_s=self.elapsed_s,
            evaluations=self.tally.evaluations,
            best_ns=self.incumbent.best_ns,
            gap=self.gap,
        )
        return self.budget.stop_status(progress)

    def row(self, tag: ev.Tag, is_new_best: bool) -> ev.Row:
        best, t = self.incumbent.best, self.tally
        return ev.Row(
            elapsed_s=round(self.elapsed_s, 3),
            source=tag,
            new_best=is_new_best,
            explored=t.explored,
            open=self.tree.n_open + self.n_open_below,
            pruned_bound=t.pruned_bound + t.rollout_bound,
            pruned_csp=t.pruned_csp + t.rollout_csp,
            bound_ns=self.claimed_bound_ns(),
            best_ns=None if best is None else best.time_ns,
            spread=0.0 if best is None else best.spread,
            gap=self.gap,
            ok=t.ok,
            wrong=t.bad,
            crash=t.crash,
            timeout=t.timeout,
            unbuilt=t.unbuilt,
            tally=t.copy(),
        )

    def claimed_bound_ns(self) -> float | None:
        """Global lower bound while it is valid; None after an alarm, and if nothing is left to bound."""
        bound_ns = self.bound_ns
        return None if self.incumbent.alarms or math.isinf(bound_ns) else bound_ns

    def meet_dead_end(self, node: Node | None, depth: int, tag: ev.Tag, why: str) -> None:
        self.tally.dead_ends += 1
        self.events.append(ev.DeadEndMet(-1 if node is None else node.node_id, depth, tag, why))

    # ------------------------------------------------------------------ evaluating

    def submit(
        self,
        candidate: SearchCandidate,
        bound_ns: float,
        tag: ev.Tag,
        node: Node | None,
        *,
        is_leaf: bool = False,
        parent: bytes = b"",
    ) -> Asking[bool]:
        """Requests the outcome of a complete candidate. Returns True if it has to be measured.

        `parent`: key of the implementation of which it is a neighbour.
        """
        self.last_tag = tag
        key, n_before = self.ledger.key(candidate), self.ledger.n_waiting
        answer = self.ledger.ask(Request(candidate, key, bound_ns, tag, node, is_leaf, parent))
        if answer is not None:
            self._settle(answer)
            return False
        if is_leaf and node is not None:
            node.state = IN_FLIGHT
        n_to_come = self._n_to_come
        if n_to_come > 0 and self.ledger.n_waiting > n_before:
            self.oracle.ahead(candidate, n_to_come)
        while self._n_to_come <= 0 and self.ledger.n_waiting and not self.is_interrupted:
            if self._remaining == 0:
                break
            yield from self.advance()
        return True

    @property
    def _remaining(self) -> int | None:
        return self.budget.remaining_evaluations(self.tally.evaluations)

    @property
    def _n_to_come(self) -> int:
        """Number of candidates that may still be added to the pending batch."""
        remaining = self._remaining
        batch = self.batch if remaining is None else min(self.batch, remaining)
        return batch - self.ledger.n_waiting

    @property
    def batch(self) -> int:
        """Number of candidates that are measured at once.

        Results of a batch come too late for the rest of it. That matters less after many
        measurements, and more if each takes long.
        """
        o, n = self.options.batches, self.tally.evaluations
        if n == 0:
            return o.first or o.size
        if o.in_flight:
            return o.in_flight
        _, spent_s = self.tally.spent_by("")
        in_time = n if spent_s == 0 else int(n * _BATCH_S / spent_s)
        return max(o.size, min(o.largest or o.size, n // _KNOWN_FOR_EACH, in_time))

    def submit_leaf(self, node: Node, tag: ev.Tag) -> Asking[bool]:
        """Requests the outcome of a complete node of the tree. Returns True if it has to be measured."""
        candidate = self.tree.candidate(node)
        return (yield from self.submit(candidate, node.bound_ns, tag, node, is_leaf=True))

    def flush(self) -> Asking[None]:
        """Requests the outcomes of all pending candidates, and waits for all of them.

        Candidates whose bounds are no longer below the cut are left out. Events follow the order of
        requests, not that of answers.
        """
        yield from self._receive(is_all=True)

    def advance(self) -> Asking[None]:
        """Requests outcomes as `flush`, but with several machines returns after the next one.

        The others stay in flight.
        """
        yield from self._receive(is_all=not self.options.batches.in_flight)

    def _receive(self, is_all: bool) -> Asking[None]:
        for request in self.ledger.withdraw(self.cut_ns):
            self.tally.overtaken += 1
            if request.is_leaf and request.node is not None:
                request.node.state = OPEN
                self.pruning.close_above(request.node, request.bound_ns)
        outcomes: dict[bytes, ev.Outcome] = {}
        ask = Ask(self._sent())
        n_wanted = self.ledger.n_waiting if is_all else min(1, self.ledger.n_waiting)
        while len(outcomes) < n_wanted:
            tell = yield ask
            if tell is None:
                self.is_interrupted = True
                break
            outcomes[tell.key] = tell.outcome
            ask = Ask()
        self.pruning.refresh()  # measuring may have shown that bounds are to be lowered
        for key in outcomes:
            for node in self._weighed.pop(key, ()):
                node.weigh(-1)
        for answer in self.ledger.settle(outcomes):
            self._settle(answer)

    def _sent(self) -> tuple[Trial, ...]:
        """Returns the queued trials and marks them as sent.

        If several machines measure, descents continue meanwhile, so the trials' nodes get a virtual
        loss.
        """
        trials, requests = self.ledger.send()
        if self.options.batches.in_flight:
            for request in requests:
                if request.node is not None:
                    request.node.weigh(1)
                    self._weighed.setdefault(request.key, []).append(request.node)
        return trials

    def _settle(self, answer: Answer) -> None:
        request, outcome = answer.request, answer.outcome
        if answer.origin == "measured":
            self.tally.evaluations += 1
            self.tally.count(outcome.status)
            self.tally.spend(request.tag, outcome.spent_s)
            if self.guidance.surrogate is not None:
                ns = outcome.time_ns
                self.guidance.surrogate.learn(
                    request.candidate, None if ns is None else ns / outcome.slowness
                )
        elif answer.origin == "duplicate":
            self.tally.duplicates += 1
        else:
            self.tally.replayed += 1
        node, node_id = request.node, request.node_id
        own_ns = max(request.bound_ns, outcome.bound_ns)
        self.least_evaluated_ns = min(self.least_evaluated_ns, own_ns)
        bound_ns = own_ns * self.pruning.factor
        self.events.append(
            ev.Evaluated(
                node=node_id,
                bound_ns=bound_ns,
                outcome=outcome,
                origin=answer.origin,
                key=request.key,
                tag=request.tag,
                evaluations=self.tally.evaluations,
                elapsed_s=self.elapsed_s,
                candidate=request.candidate,
            )
        )
        if node is not None and outcome.time_ns is not None:
            node.record(outcome.time_ns, self.tree.n_times)
        if node is not None and request.is_leaf:
            self.tally.explored += 1
            self.tree.close(node, CLOSED_EVALUATED)
        if outcome.time_ns is not None:
            self.check_admissible(outcome, bound_ns, request.key)
            self.rank(outcome, request.key, request.tag, request.candidate, node_id)

    def check_admissible(self, outcome: ev.Outcome, bound_ns: float, key: bytes) -> None:
        """Appends an alarm event if a measured time is below its scaled bound, once per implementation; the search goes on.

        It also lowers the scale of all bounds.
        """
        time_ns = outcome.time_ns
        assert time_ns is not None
        if outcome.is_by_ratio or time_ns >= bound_ns * (1 - RELATIVE_SLACK):
            return
        if not self.incumbent.alarm(key):
            return
        self.tally.alarms = self.incumbent.alarms
        if self.oracle.scale is not None:
            share = time_ns / bound_ns * self.pruning.factor
            self.oracle.scale.lower(min(self.oracle.scale.factor, DOUBTED * share))
        self.events.append(ev.AdmissibilityAlarm(time_ns, bound_ns, key))

    def rank(
        self,
        outcome: ev.Outcome,
        key: bytes,
        tag: ev.Tag,
        candidate: SearchCandidate | None,
        node_id: int,
    ) -> None:
        """Offers a measured time to the incumbent. A new best time updates the cut, and gives an event."""
        assert outcome.time_ns is not None
        previous_ns = self.incumbent.best_ns
        ranked = ev.Ranked(outcome.time_ns, outcome.spread, key, tag, outcome, candidate)
        if not self.incumbent.offer(ranked):
            self.incumbent.name_candidate(ranked)
            return
        self.events.append(
            ev.NewIncumbent(ranked, previous_ns, node_id, self.tally.evaluations, self.elapsed_s)
        )
        self.pruning.refresh()
        self.events.append(self.row(tag, True))
        self._row_s = self.elapsed_s

    # ------------------------------------------------------------------ telling

    def _candidate_at(self, bound_ns: float) -> SearchCandidate | None:
        """Returns the candidate of the open node whose bound is the global bound `bound_ns`.

        It returns None if there is none.
        It returns None if there is none.
        """
        node = self.tree.least_open()
        if node is None or node.bound_ns * self.pruning.factor > bound_ns * (1 + RELATIVE_SLACK):
            return None
        return self.tree.candidate(node)

    def after_step(self) -> None:
        """Adds an event if the global bound has moved, and a row of the log if one is due."""
        bound_ns = self.bound_ns
        if (
            not self.incumbent.alarms
            and bound_ns < math.inf
            and abs(bound_ns - self._last_bound_ns) > RELATIVE_SLACK * bound_ns
        ):
            elapsed_s = self.elapsed_s
            at_bound = self._candidate_at(bound_ns)
            self.events.append(ev.BoundMoved(bound_ns, self._last_bound_ns, elapsed_s, at_bound))
            self._last_bound_ns = bound_ns
        if (elapsed_s := self.elapsed_s) - self._row_s >= _ROW_EVERY_S:
            self._row_s = elapsed_s
            self.events.append(self.row(self.last_tag, False))
