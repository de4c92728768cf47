"""How soon does a search show something: its first candidate, the best after 1, 2 and 5 s beside NumPy, and the first run ever.

    python -m kernelscape.experiments.first_results [--only matmul:m=1024,n=1024,k=1024 vadd:n=67108864] [--beside DIR] [--cold]

`--beside` names a folder that holds another version as `kernelscape` (git worktree add DIR/kernelscape REVISION): each work is
searched by both, in turn. With `--cold` each version compiles itself first, into an empty cache. Writes
experiments/results/first_results.md. The exit status is 1 when a search finds nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..cli.settings import parse_sizes
from .conditions import stamp, stamp_text
from .writing import table, time_text, write_results

AFTER_S = (1.0, 2.0, 5.0)
_WORKS = ("matmul:m=1024,n=1024,k=1024", "vadd:n=67108864")
_LIMIT_S = 240.0  # of one process

# It uses only what older versions have as well.
_CHILD = """
import json, sys, tempfile, time
from kernelscape.explorer.entry import explore_workload, library_workload
from kernelscape.explorer.workload import Options
from kernelscape.kernels.library import load
name, sizes, seconds = sys.argv[1], json.loads(sys.argv[2]), float(sys.argv[3])
workload = library_workload(load(name), sizes, "f32", 1)
started_s, found = time.monotonic(), []
def hear(event):
    if type(event).__name__ == "NewIncumbent":
        found.append((time.monotonic() - started_s, event.best.time_ns))
with tempfile.TemporaryDirectory() as folder:
    options = Options(time_limit_s=seconds, store=False)
    run = explore_workload(workload, options, directory=folder + "/run", on_event=hear)
ended = run.ended
print(json.dumps({"found": found, "best_ns": ended.best and ended.best.time_ns, "numpy_ns": ended.references.numpy_ns}))
"""
_COMPILE = """
import time
started_s = time.monotonic()
from kernelscape.cli.commands import explore
explore(["--quiet", "show", "axpydot", "--size", "n=1000", "--descents", "0"], standalone_mode=False)
print(time.monotonic() - started_s)
"""


@dataclass(frozen=True)
class Found:
    """What one search showed; seconds count from its start, when its arguments are there."""

    work: str
    version: str  # "this" or "other"
    first_s: float | None  # to the first verified time
    after_ns: tuple[float | None, ...]  # the best after each of AFTER_S
    best_ns: float | None
    numpy_ns: float | None


def _run(code: str, arguments: Sequence[str], place: Path | None, cache: str | None = None) -> str:
    """The last line that a version prints, a fresh process."""
    environment = dict(os.environ)
    if place is not None:
        environment["PYTHONPATH"] = os.fspath(place)
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = cache
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=True,
    )
    return done.stdout.splitlines()[-1]


def cold_s(place: Path | None) -> float:
    """Seconds that a version takes to say what a space is when nothing of it is compiled."""
    with tempfile.TemporaryDirectory() as cache:
        return float(_run(_COMPILE, (), place, cache))


def search(work: str, version: str, place: Path | None, seconds: float) -> Found:
    """What one search of a work shows."""
    name, _, sizes = work.partition(":")
    arguments = (name, json.dumps(parse_sizes([sizes])), str(seconds))
    told = json.loads(_run(_CHILD, arguments, place))
    found = told["found"]
    after_ns = tuple(min((ns for at_s, ns in found if at_s <= s), default=None) for s in AFTER_S)
    first_s = found[0][0] if found else None
    return Found(work, version, first_s, after_ns, told["best_ns"], told["numpy_ns"])


def report(values: dict[str, Any]) -> str:
    """The table as Markdown."""
    rows = [Found(**r) for r in values["rows"]]
    heads = ["work", "version", "first after", *(f"best after {s:g} s" for s in AFTER_S)]
    body = [
        [
            r.work,
            r.version,
            "–" if r.first_s is None else f"{r.first_s:.1f} s",
            *map(time_text, r.after_ns),
            time_text(r.best_ns),
            time_text(r.numpy_ns),
        ]
        for r in rows
    ]
    lines = ["# What a search shows first", "", stamp_text(values["stamp"]), ""]
    lines += [table([*heads, "best", "NumPy"], body), ""]
    lines += [
        f"- first run ever, {version} version: {s:.1f} s" for version, s in values["cold_s"].items()
    ]
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", nargs="*", default=_WORKS, help="NAME:m=8,n=8")
    parser.add_argument("--beside", type=Path, help="folder with another version")
    parser.add_argument("--cold", action="store_true", help="compile from nothing first")
    parser.add_argument("--seconds", type=float, default=12.0, help="of each search")
    parser.add_argument("--results", type=Path, help="folder of the results")
    given = parser.parse_args(arguments)
    places: dict[str, Path | None] = {"this": None}
    if given.beside is not None:
        places["other"] = given.beside.resolve()
    cold = {version: cold_s(place) for version, place in places.items()} if given.cold else {}
    rows = [
        search(work, version, place, given.seconds)
        for work in given.only
        for version, place in places.items()
    ]
    values = {"stamp": stamp(), "cold_s": cold, "rows": [asdict(r) for r in rows]}
    print(write_results("first_results", report, values, given.results))
    return int(any(r.best_ns is None for r in rows))


if __name__ == "__main__":
    sys.exit(main())
