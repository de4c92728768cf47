"""Records of a run: the header, one record an event, and the file of the best implementation.

Decisions are stored by name, never by number, so that a record outlives changes of the space. Names of older versions are
mapped to current ones (space/renamed.py). `loading.py` reads and writes the files, `journal.py` the records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec

from ...kernels.tasks.profile import Profile
from ...space.renamed import renamed
from ..api.outcome import UNDECIDED, Status
from ..measure.conditions import Conditions
from .stored import StoredSequence

SCHEMA = 3  # schema of written files
CHECKED = 3  # the first schema with a checksum in every line of a journal
READ = (
    1,
    2,
    3,
)  # readable schemas; journals are checked record by record, so that a run may resume under another version

Decisions = tuple[tuple[str, str], ...]  # choice name, value name
PositiveNs = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class RecordError(Exception):
    """A stored file cannot be used. The message is one sentence that names the file and the error in it."""


class RunHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Content of run.json: the searched problem, the machine and the settings. Written once."""

    schema: int
    sequence: str  # name of the library sequence, or "module:function" of the user's
    sizes: dict[str, int]
    dtype: str
    problem_key: str
    space_key: str
    target: str
    seed: Count
    options: dict[str, str | int | float | bool | None]
    conditions: Conditions
    stored: StoredSequence
    fixed: Decisions = ()  # before the search
    profile: Profile | msgspec.UnsetType = msgspec.UNSET  # where bodies do what values say
    device_key: str | msgspec.UnsetType = msgspec.UNSET  # of the fleet on which the run began

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "fixed", renamed(self.fixed))

    @property
    def threads(self) -> int:
        """Maximum number of threads of an implementation; 0: one per core."""
        found = self.options.get("threads", 0)
        return found if isinstance(found, int) else 0


class LaunchRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One launch of a built GPU candidate: the resources that its compiler reports, and the registers counted.

    `counted`: registers by the space's estimate.
    """

    kernel: str
    tasks: tuple[Count, ...]  # numbers of those that it computes
    threads: Count  # of a block
    counted: Count  # registers of a thread's sums, as the space counts them
    registers: Count  # of a thread
    spill_bytes: Count  # stored by a thread
    shared_bytes: Count  # of a block


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Origin of a candidate in the search.

    `tag`: tag of search.events. `node`: deepest tree node on its path (-1: none). `parent`: source key of the implementation of
    which it is a neighbour ("": none).
    """

    tag: str
    node: int = -1
    parent: str = ""


class MeasurementOrigin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Place and time of a measurement.

    `session`: session of the run, from 1. `tree`: tree of the session, from 0, whose nodes count from 0. `worker`: worker
    process of the session, from 0. `device`: key of the device. With several slots, `slot` is the name of the slot and `number`
    counts its work in the session from 0; worker processes are then counted per slot.
    """

    session: Count
    tree: Count
    worker: Count
    device: str
    slot: str | msgspec.UnsetType = msgspec.UNSET
    number: Count | msgspec.UnsetType = msgspec.UNSET


class Timing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Durations of an evaluation, and quantiles of its samples (least, quartiles, greatest) in ns per call."""

    build_s: Share  # of the compiler, for each of those that it built together; 0 where it was built before
    run_s: Share  # of the worker, verifying included
    n_samples: Count = 0
    n_disturbed: Count = 0  # samples set aside because other work held the cores
    quantiles_ns: tuple[PositiveNs, ...] = ()
    # From when to when its compiler ran, on the clock of at_s; equal for all that it built together. Not in older journals.
    compiling_s: tuple[Share, Share] | msgspec.UnsetType = msgspec.UNSET


class RatioRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Derivation of a time on a busy machine: `ratio` to a simultaneous control, times the control's idle time."""

    ratio: PositiveNs
    control: str  # its source key
    control_ns: PositiveNs


class AbstractEvent(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="event"
):
    """One line of a journal. Subclasses inherit its struct options, except those that they repeat."""

    at_s: Share  # since the run began, over all its sessions


class ComponentRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Time of one component of a candidate.

    `key`: of its decisions on open choices; `text`: key of its source text.
    """

    key: str
    text: str = ""
    time_ns: PositiveNs
    spread: Share


class EvaluationRecord(AbstractEvent, frozen=True, kw_only=True, tag="evaluation"):
    """One evaluation of a candidate: it was built and run, or its build or run failed."""

    decisions: Decisions
    source_key: str
    status: Status
    time_ns: PositiveNs | None  # None unless status is "ok"
    spread: Share = 0.0
    min_ns: PositiveNs | None = None
    bound_ns: Share = 0.0
    detail: str = ""
    stopped_early: bool = False  # clearly slower than the best: hardly measured
    slowness: PositiveNs = (
        1.0  # how many times as long the machine took then as in the beginning of the session
    )
    is_partly_verified: bool = False  # on the timed input set only, as it was slower than the best
    ratio: RatioRecord | msgspec.UnsetType = msgspec.UNSET  # where its time was derived from one
    launches: tuple[LaunchRecord, ...] | msgspec.UnsetType = msgspec.UNSET  # where it was reported
    # Of each component of the problem, in their order, where their times were taken.
    components: tuple[ComponentRecord, ...] | msgspec.UnsetType = msgspec.UNSET
    # None where a version of schema 1 wrote it.
    origin: Origin | None = None
    place: MeasurementOrigin | None = None
    timing: Timing | None = None

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "decisions", renamed(self.decisions))


class IncumbentRecord(AbstractEvent, frozen=True, kw_only=True, tag="incumbent"):
    """A new incumbent (best implementation so far); `source_key` identifies its evaluation."""

    source_key: str
    time_ns: PositiveNs


class BoundRecord(AbstractEvent, frozen=True, kw_only=True, tag="bound"):
    """A change of the lower bound over the whole space."""

    bound_ns: Share
    limiting: str = ""  # the resource that sets it; "" only where a version of schema 1 wrote it


class TallyRecord(AbstractEvent, frozen=True, kw_only=True, tag="tally"):
    """Counts of the search and its pruning since its session began. A later record of the session replaces it."""

    counts: dict[str, Count]  # the names are those of search.events.Tally
    refused: dict[str, Count]  # values that a constraint forbade, by its sentence


class NoteRecord(AbstractEvent, frozen=True, kw_only=True, tag="note"):
    """Any other note, by `kind`: begin or end of a session, restart of the worker, a time below its bound."""

    kind: str
    text: str = ""


class AgainRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One candidate of the final re-measurement."""

    source_key: str
    time_ns: PositiveNs
    spread: Share
    search_ns: PositiveNs  # what the search had measured


