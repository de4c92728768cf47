"""Is a measured time ever below the bound of its candidate, of any kind of work, by any compiler, in any state of the machine?

    python -m kernelscape.experiments.alarms [--state alone|beside] [--seed 1] [--seconds 20] [--only axpy walls:n=512] [--again]

Rows are of one state: alone, or beside a busy process a core. Those of several seeds add up. Those that are in the results already
are kept unless --again is given, and none begins after --piece minutes. Writes experiments/results/alarms.md after every row. The
exit status is 1 when a row fails or a time is below its bound. A row takes `--seconds` and about ten more for each
compiler. Each run begins with one calibration.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from itertools import chain, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import UNSET

from ..explorer.workload import Options, Workload, make_workload
from ..kernels.library import load, names
from ..runtime.api.errors import DeviceError
from ..runtime.cpu.compiler import ZIG, find_compiler
from ..runtime.cpu.probe import calibrate
from ..runtime.records.folder import JOURNAL
from ..runtime.records.journal import read_journal
from ..runtime.records.record import EvaluationRecord, NoteRecord
from ..runtime.worker.channel import available_cores
from . import body_bounds, row, run_table, sparse_sequences
from .conditions import stamp, stamp_text
from .measuring import busy_processes
from .question import Question, asked, failures
from .rows import Columns, Job, Row, Sized, table_of, title
from .writing import time_text

ALONE, BESIDE = "alone", "beside"
LIBRARY, BODY, SPARSE = "library", "body", "sparse"
WANTED = 20_000  # evaluations, without any alarm
PROTOCOL = """Each work is explored for a few seconds by each compiler, in a process of its own. "Evaluations" are the
candidates, distinct in each search, that were right and were timed, and "judged" those of them whose time is their own: beside
other work most times are ratios to a control, which say nothing of a bound. An alarm is a time below the bound of its candidate,
also after another look at the machine. It raises the calibrated rates for good, so later works are judged by what it has taught.
The state is "alone", or "beside" so many processes that do nothing but compute. Candidates are named by the key of their text; the
values of the machine have their decisions."""

# Sizes of a job beside those of its work: how many processes are busy, and the seed of its searches.
_BUSY, _SEED = "beside", "seed"
_COMPILERS = {"gcc": ("gcc",), "clang": ("clang", ZIG)}  # by name, what may be called so here
_MOST_ELEMENTS = 1 << 24  # of an array: larger ones leave few candidates a second
_SPARSE_HEAD = """
import kernelscape as ks
import kernelscape.compat.taichi as ti
ks.init(arch=ks.cpu, cpu_max_num_threads=1)
"""


# --- works ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """A sequence of one kind, and the workload that a job makes of it."""

    kind: str
    sized: Sized
    workload: Callable[[Job, int], Workload]  # of a job and a seed


@dataclass(frozen=True)
class InState:
    """A work whose sizes have the number of busy processes and the seed, too."""

    work: Work
    busy: int
    seed: int

    def complete(self, sizes: dict[str, int]) -> dict[str, int]:
        """All of its sizes. Raises ValueError."""
        return {**self.work.sized.complete(sizes), _BUSY: self.busy, _SEED: self.seed}


@dataclass(frozen=True)
class SparseProgram:
    """A sequence on sparse fields, with so many times fewer cells."""

    text: str

    def complete(self, sizes: dict[str, int]) -> dict[str, int]:
        """The sizes, where they are a `shrink`. Raises ValueError."""
        if sizes.keys() != {"shrink"} or sizes["shrink"] < 1:
            raise ValueError("the size is shrink, at least 1")
        return sizes

    def workload(self, job: Job, seed: int) -> Workload:
        """A period of the program, after two that have activated its cells."""
        text = f"{_SPARSE_HEAD}shrink = {job.sizes['shrink']}\n{self.text}"
        with TemporaryDirectory(prefix="kernelscape-alarms-") as folder:
            file = Path(folder) / f"{job.name}.py"
            file.write_text(text)
            spec = spec_from_file_location(job.name, file)
            assert spec is not None and spec.loader is not None
            program = module_from_spec(spec)
            spec.loader.exec_module(program)
            for _ in range(2):
                program.step()
            return make_workload(program.step, (), sequence=f"{job.name}:step", name=job.name)


WORKS: Mapping[str, Work] = {
    **{name: Work(LIBRARY, load(name), row.workload_of) for name in names()},
    **{name: Work(BODY, p, p.workload) for name, p in body_bounds.PROGRAMS.items()},
    **{
        name: Work(SPARSE, p, p.workload)
        for name, text in sparse_sequences.PROGRAMS.items()
        for p in (SparseProgram(text),)
    },
}


def all_jobs(busy: int, seed: int) -> list[Job]:
    """All works and sizes in one state, kinds by turns: each piece of the table has all of them."""
    kinds: dict[str, list[Job]] = {LIBRARY: _library_jobs(), BODY: list(body_bounds.JOBS)}
    kinds[SPARSE] = [
        Job(name, {"shrink": shrink}) for shrink in (8, 1) for name in sparse_sequences.PROGRAMS
    ]
    turns = chain.from_iterable(zip_longest(*kinds.values()))
    state = {_BUSY: busy, _SEED: seed}
    return [Job(job.name, {**job.sizes, **state}) for job in turns if job is not None]


def _library_jobs() -> list[Job]:
    """The sizes of `run_table`, in caches and beyond, and the usual one of each sequence."""
    usual = [Job(name, dict(load(name).sizes)) for name in names()]
    jobs = {job.key: job for job in (*run_table.all_jobs(), *usual)}
    return sorted((j for j in jobs.values() if _elements(j) <= _MOST_ELEMENTS), key=_elements)


def _elements(job: Job) -> int:
    """Elements of its largest array, at most: the product of its two largest extents."""
    extents = sorted(job.sizes.values())[-2:]
    return extents[0] * extents[-1] if len(extents) > 1 else extents[0]


# --- a row ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AlarmOptions:
    """Options of one row."""

    seconds: float = asked(20.0, "of each exploration")
    calibrate: bool = asked(True, "explore with the calibration that is stored")
    evaluations: int | None = None  # end the search, too


def make_row(job: Job, options: AlarmOptions) -> Row:
    """Evaluations and alarms by compiler. Raises RuntimeError where a search found nothing."""
    work, plain, device = WORKS[job.name], Job(job.name, _own(job.sizes), job.dtype), row.cpu()
    seed = job.sizes[_SEED]
    workload = work.workload(plain, seed)
    here = compilers()
    with busy_processes(job.sizes[_BUSY]):
        found = {name: _explored(workload, path, seed, options) for name, path in here.items()}
    return {
        "kind": work.kind,
        "level": row.level_name(workload, device),
        "calibrated": device.machine.facts().calibrated,
        "found": found,
        "absent": [name for name in _COMPILERS if name not in here],
        "stamp": stamp(device),
    }


def compilers() -> dict[str, str]:
    """Paths of the compilers that work here, by name."""
    found = {}
    for name, commands in _COMPILERS.items():
        for command in commands:
            with suppress(DeviceError):
                found[name] = find_compiler(command).path
                break
    return found


def _own(sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes of the work itself."""
    return {name: n for name, n in sizes.items() if name not in (_BUSY, _SEED)}


