"""Contents of a run's page: values and arrays that the page's script draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import asdict

from ..codegen.describe import describe
from ..codegen.starts import count_starts
from ..kernels.tasks.state_flow import StateFlowGraph
from ..runtime.records import record
from ..space.decisions import fixed_text
from .component_accounts import component_accounts
from .pairs import Effect, Predictions, measured_effects
from .rebuilt import Implementation, RebuiltSpace, graph_of
from .run_data import RunData, ns_of
from .trees import columns_of, find_below

N_TEXTS = 8  # implementations whose C is in the page, the fastest and the default
_N_EFFECTS = 30
_N_AXES = 9  # of the parallel coordinates, beside that of time
_LEAST_SHARE = 0.02  # of measured implementations that an axis must tell apart


@dataclass
class Contents:
    """Contents of a page. `values` become JSON, `arrays` are columns of trees or evaluations."""

    values: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]] = field(default_factory=dict)


def contents_of(run: RunData, space: RebuiltSpace | str) -> Contents:
    """Returns all contents of a run's page. For unavailable contents there is a sentence with the reason."""
    evaluations = run.evaluations
    found = Contents({})
    v = found.values
    v["head"] = _head(run, space)
    v["notes"] = list(run.notes)
    v["evaluations"] = _evaluations(evaluations)
    v["decisions"] = _decisions(evaluations)
    v["events"] = _events(run)
    v["pruned"] = _pruned(run)
    v["trees"] = _trees(run, found.arrays)
    v["effects"] = [_effect(e) for e in measured_effects(evaluations)[:_N_EFFECTS]]
    v["axes"] = _axes(evaluations)
    graph = graph_of(run)
    v["graph"] = graph if isinstance(graph, str) else _graph(graph)
    v |= _of_space(run, space)
    return found


def best_record(run: RunData) -> record.EvaluationRecord | None:
    """Returns the evaluation of the best, or the fastest one if no best is stored yet."""
    timed = run.timed
    if run.best is not None:
        own = [r for r in timed if r.source_key == run.best.source_key]
        if own:
            return own[0]
    return min(timed, key=ns_of, default=None)


def _head(run: RunData, space: RebuiltSpace | str) -> dict[str, Any]:
    h, best = run.header, run.best
    c = h.conditions
    bounds = [r for r in run.records if isinstance(r, record.BoundRecord)]
    bound_ns = bounds[-1].bound_ns if bounds else None
    if best is not None and run.is_ended:
        bound_ns = best.bound_ns or None
    if run.is_doubted():
        bound_ns = None
    timed = best_record(run)
    best_ns = best.time_ns if best is not None else timed.time_ns if timed is not None else None
    default = run.default
    return {
        "name": h.sequence,
        "formula": h.stored.formula,
        "sizes": h.sizes,
        "dtype": h.dtype,
        "target": h.target,
        "seed": h.seed,
        "cpu": c.cpu,
        "cores": c.cores,
        "compiler": c.compiler,
        "machine": c.machine,
        "folder": run.folder.name,
        "space_key": h.space_key[:8],
        "status": run.status,
        "total_s": run.total_s,
        "best_ns": best_ns,
        "spread": best.spread if best is not None else 0.0,
        "bound_ns": bound_ns,
        "bound_now_ns": run.bound_now_ns,
        "doubted": run.is_doubted(),
        "default_ns": best.baseline_ns if best else default.time_ns if default else None,
        "numpy_ns": run.numpy_ns,
        "limiting": bounds[-1].limiting if bounds else "",
        "fixed": fixed_text(h.fixed) if h.fixed else "",
        "why_no_space": space if isinstance(space, str) else "",
    }


def _evaluations(evaluations: Sequence[record.EvaluationRecord]) -> dict[str, list[Any]]:
    def of(name: str, part: Any, otherwise: Any) -> Any:
        return otherwise if part is None else getattr(part, name)

    return {
        "at_s": [round(r.at_s, 3) for r in evaluations],
        "time_ns": [r.time_ns for r in evaluations],
        "spread": [round(r.spread, 4) for r in evaluations],
        "bound_ns": [r.bound_ns for r in evaluations],
        "status": [r.status for r in evaluations],
        "detail": [r.detail[:200] for r in evaluations],
        "stopped_early": [r.stopped_early for r in evaluations],
        "slowness": [round(r.slowness, 3) for r in evaluations],
        "key": [r.source_key[:8] for r in evaluations],
        "tag": [of("tag", r.origin, "?") for r in evaluations],
        "parent": [of("parent", r.origin, "")[:8] for r in evaluations],
        "session": [of("session", r.place, 1) for r in evaluations],
        "build_s": [round(of("build_s", r.timing, 0.0), 4) for r in evaluations],
        "run_s": [round(of("run_s", r.timing, 0.0), 4) for r in evaluations],
        "n_samples": [of("n_samples", r.timing, 0) for r in evaluations],
    }


