"""Explanation of a run's result.

It has the best implementation against its bound and against the default, counts of pruning by cause, and values that no
measured implementation had.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType, structs

from ..codegen.by_component import EvaluatedSources
from ..codegen.describe import Words, body_words, describe
from ..codegen.passes.pipeline import launches_of
from ..codegen.plan.candidates import plan_of
from ..codegen.starts import Starts, count_starts
from ..kernels.frontend.recorder import Recording
from ..kernels.tasks.entry_facts import tree_work
from ..kernels.tasks.non_affine import counted_text, non_affine_tasks
from ..report.component_accounts import ComponentAccount, component_accounts
from ..runtime.device import open_device
from ..runtime.files import is_there
from ..runtime.measure.conditions import take_conditions
from ..runtime.records.folder import BEST, HEADER, JOURNAL, run_folder
from ..runtime.records.journal import read_journal
from ..runtime.records.loading import load_header
from ..runtime.records.record import (
    BestFile,
    EvaluationRecord,
    NoteRecord,
    Record,
    last_tallies,
    standing_evaluations,
)
from ..runtime.records.replay import (
    StaleError,
    dialect_of,
    rebuild_problem,
    restore_older,
    space_of,
)
from ..search.bound.bounder import Bound, Bounder
from ..search.bound.explain import ResourceUse, explain_phases, rate_texts, time_text, uses
from ..search.events import gap_text
from ..search.line import AbstractLine, Inside
from ..search.starts.complete import complete_sketch
from ..search.starts.proposals import default_sketch
from ..space.candidate import Candidate, DeadEnd, Space
from ..space.decisions import fixed_text
from .registers import Launches, registers_of_tasks, reported_launches
from .results import stored_best
from .rewrites import Rewrites, rewrites_of
from .stages import NonAffineRow, non_affine_rows

_SLACK = 1e-3  # a time so little below the bound is noise of the clock


class Account(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Lower bound on the time of one implementation: `bound_ns` in total, and `terms` by resource, largest first.

    `time_ns` is measured, null if unknown. `unexplained_ns` is the measured time minus the bound, at least 0.
    """

    time_ns: float | None
    bound_ns: float
    unexplained_ns: float | None
    binding: str
    terms: tuple[ResourceUse, ...]
    phases: tuple[str, ...]
    starts: Starts
    words: Words
    # Of a GPU, as the compiler reported them when it was measured; the bound knows them.
    launches: Launches | UnsetType = UNSET


class Changed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A choice for which the best and the default have different values."""

    choice: str
    default: str
    best: str


class PruningSummary(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Counts of evaluations, failures and pruned nodes in a run.

    `tallies` sums the counters of search.events.Tally by name. It is null if no search began, or if the journal's version kept
    no counts.
    """

    evaluations: int
    stopped_early: int
    failures: dict[str, int]
    sessions: int
    tallies: dict[str, int] | None
    refused: dict[str, int]  # values by the constraint that forbade them, most first


