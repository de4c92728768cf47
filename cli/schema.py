"""What a line of `--json` holds: one class an event, from which its JSON schema follows.

A field that is added to a command's output is added here, or the tests refuse it.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

Number = float | None


class AbstractLine(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, tag_field="event"):
    """One line; `event` says which. Times are ns where the name ends in _ns, else seconds (_s)."""


class Sequence(AbstractLine, tag="sequence"):
    """`list`: a library sequence."""

    name: str
    formula: str
    sizes: dict[str, int]
    targets: list[str]


class ClosedTask(msgspec.Struct, forbid_unknown_fields=True):
    """A task that is not opened: bounds count what its body surely does."""

    task: str
    kind: Literal["branch", "range", "index", "carried", "order"]
    reason: str
    file: str
    line: int


class Space(AbstractLine, tag="space"):
    """`show`."""

    problem: str
    formula: str
    problem_key: str
    space_key: str
    tasks: list[str]
    closed: list[ClosedTask]
    choices: int
    open: int
    open_by_kind: dict[str, int]
    constraints: int
    components: int  # tasks of different ones share no launch
    launch_tasks: int | None  # a launch has no more, that follow one another; None: it may have all
    feasible: bool
    fixed: dict[str, str]  # before the search
    open_choices: dict[str, list[str]] | UnsetType = UNSET  # with -v: what is possible of each
    bound_ns: float | UnsetType = UNSET  # the next four: where there is an implementation
    limiting: str | UnsetType = UNSET
    implementations: tuple[float, float, float] | UnsetType = UNSET  # estimate, and its 95 %
    dead_end_share: float | UnsetType = UNSET


class Start(AbstractLine, tag="start"):
    """`run` and `resume`, as all down to `Result`: the run directory is there and the space is built."""

    run_dir: str
    problem: str
    problem_key: str
    space_key: str
    target: str
    calibrated: bool
    seed: int
    resumed: int  # finished evaluations taken over
    notes: list[str]  # what has changed since the run began
    fixed: dict[str, str]  # before the search


class RootBound(AbstractLine, tag="root_bound"):
    """The bound of the whole space, by resource."""

    bound_ns: float
    terms_ns: dict[str, float]


class ReferenceTooSlow(AbstractLine, tag="reference_too_slow"):
    """The user's NumPy function took longer than it may."""

    limit_s: float
    compared: bool


class FirstWrong(AbstractLine, tag="first_wrong"):
    """The first implementation whose results were wrong."""

    key: str
    detail: str


class RoundingLine(AbstractLine, tag="rounding"):
    """It was measured how far rounding carries the results of an input set; sentences on elements that lie on a branch."""

    input_set: int
    branches: list[str]


class DisagreementLine(AbstractLine, tag="disagreement"):
    """All of the first candidates were wrong at the same element, with the same value."""

    candidates: int
    input_set: int
    array: str
    index: list[int]
    got: str
    want: str
    detail: str


class Baseline(AbstractLine, tag="baseline"):
    """What the result is compared with."""

    baseline_ns: Number
    numpy_ns: Number


class NumpyTime(AbstractLine, tag="numpy"):
    """The NumPy function that the result is compared with, timed after the first candidates."""

    time_ns: float
    spread: float
    samples: int
    disturbed: int  # samples in which other work had the cores


class Row(AbstractLine, tag="row"):
    """A row of the log."""

    elapsed_s: float
    source: str
    new_best: bool
    explored: int
    open: int
    pruned_bound: int
    pruned_csp: int
    bound_ns: Number
    best_ns: Number
    spread: float
    gap: Number
    ok: int
    wrong: int
    crash: int
    timeout: int
    unbuilt: int


class Alarm(AbstractLine, tag="alarm"):
    """A measurement below its bound: the bound is wrong."""

    time_ns: float
    bound_ns: float


class Widened(AbstractLine, tag="widened"):
    """The space grew."""

    bound_ns: Number


