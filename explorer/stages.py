"""What an exploration tells besides the events of its search: prepared, compared, timed again, kept.

All times are ns. Logs and tables read only these and the events of search/events.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..kernels.ir.task import Problem
from ..kernels.tasks.non_affine import NOTHING_CLOSED, Closed
from ..runtime.api.outcome import Disagreement
from ..space.candidate import Space
from ..space.targets.target import Target


@dataclass(frozen=True, slots=True)
class Compiling:
    """The search itself is compiled, once a version; `text` says how far that is. It may come before all else."""

    text: str


@dataclass(frozen=True, slots=True)
class Opened:
    """A run directory is there and the space is built."""

    directory: Path
    problem: Problem
    space: Space
    target: Target
    seed: int
    given: tuple[tuple[str, str], ...]  # settings that are no defaults, as text
    n_resumed: int  # finished evaluations taken over from the journal
    prepare_s: float
    calibrated_by: str = ""  # the command that measures the facts of the target, where there is one
    notes: tuple[str, ...] = ()  # what has changed since the run began


@dataclass(frozen=True, slots=True)
class Rooted:
    """The bound of the root, by resource."""

    bound_ns: float
    terms: tuple[tuple[str, float], ...]
    limiting: str


@dataclass(frozen=True, slots=True)
class OutOfTime:
    """The time limit passed before anything was measured, while `during`: a clause such as "the reference was computed"."""

    limit_s: float
    during: str


@dataclass(frozen=True, slots=True)
class ReferenceTooSlow:
    """The user's NumPy function took longer than it may; it was not timed, and perhaps not even compared."""

    limit_s: float
    is_compared: bool


@dataclass(frozen=True, slots=True)
class FirstWrong:
    """The first implementation of a session whose results were wrong, by its source key, and where it was."""

    key: str
    detail: str


@dataclass(frozen=True, slots=True)
class RoundingMeasured:
    """A result differed from the reference, so it was measured how far rounding carries those of an input set.

    `branches` are sentences on elements that lie on one, where either side is right.
    """

    input_set: int
    branches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Disagreed:
    """All of the first implementations, so many, were wrong at the same element, with the same value."""

    n: int
    at: Disagreement


@dataclass(frozen=True, slots=True)
class Compared:
    """What the result is compared with; None where it is not known, or not yet (`NumpyTimed`)."""

    default_ns: float | None
    numpy_ns: float | None
    n_input_sets: int


@dataclass(frozen=True, slots=True)
class NumpyTimed:
    """The NumPy function that the result is compared with, timed like a candidate. Others had the cores in `disturbed` samples."""

    time_ns: float
    spread: float
    n_samples: int
    disturbed: int


@dataclass(frozen=True, slots=True)
class MachineChanged:
    """The same program takes `ratio` times as long as a moment ago: the machine itself is in another state."""

    ratio: float


@dataclass(frozen=True, slots=True)
class Again:
    """One candidate of the final re-measurement."""

    key: str  # source key
    time_ns: float
    spread: float
    search_ns: float  # what the search had measured


@dataclass(frozen=True, slots=True)
class Remeasured:
    """The best candidates, timed again in turn, fastest first; the first `n_ties` are equal.

    `is_disturbed`: other work took the cores meanwhile, and the times of the search stand.
    """

    entries: tuple[Again, ...]
    n_ties: int
    is_disturbed: bool = False


@dataclass(frozen=True, slots=True)
class OtherCompiler:
    """The fastest of the best as another compiler builds it, in `ratio` times the time of the best of the search."""

    compiler: str
    time_ns: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Best:
    """The best implementation, verified, as it was timed last."""

    time_ns: float
    spread: float
    n_input_sets: int
    compiler: str  # that built it; "" where there is none to name


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is left; `bound_ns` and `gap` are None when withdrawn or not known.

    They hold on the machine at its best, and are proved. `bound_now_ns` and `gap_now` are those on the machine as it was
    while the best was timed for the last time: None where nobody looked.
    """

    bound_ns: float | None
    gap: float | None
    bound_now_ns: float | None
    gap_now: float | None
    n_alarms: int  # measurements below their bound


@dataclass(frozen=True, slots=True)
class References:
    """What the best is compared with; None where it was not timed."""

    default_ns: float | None
    numpy_ns: float | None


@dataclass(frozen=True, slots=True)
class Effort:
    """What was tried."""

    n_evaluations: int
    failures: tuple[tuple[str, int], ...]  # by kind
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Scope:
    """What status, bound and gap are of."""

    closed: Closed = NOTHING_CLOSED  # of whose bodies they say no more than what is surely done
    fixed: tuple[tuple[str, str], ...] = ()  # decisions before the search
    is_for_input: bool = (
        False  # the bound counts what bodies do on the arguments that were measured
    )


@dataclass(frozen=True, slots=True)
class Ended:
    """The result."""

    status: str
    directory: Path
    best: Best | None  # None: nothing valid was found
    limits: Limits
    references: References
    effort: Effort
    scope: Scope
    doubts: tuple[str, ...] = ()  # sentences: too few candidates, disturbed times


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
    | OtherCompiler
    | Ended
)
