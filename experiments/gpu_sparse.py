"""How fast are sequences on sparse fields on a GPU, explored, beside the same kernels one by one, and Taichi?

    python -m kernelscape.experiments.gpu_sparse [--peer NAME=PYTHON ...] [--only NAME ...] [--seconds 30] [--minutes 20] [--again]

The programs are those of experiments.sparse_sequences. Rows that are there of the same sources are kept unless --again is given,
and none begins that would not end within --minutes. Writes experiments/results/gpu_sparse.md after every row; with --target
emulator the same goes on without a GPU, into gpu_sparse_emulator. The exit status is 1 when a row fails, 3 without a GPU.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .gpu_stamp import device_text, gpu_machine, gpu_stamp, why_not
from .sampling import backend_hash
from .sparse_sequences import PLAIN, PROGRAMS, measure
from .turns import pythons_of, turns_parser
from .writing import read_results, table, time_text, write_results

FILE = "gpu_sparse"
_CPU = "CPU"  # the same kernels as C
_EXTRA_S = 60.0  # that a row takes beside its search, until rows have told

PROTOCOL = """"found" is the time of a period as the search measured its best, "default" of the default decisions, both between
events on the device. Kernels called one by one, ours and those of peers, are timed by the wall clock around periods and a `sync`,
the least of the rounds. Loops and lists: what is left to run in a period. Results
are compared with those of the same kernels on the CPU."""


@dataclass(frozen=True)
class SparseOptions:
    """Options of the rows."""

    target: str = "cuda"
    seconds: float = 30.0
    rounds: int = 2
    shrink: int = 1
    peers: Mapping[str, str] = field(default_factory=dict)


def file_of(target: str) -> str:
    return FILE if target == "cuda" else f"{FILE}_{target}"


def missing(target: str, names: Sequence[str], folder: Path | None, again: bool) -> list[str]:
    """The programs that have no row of these sources, or whose row failed."""
    there = read_results(file_of(target), folder, gpu_machine(target)).get("found", {})

    def is_there(name: str) -> bool:
        made = there.get(name, {})
        return bool(made.get("status") == "ok" and made["sources"] == backend_hash())

    return [name for name in names if again or not is_there(name)]


def make(
    names: Sequence[str], options: SparseOptions, end_s: float, folder: Path | None = None
) -> list[str]:
    """Makes rows before `end_s` of the monotonic clock, writing after each; a sentence for each that failed."""
    machine, extra_s = gpu_machine(options.target), _EXTRA_S
    stored: dict[str, Any] = {"found": {}} | read_results(file_of(options.target), folder, machine)
    for at, name in enumerate(names):
        started_s = time.monotonic()
        if end_s - started_s < options.seconds + extra_s:
            print(f"no time left for {len(names) - at} programs: run this again", flush=True)
            break
        made = _row(name, options)
        stored["found"][name] = made
        stored |= {"stamp": gpu_stamp(options.target), "options": _told(options)}
        write_results(file_of(options.target), report, stored, folder, machine)
        extra_s = max(_EXTRA_S / 4, time.monotonic() - started_s - options.seconds)
        print(f"{name}: {made.get('why') or time_text(made['best_ns'])}", flush=True)
    return [
        f"{name} failed: {r['why']}" for name, r in stored["found"].items() if r["status"] != "ok"
    ]


def _told(options: SparseOptions) -> dict[str, Any]:
    """The options that the page says; of peers the names."""
    asked = ("target", "seconds", "rounds", "shrink")
    return {k: getattr(options, k) for k in asked} | {"peers": [*options.peers]}


def _row(name: str, options: SparseOptions) -> dict[str, Any]:
    """The row of one program: its times and counts, or the reason of its failure."""
    row: dict[str, Any] = {"sources": backend_hash(), "seconds": options.seconds}
    with TemporaryDirectory(prefix="kernelscape-sparse-") as scratch:
        given = (options.shrink, Path(scratch), options.seconds)
        try:
            on_cpu = measure({}, name, PROGRAMS[name], 1, (options.shrink, Path(scratch), 0.0))
            found = measure(
                options.peers, name, PROGRAMS[name], options.rounds, given, options.target
            )
        except RuntimeError as e:
            return row | {"status": "failed", "why": str(e)}
    explored = found["explored"]
    if explored["best_ns"] is None:
        said = ", ".join(f"{n} {kind}" for kind, n in explored["failures"].items()) or "no failures"
        return row | {"status": "failed", "why": f"nothing valid was found ({said})"}
    called = {way: min(r["wall_us"] for r in runs) for way, runs in found["runs"].items()}
    results = {way: runs[-1]["result"] for way, runs in found["runs"].items()}
    results[_CPU] = on_cpu["runs"][PLAIN][-1]["result"]
    made = {"search_status": explored["status"], "called_us": called, "results": results}
    return {**row, **explored, **made, "status": "ok"}


def report(values: dict[str, Any]) -> str:
    """The results as Markdown."""
    peers, body = values["options"]["peers"], []
    for name, r in values["found"].items():
        if r["status"] != "ok":
            continue
        called = [
            f"{r['called_us'][way]:.0f} us ({1e3 * r['called_us'][way] / r['best_ns']:.1f}x)"
            if way in r["called_us"]
            else "–"
            for way in (PLAIN, *peers)
        ]
        base = r["results"][_CPU]
        unlike = max(abs(x - base) for x in r["results"].values()) / (abs(base) or 1.0)
        failed = ", ".join(f"{n} {kind}" for kind, n in r["failures"].items()) or "none"
        tasks = [str(r["tasks"][key]) for key in ("loops", "lists")]
        default = "–" if r["default_ns"] is None else time_text(r["default_ns"])
        counts = [str(r["evaluations"]), failed, str(r["alarms"])]
        body.append(
            [name, *tasks, time_text(r["best_ns"]), default, *called, *counts, f"{unlike:.1e}"]
        )
    heads = [
        *("program", "loops", "lists", "found", "default", "called", *peers),
        *("evaluations", "failures", "below bound", "results differ by"),
    ]
    parts = ["# Sequences on sparse fields on a GPU", "", PROTOCOL, ""]
    if values["options"]["target"] != "cuda":
        parts += ["**Made on the emulator: it shows that the table is made, and no speed.**", ""]
    parts += [device_text(values["stamp"]), "", table(heads, body), ""]
    failed_rows = [(name, r) for name, r in values["found"].items() if r["status"] != "ok"]
    parts += [f"- {name} failed: {r['why']}" for name, r in failed_rows]
    return "\n".join(parts).rstrip() + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = turns_parser(__doc__, 2, list(PROGRAMS), libraries=())
    parser.add_argument("--peer", metavar="NAME=PYTHON", action="append", default=[])
    parser.add_argument("--seconds", type=float, default=30.0, help="of each search")
    parser.add_argument("--shrink", type=int, default=1, help="so many times fewer cells")
    parser.add_argument("--minutes", type=float, default=20.0, help="of everything")
    parser.add_argument("--target", choices=("cuda", "emulator"), default="cuda")
    parser.add_argument("--again", action="store_true", help="also rows that are there already")
    given = parser.parse_args(arguments)
    numbers = (given.rounds, given.shrink, given.seconds, given.minutes)
    if min(numbers) <= 0 or not all("=" in p for p in given.peer):
        parser.error(
            "--rounds, --shrink, --seconds and --minutes must be positive, and --peer a name=python"
        )
    end_s = time.monotonic() + 60 * given.minutes
    peers = dict(p.split("=", 1) for p in given.peer)
    pythons_of(parser, peers)
    if absent := why_not(given.target):
        print(f"{FILE}: {absent}", file=sys.stderr)
        return 3
    options = SparseOptions(given.target, given.seconds, given.rounds, given.shrink, peers)
    names = missing(given.target, given.only or list(PROGRAMS), given.results, given.again)
    failed = make(names, options, end_s, given.results)
    print("\n".join(failed) or "no row failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
