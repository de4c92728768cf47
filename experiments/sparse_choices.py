"""What are the values of the choices of sparse sequences worth?

    python -m kernelscape.experiments.sparse_choices [--only far_reads:n=512 ...] [--rounds 3] [--again]

Each program is made with every value of one choice, all else as without a search, and these are timed in turn in one process.
Rows that are in the results already are kept unless --again is given. Writes experiments/results/sparse_choices.md after every row.
A row takes ten to thirty seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..codegen.lower import lower, print_source
from ..explorer.workload import make_workload
from ..runtime.api.outcome import FINAL, Failure, Measurement
from ..runtime.cpu.device import CpuDevice
from ..runtime.device import open_device
from ..runtime.records.replay import dialect_of
from ..runtime.worker.inputs import make_input_sets
from ..runtime.worker.worker import Worker
from ..search.starts.complete import complete_sketch
from ..search.starts.proposals import default_sketch
from ..space.build import build_space
from ..space.candidate import Candidate
from ..space.decisions import fix
from .conditions import stamp, stamp_text
from .measuring import all_built, failure_text, spread
from .rows import Job, Row, Table, answer, run_row, table_parser, wanted_jobs
from .sparse_kernels import Step, far_reads, grow, ks, lists, look_ups, near_reads, stencil, windows
from .writing import table, time_text

PROTOCOL = """All values of a choice are timed in turn, on the same states, with what they convert before and behind. All else is as
without a search, with loops shared out to all cores. A time is that of a whole call: the least sample of all rounds. The spread
is that of the medians of the rounds (half the inter-quartile range over the median). Each result is verified on the same inputs,
over three periods."""
_LIMIT_S = 300.0  # of one row


@dataclass(frozen=True)
class Program:
    """A sequence of a size, a multiple of `multiple`, and the choice whose values it compares; `beside`: others that all have."""

    make: Callable[[int], Step]
    kind: str
    values: tuple[str, ...]
    beside: tuple[tuple[str, str], ...] = ()
    multiple: int = 32

    def complete(self, sizes: dict[str, int]) -> dict[str, int]:
        """Sizes as `Job` has them. Raises ValueError."""
        if sizes.keys() != {"n"} or sizes["n"] <= 0 or sizes["n"] % self.multiple:
            raise ValueError(f"the size is n, a multiple of {self.multiple}")
        return sizes


_LAYOUTS, _TILES = ("SOA", "AOS", "AOSOA"), ("ROWS", "HALO")
_ORDERS = ("ROWS", "COLUMNS", "MORTON")
_AHEAD = ("NONE", "ONE", "TWO", "FOUR")
_DIRECTORIES = ("TABLE", "HASH")
_ONE_BY_ONE = (("dim_kind(gather*.inner)", "ABSENT"),)  # without lanes
_ANEW = (("listgen", "GENERATE"),)
PROGRAMS = {
    "far_reads": Program(far_reads, "leaf_layout", _LAYOUTS),
    "near_reads": Program(near_reads, "leaf_layout", _LAYOUTS),
    "windows": Program(windows, "cell_order", _ORDERS, multiple=64),
    "rows": Program(near_reads, "cell_order", _ORDERS),
    "stencil7_8": Program(lambda n: stencil(n, 8, False), "staged", _TILES),
    "stencil7_4": Program(lambda n: stencil(n, 4, False), "staged", _TILES),
    "stencil27_8": Program(lambda n: stencil(n, 8, True), "staged", _TILES),
    "stencil27_4": Program(lambda n: stencil(n, 4, True), "staged", _TILES),
    "copies7_8": Program(lambda n: stencil(n, 8, False), "unrolled", ("NONE", "ALL")),
    "ahead7_8": Program(lambda n: stencil(n, 8, False), "prefetch_distance", _AHEAD),
    "grow": Program(grow, "activate", ("ACTIVATE", "ELEMENT"), multiple=256),
    "records": Program(lists, "record", ("SLOT_AND_COORDINATES", "CELL")),
    "look_ups": Program(look_ups, "directory", _DIRECTORIES),
    "look_ups_scalar": Program(look_ups, "directory", _DIRECTORIES, _ONE_BY_ONE),
    "hashed": Program(lambda n: look_ups(n, "hash"), "directory", _DIRECTORIES[::-1]),
    "hashed_scalar": Program(
        lambda n: look_ups(n, "hash"), "directory", _DIRECTORIES[::-1], _ONE_BY_ONE
    ),
    "making": Program(lists, "compaction", ("SERIAL", "TWO_PASS", "APPEND"), _ANEW),
    "lists": Program(lists, "listgen", ("GENERATE", "IF_CHANGED", "REUSE")),
}
_SIZES = {"far_reads": 512, "near_reads": 512, "grow": 1 << 18, "look_ups": 2048}
_SIZES |= {"hashed": 2048, "hashed_scalar": 2048}
_SIZES |= {"look_ups_scalar": 2048, "records": 512, "making": 512, "lists": 512}
JOBS = tuple(Job(name, {"n": _SIZES.get(name, 128)}) for name in PROGRAMS)


@dataclass(frozen=True)
class ChoiceOptions:
    """Options of one row."""

    rounds: int = 3
    seed: int = 1


def make_row(job: Job, options: ChoiceOptions) -> Row:
    """The times of each value. Raises RuntimeError where a result is wrong, DecisionError where a value is not legal."""
    device = open_device("cpu")
    assert isinstance(device, CpuDevice)
    program = PROGRAMS[job.name]
    ks.init(arch=ks.cpu)
    step = program.make(job.sizes["n"])
    workload = make_workload(step, (), sequence=f"{__name__}:{job.name}", name=job.name)
    ks.reset()
    space = build_space(workload.problem, device.machine.facts())
    dialect, sources = dialect_of(device), []
    for value in program.values:
        part = fix(space, [*program.beside, (program.kind, value)])
        root = part.root()
        made = complete_sketch(root, default_sketch(part)) if isinstance(root, Candidate) else None
        if made is None:
            raise RuntimeError(f"{job.name}: no candidate has {value}")
        sources.append(print_source(lower(made), dialect))
    artifacts = all_built(device, sources)
    rng = np.random.default_rng(options.seed)
    recorded = (workload.recording, workload.problem, workload.arguments)
    inputs = make_input_sets(*recorded, rng, 2)
    protocol = replace(FINAL, budget_ns=3e8)
    times: dict[str, list[Measurement]] = {value: [] for value in program.values}
    with Worker(device) as worker:
        worker.prepare(inputs)
        for value, artifact in zip(program.values, artifacts, strict=True):
            # On all inputs; later rounds verify the first.
            first = worker.evaluate(artifact, protocol)
            if isinstance(first, Failure):
                raise RuntimeError(f"{value}: {failure_text(first)}")
        for _ in range(options.rounds):
            outcomes = worker.interleave(artifacts, protocol)
            for value, found in zip(program.values, outcomes, strict=True):
                if isinstance(found, Failure):
                    raise RuntimeError(f"{value}: {failure_text(found)}")
                times[value].append(found)
    return {
        "kind": program.kind,
        "times_ns": {value: min(x.min_ns for x in found) for value, found in times.items()},
        "spread": {value: spread([x.time_ns for x in found]) for value, found in times.items()},
        "rounds": options.rounds,
        "stamp": stamp(device),
    }


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    rows: list[Row] = made["rows"]
    good = [r for r in rows if r["status"] == "ok"]
    parts = ["# Choices of sparse sequences", "", PROTOCOL, ""]
    if good:
        parts += [stamp_text(good[-1]["stamp"])]
    heads = ["program", "n", "choice", "value", "time", "spread", "of the first"]
    cells = [c for r in good for c in _cells(r)]
    parts += ["", table(heads, cells), ""]
    parts += [f"- {Job.of(r).key} failed: {r['why']}" for r in rows if r["status"] != "ok"]
    return "\n".join([*parts, ""])


def _cells(r: Row) -> list[list[str]]:
    first = next(iter(r["times_ns"].values()))
    beside = [r["name"], f"{r['sizes']['n']:,}", r["kind"]]
    return [
        [*beside, v, time_text(ns), f"{100 * r['spread'][v]:.0f} %", f"{ns / first:.2f}"]
        for v, ns in r["times_ns"].items()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = table_parser(__doc__, "NAME or NAME:n=512")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    if given.child:
        return answer(given.child, ChoiceOptions, make_row)
    if given.rounds < 1:
        parser.error("--rounds must be positive")
    options = ChoiceOptions(given.rounds, given.seed)
    which = {"known": tuple(PROGRAMS), "find": PROGRAMS.__getitem__}
    wanted = wanted_jobs(parser, given.only, JOBS, **which)
    results = Table("sparse_choices", JOBS, report, given.results)

    def say(row: Row) -> str:
        return ", ".join(f"{value} {time_text(ns)}" for value, ns in row["times_ns"].items())

    def make(job: Job) -> Row:
        return run_row("sparse_choices", job, options, _LIMIT_S)

    rows = results.make(results.missing(wanted, given.again), make, say)["rows"]
    return 1 if any(r["status"] != "ok" for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