def _decisions(evaluations: Sequence[record.EvaluationRecord]) -> dict[str, Any]:
    """Returns the names of choices, their values, and for each evaluation a row of value numbers.

    -1 in a row: the evaluation has no such decision.
    """
    values: dict[str, dict[str, int]] = {}
    rows = []
    for r in evaluations:
        row = {}
        for name, value in r.decisions:
            known = values.setdefault(name, {})
            row[name] = known.setdefault(value, len(known))
        rows.append(row)
    return {
        "choices": list(values),
        "values": [list(known) for known in values.values()],
        "rows": [[row.get(name, -1) for name in values] for row in rows],
    }


def _events(run: RunData) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {
        name: [] for name in ("incumbents", "bounds", "sessions", "machine", "finals", "alarms")
    }
    for r in run.records:
        match r:
            case record.IncumbentRecord():
                found["incumbents"].append([r.at_s, r.time_ns, r.source_key[:8]])
            case record.BoundRecord():
                found["bounds"].append([r.at_s, r.bound_ns, r.limiting])
            case record.NoteRecord(kind="session"):
                found["sessions"].append(r.at_s)
            case record.NoteRecord(kind="alarm"):
                found["alarms"].append(r.at_s)
            case record.MachineRecord() if r.ratio != 1:
                found["machine"].append([r.at_s, r.ratio])
            case record.RemeasuredRecord():
                entries = [[e.source_key[:8], e.time_ns, e.spread] for e in r.entries]
                found["finals"].append([r.at_s, r.n_ties, r.is_disturbed, entries])
    return found


_PRUNED = {  # names of search.events.Tally by what took the nodes and values away
    "the bound": ("pruned_bound", "rollout_bound", "near_bound", "overtaken"),
    "constraints": ("pruned_csp", "rollout_csp", "near_dead", "dead_ends"),
    "what was known": ("near_known", "duplicates"),
    "expectation": ("near_worse",),
}


def _pruned(run: RunData) -> list[tuple[str, int]]:
    """Returns pairs of a cause of pruning and the number of nodes and values that it removed, over all sessions."""
    counts: Counter[str] = Counter()
    for tally in record.last_tallies(run.records):
        counts.update(tally.counts)
    return [(by, sum(counts[name] for name in names)) for by, names in _PRUNED.items()]


def _trees(run: RunData, arrays: dict[str, npt.NDArray[Any]]) -> list[dict[str, Any]]:
    found = []
    for k, tree in enumerate(run.tree_file.trees):
        below = find_below(tree, run.evaluations)
        arrays.update({f"tree{k}.{name}": a for name, a in columns_of(tree, below).items()})
        arrays[f"tree{k}.rows"] = below.row.astype(np.uint32)
        found.append({"session": tree.session, "names": tree.names, "n_nodes": len(tree)})
    return found


def _effect(effect: Effect) -> dict[str, Any]:
    return {"changes": effect.changes, "ratios": [round(r, 4) for r in effect.ratios[:200]]}


def _axes(evaluations: Sequence[record.EvaluationRecord]) -> list[str]:
    """Returns the choices that explain the largest shares of the variance of measured times, largest first."""
    timed = [r for r in evaluations if r.time_ns is not None]
    if len(timed) < 3:
        return []
    logs = np.log([ns_of(r) for r in timed])
    total = float(((logs - logs.mean()) ** 2).sum())
    shares: dict[str, float] = {}
    decided = [dict(r.decisions) for r in timed]
    for choice in dict.fromkeys(name for d in decided for name in d):
        values = np.array([d.get(choice, "") for d in decided])
        kinds, counts = np.unique(values, return_counts=True)
        if len(kinds) < 2 or len(timed) - counts.max() < max(1, _LEAST_SHARE * len(timed)):
            continue
        between = sum(
            n * (logs[values == kind].mean() - logs.mean()) ** 2
            for kind, n in zip(kinds, counts, strict=True)
        )
        shares[choice] = float(between) / total if total > 0 else 0.0
    # Choices that always change together tell the same: the first of them stands for all.
    chosen: list[str] = []
    seen: set[float] = set()
    for choice in sorted(shares, key=lambda c: -shares[c]):
        if round(shares[choice], 6) not in seen:
            seen.add(round(shares[choice], 6))
            chosen.append(choice)
    return chosen[:_N_AXES]