class Untried(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Values of one choice that no measured implementation had.

    `beaten`: values whose lower bound is not below the best time, so no implementation with one of them can be faster.
    `open_values`: the other ones, which may be faster.
    """

    choice: str
    kind: str
    tried: tuple[str, ...]
    beaten: tuple[str, ...]
    open_values: tuple[str, ...]


class Explanation(AbstractLine, frozen=True, tag="explanation", kw_only=True):
    """Explanation of a stored best: its costs, the default's, the differences, pruning, and untried values.

    `pruned` and `untried` need the run's journal: they are null for a best.json by itself. `default` is null if no unfused
    default exists.
    """

    sequence: str
    sizes: dict[str, int]
    dtype: str
    status: str
    notes: tuple[str, ...]
    non_affine: tuple[NonAffineRow, ...]
    rates: dict[str, str]
    best: Account
    components: tuple[ComponentAccount, ...]  # of the best; empty where there is one, or no journal
    default: Account | None
    changed: tuple[Changed, ...]
    rewrites: Rewrites  # the same for each implementation
    pruned: PruningSummary | None
    untried: tuple[Untried, ...] | None
    file: Inside[BestFile]
    formula: Inside[str]


class Failed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first implementation that failed in one way, with its source key."""

    kind: str
    key: str
    detail: str


class Fruitless(AbstractLine, frozen=True, tag="fruitless", kw_only=True):
    """A run without a valid implementation: the reason why it ended, and the first failure of each kind."""

    sequence: str
    sizes: dict[str, int]
    dtype: str
    status: str  # "" where its last session did not end
    reference: str  # disagreement of the user's reference; "": none
    failures: tuple[Failed, ...]
    pruned: PruningSummary


def explain_fruitless(path: str | Path) -> Fruitless | None:
    """Returns the explanation of a run directory without a best.

    None if there is a best, or if the directory is not a run. Raises RecordError for damaged files.
    """
    place = Path(path)
    if not is_there(place / HEADER) or is_there(place / BEST):
        return None
    header, records = load_header(place / HEADER), read_journal(place / JOURNAL)
    firsts: dict[str, Failed] = {}
    notes: dict[str, str] = {}
    for r in records:
        if isinstance(r, EvaluationRecord) and r.status != "ok":
            firsts.setdefault(r.status, Failed(r.status, r.source_key, r.detail))
        elif isinstance(r, NoteRecord):
            notes[r.kind] = r.text
    return Fruitless(
        sequence=header.sequence,
        sizes=header.sizes,
        dtype=header.dtype,
        status=notes.get("ended", ""),
        reference=notes.get("reference", ""),
        failures=tuple(firsts.values()),
        pruned=_pruned(records),
    )


def explain_run(path: str | Path) -> Explanation:
    """Returns the explanation of a run directory or a best.json, with bounds computed for this machine.

    Raises RecordError if there is no such run or its files are damaged, DeviceError, and StaleError if it was measured on
    another machine or if this version has other names of decisions.
    """
    place = Path(path)
    file, records = _load(place)
    device = open_device(file.target)
    here = take_conditions(accelerator=device.machine.accelerator()).machine
    if file.conditions.machine != here:
        raise StaleError(
            f"{place} was measured on {file.conditions.machine} and this machine is {here}: its"
            " times can only be explained there"
        )
    recording, problem = rebuild_problem(file.stored, file.problem_key)
    target = device.machine.facts()
    space = space_of(problem, target, file)
    notes = []
    if file.fixed:
        notes.append(
            f"{fixed_text(file.fixed)}; bounds and what was left out are of the space with that"
        )
    if recording.left_out:
        notes.append(
            f"searched without rewrites: {', '.join(recording.left_out)} are left as the calls have them"
        )
    if recording.assumed:
        notes.append(_assumed_text(recording))
    non_affine = non_affine_tasks(problem)
    if non_affine:
        notes.append(f"{non_affine}; bounds count {counted_text(space.is_for_input)}")
    if not target.calibrated:
        advice = f": run {device.machine.calibrated_by}" if device.machine.calibrated_by else ""
        notes.append(f"rates are guessed from a data sheet{advice}")
    if space.key != file.space_key:
        notes.append("the space has changed since, so counts and bounds are of another one")
    best = restore_older(space, file.decisions)
    if EvaluatedSources(dialect_of(device)).source(best).key != file.source_key:
        notes.append(
            "the decisions now give another source than the one that was timed, and all but its time is of the other"
        )
    plan = plan_of(best)
    notes += (f"body of {words}" for words in body_words(plan, launches_of(plan, target)))
    bounder = Bounder(space)
    launches = reported_launches(records or (), file.source_key)
    known = registers_of_tasks(launches, len(problem.tasks))
    best_bound_ns = bounder.ns(best, registers=known)
    scale = _scale(file, records, best_bound_ns)
    if scale < 1:
        notes.append(
            f"bounds are {scale:.0%} of what the calibrated rates give: the machine was faster when this"
            " was measured, or has been calibrated since"
        )
    if file.bound_now_ns is not None:
        notes.append(_two_gaps(file, file.bound_now_ns))
    is_doubtful = _is_doubtful(records, file.time_ns, best_bound_ns * scale)
    if is_doubtful:
        notes.append(
            "an implementation was faster than its bound, so nothing that follows from bounds is sure"
        )
    root = space.root()
    assert isinstance(root, Candidate)  # the best is in it
    cut_ns = math.inf if is_doubtful else file.time_ns
    default = complete_sketch(root, default_sketch(root.space))
    return Explanation(
        sequence=file.sequence,
        sizes=file.sizes,
        dtype=file.dtype,
        status=file.status,
        notes=tuple(notes),
        non_affine=non_affine_rows(non_affine),
        rates=rate_texts(space),
        best=_account(best, bounder, scale, file.time_ns, launches),
        components=component_accounts(
            best, file.source_key, file.decisions, standing_evaluations(records or ()), scale
        ),
        default=None if default is None else _account(default, bounder, scale, file.baseline_ns),
        changed=() if default is None else _changed(space, default, best),
        rewrites=rewrites_of(recording),
        pruned=None if records is None else _pruned(records),
        untried=None if records is None else _untried(root, records, bounder, cut_ns / scale),
        file=file,
        formula=problem.formula,
    )


def _assumed_text(recording: Recording) -> str:
    before, now = tree_work(replace(recording, assumed=(), n_assumed_runs=1)), tree_work(recording)
    n_lists, n_activations = (a - b for a, b in zip(before, now, strict=True))
    n_runs = recording.n_assumed_runs
    runs = "run" if n_runs == 1 else f"{n_runs} runs in a row"
    return (
        f"taken over from the {runs} before: lists {n_lists}, activations {n_activations};"
        f" where active cells of {', '.join(recording.assumed)} have changed since, its program runs the kernels"
    )


def _two_gaps(file: BestFile, bound_now_ns: float) -> str:
    now = max(0.0, 1 - bound_now_ns / file.time_ns)
    if gap_text(file.gap) == "-":
        return "no gap: the bound says next to nothing of this sequence"
    return (
        f"gap {gap_text(file.gap)} proved; {gap_text(now)} against the machine as it was when the best was timed,"
        f" on which nothing takes less than {time_text(bound_now_ns)}"
    )


def _load(place: Path) -> tuple[BestFile, tuple[Record, ...] | None]:
    best = stored_best(place)
    if not place.is_dir():
        return best, None
    return best, read_journal(run_folder(place) / JOURNAL)


def _scale(file: BestFile, records: Sequence[Record] | None, bound_ns: float) -> float:
    """Returns the factor from bounds of this version to the bounds that the session recorded, at most 1."""
    claimed = [
        r.bound_ns
        for r in records or ()
        if isinstance(r, EvaluationRecord) and r.source_key == file.source_key
    ]
    return min([1.0, *(ns / bound_ns for ns in claimed if bound_ns > 0)])


def _is_doubtful(records: Sequence[Record] | None, time_ns: float, bound_ns: float) -> bool:
    """True if any measured time of the run, or `time_ns` of the best, is below its bound."""
    doubted = any(isinstance(r, NoteRecord) and r.kind == "alarm" for r in records or ())
    return doubted or time_ns < bound_ns * (1 - _SLACK)


# --- accounts ------------------------------------------------------------------------------------


def _account(
    candidate: Candidate,
    bounder: Bounder,
    scale: float,
    time_ns: float | None,
    launches: Launches = (),
) -> Account:
    known = registers_of_tasks(launches, len(bounder.space.problem.tasks))
    bound = bounder.bound(candidate, registers=known)
    bound_ns = bound.ns * scale
    return Account(
        time_ns=time_ns,
        bound_ns=bound_ns,
        unexplained_ns=None if time_ns is None else max(0.0, time_ns - bound_ns),
        binding=bound.limiting,
        terms=tuple(structs.replace(x, ns=x.ns * scale) for x in uses(bounder, bound)),
        phases=_phases(bound, bounder.space),
        starts=count_starts(candidate),
        words=describe(candidate),
        launches=launches or UNSET,
    )


def _phases(bound: Bound, space: Space) -> tuple[str, ...]:
    return tuple(explain_phases(bound, space))


def _changed(space: Space, default: Candidate, best: Candidate) -> tuple[Changed, ...]:
    rows = []
    for v in map(int, space.searchable):
        before, after = default.value(v), best.value(v)
        if before != after:
            choice = space.choices[v]
            rows.append(Changed(choice.name, choice.values[before], choice.values[after]))
    return tuple(rows)


# --- what the journal says -----------------------------------------------------------------------


def _pruned(records: Sequence[Record]) -> PruningSummary:
    evaluations = standing_evaluations(records)
    last = last_tallies(records)
    counts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for tally in last:
        counts.update(tally.counts)
        refused.update(tally.refused)
    failures = Counter(r.status for r in evaluations if r.status != "ok")
    return PruningSummary(
        evaluations=len(evaluations),
        stopped_early=sum(r.stopped_early for r in evaluations),
        failures=dict(failures.most_common()),
        sessions=sum(isinstance(r, NoteRecord) and r.kind == "session" for r in records),
        tallies=dict(counts) if last else None,
        refused=dict(refused.most_common()),
    )


def _untried(
    root: Candidate, records: Sequence[Record], bounder: Bounder, cut_ns: float
) -> tuple[Untried, ...]:
    """Returns every choice with values that were possible and never measured.

    Values whose bound is at least `cut_ns` cannot beat the best.
    """
    tried: dict[str, set[str]] = {}
    for r in records:
        for name, value in r.decisions if isinstance(r, EvaluationRecord) else ():
            tried.setdefault(name, set()).add(value)
    found = []
    for v in map(int, root.open_choices()):
        choice = root.space.choices[v]
        seen = tried.get(choice.name, set())
        beaten: list[str] = []
        left: list[str] = []
        for at, child in root.expand(v):
            name = choice.values[at]
            if name in seen or isinstance(child, DeadEnd):
                continue
            is_beaten = bounder.ns(child) >= cut_ns
            (beaten if is_beaten else left).append(name)
        if beaten or left:
            in_order = tuple(x for x in choice.values if x in seen)
            found.append(Untried(choice.name, choice.kind, in_order, tuple(beaten), tuple(left)))
    return tuple(found)
