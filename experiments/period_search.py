"""Search of a period of a program: it follows itself, so its lists and active cells are as the periods before have left them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from msgspec import UNSET

from ..explorer.entry import Run, explore_workload
from ..explorer.results import Best
from ..explorer.workload import Options, Workload, make_workload
from ..runtime.engine.plan_bank import MOST_RUNS
from ..runtime.records.folder import JOURNAL
from ..runtime.records.journal import read_journal
from ..runtime.records.record import EvaluationRecord, standing_evaluations
from ..search.events import Row
from ..space.decisions import DecisionError

LONGEST = 10  # components, whose least number of measured implementations is a figure


def period_workload(period: Callable[[], None], without: Sequence[str] = ()) -> Workload:
    """Returns a period as a workload that assumes what runs of it leave on all trees, as a default plan does.

    `without`: names of derived rewrites that are not made. Precondition: the period has run `MOST_RUNS` times in a row, and nothing
    has changed active cells between or since. A replay tests that before each run.
    """
    name = period.__name__
    # `ks.explore` knows of no run before: a sequence that it records makes all its lists anew.
    return make_workload(
        period,
        (),
        sequence=f"{period.__module__}:{name}",
        name=name,
        without=without,
        unsure=frozenset(),
        most_runs=MOST_RUNS,
    )


def searched_period(
    period: Callable[[], None],
    folder: Path,
    seconds: float,
    fixed: Mapping[str, str],
    without: Sequence[str] = (),
) -> tuple[Best | None, dict[str, Any]]:
    """Searches a period for some seconds, and returns its best and the figures of the search; the run lies in `folder`.

    `fixed`: decisions. `without`: derived rewrites. Where the period has nothing of these rewrites, the decisions alone count, and
    the other way round. If it has neither, the figures are the reason, `why`, and no `best_ns`. Raises DecisionError where only
    decisions are asked for and the period lacks their choices.
    """
    begin = perf_counter()
    firsts: list[float] = []

    def hear(event: object) -> None:
        if isinstance(event, Row) and event.best_ns is not None and not firsts:
            firsts.append(perf_counter() - begin)

    workload = period_workload(period, without)
    has_rewrites = bool(without) and workload.problem.key != period_workload(period).problem.key
    if without and not has_rewrites and not fixed:
        return None, {"why": f"it has no {', '.join(without)} to leave in", "best_ns": None}

    def explored(decisions: Mapping[str, str]) -> Run:
        options = Options(time_limit_s=seconds, fixed=tuple(decisions.items()), store=False)
        return explore_workload(workload, options, directory=folder, on_event=hear)

    try:
        run = explored(fixed)
    except DecisionError as e:
        if not without:
            raise
        if not has_rewrites:
            return None, {"why": str(e), "best_ns": None}
        run = explored({})
    ended = run.ended
    evaluations = standing_evaluations(read_journal(folder / JOURNAL))
    key = "" if run.best is None else run.best.file.source_key
    return run.best, {
        "status": run.status,
        "evaluations": ended.evaluations,
        "best_ns": ended.best_ns,
        "bound_ns": ended.bound_ns,
        "failures": ended.failures,
        "elapsed_s": ended.elapsed_s,
        "first_found_s": firsts[0] if firsts else None,
        **tried(key, evaluations)._asdict(),
    }


class Tried(NamedTuple):
    """Counts of measured implementations: equal ones are one, and those that failed do not count.

    `n_tried`: distinct pairs of a component and its text. `least_tried`: the least number of texts of one of the `LONGEST`
    components that take most of the best. Components that are equal up to names are one.
    """

    n_tried: int
    least_tried: int


def tried(source_key: str, evaluations: Iterable[EvaluationRecord]) -> Tried:
    """Returns the counts of a search whose best has `source_key`. A sequence whose parts were not timed is one component."""
    valid = [r for r in evaluations if r.status == "ok"]
    timed = [r for r in valid if r.components is not UNSET]
    best = next((r.components for r in timed if r.source_key == source_key), UNSET)
    if best is UNSET:
        n = len({r.source_key for r in valid})
        return Tried(n, n)
    times_ns: dict[str, float] = {}
    texts: dict[str, set[str]] = {}
    for k, row in enumerate(best):
        name = row.text or row.key
        times_ns[name] = times_ns.get(name, 0.0) + row.time_ns
        rows = (r.components[k] for r in timed if r.components is not UNSET)
        texts.setdefault(name, set()).update(row.text or row.key for row in rows)
    longest = sorted(texts, key=lambda name: -times_ns[name])[:LONGEST]
    return Tried(sum(map(len, texts.values())), min(len(texts[name]) for name in longest))
