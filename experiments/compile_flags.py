"""What does the compiler cost a search, what would other levels of optimisation cost, or all passes of its own, and how fast is
their code?

    python -m kernelscape.experiments.compile_flags [--only atax:n=1024] [--candidates 40] [--again]

Rows that are in the results already are kept unless --again is given. Writes experiments/results/compile_flags.md after
every row. The exit status is 1 when a row fails.
"""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..codegen.lower import lower, print_source
from ..codegen.passes.pipeline import CPU
from ..codegen.text.addresses import share_addresses
from ..codegen.text.dialect import Dialect
from ..codegen.text.source import Source
from ..explorer.entry import explore_workload, library_workload
from ..kernels.library import load, names
from ..runtime.api.artifact import Artifact
from ..runtime.api.outcome import FINAL, Failure
from ..runtime.building.queue import build_many
from ..runtime.cpu.compiler import ALIGNED, FEWER_PASSES, LEVEL, Compiler
from ..runtime.cpu.device import CpuDevice
from ..runtime.device import DeviceOptions, open_device
from ..runtime.records.folder import JOURNAL
from ..runtime.records.journal import read_journal
from ..runtime.records.record import EvaluationRecord
from ..runtime.records.replay import dialect_of, restore_complete
from ..runtime.worker.inputs import make_input_sets
from ..runtime.worker.worker import Worker
from ..space.build import build_space
from ..space.candidate import Candidate
from .conditions import stamp
from .measuring import failure_text, median, time_ns
from .rows import Job, Row, Table, answer, page, run_row, table_parser, title, wanted_jobs
from .run_row import with_one_compiler

# The first is what a search uses, with fewer passes of gcc than -O2 has, and what the others are compared with.
OURS = "a search's"
APART = "addresses apart"
_ANYWHERE = "loops anywhere"
_WHOLE = "all linked"
LEVELS = (OURS, APART, _WHOLE, _ANYWHERE, LEVEL, "-O1", "-O0")
JOBS = (
    Job("axpydot", {"n": 1 << 15}),
    Job("atax", {"m": 1024, "n": 1024}),
    Job("sgemvt", {"m": 1009, "n": 4093}),
    Job("matmul", {"m": 256, "n": 256, "k": 32}),
    Job("matmul", {"m": 1024, "n": 1024, "k": 1024}),
)
_LIMIT_S = 900.0  # of one row

PROTOCOL = """A search gives the candidates: of those that it measured an even sample by speed. Each level builds them as a search
does, several texts in one run of the compiler; "ms" is processor time of the compiler, assembler and linker for each candidate.
The first is what a search uses: {fewer}.
"Addresses apart" builds texts in which neighbouring elements have no pointer in common (codegen/text/addresses.py);
"all linked" is the first with the C library and the start files of programs, "loops anywhere" the first without {aligned}; the
others have all passes of their level and link all. Rows without "addresses apart" are of earlier versions, whose searches had
-O2 with some passes spared, which all others are compared with there.
Then every candidate is timed as each level built it, sample by sample in turn; "x time" is its time over that at the first
level (median, and between which nine tenths lie), "x best" that of the fastest candidate of each."""


@dataclass(frozen=True)
class FlagOptions:
    """Options of one row."""

    seconds: float = 20.0  # of the search
    candidates: int = 40
    seed: int = 1
    evaluations: int | None = None  # end the search, too
    budget_ms: float = 30.0  # of timed work for each candidate and level


def make_row(job: Job, options: FlagOptions) -> Row:
    """What is found for a row. Raises RuntimeError where nothing was found or a level does not compile."""
    device = open_device("cpu")
    assert isinstance(device, CpuDevice)
    workload = library_workload(load(job.name), job.sizes, job.dtype, options.seed)
    folder = Path(tempfile.mkdtemp(prefix="kernelscape-flags-"))
    try:
        explored = with_one_compiler(device, options.seconds, options.seed, options.evaluations)
        explore_workload(workload, explored, directory=folder)
        records = [r for r in read_journal(folder / JOURNAL) if isinstance(r, EvaluationRecord)]
        timed = sorted((r for r in records if r.time_ns is not None), key=lambda r: r.time_ns or 0)
        if not timed:
            raise RuntimeError("no implementation was found")
        n_taken = min(options.candidates, len(timed))
        taken = [timed[int(k)] for k in np.linspace(0, len(timed) - 1, n_taken)]
        space = build_space(workload.problem, device.machine.facts())
        candidates = [restore_complete(space, r.decisions) for r in taken]
        texts = {
            level: [text_of(c, level, dialect_of(device)) for c in candidates] for level in LEVELS
        }
        built = {
            level: _build(level, texts[level], folder / str(k)) for k, level in enumerate(LEVELS)
        }

        rng = np.random.default_rng(options.seed)
        input_sets = make_input_sets(
            workload.recording, workload.problem, workload.arguments, rng, 2
        )
        protocol = replace(FINAL, budget_ns=1e6 * options.budget_ms)
        with Worker(device) as worker:
            worker.prepare(input_sets)
            memory = worker.probe()
            times = [
                [time_ns(x) for x in worker.interleave(list(same), protocol)]
                for same in zip(*(b.artifacts for b in built.values()), strict=True)
            ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "compile_ms": {level: b.each_ms for level, b in built.items()},
        "times_ns": {
            level: list(ns) for level, ns in zip(LEVELS, zip(*times, strict=True), strict=True)
        },
        "flags": {level: list(b.flags) for level, b in built.items()},
        "text_bytes": median([len(s.text) for s in texts[OURS]]),
        "stamp": stamp(device, memory),
    }