class RemeasuredRecord(AbstractEvent, frozen=True, kw_only=True, tag="remeasured"):
    """The best candidates timed again alternately, fastest first. The first `n_ties` are statistically tied."""

    entries: tuple[AgainRecord, ...]
    n_ties: Count
    is_disturbed: bool = False  # the machine was too restless: the times of the search stand


class MachineRecord(AbstractEvent, frozen=True, kw_only=True, tag="machine"):
    """State of the machine at the beginning of a session (`ratio` 1) and at each change of speed.

    At a change the control program takes `ratio` times as long as before.
    """

    device: str
    compiler: str
    ratio: PositiveNs = 1.0


class KeptRecord(AbstractEvent, frozen=True, kw_only=True, tag="kept"):
    """Seconds and bytes spent on the records of a session, written at its end."""

    session_s: Share
    journal_s: Share
    tree_s: Share
    tree_children: Count
    tree_bytes: Count


Record = (
    EvaluationRecord
    | IncumbentRecord
    | BoundRecord
    | TallyRecord
    | NoteRecord
    | RemeasuredRecord
    | MachineRecord
    | KeptRecord
)


class LibraryRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Description of the shared library beside a best.json (runtime/records/libraries.py)."""

    hash: str  # of its content
    source_key: str  # that it was built from
    cpu: str  # for which instructions


class BestFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Content of best.json: everything needed to rebuild, verify and judge the best implementation of a run."""

    schema: int
    sequence: str
    sizes: dict[str, int]
    dtype: str
    problem_key: str
    space_key: str
    target: str
    decisions: Decisions
    source_key: str
    time_ns: PositiveNs
    spread: Share
    bound_ns: Share
    gap: Annotated[float, msgspec.Meta(le=1)]
    bound_now_ns: PositiveNs | None = None  # on the machine as it was while the best was timed last
    status: str  # why the search ended
    baseline_ns: PositiveNs | None
    numpy_ns: PositiveNs | None
    evaluations: Annotated[int, msgspec.Meta(ge=1)]
    seed: Count
    verified: str  # in words: how many input sets, which tolerance
    conditions: Conditions
    stored: StoredSequence
    library: LibraryRecord | msgspec.UnsetType = msgspec.UNSET  # where one lies beside the file
    fixed: Decisions = ()  # before the search: bound, gap and status are of the space with these
    profile: Profile | msgspec.UnsetType = msgspec.UNSET  # bound and gap are for these arguments
    threads: Count = 0  # of a call, at most; 0: as many as there are cores
    undecided: Share = UNDECIDED  # of the elements of an array, that may lie on a branch

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "fixed", renamed(self.fixed))
        msgspec.structs.force_setattr(self, "decisions", renamed(self.decisions))


def standing_evaluations(records: Iterable[Record]) -> tuple[EvaluationRecord, ...]:
    """Returns the valid evaluations of a journal.

    A later failure of a source, on another input set, invalidates its earlier successes.
    """
    found = [r for r in records if isinstance(r, EvaluationRecord)]
    failed_at = {r.source_key: k for k, r in enumerate(found) if r.status != "ok"}
    return tuple(
        r for k, r in enumerate(found) if r.status != "ok" or failed_at.get(r.source_key, -1) < k
    )


def last_tallies(records: Iterable[Record]) -> list[TallyRecord]:
    """Returns the last tally of every session; each counts from the beginning of its session."""
    last: dict[int, TallyRecord] = {}
    session = 0
    for r in records:
        if isinstance(r, NoteRecord) and r.kind == "session":
            session += 1
        elif isinstance(r, TallyRecord):
            last[session] = r
    return list(last.values())


def check_record(record: Record) -> str | None:
    """Returns a sentence on the inconsistency of a well-formed record; None if it is consistent."""
    if not isinstance(record, EvaluationRecord):
        return None
    if (record.status == "ok") != (record.time_ns is not None):
        return f"status {record.status} and time {record.time_ns} exclude each other"
    return repeated(record.decisions)


def repeated(decisions: Decisions) -> str | None:
    """Returns a sentence on a choice that is decided twice; None if there is none."""
    names = [name for name, _ in decisions]
    if len(set(names)) == len(names):
        return None
    return f"the choice {next(n for n in names if names.count(n) > 1)} is decided twice"
