"""Search of a period of a program: it follows itself, so its lists and active cells are as the periods before have left them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ..explorer.entry import Run, explore_workload
from ..explorer.workload import Options, Workload, make_workload
from ..runtime.engine.plan_bank import MOST_RUNS


def period_workload(period: Callable[[], None]) -> Workload:
    """Returns a period as a workload that assumes what runs of it leave on all trees, as a default plan does.

    Precondition: the period has run `MOST_RUNS` times in a row, and nothing has changed active cells between or since. A replay
    tests that before each run.
    """
    name = period.__name__
    # `ks.explore` knows of no run before: a sequence that it records makes all its lists anew.
    return make_workload(
        period,
        (),
        sequence=f"{period.__module__}:{name}",
        name=name,
        unsure=frozenset(),
        most_runs=MOST_RUNS,
    )


def explore_period(
    period: Callable[[], None], folder: Path, seconds: float, fixed: Mapping[str, str]
) -> Run:
    """Searches a period for some seconds, with `fixed` decisions; the run lies in `folder`. Raises DecisionError."""
    options = Options(time_limit_s=seconds, fixed=tuple(fixed.items()), store=False)
    return explore_workload(period_workload(period), options, directory=folder)
