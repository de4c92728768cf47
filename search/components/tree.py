"""Search of one component: its own tree, which receives outcomes from measured combinations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import events as ev
from ..asking import Ask, Tell, Trial
from ..budget import AbstractRule, Budget, SearchProgress
from ..candidate import SearchCandidate
from ..incumbent import BoundScale
from ..inputs import History
from ..options import SearchOptions
from ..run import begin
from .component_inputs import ComponentInputs

LEAST_NS = 1.0  # a clock may give less for a component that does next to nothing


@dataclass(frozen=True)
class WholeIsOver(AbstractRule):
    """Stops a component's search as soon as the search of the sequence is over."""

    is_over: Callable[[], bool]

    @property
    def status(self) -> str:
        return "interrupted"

    def is_hit(self, progress: SearchProgress) -> bool:
        return self.is_over()


class ComponentTree:
    """Search of one component, suspended at a request. `trials`: requested candidates without an outcome yet."""

    def __init__(
        self,
        inputs: ComponentInputs[Any],
        known: Mapping[bytes, ev.Outcome],
        budget: Budget,
        rng: np.random.Generator,
        options: SearchOptions,
        earlier: ComponentTree | None = None,
    ) -> None:
        """`known`: outcomes by key, in addition to those of the history.

        `earlier`: the component's tree under other values of the choices that concern all components.
        Times below its bounds lower those of this tree, too.
        """
        given = inputs.oracle.scale
        self.inputs = inputs
        self._given_scale = given or BoundScale()
        factor = 1.0 if earlier is None else earlier.factor
        self._scale = BoundScale(min(factor, self._given_scale.factor))
        self._anywhere_ns = inputs.least_ns if earlier is None else earlier.anywhere_ns
        self.default: SearchCandidate = inputs.history.incumbents[0]
        self.trials: tuple[Trial, ...] = ()
        self._told: list[Tell] = []
        self._told_best: tuple[ev.Ranked, ...] = ()  # of what the search has not yet received
        self.status = ""  # with which its search has ended
        history = inputs.history
        self.exploration, self._search = begin(
            inputs.root,
            replace(inputs.oracle, scale=self._scale),
            inputs.guidance,
            History(
                outcomes={**known, **history.outcomes},
                incumbents=history.incumbents,
                warm_starts=history.warm_starts,
            ),
            budget,
            rng,
            options,
        )
        self._advance(None)

    @property
    def is_explored(self) -> bool:
        """True if the component's search is over, with nothing left to try."""
        return self.status not in ("", "interrupted")

    @property
    def best(self) -> SearchCandidate:
        """Fastest measured candidate so far; the default if none ran."""
        found = self.ranked
        return self.default if found is None or found.candidate is None else found.candidate

    @property
    def ranked(self) -> ev.Ranked | None:
        """Fastest measured candidate so far with its time; None if none ran."""
        return min(self._known(), key=lambda r: r.time_ns, default=None)

    @property
    def ranking(self) -> tuple[SearchCandidate, ...]:
        """Fastest measured candidates so far, best first."""
        found = sorted(self._known(), key=lambda r: r.time_ns)
        return tuple(r.candidate for r in found if r.candidate is not None)

    def _known(self) -> list[ev.Ranked]:
        top = self.exploration.incumbent.top(self.exploration.options.n_top)
        return [r for r in (*top, *self._told_best) if r.candidate is not None]

    @property
    def bound_ns(self) -> float:
        """Lower bound, in ns, on the component's time in all implementations."""
        return self._floor_ns * self._scale.factor

    @property
    def _floor_ns(self) -> float:
        e = self.exploration
        floor_ns = min(e.tree.open_bound_ns(), e.pruning.floor_ns, e.least_evaluated_ns)
        return e.root_bound_ns if math.isinf(floor_ns) else floor_ns

    @property
    def factor(self) -> float:
        """Factor on bounds, lowered by times below them."""
        return min(self._scale.factor, self._given_scale.factor)

    @property
    def anywhere_ns(self) -> float:
        """Lower bound, in ns and without `factor`, under all values of the choices that concern all components."""
        own_ns = self._floor_ns if self.inputs.holds_anywhere else 0.0
        return max(self._anywhere_ns, own_ns)

    def tell(self, tell: Tell) -> None:
        """Passes in the outcome of a trial.

        After that of the last trial the search runs up to its next request.
        """
        self._told.append(tell)
        (trial,) = (t for t in self.trials if t.key == tell.key)
        self.trials = tuple(t for t in self.trials if t is not trial)
        if self.trials:
            self._note(trial, tell.outcome)
            return
        self._told_best = ()
        self._scale.lower(self.factor)
        told, self._told = self._told, []
        for answer in told:
            self._advance(answer)

    def _note(self, trial: Trial, outcome: ev.Outcome) -> None:
        ns = outcome.time_ns
        if ns is not None and all(ns < r.time_ns for r in self._told_best):
            tag: ev.Tag = "M" if trial.provenance is None else trial.provenance.tag
            told = ev.Ranked(ns, outcome.spread, trial.key, tag, outcome, trial.candidate)
            self._told_best = (told,)

    def close(self) -> None:
        """Ends the component's search: no more outcomes will follow."""
        self._search.close()

    def row(self, sum_ns: float) -> ev.ComponentRow:
        """Returns the component's row of a table in which all components take `sum_ns` together."""
        best, tally = self.ranked, self.exploration.tally
        return ev.ComponentRow(
            name=self.inputs.name,
            places=len(self.inputs.places),
            time_ns=None if best is None else best.time_ns,
            share=None if best is None or not sum_ns else best.time_ns / sum_ns,
            bound_ns=self.bound_ns,
            tried=tally.ok
            + tally.bad
            + tally.crash
            + tally.timeout
            + tally.unbuilt
            + len(self._told),
            is_explored=self.is_explored,
            decisions={} if best is None else self._decisions(self.best),
        )

    def _decisions(self, candidate: SearchCandidate) -> dict[str, str]:
        names = self.inputs.guidance.names
        choices = map(int, self.inputs.root.open_choices())
        return dict(names(choice, candidate.values(choice)[0]) for choice in choices)

    def _advance(self, tell: Tell | None) -> None:
        while not self.status:
            said = self._search.send(tell)
            tell = None
            if isinstance(said, Ask):
                self.trials = said.trials or self.trials
                return
            if isinstance(said, ev.Finished):
                self.status = said.status
