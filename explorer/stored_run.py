"""Runs of earlier processes: `load_run` returns the result of `explore` from its files."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from msgspec import UnsetType

from ..kernels.tasks.non_affine import ALL_AFFINE, NonAffineTasks, non_affine_tasks
from ..report.run_data import RunData
from ..report.run_data import load_run as load_data
from ..runtime.api.errors import DeviceError
from ..runtime.records.record import BoundRecord, NoteRecord
from ..runtime.records.replay import StaleError, rebuild_problem
from . import stages as st
from .entry import Run
from .results import Best, load


def load_run(directory: str | Path) -> Run:
    """Returns the run stored in a directory; `status` is "not ended" if it was killed or is still searching.

    Its report, frame and result are those of `ks.explore`. The search does not continue (`explore resume` does that).
    Raises RecordError.
    """
    data = load_data(directory)
    doubts: tuple[str, ...] = ()
    best: Best | None = None
    if data.best is not None:
        try:
            best = load(data.folder)
        except DeviceError as e:
            doubts = (f"the best cannot be run here: {e}",)
    return Run(_ended(data, doubts), best)


def _ended(data: RunData, doubts: tuple[str, ...]) -> st.Ended:
    h, best = data.header, data.best
    non_affine = _non_affine(data)
    bound_ns = _bound_ns(data)
    best_ns = None if best is None else best.time_ns
    now_ns = data.bound_now_ns
    failed = [r.status for r in data.evaluations if r.status != "ok"]
    return st.Ended(
        status=data.status,
        best_ns=best_ns,
        spread=0.0 if best is None else best.spread,
        bound_ns=bound_ns,
        gap=_gap(best_ns, bound_ns),
        bound_now_ns=now_ns,
        gap_now=_gap(best_ns, now_ns),
        baseline_ns=_baseline_ns(data),
        numpy_ns=data.numpy_ns,
        evaluations=len(data.evaluations),
        alarms=sum(isinstance(r, NoteRecord) and r.kind == "alarm" for r in data.records),
        failures={kind: failed.count(kind) for kind in sorted(set(failed))},
        verified=best is not None,
        compiler="" if best is None else best.conditions.compiler,
        run_dir=str(data.folder),
        elapsed_s=data.total_s,
        non_affine=st.non_affine_rows(non_affine),
        doubts=doubts,
        fixed=dict(h.fixed),
        n_input_sets=_n_input_sets(data),
        non_affine_tasks=non_affine,
        is_for_input=not isinstance(h.profile, UnsetType) and h.profile.is_sure,
    )


def _gap(best_ns: float | None, bound_ns: float | None) -> float | None:
    return None if best_ns is None or bound_ns is None else max(0.0, (best_ns - bound_ns) / best_ns)


def _bound_ns(data: RunData) -> float | None:
    """The last bound of a run in ns; None if it was withdrawn."""
    if data.is_doubted():
        return None
    if data.best is not None and data.is_ended:
        return data.best.bound_ns or None
    bounds = [r.bound_ns for r in data.records if isinstance(r, BoundRecord)]
    return bounds[-1] if bounds else None


def _baseline_ns(data: RunData) -> float | None:
    if data.best is not None:
        return data.best.baseline_ns
    return None if data.default is None else data.default.time_ns


def _n_input_sets(data: RunData) -> int:
    """The number of verified input sets, parsed from the sentence on verification in the best's file."""
    digits = [w for w in ("" if data.best is None else data.best.verified).split() if w.isdigit()]
    return int(digits[0]) if digits else 0


def _non_affine(data: RunData) -> NonAffineTasks:
    """The non-affine tasks of a stored sequence; none if this version reads the sequence in another way."""
    with suppress(StaleError):
        return non_affine_tasks(rebuild_problem(data.header.stored, data.header.problem_key)[1])
    return ALL_AFFINE