def _explored(
    workload: Workload, compiler: str, seed: int, options: AlarmOptions
) -> dict[str, Any]:
    told = Options(
        time_limit_s=options.seconds,
        max_evals=options.evaluations,
        seed=seed,
        input_sets=1,
        store=False,
        compiler=compiler,
    )
    with row.explored(workload, told) as (run, folder):
        return counted(folder) | {"ended": run.status}


def counted(folder: Path) -> dict[str, Any]:
    """Evaluations of a run, those that a bound was compared with, and its alarms with the evaluation of each."""
    timed = [r for r in row.evaluations_in(folder) if r.time_ns is not None]
    records = read_journal(folder / JOURNAL)
    by_key = {r.source_key: r for r in records if isinstance(r, EvaluationRecord) and r.time_ns}
    doubted = [r.text for r in records if isinstance(r, NoteRecord) and r.kind == "alarm"]
    return {
        "evaluations": len({r.source_key for r in timed}),
        "judged": len({r.source_key for r in timed if r.ratio is UNSET}),
        "alarms": [_alarm(key, by_key.get(key)) for key in doubted],
    }


def _alarm(key: str, record: EvaluationRecord | None) -> dict[str, Any]:
    if record is None:
        return {"candidate": key, "time_ns": None, "bound_ns": None, "decisions": {}}
    return {
        "candidate": key,
        "time_ns": record.time_ns,
        "bound_ns": record.bound_ns,
        "decisions": dict(record.decisions),
    }


@cache
def _calibrate() -> None:
    """Once a process, before any is busy."""
    calibrate(row.cpu())


def _row(job: Job, options: AlarmOptions) -> Row:
    if options.calibrate:
        _calibrate()
    return question_of(ALONE).child(job, options)


# --- the page ------------------------------------------------------------------------------------


def _state(r: Row) -> str:
    n = r["sizes"][_BUSY]
    return f"{BESIDE} {n}" if n else ALONE


def _title(r: Row) -> str:
    return title({**r, "sizes": _own(r["sizes"])})


def _lines(made: Sequence[Row]) -> list[Row]:
    """A line for each good row and compiler."""
    good = [r for r in made if r["status"] == "ok"]
    return [r | found | {"compiler": name} for r in good for name, found in r["found"].items()]


