"""Rows of the papers' tables for our system: one library sequence each, as JSON values."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median, stdev
from typing import Any

import numpy as np

from ..explorer.evaluation import SearchEvaluator
from ..explorer.workload import Options, Workload
from ..runtime.api.artifact import Artifact
from ..runtime.api.outcome import FINAL, Measurement
from ..runtime.cpu.device import CpuDevice
from ..runtime.device import open_device
from ..runtime.records.record import EvaluationRecord
from ..runtime.records.replay import restore_complete
from ..runtime.worker.pool import LocalPool
from ..runtime.worker.worker import Worker
from ..search.bound.bounder import Bounder
from ..search.budget import Interrupt
from ..search.events import Outcome
from ..search.predict import Predictor
from ..search.starts.complete import first_candidates
from ..search.tree.estimate import Interval, estimate_knuth
from ..search.tree.ordering import NextChoice
from ..space.candidate import Candidate, Space
from ..space.engine import cpsat
from ..testing.estimate_chen import estimate_chen
from ..testing.machines import root_of
from ..testing.memory_journal import MemoryJournal
from . import rank, row, run_table
from .rows import Job, Row
from .tree_shape import estimate_below, orders, raise_bound, walk_levels
from .writing import read_results

# Student's t at 97.5 % for n - 1 degrees of freedom.
_STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}
_TIE = 1e-9  # bounds this close (relatively) predict the same


@dataclass(frozen=True, kw_only=True)
class Effort:
    """The budgets of one making of the tables."""

    seconds: float  # of each exploration, preparation included
    sample: int  # random implementations measured besides
    exact: int  # spaces that look smaller than this are counted exactly
    texts: int  # spaces of at most so many implementations are written down whole
    descents: int  # of Knuth's estimate; Chen's takes a fortieth of it
    runs: int  # explorations of each kernel, for intervals
    rounds: int  # of each comparison with the reference
    depth: int  # at which nodes are counted
    nodes: int  # most nodes of a level; beyond, the level before it is the last
    enough: int  # nodes of the level at which orders are compared
    random_orders: int
    expansions: int  # of the comparison of bounds
    seed: int = 1
    evaluations: int | None = None  # end each exploration, too


def whole_space(job: Job, seed: int) -> tuple[Workload, CpuDevice, Space]:
    """A library sequence with its space on this machine."""
    device, workload = row.cpu(), row.workload_of(job, seed)
    return workload, device, row.space_of(workload, device)


def gpu_space(job: Job, seed: int, target: str) -> Space:
    """The space of a library sequence on a GPU."""
    return row.space_of(row.workload_of(job, seed), open_device(target))


def warm_up() -> None:
    """Have everything compiled and loaded that the first use compiles and loads."""
    _, device, space = whole_space(Job("axpydot", {"n": 64}), 1)
    for _, candidate in first_candidates(space):
        Bounder(space).ns(candidate)
        row.text_of(candidate, device)


# --- size of the space ---------------------------------------------------------------------------


def size_of(space: Space, effort: Effort) -> dict[str, Any]:
    """Number of implementations (decision vectors), exact where it is small; share of dead ends."""
    root, rng = root_of(space), np.random.default_rng(effort.seed)
    choose: Any = NextChoice(space)
    knuth = estimate_knuth(root, next_choice=choose, rng=rng, n_descents=effort.descents)
    chen_descents = max(5, effort.descents // 40)
    chen = estimate_chen(root, next_choice=choose, rng=rng, n_descents=chen_descents)
    best = min(
        (knuth, chen), key=lambda e: (e.n_leaves.high - e.n_leaves.low) / max(e.n_leaves.mean, 1.0)
    )
    found: dict[str, Any] = {
        "method": best.method,
        "implementations": asdict(best.n_leaves),
        "dead_ends": asdict(knuth.dead_end_share),
    }
    if knuth.n_leaves.mean < effort.exact:
        n, is_all = cpsat.count(space.model, root.domains, 2 * effort.exact)
        if is_all:
            found |= {"method": "exact", "implementations": asdict(Interval(n, n, n))}
    return found


# --- tables 4 and 5 of the fusion paper ----------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """An implementation with its time, its bound and its predicted time."""

    candidate: Candidate
    time_ns: float
    bound_ns: float
    predicted_ns: float


def fusion_row(job: Job, effort: Effort) -> Row:
    """Row of tables 4 and 5: speeds of the first implementations by prediction and by bound, and times of all steps."""
    workload, device, _ = whole_space(job, effort.seed)
    factors = factors_of_others(job)
    started_s = time.perf_counter()
    space = row.space_of(workload, device)
    predictor = Predictor(Bounder(space), factors)
    firsts = [candidate for _, candidate in first_candidates(space)]
    predicted = min(firsts, key=predictor.ns)
    source = row.text_of(predicted, device)
    text_s = time.perf_counter() - started_s
    device.builder.build(source)
    built_s = time.perf_counter() - started_s
    searched_s, explored = _explored(workload, predictor, effort)
    sampled = _sampled(workload, device, predictor, explored, effort)
    size = size_of(space, effort)
    return (
        job._asdict()
        | {"size": size}
        | _ranks([*explored, *sampled])
        | _shares(workload, device, explored, sampled, effort)
        | {
            "first_text_s": text_s,
            "first_built_s": built_s,
            "all_texts": _all_texts(space, device, size, effort),
            "search_s": searched_s,
        }
    )


def factors_of_others(job: Job) -> Sequence[float]:
    """Factors of the prediction, fitted to the random candidates of all other sequences of page `rank` of this machine."""
    made = read_results(rank.QUESTION.file).get("rows", ())
    return rank.factors_of([r for r in made if r["status"] == "ok" and r["name"] != job.name])


def _explored(
    workload: Workload, predictor: Predictor, effort: Effort
) -> tuple[float, list[Measured]]:
    """Seconds of an exploration, and what it measured, in order."""
    options = Options(
        time_limit_s=effort.seconds,
        max_evals=effort.evaluations,
        seed=effort.seed,
        store=False,
    )
    started_s = time.perf_counter()
    with row.explored(workload, options) as (_, folder):
        elapsed_s = time.perf_counter() - started_s
        return elapsed_s, _measured(predictor, row.evaluations_in(folder))


def _measured(predictor: Predictor, records: Sequence[EvaluationRecord]) -> list[Measured]:
    bounder, found = predictor.bounder, []
    for r in records:
        if r.time_ns is not None:
            made = restore_complete(bounder.space, r.decisions)
            found.append(Measured(made, r.time_ns, bounder.ns(made), predictor.ns(made)))
    return found


def _sampled(
    workload: Workload,
    device: CpuDevice,
    predictor: Predictor,
    explored: Sequence[Measured],
    effort: Effort,
) -> list[Measured]:
    """Random implementations, which nothing has chosen; slow ones are run once."""
    rng = np.random.default_rng([effort.seed, 4])
    drawn = (root_of(predictor.bounder.space).random_completion(rng) for _ in range(effort.sample))
    known = {m.candidate.key for m in explored}
    distinct = {c.key: c for c in drawn if isinstance(c, Candidate) and c.key not in known}
    journal = MemoryJournal()
    started_s = time.monotonic()
    with Worker(device) as worker:
        worker.prepare(row.inputs_of(workload, effort.seed, 1))
        evaluate = SearchEvaluator(
            LocalPool(device.builder, worker),
            device.builder,
            journal,
            at_s=lambda: time.monotonic() - started_s,
            bound=predictor.bounder.ns,
            interrupt=Interrupt(),
            failed_folder=None,
        )
        if explored:  # the time to beat
            best = min(explored, key=lambda m: m.time_ns)
            entry = Outcome("ok", best.time_ns, 0.0, "", "explored"), best.candidate
            evaluate.adopt(entry, is_partly_verified=False)
        evaluate(list(distinct.values()))
    records = [r for r in journal.records() if isinstance(r, EvaluationRecord)]
    return _measured(predictor, records)


def _ranks(measured: Sequence[Measured]) -> dict[str, Any]:
    """The place of the best among all by predicted time: an interval, where predictions are equal."""
    best = min(measured, key=lambda m: m.time_ns)
    before = sum(m.predicted_ns < best.predicted_ns * (1 - _TIE) for m in measured)
    upto = sum(m.predicted_ns <= best.predicted_ns * (1 + _TIE) for m in measured)
    return {"measured": len(measured), "rank": [before + 1, upto]}


def _shares(
    workload: Workload,
    device: CpuDevice,
    explored: Sequence[Measured],
    sampled: Sequence[Measured],
    effort: Effort,
) -> dict[str, Any]:
    """Speed relative to the best: of the first by prediction and by bound (of equals, the one met first), of the median random
    implementation and of the worst. The best and both first ones are timed again in turn.
    """
    measured = [*explored, *sampled]
    best = min(measured, key=lambda m: m.time_ns)
    first = _first(measured, lambda m: m.predicted_ns)
    by_bound = _first(measured, lambda m: m.bound_ns)
    chosen = [best, first, by_bound]
    again = _timed_again(workload, device, [m.candidate for m in chosen], effort)
    _, first_ns, by_bound_ns = again or [m.time_ns for m in chosen]
    best_ns = min(again or [best.time_ns])
    return {
        "best_ns": best_ns,
        "first_share": best_ns / first_ns,
        "first_by_bound_share": best_ns / by_bound_ns,
        "random_share": best.time_ns / median(m.time_ns for m in sampled) if sampled else None,
        "worst_share": best.time_ns / max(m.time_ns for m in measured),
    }


def _first(measured: Sequence[Measured], key: Callable[[Measured], float]) -> Measured:
    """Returns the one met first of those with the least key."""
    least = min(map(key, measured))
    return next(m for m in measured if key(m) <= least * (1 + _TIE))


def _timed_again(
    workload: Workload, device: CpuDevice, candidates: Sequence[Candidate], effort: Effort
) -> list[float]:
    """ns of each, sample by sample in turn; [] where one no longer runs."""
    built = [device.builder.build(row.text_of(c, device)) for c in candidates]
    artifacts = [a for a in built if isinstance(a, Artifact)]
    with Worker(device) as worker:
        worker.prepare(row.inputs_of(workload, effort.seed, 1))
        found = worker.interleave(artifacts, FINAL)
    times = [m.time_ns for m in found if isinstance(m, Measurement)]
    return times if len(times) == len(candidates) else []


def _all_texts(
    space: Space, device: CpuDevice, size: dict[str, Any], effort: Effort
) -> dict[str, Any]:
    """Seconds to write down the text of every implementation; where they are too many, those of one
    random implementation times their number.
    """
    root = root_of(space)
    n = size["implementations"]["mean"]
    started_s = time.perf_counter()
    if size["method"] == "exact" and n <= effort.texts:
        choose = NextChoice(space)
        waiting, keys = [root], set()
        n_seen = 0
        while waiting:
            at = waiting.pop()
            if at.is_complete:
                n_seen += 1
                keys.add(row.text_of(at, device).key)
                continue
            children = (child for _, child in at.expand(choose(at)))
            waiting += [child for child in children if isinstance(child, Candidate)]
        assert n_seen == n, f"the tree has {n_seen} leaves and the solver counts {n}"
        seconds = time.perf_counter() - started_s
        return {"seconds": seconds, "is_measured": True, "distinct": len(keys)}
    rng, n_drawn = np.random.default_rng(effort.seed), 20
    for _ in range(n_drawn):
        made = root.random_completion(rng)
        if isinstance(made, Candidate):
            row.text_of(made, device)
    each_s = (time.perf_counter() - started_s) / n_drawn
    return {"seconds": each_s * n, "is_measured": False, "distinct": None}


# --- tables 2 and 3 of Telamon, and its section 5.5 ----------------------------------------------


def telamon_row(job: Job, effort: Effort) -> Row:
    """Space, dead ends, and several explorations compared with NumPy, each in its own process."""
    _, _, space = whole_space(job, effort.seed)
    each = run_table.RowOptions(
        effort.seconds, effort.rounds, calibrate=False, evaluations=effort.evaluations
    )
    seeds = range(effort.seed, effort.seed + effort.runs)
    runs = [run_table.QUESTION.child(job, replace(each, seed=seed)) for seed in seeds]
    return explorations_row(job, runs, "numpy") | {"size": size_of(space, effort)}


def explorations_row(job: Job, runs: Sequence[Row], reference: str) -> Row:
    """Several explorations of one kernel as one row, beside the reference of that name in the rows of each."""
    failed = [r["why"] for r in runs if r["status"] != "ok"]
    if failed:
        return job._asdict() | {"status": "failed", "why": failed[0]}
    times = [r["best_ns"] for r in runs]
    beside = [r for r in runs if r[f"{reference}_ns"] is not None]
    compared: Row = {}
    if beside:
        compared["reference_ns"] = fmean(r[f"{reference}_ns"] for r in beside)
        compared["speed_up"] = asdict(student([r[f"over_{reference}"] for r in beside]))
    return job._asdict() | {
        "status": "ok",
        "runs": len(runs),
        "best_ns": asdict(student(times)),
        "best_deviation": max(abs(t / fmean(times) - 1) for t in times),
        **compared,
        "evaluations": [r["evaluations"] for r in runs],
    }


def student(samples: Sequence[float]) -> Interval:
    """The mean of a few samples with its 95 % interval (Student's t)."""
    mean = fmean(samples)
    if len(samples) < 2:
        return Interval(mean, 0.0, float(np.finfo(float).max))
    half = _STUDENT.get(len(samples), 1.96) * stdev(samples) / len(samples) ** 0.5
    return Interval(mean, max(0.0, mean - half), mean + half)


def pruning_row(job: Job, cut_ns: float, size: Row, effort: Effort) -> Row:
    """Nodes at a depth and the size of the space, with and without the cut on the levels above."""
    return pruned(job, whole_space(job, effort.seed)[2], cut_ns, size, effort)


def pruned(job: Job, space: Space, cut_ns: float, size: Row, effort: Effort) -> Row:
    """The same in a space that is there."""
    choose = NextChoice(space)
    levels = walk_levels(space, choose, cut_ns, depth=effort.depth, limit=effort.nodes)
    rng = np.random.default_rng(effort.seed)
    left = estimate_below(levels.kept, choose, rng, max(5, effort.descents // 4))
    return job._asdict() | {
        "cut_ns": cut_ns,
        "depth": levels.depth,
        "is_whole": levels.is_whole,
        "nodes": levels.n_nodes[-1],
        "kept": levels.n_kept[-1],
        "size": size,
        "size_with_cut": asdict(left),
    }


def order_rows(job: Job, cut_ns: float, effort: Effort) -> list[Row]:
    """What each decision order is worth: how much of its first levels the cut prunes, and how many
    expansions of the node of least bound it takes until an implementation has the least.
    """
    _, _, space = whole_space(job, effort.seed)
    rows = []
    for order, choose in orders(space, effort.random_orders, effort.seed):
        levels = walk_levels(space, choose, cut_ns, enough=effort.enough, limit=effort.nodes)
        root = space.root()
        assert isinstance(root, Candidate)
        rise = raise_bound(root, choose, effort.expansions)
        made = {
            "order": order,
            "cut_ns": cut_ns,
            "depth": levels.depth,
            "nodes": levels.n_nodes[-1],
            "kept": levels.n_kept[-1],
            "reduction": levels.reduction if sum(levels.n_kept) else None,
            "bound_share": rise.bound_ns / cut_ns,
            "expansions": rise.n_expansions,
            "is_settled": rise.is_settled,
        }
        rows.append(job._asdict() | made)
    return rows