def text_of(candidate: Candidate, level: str, dialect: Dialect) -> Source:
    """The text that a level builds."""
    passes = CPU.without(share_addresses) if level == APART else CPU
    return print_source(lower(candidate, passes=passes), dialect)


@dataclass(frozen=True)
class _Built:
    """What one level made of the candidates."""

    artifacts: list[Artifact]
    each_ms: float  # processor time of the compiler
    flags: tuple[str, ...]


def _build(level: str, sources: Sequence[Source], folder: Path) -> _Built:
    device = open_device("cpu", DeviceOptions(build_folder=folder))
    assert isinstance(device, CpuDevice)
    device.builder.compiler = _compiler_of(level, device.builder.compiler)
    before_s = _children_s()
    made = build_many(device.builder, sources, 1)
    spent_s = _children_s() - before_s
    for one in made:
        if isinstance(one, Failure):
            raise RuntimeError(failure_text(one))
    artifacts = [a for a in made if isinstance(a, Artifact)]
    c = device.builder.compiler
    return _Built(artifacts, 1e3 * spent_s / len(sources), (*c.flags, *c.linked))


def _compiler_of(level: str, ours: Compiler) -> Compiler:
    """That of a level, from the one of a search."""
    if level in (OURS, APART):
        return ours
    whole = ours.unspared()
    if level == _WHOLE:
        return replace(ours, linked=whole.linked)
    if level == _ANYWHERE:
        return replace(ours, flags=tuple(f for f in ours.flags if f != ALIGNED))
    return replace(ours, flags=tuple(level if f == LEVEL else f for f in whole.flags))


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    heads = ["sequence", "type", "candidates", "text kB"]
    heads += [f"{level} ms" for level in LEVELS]
    heads += [f"{level} {what}" for level in LEVELS[1:] for what in ("x time", "x best")]
    protocol = PROTOCOL.format(fewer=" ".join(FEWER_PASSES), aligned=ALIGNED)
    return page("What the compiler costs", protocol, heads, _cells, made["rows"])


def _cells(r: Row) -> list[str]:
    base = np.array(r["times_ns"][LEVELS[0]])
    cells = [title(r), r["dtype"], str(len(base)), f"{r['text_bytes'] / 1e3:.1f}"]
    made = r["compile_ms"]  # earlier versions had fewer levels
    cells += [f"{made[level]:.0f}" if level in made else "–" for level in LEVELS]
    for level in LEVELS[1:]:
        if level not in made:
            cells += ["–", "–"]
            continue
        ns = np.array(r["times_ns"][level])
        low, middle, high = np.quantile(ns / base, [0.05, 0.5, 0.95])
        cells += [f"{middle:.2f} ({low:.2f} – {high:.2f})", f"{ns.min() / base.min():.2f}"]
    return cells


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = table_parser(__doc__, "NAME or NAME:n=2^20,...[:f64]")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each search")
    parser.add_argument("--candidates", type=int, default=40, help="at most, of each row")
    parser.add_argument("--evaluations", type=int, help="at most, of each search")
    parser.add_argument("--budget-ms", type=float, default=30.0, help="a candidate and level")
    given = parser.parse_args(arguments)
    if given.child:
        return answer(given.child, FlagOptions, make_row)
    if given.candidates < 1 or given.seconds <= 0:
        parser.error("--candidates and --seconds must be positive")
    options = FlagOptions(
        given.seconds, given.candidates, given.seed, given.evaluations, given.budget_ms
    )
    wanted = wanted_jobs(parser, given.only, JOBS, known=names(), dtypes=("f32", "f64"))
    results = Table("compile_flags", JOBS, report, given.results)

    def make(job: Job) -> Row:
        return run_row("compile_flags", job, options, _LIMIT_S)

    rows = results.make(results.missing(wanted, given.again), make, lambda _: "made")["rows"]
    return 1 if any(r["status"] != "ok" for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
