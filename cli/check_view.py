"""Output of `explore check`: its verdict as text or JSON, and its exit code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..explorer.check import Checked
from ..explorer.result_text import TimeUnit
from ..runtime.api.outcome import Failure
from ..search.events import gap_text
from .exits import Exit

_LOG_LINES = 12  # of a compiler, which says the most important first


def exit_of_check(found: Checked) -> Exit:
    """Returns the exit code of a check: USAGE if the file does not compile, WRONG_ANSWER for other failures."""
    if not isinstance(found.theirs, Failure):
        return Exit.OK
    return Exit.USAGE if found.theirs.kind == "compile" else Exit.WRONG_ANSWER


def check_lines(found: Checked) -> Iterator[str]:
    """Yields the lines of the verdict, for people."""
    s = found.workload
    sizes = ", ".join(f"{name}={extent}" for name, extent in s.sizes.items())
    head = f"{found.function.name} of {found.file} as {s.sequence} ({sizes}, {s.dtype})"
    if isinstance(found.theirs, Failure):
        yield f"{head} | {found.theirs.kind}: {found.theirs.advice}"
        log = found.theirs.log.strip()
        yield from (f"  {line}" for line in log.splitlines()[:_LOG_LINES])
        return
    yield f"{head} | verified on {found.n_input_sets} input sets"
    yield from (f"note: {note}" for note in found.notes)
    if not found.has_times:
        yield "times mean nothing on this target: none is compared"
        return
    unit, theirs = TimeUnit(found.theirs.time_ns), found.theirs
    yield f"theirs  {unit.text(theirs.time_ns)} +/- {theirs.spread:.1%}"
    if found.ours is not None:
        yield f"ours    {unit.text(found.ours.time_ns)} +/- {found.ours.spread:.1%}   {found.ours_is}"
        ratio = theirs.time_ns / found.ours.time_ns
        yield f"        theirs takes {ratio:.2f} times as long as ours, timed in turn"
    if found.bound_ns is not None:
        gap = "" if found.is_below_bound else f"   gap {gap_text(found.gap)}"
        yield f"bound   {unit.text(found.bound_ns)}{gap}"
    if found.is_below_bound:
        yield (
            "!       faster than the bound says that anything can be: it keeps results from call to"
            " call, or the bound is wrong: please report it"
        )


def check_fields(found: Checked) -> dict[str, Any]:
    """Returns the verdict as one JSON object."""
    theirs, ours = found.theirs, found.ours
    is_failure = isinstance(theirs, Failure)
    return {
        "event": "check",
        "sequence": found.workload.sequence,
        "sizes": dict(found.workload.sizes),
        "dtype": found.workload.dtype,
        "file": str(found.file),
        "function": found.function.name,
        "status": theirs.kind if isinstance(theirs, Failure) else "ok",
        "detail": f"{theirs.advice} {theirs.log}".strip() if isinstance(theirs, Failure) else "",
        "verified": not is_failure,
        "input_sets": found.n_input_sets,
        "time_ns": None if isinstance(theirs, Failure) else theirs.time_ns,
        "ours_ns": None if ours is None else ours.time_ns,
        "ours_is": found.ours_is,
        "bound_ns": found.bound_ns,
        "gap": found.gap,
        "below_bound": found.is_below_bound,
        "has_times": found.has_times,
        "notes": list(found.notes),
    }
