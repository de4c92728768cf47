"""The log of a run as JSON lines, made from events alone: see cli/schema.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ..explorer import stages as st
from ..search import events as ev
from .log import Event, closed_fields, disagreement_text


class JsonLog:
    """One JSON object a line, the last one `{"event": "result", ...}`."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def __call__(self, event: Event) -> None:
        fields = to_fields(event)
        if fields is not None:
            self._write(json.dumps(fields, allow_nan=False))


def to_fields(event: Event) -> dict[str, Any] | None:
    """The JSON fields of an event; None for events that are too many to tell."""
    match event:
        case st.Opened():
            return {
                "event": "start",
                "run_dir": str(event.directory),
                "problem": event.problem.name,
                "problem_key": event.problem.key,
                "space_key": event.space.key,
                "target": event.target.name,
                "calibrated": event.target.calibrated,
                "seed": event.seed,
                "resumed": event.n_resumed,
                "notes": list(event.notes),
                "fixed": dict(event.space.fixed),
            }
        case st.Rooted():
            terms = dict(event.terms)
            return {"event": "root_bound", "bound_ns": event.bound_ns, "terms_ns": terms}
        case st.Compared():
            return {
                "event": "baseline",
                "baseline_ns": event.default_ns,
                "numpy_ns": event.numpy_ns,
            }
        case st.NumpyTimed():
            return {
                "event": "numpy",
                "time_ns": event.time_ns,
                "spread": event.spread,
                "samples": event.n_samples,
                "disturbed": event.disturbed,
            }
        case st.ReferenceTooSlow():
            return {
                "event": "reference_too_slow",
                "limit_s": event.limit_s,
                "compared": event.is_compared,
            }
        case st.FirstWrong():
            return {"event": "first_wrong", "key": event.key, "detail": event.detail}
        case st.RoundingMeasured():
            return {
                "event": "rounding",
                "input_set": event.input_set,
                "branches": list(event.branches),
            }
        case st.Disagreed():
            return {
                "event": "disagreement",
                "candidates": event.n,
                "input_set": event.at.input_set,
                "array": event.at.array,
                "index": list(event.at.index),
                "got": event.at.got,
                "want": event.at.want,
                "detail": disagreement_text(event),
            }
        case st.OutOfTime():
            return {"event": "out_of_time", "limit_s": event.limit_s, "during": event.during}
        case ev.Row():
            return _row_fields(event)
        case ev.AdmissibilityAlarm():
            return {"event": "alarm", "time_ns": event.time_ns, "bound_ns": event.bound_ns}
        case ev.Widened():
            return {"event": "widened", "bound_ns": event.bound_ns}
        case st.MachineChanged():
            return {"event": "machine_changed", "ratio": event.ratio}
        case st.Remeasured():
            entries = [
                {"key": a.key, "time_ns": a.time_ns, "spread": a.spread} for a in event.entries
            ]
            return {"event": "final", "top": entries, "ties": event.n_ties}
        case st.OtherCompiler():
            return {
                "event": "other_compiler",
                "compiler": event.compiler,
                "time_ns": event.time_ns,
                "ratio": event.ratio,
            }
        case st.Ended():
            return result_fields(event)
        case _:
            return None


def _row_fields(e: ev.Row) -> dict[str, Any]:
    t = e.tally
    return {
        "event": "row",
        "elapsed_s": round(e.elapsed_s, 3),
        "source": e.tag,
        "new_best": e.is_new_best,
        "explored": t.explored,
        "open": e.open,
        "pruned_bound": t.pruned_bound + t.rollout_bound,
        "pruned_csp": t.pruned_csp + t.rollout_csp,
        "bound_ns": e.bound_ns,
        "best_ns": e.best_ns,
        "spread": e.spread,
        "gap": e.gap,
        "ok": t.ok,
        "wrong": t.bad,
        "crash": t.crash,
        "timeout": t.timeout,
        "unbuilt": t.unbuilt,
    }


def result_fields(e: st.Ended) -> dict[str, Any]:
    """The last JSON line of a run."""
    return {
        "event": "result",
        "status": e.status,
        "best_ns": None if e.best is None else e.best.time_ns,
        "spread": 0.0 if e.best is None else e.best.spread,
        "bound_ns": e.limits.bound_ns,
        "gap": e.limits.gap,
        "bound_now_ns": e.limits.bound_now_ns,
        "gap_now": e.limits.gap_now,
        "baseline_ns": e.references.default_ns,
        "numpy_ns": e.references.numpy_ns,
        "evaluations": e.effort.n_evaluations,
        "alarms": e.limits.n_alarms,
        "failures": dict(e.effort.failures),
        "verified": e.best is not None,
        "compiler": "" if e.best is None else e.best.compiler,
        "run_dir": str(e.directory),
        "elapsed_s": round(e.effort.elapsed_s, 3),
        "closed": closed_fields(e.scope.closed),
        "doubts": list(e.doubts),
        "fixed": dict(e.scope.fixed),
    }
