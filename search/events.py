"""Events of a search, and the tally that is counted along. Logs, plots and journals are made from them.

Events that `--json` prints are lines (`line.py`).

All times are ns, all bounds are lower bounds in ns. A source tag names the origin of a candidate: U default of the user, W warm
start, M tree, R rollout, D bound dive, N neighbour of the best, C combination of what components propose, F final
re-measurement.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from .candidate import SearchCandidate
from .line import AbstractLine, Inside

Tag = Literal["U", "W", "M", "R", "D", "N", "C", "F"]
Origin = Literal["measured", "duplicate", "history"]

SAYS_NOTHING = 0.01  # of a time: to a bound that is less no gap is shown
STATUSES = ("ok", "compile", "launch", "crash", "timeout", "wrong", "memory")


def gap_text(gap: float | None) -> str:
    """Returns a gap in percent; "-" if it is unknown, or so large that the bound says next to nothing."""
    return "-" if gap is None or gap > 1 - SAYS_NOTHING else f"{gap:.1%}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of the evaluation of one complete candidate.

    `status`: one of STATUSES; `time_ns` is set only if it is "ok".
    `spread`: relative half width of the measured time. `key`: key of the source text. `bound_ns`:
    an unscaled lower bound that the build has shown; 0 without one. `spent_s`: duration of the
    measurement, if known. `slowness`: slowdown of the machine at that moment, relative to the
    beginning. `is_by_ratio`: the time is a ratio to a control timed beside it, on a machine with
    other work; no bound or gap is judged by such a time. `component_ns`: times of the problem's
    components, in their order; () if they were not measured.
    """

    status: str
    time_ns: float | None = None
    spread: float = 0.0
    detail: str = ""
    key: str = ""
    bound_ns: float = 0.0
    spent_s: float = field(default=0.0, compare=False)
    slowness: float = field(default=1.0, compare=False)
    is_by_ratio: bool = False
    component_ns: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"unknown status {self.status!r}; statuses are {', '.join(STATUSES)}")
        if (self.status == "ok") != (self.time_ns is not None):
            raise ValueError(f"status {self.status!r} with time_ns={self.time_ns}")
        if self.time_ns is not None and not (0 < self.time_ns < math.inf):
            raise ValueError(f"time_ns={self.time_ns} is not a positive time")


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin of a candidate that is to be measured. `tag`: the source tag.

    `node`: the deepest tree node on its path, -1 outside the tree. `parent`: key of the
    implementation from which a neighbour was derived.
    """

    tag: Tag
    node: int = -1
    parent: bytes = b""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A measured implementation. `candidate` is None if only its key is known (in a resumed search)."""

    time_ns: float
    spread: float
    key: bytes
    tag: Tag
    outcome: Outcome
    candidate: SearchCandidate | None = field(compare=False)


@dataclass(frozen=True, slots=True)
class Started:
    """Event: the search starts, and its root has a bound. `n_outcomes`: number of outcomes passed in."""

    strategy: str
    bound_ns: float
    n_outcomes: int


@dataclass(frozen=True, slots=True)
class Child:
    """A value of the choice by which a node is expanded.

    `pruned`: "", "constraint" or "bound"; `why`: the failed constraint.
    """

    node: int
    value: str
    bound_ns: float | None
    pruned: str
    why: str


@dataclass(frozen=True, slots=True)
class NodeExpanded:
    """Event: `node` is expanded by `choice`.

    `children` lists every value with its bound, and whether it was pruned.
    """

    node: int
    parent: int  # -1 for the root
    depth: int
    bound_ns: float
    choice: str
    children: tuple[Child, ...]
    tag: Tag


@dataclass(frozen=True, slots=True)
class Pruned:
    """Event: a tree node was closed after it was opened. `reason`: "bound" or "constraint"."""

    node: int
    parent: int
    bound_ns: float
    cut_ns: float
    reason: str


@dataclass(frozen=True, slots=True)
class Reopened:
    """Event: a pruned node was reopened because the bounds were scaled down."""

    node: int
    bound_ns: float


class Widened(AbstractLine, frozen=True, tag="widened"):
    """Event: the space grew. `bound_ns`: bound of its root. A new tree begins, whose nodes count from 0."""

    bound_ns: float


