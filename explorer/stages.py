"""Events of an exploration besides those of its search: prepared, compared, timed again, ended.

All but `Compiling` are lines of `--json` (search/line.py). Logs and tables read only these and the events of search/events.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ..kernels.ir.body import Closure
from ..kernels.tasks.non_affine import ALL_AFFINE, NonAffineTasks
from ..search.line import AbstractLine, Inside
from ..space.candidate import Space


@dataclass(frozen=True, slots=True)
class Compiling:
    """The search's own code is being compiled, once a version; `text` describes the progress.

    It may be the first event.
    """

    text: str


class Opened(AbstractLine, frozen=True, tag="start", kw_only=True):
    """First line of `run` and `resume`: the run directory exists and the space is built.

    All later classes of this file are lines of `run` and `resume`, too.
    """

    run_dir: str
    problem: str
    problem_key: str
    space_key: str
    target: str
    calibrated: bool
    seed: int
    resumed: int  # finished evaluations taken over from the journal
    notes: tuple[str, ...]  # what has changed since the run began
    fixed: dict[str, str]  # before the search
    space: Inside[Space]
    given: Inside[tuple[tuple[str, str], ...]]  # settings that are no defaults, as text
    prepare_s: Inside[float]
    calibrated_by: Inside[str]  # the command that measures the facts of the target; "" where none


class Rooted(AbstractLine, frozen=True, tag="root_bound"):
    """The lower bound of the whole space, with its terms by resource."""

    bound_ns: float
    terms_ns: dict[str, float]


class OutOfTime(AbstractLine, frozen=True, tag="out_of_time"):
    """The time limit passed before anything was measured; `during`: a clause such as "the reference was computed"."""

    limit_s: float
    during: str


class ReferenceTooSlow(AbstractLine, frozen=True, tag="reference_too_slow"):
    """The user's NumPy function took too long: it was not timed, and perhaps not even compared."""

    limit_s: float
    compared: bool


class FirstWrong(AbstractLine, frozen=True, tag="first_wrong"):
    """The first implementation of a session with wrong results: its source key, and the position of a wrong element."""

    key: str
    detail: str


class RoundingMeasured(AbstractLine, frozen=True, tag="rounding"):
    """A result differed from the reference, so the effect of rounding on one input set was measured.

    `branches` are sentences on elements near a branch, where either side is right.
    """

    input_set: int
    branches: tuple[str, ...]


class Disagreed(AbstractLine, frozen=True, tag="disagreement"):
    """All first candidates had the same wrong value in the same element; `detail` is advice for users."""

    candidates: int
    input_set: int
    array: str
    index: tuple[int, ...]
    got: str
    want: str
    detail: str


class Compared(AbstractLine, frozen=True, tag="baseline"):
    """Times to compare the result with, in ns; null if unknown, or not yet known (`numpy`)."""

    baseline_ns: float | None
    numpy_ns: float | None
    n_input_sets: Inside[int]


class NumpyTimed(AbstractLine, frozen=True, tag="numpy"):
    """The time of the NumPy function to compare the result with, taken after the first candidates."""

    time_ns: float
    spread: float
    samples: int
    disturbed: int  # samples in which other work had the cores


class MachineChanged(AbstractLine, frozen=True, tag="machine_changed"):
    """The control program takes `ratio` times as long as a moment ago: the machine's speed has changed."""

    ratio: float


class RemeasuredCandidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One candidate of the final re-measurement."""

    key: str  # source key
    time_ns: float
    spread: float
    search_ns: Inside[float]  # what the search had measured


class Remeasured(AbstractLine, frozen=True, tag="final"):
    """The best candidates, timed again alternately, fastest first; the first `ties` are equal within noise.

    `is_disturbed`: other work took cores meanwhile, so the times of the search are kept.
    """

    top: tuple[RemeasuredCandidate, ...]
    ties: int
    is_disturbed: Inside[bool]


class Confirmed(AbstractLine, frozen=True, tag="confirmed"):
    """The best and the runner-up, timed again alternately on the slot of another machine.

    `ratio` is the best's time there over that of the final re-measurement. `lead` is the runner-up's time there over the best's;
    null without a runner-up. `agrees`: the best is no slower there than the runner-up, beyond the spreads of both.
    """

    slot: str
    time_ns: float
    ratio: float
    lead: float | None
    agrees: bool


class OtherCompiler(AbstractLine, frozen=True, tag="other_compiler"):
    """The fastest of the best as another compiler builds it; `ratio`: its time over that of the search's best."""

    compiler: str
    time_ns: float
    ratio: float


class NonAffineRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A non-affine task (a loop nest kept as statements): bounds count the guaranteed costs of its body."""

    task: str
    kind: Closure
    reason: str
    file: str
    line: int


def non_affine_rows(non_affine: NonAffineTasks) -> tuple[NonAffineRow, ...]:
    """Returns the non-affine tasks as rows of `--json` lines."""
    reasons = ((t.task, t.reason, t.reason.where) for t in non_affine.tasks)
    return tuple(NonAffineRow(task, r.kind, r.text, at.file, at.line) for task, r, at in reasons)


class Ended(AbstractLine, frozen=True, tag="result", kw_only=True):
    """The last line of a run; `best_ns` is null if nothing valid was found.

    `bound_ns` and `gap` are proved for the machine's fastest state; they are null if withdrawn or unknown. `bound_now_ns` and
    `gap_now` are for the machine state during the final timing of the best. If they are null, `why_not_now` gives the reason.
    Status, bound and gap are of the space with the `fixed` decisions.
    """

    status: str
    best_ns: float | None = None
    spread: float = 0.0
    bound_ns: float | None = None
    gap: float | None = None
    bound_now_ns: float | None = None
    gap_now: float | None = None
    why_not_now: str = (
        ""  # there is no `bound_now_ns`; "" where there is, or where nothing valid was found
    )
    baseline_ns: float | None = None  # null where it was not timed, as the next
    numpy_ns: float | None = None
    evaluations: int = 0
    alarms: int = 0  # measurements below their bound
    failures: dict[str, int] = msgspec.field(default_factory=dict)  # by kind
    verified: bool = False
    compiler: str = ""  # that built the best; "" where there is none to name
    run_dir: str
    elapsed_s: float
    non_affine: tuple[NonAffineRow, ...] = ()
    doubts: tuple[str, ...] = ()  # sentences: too few candidates, disturbed times
    fixed: dict[str, str] = msgspec.field(default_factory=dict)  # before the search
    n_input_sets: Inside[int] = 0
    non_affine_tasks: Inside[NonAffineTasks] = ALL_AFFINE
    is_for_input: Inside[bool] = (
        False  # the bound counts executions of bodies on the measured arguments
    )


Stage = (
    Compiling
    | Opened
    | Rooted
    | OutOfTime
    | ReferenceTooSlow
    | FirstWrong
    | RoundingMeasured
    | Disagreed
    | Compared
    | NumpyTimed
    | MachineChanged
    | Remeasured
    | Confirmed
    | OtherCompiler
    | Ended
)