class MachineChanged(AbstractLine, tag="machine_changed"):
    """One program takes `ratio` times as long as a moment ago."""

    ratio: float


class Finalist(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    time_ns: float
    spread: float


class Final(AbstractLine, tag="final"):
    """The best, timed again in turn, fastest first; the first `ties` are equal."""

    top: list[Finalist]
    ties: int


class OtherCompiler(AbstractLine, tag="other_compiler"):
    """What another compiler makes of the best."""

    compiler: str
    time_ns: float
    ratio: float


class Result(AbstractLine, tag="result"):
    """The last line of a run."""

    status: str
    best_ns: Number
    spread: float
    bound_ns: Number
    gap: Number
    bound_now_ns: Number
    gap_now: Number
    baseline_ns: Number
    numpy_ns: Number
    evaluations: int
    alarms: int
    failures: dict[str, int]
    verified: bool
    compiler: str
    run_dir: str
    elapsed_s: float
    closed: list[ClosedTask]
    doubts: list[str]  # sentences: too few candidates, disturbed times
    fixed: dict[
        str, str
    ]  # before the search: status, bound and gap are of the space with these decisions


class BuiltLaunch(msgspec.Struct, forbid_unknown_fields=True):
    kernel: str
    block: list[int]
    registers: int
    registers_counted: int
    registers_expected: Number
    shared_bytes: int
    spill_bytes: int
    occupancy: float
    limit: str


class Built(AbstractLine, tag="built"):
    """`run --build-only`: an implementation."""

    tag: str
    candidate: str
    bound_ns: float
    status: str
    why: str | UnsetType = UNSET  # of a failure
    warnings: str | UnsetType = UNSET
    launches: list[BuiltLaunch] | UnsetType = UNSET


class UseFields(msgspec.Struct, forbid_unknown_fields=True):
    resource: str
    ns: float
    amount: float
    unit: str


class StartsFields(msgspec.Struct, forbid_unknown_fields=True):
    n_launches: int
    n_teams: int | None
    n_barriers: int


class AccountFields(msgspec.Struct, forbid_unknown_fields=True):
    """Where the time of one implementation must go."""

    time_ns: Number
    bound_ns: float
    unexplained_ns: Number
    binding: str
    terms: list[UseFields]
    phases: list[str]
    starts: StartsFields
    words: dict[str, list[str]]
    launches: list[dict[str, Any]] | UnsetType = UNSET  # of a GPU, as its compiler reported them


class Changed(msgspec.Struct, forbid_unknown_fields=True):
    choice: str
    default: str
    best: str


class PrunedFields(msgspec.Struct, forbid_unknown_fields=True):
    evaluations: int
    stopped_early: int
    failures: dict[str, int]
    sessions: int
    tallies: dict[str, int] | None
    refused: dict[str, int]


class UntriedFields(msgspec.Struct, forbid_unknown_fields=True):
    choice: str
    kind: str
    tried: list[str]
    beaten: list[str]
    open_values: list[str]


class Explanation(AbstractLine, tag="explanation"):
    """`explain`."""

    sequence: str
    sizes: dict[str, int]
    dtype: str
    status: str
    notes: list[str]
    closed: list[ClosedTask]
    rates: dict[str, str]
    best: AccountFields
    default: AccountFields | None
    changed: list[Changed]
    pruned: PrunedFields | None
    untried: list[UntriedFields] | None


class FailureFields(msgspec.Struct, forbid_unknown_fields=True):
    kind: str
    key: str
    detail: str


class Fruitless(AbstractLine, tag="fruitless"):
    """`explain` of a run that has found nothing: of each kind of failure the first."""

    sequence: str
    sizes: dict[str, int]
    dtype: str
    status: str
    reference: str
    failures: list[FailureFields]
    pruned: PrunedFields


class Replay(AbstractLine, tag="replay"):
    """`replay`."""

    source_key: str
    status: str
    detail: str
    verified: bool
    time_ns: Number
    saved_ns: float
    machine: float
    slower_by: Number
    notes: list[str]
    exit: int


class Check(AbstractLine, tag="check"):
    """`check`: `status` is "ok", or why theirs is not right."""

    sequence: str
    sizes: dict[str, int]
    dtype: str
    file: str
    function: str
    status: str
    detail: str
    verified: bool
    input_sets: int
    time_ns: Number
    ours_ns: Number
    ours_is: str
    bound_ns: Number
    gap: Number
    below_bound: bool
    has_times: bool
    notes: list[str]
    exit: int


class Shape(AbstractLine, tag="shape"):
    """`tune`: one shape; `is_new` says that it was searched now."""

    sizes: dict[str, int]
    status: str
    time_ns: Number
    bound_ns: Number
    baseline_ns: Number
    is_new: bool
    run_dir: str | None


class Tuned(AbstractLine, tag="tuned"):
    """`tune`: the file."""

    file: str
    shapes: int
    exit: int


class SourceFile(AbstractLine, tag="source"):
    """`codegen`."""

    file: str
    compile: str
    entry: str


class Export(AbstractLine, tag="export"):
    """`export`: `function` is what C calls; the files are in `folder`. `library` is null where its compiler, nvcc, is not here."""

    folder: str
    function: str
    files: list[str]
    library: str | None


class GraphText(AbstractLine, tag="graph"):
    """`graph`."""

    problem: str
    form: Literal["text", "dot", "mermaid"]
    text: str
    file: str | None


class Trace(AbstractLine, tag="trace"):
    """`trace`."""

    file: str
    events: int


class Program(AbstractLine, tag="program"):
    """`taichi`: a program that ended by itself, or after its last frame."""

    frames: int
    is_cut: bool
    files: list[str]
    not_run: list[tuple[int, int]]  # first and last lines, of what follows the loop that was cut
    exit: int


class Calibration(AbstractLine, tag="calibration"):
    """`calibrate`."""

    machine: str
    calibrations: int
    facts: dict[str, float]
    spreads: dict[str, float]
    cores: int
    vector_bytes: int


class Finding(AbstractLine, tag="finding"):
    """`doctor`."""

    topic: str
    verdict: str
    text: str
    advice: str


class OutOfTime(AbstractLine, tag="out_of_time"):
    """The time limit was over before anything was measured; `during` says what took the time."""

    limit_s: float
    during: str = "the reference was computed"


class Report(AbstractLine, tag="report"):
    """`report`: a page that was written."""

    file: str
    evaluations: int


class Kept(AbstractLine, tag="kept"):
    """`cache`: one place."""

    name: str
    path: str
    files: int
    bytes: int
    can_be_cleared: bool
    what: str


class Cleared(AbstractLine, tag="cleared"):
    """`cache --clear`."""

    names: list[str]
    freed_bytes: int


class Schema(AbstractLine, tag="schema"):
    """`schema`."""

    schema: dict[str, Any]


LINES: tuple[type[AbstractLine], ...] = tuple(AbstractLine.__subclasses__())


def events() -> dict[str, type[AbstractLine]]:
    """Every event, by the name that a line has it under."""
    return {str(c.__struct_config__.tag): c for c in LINES}


def line_schema() -> dict[str, Any]:
    """The JSON schema (2020-12) of a line."""
    (schema,), parts = msgspec.json.schema_components([_any_line()], ref_template="#/$defs/{name}")
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line that an explore command prints with --json",
    }
    return head | schema | {"$defs": parts}


def read_line(text: str | bytes) -> AbstractLine:
    """A line as its class. Raises msgspec.ValidationError where it is none."""
    line: AbstractLine = msgspec.json.decode(text, type=_any_line())
    return line


def _any_line() -> Any:
    return reduce(or_, LINES)