@dataclass(frozen=True, slots=True)
class DeadEndMet:
    """Event: a descent reached a candidate without live children, `depth` decisions below the root.

    `node`: the tree node at which the descent left the tree.
    """

    node: int
    depth: int
    tag: Tag
    why: str


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Event: outcome of a complete candidate.

    `key`: its implementation key, or its candidate key if there is none.
    """

    node: int  # the deepest tree node on its path, -1 outside the tree
    bound_ns: float
    outcome: Outcome
    origin: Origin
    key: bytes
    tag: Tag
    evaluations: int  # measured so far
    elapsed_s: float
    candidate: SearchCandidate = field(compare=False)


@dataclass(frozen=True, slots=True)
class NewIncumbent:
    """Event: `best` is the new incumbent, in place of one with `previous_ns`."""

    best: Ranked
    previous_ns: float | None
    node: int
    evaluations: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class BoundMoved:
    """Event: the global lower bound changed.

    It falls only if bounds were scaled down or the space was widened.
    `candidate`: belongs to a node with this bound; None if the incumbent or a pruned node sets the
    bound.
    """

    bound_ns: float
    previous_ns: float
    elapsed_s: float
    candidate: SearchCandidate | None = field(default=None, compare=False)


class AdmissibilityAlarm(AbstractLine, frozen=True, tag="alarm"):
    """Event: a measured time is below the bound of its candidate or of an ancestor, so the bound is wrong.

    The gap is withdrawn from here on.
    """

    time_ns: float
    bound_ns: float
    key: Inside[bytes]


@dataclass(slots=True)
class Tally:
    """Running counts of a search: nodes, prunings, dead ends, evaluations by result, and seconds."""

    explored: int = 0  # nodes expanded and leaves settled
    pruned_bound: int = 0  # tree nodes
    pruned_csp: int = 0  # tree nodes
    rollouts: int = 0
    rollout_bound: int = 0  # siblings of a rollout that could not beat the cut
    rollout_csp: int = 0  # siblings of a rollout that propagated to a dead end
    dead_ends: int = 0  # descents that met a candidate without live children
    evaluations: int = 0  # measured in this search
    overtaken: int = 0  # candidates that a better best cut off while they waited to be measured
    near_bound: int = 0  # neighbours of the best that could not beat the cut
    near_dead: int = 0  # changes of the best that no neighbour could take up
    near_known: int = 0  # neighbours of the best that had been requested before
    near_worse: int = 0  # neighbours that others, drawn with them, were expected to beat
    duplicates: int = 0  # equal implementations that were not measured again
    replayed: int = 0  # answered from the given outcomes
    alarms: int = 0
    ok: int = 0
    bad: int = 0  # wrong answers
    crash: int = 0
    timeout: int = 0
    unbuilt: int = 0  # compile, launch and memory failures
    refused: Counter[str] = field(
        default_factory=Counter
    )  # values by why a constraint forbade them
    spent_s: dict[Tag, float] = field(default_factory=dict)  # measuring, by tag

    def count(self, status: str) -> None:
        name = {"ok": "ok", "wrong": "bad", "crash": "crash", "timeout": "timeout"}.get(
            status, "unbuilt"
        )
        setattr(self, name, getattr(self, name) + 1)

    def spend(self, tag: Tag, seconds: float) -> None:
        self.spent_s[tag] = self.spent_s.get(tag, 0.0) + seconds

    def spent_by(self, tags: str) -> tuple[float, float]:
        """Returns the seconds spent on evaluations with the source tags `tags` (one letter each), and on all evaluations."""
        some_s = sum(spent_s for tag, spent_s in self.spent_s.items() if tag in tags)
        return some_s, sum(self.spent_s.values())

    def copy(self) -> Tally:
        return replace(self, refused=self.refused.copy(), spent_s=self.spent_s.copy())


class Row(AbstractLine, frozen=True, tag="row"):
    """Event: a row of the log. `bound_ns` and `gap` are null if withdrawn or not known yet."""

    elapsed_s: float
    source: str  # a Tag
    new_best: bool
    explored: int
    open: int
    pruned_bound: int  # values of choices, in the tree and in rollouts
    pruned_csp: int  # likewise
    bound_ns: float | None
    best_ns: float | None
    spread: float
    gap: float | None
    ok: int
    wrong: int
    crash: int
    timeout: int
    unbuilt: int
    tally: Inside[Tally]


class ComponentRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Row of a component, or of several equal ones (`places`). Times are of all places together.

    `tried`: number of measured implementations, failures included. `time_ns`: the best time, and
    `decisions`: its decisions about the component; null and empty before there is one. `share`:
    part of this time in the sum over all components. `is_explored`: nothing of the component is
    left to try.
    """

    name: str
    places: int
    time_ns: float | None
    share: float | None
    bound_ns: float
    tried: int
    is_explored: bool
    decisions: dict[str, str]


@dataclass(frozen=True, slots=True)
class Divided:
    """Event: a search by components starts, with `n_components` trees for components at `n_places` places."""

    n_components: int
    n_places: int


class Components(AbstractLine, frozen=True, tag="components"):
    """Event: rows of the components of a sequence that was searched by components, in the order of the program."""

    components: tuple[ComponentRow, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """Event: the search ends, always last.

    `status`: optimal gap_limit time_limit eval_limit exhausted infeasible interrupted. `top`: the
    best distinct implementations, best first.
    """

    status: str
    best: Ranked | None
    top: tuple[Ranked, ...]
    bound_ns: float | None
    gap: float | None
    tally: Tally
    elapsed_s: float


Event = (
    Started
    | NodeExpanded
    | Pruned
    | Reopened
    | Widened
    | DeadEndMet
    | Evaluated
    | NewIncumbent
    | BoundMoved
    | AdmissibilityAlarm
    | Row
    | Divided
    | Components
    | Finished
)