def sums(made: Sequence[Row]) -> Iterator[Row]:
    """Works, evaluations and alarms by kind, state and compiler, and of all together."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for line in _lines(made):
        groups.setdefault((line["kind"], _state(line), line["compiler"]), []).append(line)
    for group in sorted(groups):
        yield dict(zip(("kind", "state", "compiler"), group, strict=True)) | _sum(groups[group])
    yield {"kind": "all", "state": "", "compiler": ""} | _sum(_lines(made))


def _sum(lines: Sequence[Row]) -> Row:
    return {
        "works": len({_title(line) for line in lines}),
        "evaluations": sum(line["evaluations"] for line in lines),
        "judged": sum(line["judged"] for line in lines),
        "alarms": sum(len(line["alarms"]) for line in lines),
    }


SUMS: Columns = {
    "kind": lambda r: r["kind"],
    "state": lambda r: r["state"],
    "compiler": lambda r: r["compiler"],
    "works": lambda r: str(r["works"]),
    "evaluations": lambda r: str(r["evaluations"]),
    "judged": lambda r: str(r["judged"]),
    "alarms": lambda r: str(r["alarms"]),
}
ALARMS: Columns = {
    "candidate": lambda r: r["candidate"],
    "work": _title,
    "state": _state,
    "compiler": lambda r: r["compiler"],
    "time": lambda r: time_text(r["time_ns"]),
    "bound": lambda r: time_text(r["bound_ns"]),
}
COLUMNS: Columns = {
    "work": _title,
    "kind": lambda r: r["kind"],
    "in": lambda r: r["level"],
    "state": _state,
    "seed": lambda r: str(r["sizes"][_SEED]),
    "compiler": lambda r: r["compiler"],
    "evaluations": lambda r: str(r["evaluations"]),
    "judged": lambda r: str(r["judged"]),
    "alarms": lambda r: str(len(r["alarms"])),
    "ended": lambda r: r["ended"],
}


def report(made: dict[str, Any]) -> str:
    """Sums, alarms one by one, and a line for each work, state and compiler."""
    lines = _lines(made["rows"])
    doubted = [line | alarm for line in lines for alarm in line["alarms"]]
    parts = ["# Times below their bound", PROTOCOL, *_conditions(lines)]
    parts += [
        "## Sums",
        f"Wanted: no alarm in {WANTED} evaluations.",
        table_of(SUMS, sums(made["rows"])),
    ]
    parts += ["## Alarms", table_of(ALARMS, doubted) if doubted else "None."]
    parts += ["## Works", table_of(COLUMNS, lines), *(f"- {x}" for x in failures(made["rows"]))]
    return "\n\n".join([*parts, ""])


def _conditions(lines: Sequence[Row]) -> list[str]:
    """The machine at the last row, and what it lacks."""
    if not lines:
        return []
    last = max(lines, key=lambda r: str(r["stamp"]["taken"]))
    said = [stamp_text(last["stamp"])]
    said += [f"- {name}: not found on this machine" for name in last["absent"]]
    if n := len({_title(r) for r in lines if not r["calibrated"]}):
        said.append(f"- of {n} works the rates were guessed, not calibrated")
    return ["\n".join(said)]


def missed(made: Sequence[Row]) -> list[str]:
    """Rows that failed, and times below their bound."""
    below = [
        f"{_title(line)} {_state(line)}, {line['compiler']}: {alarm['candidate']} below its bound"
        for line in _lines(made)
        for alarm in line["alarms"]
    ]
    return failures(made) + below


def _said(r: Row) -> str:
    counts = [
        f"{name} {x['evaluations']} ({x['judged']} judged), {len(x['alarms'])} alarms"
        for name, x in r["found"].items()
    ]
    return "; ".join([*counts, *(f"no {name}" for name in r["absent"])])


def question_of(state: str, seed: int = 1) -> Question[AlarmOptions]:
    """The rows of a state and a seed."""
    busy = available_cores() if state == BESIDE else 0
    return Question(
        file="alarms",
        doc=__doc__,
        order=all_jobs(busy, seed),
        options=AlarmOptions,
        make=make_row,
        row=_row,
        # Each compiler prepares its search beside busy processes.
        limit_s=lambda job, options: 300.0 + 6 * options.seconds,
        report=report,
        say=_said,
        missed=missed,
        works={name: InState(work, busy, seed) for name, work in WORKS.items()},
    )


def _add_state(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    about = "of the machine: other processes on all cores, or none"
    parser.add_argument("--state", choices=(ALONE, BESIDE), default=ALONE, help=about)
    parser.add_argument("--seed", type=int, default=1, help="of the searches; those of others stay")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    first = _add_state(argparse.ArgumentParser(add_help=False, allow_abbrev=False))
    told = first.parse_known_args(arguments)[0]
    if told.seed < 0:
        first.error("--seed is at least 0")
    question = question_of(told.state, told.seed)
    return question.run(_add_state(question.parser()), arguments)


if __name__ == "__main__":
    sys.exit(main())
