"""A run as Chrome trace events, displayed on a time line by Perfetto (ui.perfetto.dev) and chrome://tracing.

The Trace Event Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. All events come from
the journal. Journals of schema 1 have the end of a measurement and not its length: it is an instant event. Older ones of
schema 2 have no times of compilers. A run of the compiler is one slice for all candidates that it built; concurrent ones are
on separate rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..runtime.records.folder import HEADER, JOURNAL, run_folder
from ..runtime.records.journal import read_journal
from ..runtime.records.loading import load_header
from ..runtime.records.record import EvaluationRecord, Record, RunHeader

Event = dict[str, Any]

_PID = 1
_SESSIONS, _MEASUREMENTS, _MACHINE = 1, 2, 3
_COMPILERS = 10  # the first row of theirs
_ROWS = {_SESSIONS: "sessions", _MEASUREMENTS: "measurements", _MACHINE: "machine"}


def trace_of(directory: str | Path) -> dict[str, Any]:
    """Returns the trace of a run directory as a JSON object. Raises RecordError."""
    folder = run_folder(Path(directory))
    header = load_header(folder / HEADER)
    records = read_journal(folder / JOURNAL)
    return {
        "traceEvents": [*_names(header), *events_of(records), *compilers_of(records)],
        "displayTimeUnit": "ms",
        "otherData": {
            "sequence": header.sequence,
            "target": header.target,
            "machine": header.conditions.cpu,
            "taken": header.conditions.taken,
        },
    }


def _names(header: RunHeader) -> Iterator[Event]:
    title = f"{header.sequence} on {header.target}"
    yield {"ph": "M", "pid": _PID, "name": "process_name", "args": {"name": title}}
    for tid, name in _ROWS.items():
        yield from _row(tid, name)


def _row(tid: int, name: str) -> Iterator[Event]:
    row = {"ph": "M", "pid": _PID, "tid": tid}
    yield row | {"name": "thread_name", "args": {"name": name}}
    yield row | {"name": "thread_sort_index", "args": {"sort_index": tid}}


def events_of(records: Iterable[Record]) -> Iterator[Event]:
    """Returns the trace events of a journal, oldest first; times are microseconds since the run began."""
    session: tuple[int, float] | None = None
    n_sessions, last_s = 0, 0.0
    slowness, compiled_s = 1.0, 0.0
    for record in records:
        r: dict[str, Any] = msgspec.to_builtins(record)
        at_s = float(r.get("at_s", last_s))
        if r["event"] == "note" and r["kind"] == "session":
            if session is not None:  # killed: it said no end
                yield _session(session, last_s, "ended without a word")
            n_sessions += 1
            session = (n_sessions, at_s)
        elif r["event"] == "note" and r["kind"] == "ended" and session is not None:
            yield _session(session, at_s, r["text"])
            session = None
        elif r["event"] == "evaluation":
            yield from _evaluation(r, at_s)
            build_s = (r.get("timing") or {}).get("build_s", 0.0)
            if build_s:
                compiled_s += build_s
                yield _counter("compilers, s so far", at_s, compiled_s)
            if r.get("slowness", 1.0) != slowness:
                slowness = r["slowness"]
                yield _counter("time of one program, in its first", at_s, slowness)
        else:
            yield from _other(r, at_s)
        last_s = max(last_s, at_s)
    if session is not None:
        yield _session(session, last_s, "no end yet")


def compilers_of(records: Iterable[Record]) -> Iterator[Event]:
    """Yields a slice for each run of a compiler with its candidates, and the names of the rows."""
    built: dict[tuple[float, float], list[str]] = {}
    for r in records:
        if not isinstance(r, EvaluationRecord) or r.timing is None:
            continue
        if r.timing.compiling_s is not msgspec.UNSET:
            built.setdefault(r.timing.compiling_s, []).append(r.source_key)
    ends_s: list[float] = []  # of the last slice in each row
    for (began_s, ended_s), keys in sorted(built.items()):
        row = next((k for k, end_s in enumerate(ends_s) if end_s <= began_s), len(ends_s))
        if row == len(ends_s):
            ends_s.append(0.0)
            yield from _row(_COMPILERS + row, f"compiler {row + 1}")
        ends_s[row] = ended_s
        name = f"{len(keys)} text{'' if len(keys) == 1 else 's'}"
        yield _slice(_COMPILERS + row, name, began_s, ended_s, {"source_keys": keys})


def _session(session: tuple[int, float], end_s: float, status: str) -> Event:
    number, began_s = session
    return _slice(_SESSIONS, f"session {number}", began_s, end_s, {"status": status})


def _evaluation(r: Mapping[str, Any], at_s: float) -> Iterator[Event]:
    """Yields the trace event of one evaluation: a slice if the journal has its length, else an instant."""
    origin, timing = r.get("origin") or {}, r.get("timing") or {}
    found = {name: r.get(name) for name in ("status", "time_ns", "bound_ns", "source_key")}
    args = found | {name: x for name, x in (origin | timing).items() if x != ""}
    if r.get("detail"):
        args["detail"] = r["detail"]
    time_ns = r.get("time_ns")
    name = r["status"] if time_ns is None else f"{time_ns / 1e6:.4g} ms"
    if origin.get("tag"):
        name = f"{origin['tag']} {name}"
    run_s = timing.get("run_s", 0.0)
    if run_s:
        yield _slice(_MEASUREMENTS, name, max(0.0, at_s - run_s), at_s, args)
    else:
        yield _instant(_MEASUREMENTS, name, at_s, args)


def _other(r: Mapping[str, Any], at_s: float) -> Iterator[Event]:
    match r["event"]:
        case "incumbent":
            yield _counter("best, ms", at_s, r["time_ns"] / 1e6)
        case "bound":
            yield _counter("bound, ms", at_s, r["bound_ns"] / 1e6)
        case "machine":
            state = f"one program takes {r.get('ratio', 1.0):.2f} times as long as before"
            yield _instant(_MACHINE, state, at_s, {k: x for k, x in r.items() if k != "event"})
        case "remeasured":
            args = {"entries": r.get("entries", [])}
            yield _instant(_SESSIONS, "best timed again in turn", at_s, args)
        case "note":
            yield _instant(_SESSIONS, r["kind"], at_s, {"text": r.get("text", "")})


def _slice(tid: int, name: str, begin_s: float, end_s: float, args: Mapping[str, Any]) -> Event:
    return {
        "ph": "X",
        "pid": _PID,
        "tid": tid,
        "name": name,
        "ts": begin_s * 1e6,
        "dur": max(0.0, end_s - begin_s) * 1e6,
        "args": dict(args),
    }


def _instant(tid: int, name: str, at_s: float, args: Mapping[str, Any]) -> Event:
    event = {"ph": "i", "pid": _PID, "tid": tid, "name": name, "ts": at_s * 1e6}
    return event | {"s": "t", "args": dict(args)}


def _counter(name: str, at_s: float, value: float) -> Event:
    return {"ph": "C", "pid": _PID, "name": name, "ts": at_s * 1e6, "args": {"value": value}}
