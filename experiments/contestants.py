"""Rows in which our functions and those of others take turns in one process: their times, the ratio, and the columns of a table."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..explorer import stages as st
from ..explorer.entry import explore
from .measuring import median
from .row import evaluations_in
from .rows import Row
from .writing import time_text

OURS = ("call", "found")
_TURNS_S = 20.0  # of all rounds of a row
_REST_S = 0.02  # between two contestants: threads of the one before go to sleep
_TOLERANCE = {
    4: 1e-3,
    8: 1e-7,
}  # of numbers of so many bytes, beside the largest: long sums in several orders
_MARGIN = (
    64.0  # roundings in another order move a result so much farther than moved inputs, at most
)
_JUMP = 1e-5  # of the largest number of a result
Array = NDArray[Any]
Runs = Mapping[str, Callable[..., Any]]
Times = dict[str, list[float]]


@contextmanager
def best_by_search(
    sequence: Callable[..., Any], given: Sequence[Array], seconds: float, seed: int
) -> Iterator[tuple[dict[str, Callable[..., Any]], Row]]:
    """Yields the best of a search as `found`, and what a row keeps of the search; neither where no seconds are given.

    `found` is missing where the search found nothing in time: the call alone counts.
    """
    if not seconds:
        yield {}, {}
        return
    began_s, opened_s = time.monotonic(), [0.0]

    def hear(event: Any) -> None:
        if isinstance(event, st.Opened):
            opened_s[0] = time.monotonic() - began_s

    with tempfile.TemporaryDirectory(prefix="kernelscape-row-") as name:
        folder = Path(name) / "run"
        how: dict[str, Any] = {"time_limit": seconds, "seed": seed, "directory": folder}
        run = explore(sequence, *given, **how, on_event=hear)
        made = evaluations_in(folder)
        row = {"bound_ns": run.bound_ns, "ended": run.status, "closed": str(run.non_affine)}
        # The journal counts from where the exploration was opened.
        first_s = next((opened_s[0] + r.at_s for r in made if r.time_ns is not None), None)
        row |= {"candidates": len(made), "first_s": first_s}
        yield ({} if run.best is None else {"found": run.best.compile()}), row


def are_near(x: Array, y: Array, loose: float = 0.0) -> bool:
    """Returns true if two results are equal but for rounding, and but for a share of `loose` of their elements."""
    if x.shape != y.shape:
        return False
    if x.dtype.kind not in "fc":
        return float(np.mean(x != y)) <= loose
    allowed = _TOLERANCE[x.real.dtype.itemsize] * max(float(np.abs(x).max(initial=0.0)), 1e-30)
    is_far = ~(np.abs(x - y) <= allowed)
    return float(np.mean(is_far)) <= loose


def results_by(
    runs: Runs, given: Sequence[Array], of: Callable[[tuple[Array, ...]], tuple[Array, ...]]
) -> dict[str, tuple[Array, ...]]:
    """Returns the results of each contestant, `of` the arrays after its first call."""
    results = {}
    for who, run in runs.items():
        arrays = tuple(a.copy() for a in given)
        run(*arrays)
        results[who] = of(arrays)
    return results


def noise_of(
    run: Callable[..., Any],
    given: Sequence[Array],
    of: Callable[[tuple[Array, ...]], tuple[Array, ...]],
) -> tuple[float, ...]:
    """Returns the largest change of each result when all floats of the arguments move by a unit in the last place.

    Chaotic programs, such as orbits of bodies that nearly meet, amplify it millionfold. A change of more than `_JUMP` of the
    largest number counts as none: then an element took another branch, which says nothing of the others.
    """
    rng = np.random.default_rng(1)

    def moved(x: Array) -> Array:
        if x.dtype.kind != "f":
            return x
        goal = np.where(rng.random(x.shape) < 0.5, -np.inf, np.inf)
        return np.asarray(np.nextafter(x, goal.astype(x.dtype)))

    both = [results_by({"": run}, arrays, of)[""] for arrays in (given, tuple(map(moved, given)))]
    found = []
    for x, y in zip(*both, strict=True):
        change = float(np.abs(x - y).max(initial=0.0)) if x.dtype.kind in "fc" else 0.0
        found.append(change if change <= _JUMP * float(np.abs(x).max(initial=0.0)) else 0.0)
    return tuple(found)


def check_agreement(
    results: Mapping[str, tuple[Array, ...]],
    near: Callable[[Array, Array], bool],
    noise: Sequence[float] = (),
) -> None:
    """Raises RuntimeError if a contestant's results are not near those of the first, nor within `_MARGIN` times their `noise`."""
    first, *others = results
    for other in others:
        for k, (x, y) in enumerate(zip(results[first], results[other], strict=True)):
            if not near(x, y) and not (noise and _is_within(x, y, _MARGIN * noise[k])):
                raise RuntimeError(f"{first} and {other} differ in result {k}")


def _is_within(x: Array, y: Array, allowed: float) -> bool:
    return x.shape == y.shape and x.dtype.kind in "fc" and bool(np.abs(x - y).max() <= allowed)


def timed_in_turn(
    runs: Runs,
    given: Sequence[Array],
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
