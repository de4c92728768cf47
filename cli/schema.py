"""Classes of the `--json` lines that commands print, and the JSON schema of all lines.

Lines of a run are its events, in search/events.py and explorer/stages.py. A field that is added to a command's output is added
to its class, or the tests refuse it.
"""

from __future__ import annotations

from functools import cache, reduce
from operator import or_
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ..explorer import explanation  # noqa: F401 - its lines are in the schema, too
from ..explorer.stages import NonAffineRow
from ..search.line import AbstractLine, line_class

Number = float | None


class Sequence(AbstractLine, frozen=True, tag="sequence"):
    """`list`: one library sequence."""

    name: str
    formula: str
    sizes: dict[str, int]
    targets: list[str]


class SpaceLine(AbstractLine, frozen=True, tag="space"):
    """`show`: a sequence and the size of its space."""

    problem: str
    formula: str
    problem_key: str
    space_key: str
    tasks: list[str]
    non_affine: list[NonAffineRow]
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


class Built(AbstractLine, frozen=True, tag="built"):
    """`run --build-only`: one compiled implementation."""

    tag: str
    candidate: str
    bound_ns: float
    status: str
    why: str | UnsetType = UNSET  # of a failure
    warnings: str | UnsetType = UNSET
    launches: list[BuiltLaunch] | UnsetType = UNSET


class Side(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    sequence: str
    sizes: dict[str, int]
    time_ns: float
    spread: float
    bound_ns: Number  # null where the gap was withdrawn
    evaluations: int
    status: str


class ComparisonLine(AbstractLine, frozen=True, tag="comparison"):
    """`compare`: two results; `ratio`: time of `b` divided by that of `a`; `tie`: equal within both spreads."""

    a: Side
    b: Side
    ratio: float
    tie: bool
    notes: list[str]
    alike: int
    differing: dict[str, tuple[str | None, str | None]]


class Replay(AbstractLine, frozen=True, tag="replay"):
    """`replay`: outcome of a stored implementation, verified and timed again."""

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


class Check(AbstractLine, frozen=True, tag="check"):
    """`check`: verdict on a user's function; `status` is "ok", or the kind of failure."""

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


class Shape(AbstractLine, frozen=True, tag="shape"):
    """`tune`: result for one shape; `is_new`: it was searched by this command."""

    sizes: dict[str, int]
    status: str
    time_ns: Number
    bound_ns: Number
    baseline_ns: Number
    is_new: bool
    run_dir: str | None


class TunedLine(AbstractLine, frozen=True, tag="tuned"):
    """`tune`: the file with all results."""

    file: str
    shapes: int
    exit: int


class SourceFileLine(AbstractLine, frozen=True, tag="source"):
    """`codegen`: a written source file, with the command that compiles it."""

    file: str
    compile: str
    entry: str


class Export(AbstractLine, frozen=True, tag="export"):
    """`export`: files in `folder`; `function` is the C function to call.

    `library` is null if its compiler, nvcc, is not installed.
    """

    folder: str
    function: str
    files: list[str]
    library: str | None


class GraphText(AbstractLine, frozen=True, tag="graph"):
    """`graph`: a state-flow graph as text."""

    problem: str
    form: Literal["text", "dot", "mermaid"]
    text: str
    file: str | None


class Trace(AbstractLine, frozen=True, tag="trace"):
    """`trace`: a written file of trace events."""

    file: str
    events: int


class FleetSlot(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    backend: str
    key: str
    arch: str


class FleetLine(AbstractLine, frozen=True, tag="fleet"):
    """`fleet start`, `status` and `stop`: the scheduler's address ("" once it has ended), and its slots."""

    file: str
    address: str
    workers: int
    slots: list[FleetSlot]


class ProgramRun(AbstractLine, frozen=True, tag="program"):
    """`taichi`: a program that ended by itself, or after its last frame."""

    frames: int
    is_cut: bool
    files: list[str]
    not_run: list[tuple[int, int]]  # first and last lines, of what follows the loop that was cut
    exit: int


class WindowLine(AbstractLine, frozen=True, tag="window"):
    """`run FILE.py`: a window of a program with its search result (runtime/records/program_file.py)."""

    name: str
    kernels: str
    runs: int
    time_ns: float
    share: float
    ends: dict[str, int]
    best_ns: Number
    default_ns: Number
    why: str
    assumed: list[str]
    prologue: int


class WindowsLine(AbstractLine, frozen=True, tag="program_run"):
    """`run FILE.py`: the folder with the results of a program's windows, for `ks.init(decisions=...)`."""

    directory: str
    exit: int


class CheckedWindow(AbstractLine, frozen=True, tag="checked_window"):
    """`replay --program`: a window, its runs in the program, its checked runs, and the first disagreement."""

    name: str
    runs: int
    checked: int
    wrong: str
    plan_ns: Number
    plain_ns: Number


class CalibrationLine(AbstractLine, frozen=True, tag="calibration"):
    """`calibrate`: measured facts of this machine."""

    machine: str
    calibrations: int
    facts: dict[str, float]
    spreads: dict[str, float]
    alarms: int  # measurements below their bound, which raised facts
    unsure: list[str]  # samples whose best value was seen once only
    other_work: float  # share of the time that threads waited for a core
    cores: int
    vector_bytes: int


class FindingLine(AbstractLine, frozen=True, tag="finding"):
    """`doctor`: one finding about this machine."""

    topic: str
    verdict: str
    text: str
    advice: str


class ReportLine(AbstractLine, frozen=True, tag="report"):
    """`report`: one written page."""

    file: str
    evaluations: int


class Kept(AbstractLine, frozen=True, tag="kept"):
    """`cache`: one cache location."""

    name: str
    path: str
    files: int
    bytes: int
    can_be_cleared: bool
    what: str


class Cleared(AbstractLine, frozen=True, tag="cleared"):
    """`cache --clear`: the cleared cache locations."""

    names: list[str]
    freed_bytes: int


class StoredLine(AbstractLine, frozen=True, tag="stored"):
    """`store list`: one result; `error` is a sentence if this version cannot use it."""

    row: int
    sequence: str
    dtype: str
    shape: list[int]
    device: str
    time_ns: float
    taken: str
    error: str


class StoredResultLine(AbstractLine, frozen=True, tag="stored_result"):
    """`store show`: a best.json as text."""

    row: int
    best: str


class StoreLine(AbstractLine, frozen=True, tag="store"):
    """`store export`, `import`, `merge`, `prune`: a file or store, and the rows written, added or removed."""

    name: str
    exported: int | UnsetType = UNSET
    new: int | UnsetType = UNSET
    known: int | UnsetType = UNSET
    removed: int | UnsetType = UNSET


class Schema(AbstractLine, frozen=True, tag="schema"):
    """`schema`: the JSON schema of all lines."""

    schema: dict[str, Any]


@cache
def events() -> dict[str, type[msgspec.Struct]]:
    """Returns the class of every line, by its name in the field `event`."""
    return {str(c.__struct_config__.tag): line_class(c) for c in AbstractLine.__subclasses__()}


def line_schema() -> dict[str, Any]:
    """Returns the JSON schema (2020-12) of a line."""
    any_line: Any = reduce(or_, events().values())
    (schema,), parts = msgspec.json.schema_components([any_line], ref_template="#/$defs/{name}")
    for tag, line in events().items():  # what people look for is the name in `event`
        parts[line.__name__]["title"] = tag
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line that an explore command prints with --json",
    }
    return head | schema | {"$defs": parts}
