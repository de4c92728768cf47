"""All that a GPU is asked, in five pieces of at most five minutes, those worth most first; each goes on where it stopped.

    python -m kernelscape.experiments.gpu [PIECE ...] [--minutes 5] [--target cuda]

contracts  the contract tests of the CUDA backend (experiments.gpu_contracts)
missed     rows of experiments.gpu_table that failed or missed their goals, on this machine or, where it has none, on another
sparse     sequences on sparse fields (experiments.gpu_sparse)
telamon    the tables 2 and 3 of Telamon, three seeds (experiments.gpu_telamon)
rest       200 random candidates under compute-sanitizer, random bodies and programs on trees, then the other rows of gpu_table

What was made with the sources as they are is not made again, so the same command goes on with what is left. Results are kept by
machine. With --target emulator all but contracts and the checks of `rest` goes on without a GPU, slowly. The exit status is 1 when
something is missed or left, 3 without a GPU.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..runtime.device import open_device
from . import (
    gpu_contracts,
    gpu_sanitizer,
    gpu_sparse,
    gpu_table,
    gpu_telamon,
    random_bodies,
    sparse_trees,
)
from .gpu_goals import all_jobs, verdicts
from .gpu_stamp import why_not
from .rows import Job, Row
from .sampling import generator_hash
from .sparse_sequences import PROGRAMS
from .writing import all_results, parser_of, read_results

_SANITIZED = 200  # candidates
_CHECKED = 400  # random bodies, and programs on trees
_CHECK_SHARE = 0.3  # of the time of `rest`, for each of its three checks


@dataclass(frozen=True)
class Asked:
    """Request for a piece: the target, the end on the monotonic clock, and the folder of the results."""

    target: str
    end_s: float
    folder: Path | None = None

    @property
    def left_s(self) -> float:
        return max(0.0, self.end_s - time.monotonic())


def missed_jobs(rows: Sequence[Row], elsewhere: Sequence[Row]) -> list[Job]:
    """Rows that failed, or missed a goal with other sources than these; those that are not there count as `elsewhere`."""
    here = {Job.of(r).key: r for r in rows}
    others = {Job.of(r).key: r for r in elsewhere}

    def is_missed(job: Job) -> bool:
        r = here.get(job.key)
        if r is None:
            r = others.get(job.key)
        elif r["status"] == "ok" and r.get("generator") == generator_hash():
            return False
        return r is not None and any(v.is_met is False for v in verdicts([r]))

    return [job for job in all_jobs() if is_missed(job)]


def other_jobs(rows: Sequence[Row]) -> list[Job]:
    """Rows of the table that are not there, then those of other sources."""
    here = {Job.of(r).key: r for r in rows}
    absent = [job for job in all_jobs() if job.key not in here]
    stale = [
        j for j in all_jobs() if j.key in here and here[j.key].get("generator") != generator_hash()
    ]
    return absent + stale


def contracts(asked: Asked) -> list[str]:
    """Runs the contract tests; those that failed. Pieces return sentences on what is missed or left."""
    if asked.target != "cuda" or gpu_contracts.is_passed(asked.folder):
        return []
    return gpu_contracts.make(asked.left_s, asked.folder)


def missed(asked: Asked) -> list[str]:
    """Makes rows of the table that are known to miss their goals."""
    table = gpu_table.table_of(asked.target, asked.folder)
    elsewhere = [r for v in all_results(table.file, asked.folder) for r in v["rows"]]
    return _table_rows(asked, missed_jobs(table.stored()["rows"], elsewhere))


def sparse(asked: Asked) -> list[str]:
    """Makes the rows of sequences on sparse fields."""
    options = gpu_sparse.SparseOptions(asked.target)
    names = gpu_sparse.missing(asked.target, list(PROGRAMS), asked.folder, again=False)
    failed = gpu_sparse.make(names, options, asked.end_s, asked.folder)
    left = gpu_sparse.missing(asked.target, list(PROGRAMS), asked.folder, again=False)
    return failed + [f"{name} is not made" for name in left]


def telamon(asked: Asked) -> list[str]:
    """Makes the tables of Telamon."""
    tables = gpu_telamon.Tables(gpu_telamon.TelamonOptions(asked.target), asked.folder)
    tables.make(asked.end_s)
    left = [f"{job.key}, seed {seed} is not explored" for seed, job in tables.missing()]
    left += [] if tables.is_counted() else ["nodes are not counted"]
    return tables.failed() + left


def rest(asked: Asked) -> list[str]:
    """Checks random candidates, then makes the other rows of the table."""
    lines: list[str] = []
    if asked.target == "cuda":
        lines += _checks(asked)
    table = gpu_table.table_of(asked.target, asked.folder)
    return lines + _table_rows(asked, other_jobs(table.stored()["rows"]))


def _checks(asked: Asked) -> list[str]:
    """Random candidates under the sanitizer, and beside the interpreter; sentences on what is wrong."""
    lines: list[str] = []
    share_s = _CHECK_SHARE * asked.left_s
    tool = gpu_sanitizer.TOOLS[0]
    if why := gpu_sanitizer.absent():
        lines.append(f"no candidate was sanitized: {why}")
    elif not gpu_sanitizer.is_done(_SANITIZED, tool, asked.folder):
        lines += gpu_sanitizer.make(_SANITIZED, tool, share_s, asked.folder)
    for way in ("cuda", "steps-cuda"):
        n_wrong = random_bodies.run(way, _CHECKED, share_s / 2, asked.folder)
        pieces = read_results(random_bodies.FILE, asked.folder).get("pieces", [])
        n = sum(p["bodies"] for p in pieces if p["way"] == way)
        lines += _checked(f"random bodies ({way})", n, n_wrong)
    n_wrong = sparse_trees.run_sequences(("cuda",), _CHECKED, 1, share_s, asked.folder)
    found = read_results(sparse_trees.FILE, asked.folder).get("ways", {}).get("cuda", {})
    n = sum(p["programs"] for p in found.get("pieces", []))
    return [*lines, *_checked("programs on sparse trees", n, n_wrong)]


def _checked(what: str, n: int, n_wrong: int) -> list[str]:
    """Returns sentences on those that are wrong, and on those that are left."""
    wrong = [f"{n_wrong} {what} are wrong"] if n_wrong else []
    return wrong + ([f"only {n} of {_CHECKED} {what} were checked"] if n < _CHECKED else [])


def _table_rows(asked: Asked, jobs: Sequence[Job]) -> list[str]:
    """Makes rows of the table; what they miss, and which are left."""
    table = gpu_table.table_of(asked.target, asked.folder)
    options = gpu_table.GpuRowOptions(asked.target)
    made = gpu_table.make_table(table, jobs, options, asked.end_s)
    now = {Job.of(r).key: r for r in made["rows"] if r.get("generator") == generator_hash()}
    lines = [
        v.text for j in jobs if j.key in now for v in verdicts([now[j.key]]) if v.is_met is False
    ]
    return lines + [f"{j.key} is not made" for j in jobs if j.key not in now]


PIECES: dict[str, Callable[[Asked], list[str]]] = {
    "contracts": contracts,
    "missed": missed,
    "sparse": sparse,
    "telamon": telamon,
    "rest": rest,
}


def run(names: Sequence[str], target: str, minutes: float, folder: Path | None) -> dict[str, Any]:
    """Makes pieces in turn; the sentences of each on what it misses or leaves."""
    said: dict[str, Any] = {}
    for name in names:
        started_s = time.monotonic()
        said[name] = PIECES[name](Asked(target, started_s + 60 * minutes, folder))
        took = f"{time.monotonic() - started_s:.0f} s"
        print(
            f"{name} ({took}): {len(said[name])} missed or left",
            *said[name],
            sep="\n  ",
            flush=True,
        )
    return said


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("pieces", nargs="*", metavar="PIECE", help=", ".join(PIECES))
    parser.add_argument("--minutes", type=float, default=5.0, help="of each piece")
    parser.add_argument("--target", choices=("cuda", "emulator"), default="cuda")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.pieces if name not in PIECES]:
        parser.error(f"there is no piece {unknown[0]}: there are {', '.join(PIECES)}")
    if given.minutes <= 0:
        parser.error("--minutes must be positive")
    if absent := why_not(given.target):
        print(f"gpu: {absent}", file=sys.stderr)
        return 3
    if not open_device(given.target).machine.facts().calibrated:
        print(gpu_table.calibrate(given.target), flush=True)
    said = run(given.pieces or [*PIECES], given.target, given.minutes, given.results)
    return 1 if any(said.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
