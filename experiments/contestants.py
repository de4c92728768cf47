"""Rows in which our functions and those of others take turns in one process: their times, the ratio, and the columns of a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from .measuring import median
from .rows import Row
from .writing import time_text

OURS = ("call", "found")
_TURNS_S = 20.0  # of all rounds of a row
_REST_S = 0.02  # between two contestants: threads of the one before go to sleep
Times = dict[str, list[float]]


def timed_in_turn(
    runs: Mapping[str, Callable[..., Any]],
    given: Sequence[NDArray[Any]],
    rounds: int,
    elsewhere: Mapping[str, Callable[[], float]],
) -> Times:
    """Returns the times in ns by contestant: each of `runs` gets new copies of the arrays each time; `elsewhere` times itself."""
    times: Times = {name: [] for name in (*runs, *elsewhere)}
    began = time.monotonic()
    for _ in range(rounds):
        for name, run in runs.items():
            arrays = tuple(a.copy() for a in given)
            time.sleep(_REST_S)
            started = time.perf_counter_ns()
            run(*arrays)
            times[name].append(float(time.perf_counter_ns() - started))
        for name, time_ns in elsewhere.items():
            time.sleep(_REST_S)
            times[name].append(time_ns())
        if time.monotonic() - began > _TURNS_S:
            break
    return times


def values_of(times: Times) -> Row:
    """Returns what a row keeps of the times: the least and the median of each contestant."""
    return {
        "times_ns": {name: min(found) for name, found in times.items()},
        "medians_ns": {name: median(found) for name, found in times.items()},
    }


def speed(row: Row, theirs: Sequence[str]) -> float:
    """Returns the time of the better of theirs over that of the better of ours."""
    ns = row["times_ns"]
    return float(ns[_better(ns, theirs)] / ns[_better(ns, OURS)])


def spread_text(row: Row, theirs: Sequence[str]) -> str:
    """Returns the distance of the medians from the least times, of the better of theirs and of ours."""
    ns, medians = row["times_ns"], row["medians_ns"]
    better = (_better(ns, names) for names in (theirs, OURS))
    return ", ".join(f"+{medians[n] / ns[n] - 1:.0%}" for n in better)


def _better(ns: Mapping[str, float], names: Sequence[str]) -> str:
    return min((n for n in names if n in ns), key=lambda n: ns[n])


def time_cell(name: str) -> Callable[[Row], str]:
    """Returns the cell of a contestant's least time."""
    return lambda row: time_text(row["times_ns"].get(name))


def said(row: Row, theirs: Sequence[str]) -> str:
    """Returns the line that is printed once a row is made."""
    times = ", ".join(f"{name} {time_text(ns)}" for name, ns in row["times_ns"].items())
    return f"{times}; {speed(row, theirs):.2f}"
