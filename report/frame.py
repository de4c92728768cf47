"""Evaluations of a run as columns, for pandas, polars or a file."""

from __future__ import annotations

from typing import Any

from ..runtime.records.record import EvaluationRecord
from .run_data import Source, load_run

_QUANTILES = ("least_ns", "quarter_ns", "median_ns", "three_quarters_ns", "most_ns")


def frame(run: Source) -> dict[str, list[Any]]:
    """Returns columns by name with one row per evaluation, oldest first: `pandas.DataFrame(frame(run))`.

    Times are in ns, columns with suffix `_s` in seconds; `best_ns` is the best time so far. The columns `decision:CHOICE` hold
    names of values, None if the candidate has no such decision. Data that older versions did not store are None. Raises
    RecordError.
    """
    evaluations = load_run(run).evaluations
    columns: dict[str, list[Any]] = {}
    best_ns: float | None = None
    rows = []
    for r in evaluations:
        if r.time_ns is not None:
            best_ns = r.time_ns if best_ns is None else min(best_ns, r.time_ns)
        rows.append(_plain(r) | {"best_ns": best_ns})
    for name in rows[0] if rows else ():
        columns[name] = [row[name] for row in rows]
    choices = dict.fromkeys(name for r in evaluations for name, _ in r.decisions)
    decided = [dict(r.decisions) for r in evaluations]
    for choice in choices:
        columns[f"decision:{choice}"] = [d.get(choice) for d in decided]
    return columns


def _plain(r: EvaluationRecord) -> dict[str, Any]:
    origin, place, timing = r.origin, r.place, r.timing
    quantiles = timing.quantiles_ns if timing is not None else ()
    return {
        "at_s": r.at_s,
        "session": None if place is None else place.session,
        "worker": None if place is None else place.worker,
        "device": None if place is None else place.device,
        "tag": None if origin is None else origin.tag,
        "node": None if origin is None else origin.node,
        "parent_key": None if origin is None else origin.parent,
        "source_key": r.source_key,
        "status": r.status,
        "time_ns": r.time_ns,
        "spread": r.spread,
        "bound_ns": r.bound_ns,
        "stopped_early": r.stopped_early,
        "slowness": r.slowness,
        "build_s": None if timing is None else timing.build_s,
        "run_s": None if timing is None else timing.run_s,
        "n_samples": None if timing is None else timing.n_samples,
        **dict(zip(_QUANTILES, quantiles or (None,) * 5, strict=False)),
        "detail": r.detail,
    }
