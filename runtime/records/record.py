"""What is kept of a run: the header, one record an event, and the file of the best implementation.

Decisions are kept by name, never by number, so that a record outlives changes of the space; names of
older versions are read as those of today (space/renamed.py).
`loading.py` reads and writes the files, `journal.py` the records.
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

SCHEMA = 3  # what is written
CHECKED = 3  # from which on every line of a journal has a checksum
READ = (
    1,
    2,
    3,
)  # what is read; the records of a journal one by one, so that a run may go on under another version

Decisions = tuple[tuple[str, str], ...]  # choice name, value name
PositiveNs = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class RecordError(Exception):
    """A stored file cannot be used; the message is one sentence that names the file and what is
    wrong in it.
    """


class RunHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """run.json: what is searched, where and how. Written once."""

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

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "fixed", renamed(self.fixed))

    @property
    def threads(self) -> int:
        """Of an implementation, at most; 0: as many as there are cores."""
        found = self.options.get("threads", 0)
        return found if isinstance(found, int) else 0


class LaunchRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One kernel of a built candidate, of a GPU: what its compiler says that it takes, beside what the space counts."""

    kernel: str
    tasks: tuple[Count, ...]  # numbers of those that it computes
    threads: Count  # of a block
    counted: Count  # registers of a thread's sums, as the space counts them
    registers: Count  # of a thread
    spill_bytes: Count  # stored by a thread
    shared_bytes: Count  # of a block


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a candidate was come by: the tag of search.events, the deepest tree node on its path (-1: none), and the source key of
    the implementation that a neighbour was made of ("": of none).
    """

    tag: str
    node: int = -1
    parent: str = ""


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where and when a candidate was measured: the session of the run, from 1; the tree of the session, from 0, whose nodes
    count from 0; the worker process of the session, from 0; the key of the device.
    """

    session: Count
    tree: Count
    worker: Count
    device: str


class Timing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a measurement took, and its samples: least, quarter, median, three quarters and most, in ns a call."""

    build_s: Share  # of the compiler, for each of those that it built together; 0 where it was built before
    run_s: Share  # of the worker, verifying included
    n_samples: Count = 0
    n_disturbed: Count = 0  # samples set aside because other work held the cores
    quantiles_ns: tuple[PositiveNs, ...] = ()
    # From when to when its compiler ran, on the clock of at_s; equal for all that it built together. Not in older journals.
    compiling_s: tuple[Share, Share] | msgspec.UnsetType = msgspec.UNSET


class RatioRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The derivation of a time on a machine with other work: `ratio` to a control beside it, times what that takes undisturbed."""

    ratio: PositiveNs
    control: str  # its source key
    control_ns: PositiveNs


class AbstractEvent(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="event"
):
    """One line of a journal. Its options, but for those that are repeated below, are those of all events."""

    at_s: Share  # since the run began, over all its sessions


class EvaluationRecord(AbstractEvent, frozen=True, kw_only=True, tag="evaluation"):
    """One candidate that was built and run, or was tried to."""

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
    # None where a version of schema 1 wrote it.
    origin: Origin | None = None
    place: Place | None = None
    timing: Timing | None = None

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "decisions", renamed(self.decisions))


class IncumbentRecord(AbstractEvent, frozen=True, kw_only=True, tag="incumbent"):
    """A new best; `source_key` names its evaluation."""

    source_key: str
    time_ns: PositiveNs


class BoundRecord(AbstractEvent, frozen=True, kw_only=True, tag="bound"):
    """The bound over the whole space moved."""

    bound_ns: Share
    limiting: str = ""  # the resource that sets it; "" only where a version of schema 1 wrote it


class TallyRecord(AbstractEvent, frozen=True, kw_only=True, tag="tally"):
    """What the search has done and pruned since its session began; a later one replaces it."""

    counts: dict[str, Count]  # the names are those of search.events.Tally
    refused: dict[str, Count]  # values that a constraint forbade, by its sentence


class NoteRecord(AbstractEvent, frozen=True, kw_only=True, tag="note"):
    """Anything else worth keeping: a session began or ended, the worker was restarted, an alarm."""

    kind: str
    text: str = ""


class AgainRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One candidate of the final comparison."""

    source_key: str
    time_ns: PositiveNs
    spread: Share
    search_ns: PositiveNs  # what the search had measured


class RemeasuredRecord(AbstractEvent, frozen=True, kw_only=True, tag="remeasured"):
    """The best candidates timed again in turn, fastest first; the first `n_ties` cannot be told apart."""

    entries: tuple[AgainRecord, ...]
    n_ties: Count
    is_disturbed: bool = False  # the machine was too restless: the times of the search stand


class MachineRecord(AbstractEvent, frozen=True, kw_only=True, tag="machine"):
    """The machine at the beginning of a session (`ratio` 1), and whenever one program takes `ratio` times as long as before."""

    device: str
    compiler: str
    ratio: PositiveNs = 1.0


class KeptRecord(AbstractEvent, frozen=True, kw_only=True, tag="kept"):
    """What a session took to keep its records, at its end."""

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
    """The shared library beside a best.json (runtime/records/libraries.py)."""

    hash: str  # of its content
    source_key: str  # that it was built from
    cpu: str  # for which instructions


class BestFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """best.json: all that is needed to rebuild, verify and judge the best implementation of a
    run.
    """

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
    """The evaluations of a journal. Where a later one says of the same source that it is wrong on another input set, only that
    one stands.
    """
    found = [r for r in records if isinstance(r, EvaluationRecord)]
    failed_at = {r.source_key: k for k, r in enumerate(found) if r.status != "ok"}
    return tuple(
        r for k, r in enumerate(found) if r.status != "ok" or failed_at.get(r.source_key, -1) < k
    )


def check_record(record: Record) -> str | None:
    """What is inconsistent in a well-formed record, or None."""
    if not isinstance(record, EvaluationRecord):
        return None
    if (record.status == "ok") != (record.time_ns is not None):
        return f"status {record.status} and time {record.time_ns} exclude each other"
    return repeated(record.decisions)


def repeated(decisions: Decisions) -> str | None:
    """Says which choice is decided twice, if one is."""
    names = [name for name, _ in decisions]
    if len(set(names)) == len(names):
        return None
    return f"the choice {next(n for n in names if names.count(n) > 1)} is decided twice"