def _graph(graph: StateFlowGraph) -> dict[str, Any]:
    return {
        "tasks": [
            {
                "name": n.name,
                "reads": [str(s.name) for s in n.reads],
                "writes": [str(s.name) for s in n.writes],
            }
            for n in graph.nodes
        ],
        "edges": [[e.source, e.sink, e.state.label, e.version, e.kind] for e in graph.edges],
    }


def _of_space(run: RunData, space: RebuiltSpace | str) -> dict[str, Any]:
    found: dict[str, Any] = {"looked": []}
    found |= dict.fromkeys(("roofline", "predicted", "steps", "components"))
    best = best_record(run)
    if isinstance(space, str) or best is None:
        return found
    looked = space.look(best)
    if looked is None:
        return found
    for k in _chosen(run, best):
        one = space.look(run.evaluations[k])
        if one is not None:
            found["looked"].append(_looked(k, one))
    found["roofline"] = _roofline(space)
    predictions = space.predictions(best, run.evaluations)
    found["predicted"] = None if predictions is None else _predicted(predictions)
    found["steps"] = _steps(looked)
    found["components"] = _components(run, best, looked)
    return found


def _chosen(run: RunData, best: record.EvaluationRecord) -> list[int]:
    """Returns the indices of the best, the next fastest distinct implementations, and the default."""
    timed = [k for k, r in enumerate(run.evaluations) if r.time_ns is not None]
    timed.sort(key=lambda k: ns_of(run.evaluations[k]))
    keys = [best.source_key]
    chosen = [k for k in timed if run.evaluations[k].source_key == best.source_key][:1]
    for k in timed:
        if len(chosen) < N_TEXTS and run.evaluations[k].source_key not in keys:
            keys.append(run.evaluations[k].source_key)
            chosen.append(k)
    default = run.default
    if default is not None and default.source_key not in keys:
        chosen.append(run.evaluations.index(default))
    return chosen


def _looked(k: int, one: Implementation) -> dict[str, Any]:
    words = describe(one.candidate)
    return {
        "evaluation": k,
        "text": one.text,
        "terms": one.terms,
        "limiting": one.bound.limiting,
        "words": [[topic, list(phrases)] for topic, phrases in words.items() if phrases],
        "bytes": sum(n for p in one.bound.phases for _, n in (*p.read_bytes, *p.written_bytes)),
    }


def _roofline(space: RebuiltSpace) -> dict[str, Any]:
    r = space.roofline
    bandwidths, arithmetic = space.roofs
    return {
        "flops": r.flops,
        "bytes": r.total_bytes,
        "bandwidths": bandwidths,
        "arithmetic": arithmetic,
    }


def _predicted(found: Predictions) -> dict[str, Any]:
    most = found.rows[: _N_EFFECTS // 2] + found.rows[-_N_EFFECTS // 2 :]
    return {
        "rows": [[list(p.change), p.n_others, round(p.ratio, 4)] for p in dict.fromkeys(most)],
        "error": round(found.error, 4),
        "n": found.n_measured,
    }


def _steps(looked: Implementation) -> dict[str, Any]:
    starts = count_starts(looked.candidate)
    return {
        "n_launches": starts.n_launches,
        "n_teams": starts.n_teams,
        "n_barriers": starts.n_barriers,
        "launches": list(describe(looked.candidate).get("launches", ())),
        "phases": [
            {"tasks": p.tasks, "read": p.read_bytes, "written": p.written_bytes}
            for p in looked.bound.phases
        ],
    }


def _components(
    run: RunData, best: record.EvaluationRecord, looked: Implementation
) -> dict[str, Any]:
    """Returns the number of components, and the accounts of those of the best; none if they were not timed singly."""
    n = len(looked.candidate.space.backbone.components)
    accounts = component_accounts(
        looked.candidate, best.source_key, best.decisions, run.evaluations, looked.scale
    )
    return {"n": n, "accounts": [asdict(a) for a in accounts]}
