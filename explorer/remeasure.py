"""Final re-measurement: times the best of a search alternately, so that a change of the machine affects all of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp
from statistics import median

from ..runtime.api.artifact import Artifact
from ..runtime.api.outcome import FINAL, Failure, Measurement
from ..runtime.worker.machine_state import LAST, least_regret
from ..runtime.worker.worker import AbstractWorker
from ..search import events as ev
from ..search.bound.bounder import Roofline
from ..space import choices as ch
from ..space.backbone import OUTER
from ..space.candidate import Candidate
from . import stages as st
from .evaluation import Entry, SearchEvaluator

NOTHING = Roofline(0.0, 0.0, 0.0)
_DISTURBED = 0.2  # a spread beyond which the re-measurement shows nothing


@dataclass(frozen=True, slots=True)
class TimedAgain:
    """A candidate with its final time.

    `searched_ns` is its time in the search; `artifact` is the build that was timed. `paired_ns` and `paired_spread` exclude
    machine effects common to all candidates (runtime/measure/timing.py).
    """

    outcome: ev.Outcome
    candidate: Candidate
    searched_ns: float
    paired_ns: float
    paired_spread: float
    artifact: Artifact | None = None


def with_other(finalists: Sequence[Entry], other: Entry | None) -> list[Entry]:
    """Returns the finalists, and another candidate if it ran and is not among them."""
    keys = {outcome.key for outcome, _ in finalists}
    if other is None or other[0].time_ns is None or other[0].key in keys:
        return list(finalists)
    return [*finalists, other]


def time_again(
    entries: Sequence[Entry],
    evaluator: SearchEvaluator,
    worker: AbstractWorker,
    limit_s: float,
    moved: Roofline = NOTHING,
) -> tuple[list[TimedAgain], dict[str, float]]:
    """Builds each entry alone, and times all alternately with the control of the search, sample by sample.

    Returns the entries that still run, best first by ratios to the control in all observed machine states, and the memory rates
    of the same rounds in bytes per ns by kind of access, for arrays as large as the bytes `moved`.
    """
    started_s = time.monotonic()
    built = evaluator.artifacts([candidate for _, candidate in entries])
    ready = [
        (outcome, candidate, artifact)
        for (outcome, candidate), artifact in zip(entries, built, strict=True)
        if not isinstance(artifact, Failure)
    ]
    left_s = max(limit_s / 2, limit_s - (time.monotonic() - started_s))
    controls = [] if evaluator.control.artifact is None else [evaluator.control.artifact]
    # Verifying takes its share, and each is timed on two placements of its arrays.
    budget_ns = 0.25e9 * left_s / (len(entries) + len(controls))
    sample_ns = min(FINAL.sample_ns, budget_ns / (2 * FINAL.min_samples))
    protocol = replace(FINAL, budget_ns=budget_ns, sample_ns=sample_ns)
    artifacts = [*(a for _, _, a in ready), *controls]
    sizes = moved.read_bytes, moved.written_bytes
    found, rates = worker.interleave_beside(artifacts, protocol, *sizes)
    timed = []
    for (outcome, candidate, artifact), again in zip(ready, found, strict=False):
        if isinstance(again, Measurement):
            new = replace(outcome, time_ns=again.time_ns, spread=again.spread, is_by_ratio=False)
            before_ns, spread = outcome.time_ns or 0.0, again.fair_spread
            timed.append(TimedAgain(new, candidate, before_ns, again.fair_ns, spread, artifact))
    now = {name: median(samples) for name, samples in rates.items() if samples}
    _note_ratios(timed, evaluator, found[len(ready) :])
    ratios = [evaluator.contenders.ratios(t.outcome.key) for t in timed]
    return threads_first(in_all_states(timed, ratios)), now


def longer_where_steadier(
    entries: Sequence[Entry], timed: Sequence[TimedAgain]
) -> list[TimedAgain]:
    """Returns `timed` by the times that count after a disturbed re-measurement, best first.

    A time of the search stands (`entries`), but where the re-measurement was steadier and longer.
    Other work can make a ratio to a control too small, and what seems fast must not be believed.
    """
    searched = {outcome.key: outcome for outcome, _ in entries}

    def told(t: TimedAgain) -> TimedAgain:
        before = searched[t.outcome.key]
        is_longer = (t.outcome.time_ns or 0.0) > (before.time_ns or 0.0)
        return t if is_longer and t.outcome.spread < before.spread else replace(t, outcome=before)

    return sorted(map(told, timed), key=lambda t: t.outcome.time_ns or 0.0)


def confirmed(
    timed: Sequence[TimedAgain], slot: str, worker: AbstractWorker, limit_s: float
) -> st.Confirmed | None:
    """Times the first two of `timed` alternately on another slot. None if the first does not run there."""
    artifacts = [t.artifact for t in timed[:2] if t.artifact is not None]
    budget_ns = 0.25e9 * limit_s / max(1, len(artifacts))
    sample_ns = min(FINAL.sample_ns, budget_ns / (2 * FINAL.min_samples))
    protocol = replace(FINAL, budget_ns=budget_ns, sample_ns=sample_ns)
    found = worker.interleave(artifacts, protocol)
    if not found or not isinstance(found[0], Measurement):
        return None
    best, lead, slack = found[0], None, 0.0
    for other in found[1:]:
        if isinstance(other, Measurement):
            lead, slack = other.fair_ns / best.fair_ns, best.fair_spread + other.fair_spread
    ratio = best.time_ns / (timed[0].outcome.time_ns or best.time_ns)
    return st.Confirmed(slot, best.time_ns, ratio, lead, lead is None or lead >= 1 - slack)


def _note_ratios(
    timed: Sequence[TimedAgain],
    evaluator: SearchEvaluator,
    controls: Sequence[Measurement | Failure],
) -> None:
    """Records each candidate's time divided by the control's, for the machine state of these rounds.

    Without a time of the control the rounds count as a state of their own.
    """
    control, state, is_told = evaluator.control, LAST, False
    for found in controls:
        if isinstance(found, Measurement):
            control.arrive(found.fair_ns)
            state, is_told = control.state, True
    for t in timed:
        ratio = control.ratio(t.paired_ns) if is_told else t.paired_ns
        evaluator.contenders.note_ratio(t.outcome.key, state, ratio)


def in_all_states(
    timed: Sequence[TimedAgain], ratios: Sequence[Mapping[int, float]]
) -> list[TimedAgain]:
    """Returns the candidates best first over all machine states.

    `paired_ns` become relative to the best by the mean over those states in which both were timed. `ratios`: for each candidate,
    its ratio to the control by state.
    """
    if not timed:
        return []
    regrets, best_ns = least_regret(ratios), min(t.paired_ns for t in timed)
    least = min(regrets)
    made = [
        replace(t, paired_ns=best_ns * exp(regret - least))
        for t, regret in zip(timed, regrets, strict=True)
    ]
    return sorted(made, key=lambda t: t.paired_ns)


def threads_first(timed: Sequence[TimedAgain]) -> list[TimedAgain]:
    """Moves to the front the candidate with most parallel tasks, among those tied with the first of `timed`.

    Background load takes a core now and then, which favours serial code; a user of the result has all cores.
    """
    if not timed:
        return []
    most = max(_ties(timed), key=lambda t: (n_parallel(t.candidate), -t.paired_ns))
    return [most, *(t for t in timed if t is not most)]


def n_parallel(candidate: Candidate) -> int:
    """Returns the number of tasks of a complete candidate whose outer loops are parallel."""
    space = candidate.space
    return len(
        {
            d.task
            for d, var in space.variables.kind.items()
            if d.level == OUTER and candidate.value(var) == ch.PARALLEL
        }
    )


def _ties(timed: Sequence[TimedAgain]) -> list[TimedAgain]:
    """Returns the candidates whose time is within both spreads of the first one's."""
    high_ns = timed[0].paired_ns * (1 + timed[0].paired_spread)
    return [t for t in timed if t.paired_ns * (1 - t.paired_spread) <= high_ns]


def comparison(timed: Sequence[TimedAgain]) -> st.Remeasured:
    """Returns the final comparison: times, the number of ties with the first, and a flag for disturbance."""
    entries = tuple(
        st.RemeasuredCandidate(
            t.outcome.key, t.outcome.time_ns or 0.0, t.outcome.spread, t.searched_ns
        )
        for t in timed
    )
    best = timed[0]
    n_ties = len(_ties(sorted(timed, key=lambda t: t.paired_ns)))
    return st.Remeasured(entries, n_ties, best.paired_spread > _DISTURBED)
