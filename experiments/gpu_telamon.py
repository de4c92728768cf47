"""The tables 2 and 3 of Telamon on a GPU: explorations with several seeds beside cuBLAS, and what the bound prunes.

    python -m kernelscape.experiments.gpu_telamon [--seeds 3] [--seconds 20] [--minutes 20] [--again]

Each exploration is made and compared as a row of experiments.gpu_table, and kept: those of the same sources are not made again, and
none begins that would not end within --minutes. Nodes are counted when all explorations are there. Writes
experiments/results/gpu_telamon.md after each; with --target emulator the same goes on without a GPU, into gpu_telamon_emulator.
The exit status is 1 when an exploration fails, 3 without a GPU.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from . import gpu_table
from .gpu_stamp import device_text, gpu_machine, gpu_stamp, why_not
from .paper_rows import explorations_row, gpu_space, pruned, size_of
from .paper_tables import FULL, KERNELS
from .paper_text import EXPLORATION, PRUNING
from .rows import Job, Row, table_of
from .sampling import generator_hash
from .writing import parser_of, read_results, write_results

FILE = "gpu_telamon"
_EFFORT = replace(FULL, descents=400, depth=8, nodes=100_000)

HOW = """Means over explorations with different seeds, each compared with cuBLAS (the faster of CuPy and torch) round by round; ± is
the 95 % interval (Student) over explorations, deviation the largest of one exploration from the mean. Dead ends are the share of
uniform random descents."""


@dataclass(frozen=True)
class TelamonOptions:
    """Options of the tables."""

    target: str = "cuda"
    seconds: float | None = 20.0  # of each exploration
    seeds: int = 3
    rounds: int = 3
    evaluations: int | None = None  # end each exploration, too


def file_of(target: str) -> str:
    return FILE if target == "cuda" else f"{FILE}_{target}"


class Tables:
    """The tables of one machine: explorations that are kept, those that are missing, and counts of nodes."""

    def __init__(
        self, options: TelamonOptions, folder: Path | None = None, jobs: Sequence[Job] = KERNELS
    ) -> None:
        self.options, self._folder, self._jobs = options, folder, jobs
        self._file, self._machine = file_of(options.target), gpu_machine(options.target)
        stored = read_results(self._file, folder, self._machine)
        self.values: dict[str, Any] = {"runs": [], "telamon": [], "pruning": []} | stored

    def missing(self, again: bool = False) -> list[tuple[int, Job]]:
        """Seeds and kernels that are to be explored: of all kernels with the first seed first."""
        there = {(r["options"]["seed"], Job.of(r).key) for r in self._runs()}
        wanted = product(range(1, self.options.seeds + 1), self._jobs)
        return [(seed, job) for seed, job in wanted if again or (seed, job.key) not in there]

    def is_counted(self) -> bool:
        """Returns whether the nodes are counted for the sources as they are."""
        return self.values.get("counted") == generator_hash()

    def make(self, end_s: float, again: bool = False) -> None:
        """Makes what is missing before `end_s` of the monotonic clock, writing after each."""
        left, extra_s = self.missing(again), list[float]()
        while left:
            seed, job = left[0]
            started_s = time.monotonic()
            budget_s = gpu_table.search_s(
                end_s - started_s, len(left), extra_s, self.options.seconds
            )
            if budget_s == 0:
                print(f"no time left for {len(left)} explorations: run this again", flush=True)
                return
            made = gpu_table.QUESTION.child(
                job,
                gpu_table.GpuRowOptions(
                    self.options.target,
                    budget_s,
                    self.options.rounds,
                    seed,
                    evaluations=self.options.evaluations,
                ),
            )
            extra_s.append(max(0.0, time.monotonic() - started_s - budget_s))
            self._keep_run(made)
            print(f"{job.key}, seed {seed}: {made.get('why', 'explored')}", flush=True)
            left.pop(0)
        has_all = all(self._runs_of(job) for job in self._jobs)
        if has_all and not self.is_counted() and time.monotonic() < end_s:
            self._count()

    def failed(self) -> list[str]:
        """A sentence for each exploration that failed."""
        return [
            f"{Job.of(r).key}, seed {r['options']['seed']} failed: {r['why']}"
            for r in self.values["runs"]
            if r["status"] != "ok"
        ]

    def _runs(self) -> Iterator[Row]:
        """The good explorations of the sources as they are."""
        for r in self.values["runs"]:
            if r["status"] == "ok" and r["generator"] == generator_hash():
                yield r

    def _keep_run(self, made: Row) -> None:
        def key(r: Row) -> tuple[str, int]:
            return Job.of(r).key, r["options"]["seed"]

        others = [r for r in self.values["runs"] if key(r) != key(made)]
        self.values["runs"] = [*others, made]
        self._write()

    def _count(self) -> None:
        """Counts implementations and nodes, which needs the facts of the GPU and no launch."""
        sizes, counted = {}, []
        for job in self._jobs:
            space = gpu_space(job, _EFFORT.seed, self.options.target)
            sizes[job.key] = size_of(space, _EFFORT)
            cut_ns = explorations_row(job, self._runs_of(job), "cublas")["best_ns"]["mean"]
            counted.append(pruned(job, space, cut_ns, sizes[job.key], _EFFORT))
        self.values |= {"sizes": sizes, "pruning": counted, "counted": generator_hash()}
        self._write()

    def _runs_of(self, job: Job) -> list[Row]:
        return [r for r in self._runs() if Job.of(r).key == job.key]

    def _write(self) -> None:
        rows = [
            explorations_row(job, runs, "cublas")
            for job in self._jobs
            if (runs := self._runs_of(job))
        ]
        sizes = self.values.get("sizes", {})
        self.values["telamon"] = [r | {"size": sizes.get(Job.of(r).key)} for r in rows]
        self.values |= {"stamp": gpu_stamp(self.options.target), "target": self.options.target}
        write_results(self._file, report, self.values, self._folder, self._machine)


def _when_counted(cell: Callable[[Row], str]) -> Callable[[Row], str]:
    """A cell of the size of a space, which is counted when all explorations are there."""
    return lambda r: "–" if r["size"] is None else cell(r)


def report(values: dict[str, Any]) -> str:
    """The tables as Markdown."""
    explorations = dict(EXPLORATION.columns)
    explorations["cuBLAS"] = explorations.pop("NumPy")
    for head in ("space size", "dead ends"):
        explorations[head] = _when_counted(explorations[head])
    blocks = ["# The tables of Telamon, on a GPU"]
    if values["target"] != "cuda":
        blocks.append("**Made on the emulator: it shows that the tables are made, and no speed.**")
    blocks += [device_text(values["stamp"]), f"## {EXPLORATION.heading}", HOW]
    blocks.append(table_of(explorations, values["telamon"]))
    if values["pruning"]:
        blocks += [f"## {PRUNING.heading}", PRUNING.text]
        blocks.append(table_of(PRUNING.columns, values["pruning"]))
    return "\n\n".join(blocks) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each exploration")
    parser.add_argument("--minutes", type=float, default=20.0, help="of everything")
    parser.add_argument("--target", choices=("cuda", "emulator"), default="cuda")
    parser.add_argument("--again", action="store_true", help="also what is there already")
    given = parser.parse_args(arguments)
    if min(given.seeds, given.seconds, given.minutes) <= 0:
        parser.error("--seeds, --seconds and --minutes must be positive")
    end_s = time.monotonic() + 60 * given.minutes
    if absent := why_not(given.target):
        print(f"{FILE}: {absent}", file=sys.stderr)
        return 3
    tables = Tables(TelamonOptions(given.target, given.seconds, given.seeds), given.results)
    tables.make(end_s, given.again)
    print("\n".join(tables.failed()) or "no exploration failed")
    return 1 if tables.failed() else 0


if __name__ == "__main__":
    sys.exit(main())
