"""Are calls, sparse loops, bodies in lanes and the search's own thinking as fast as in an earlier version?

    python -m kernelscape.experiments.earlier --before REV_OR_FOLDER [--only calls sparse] [--rounds 3]

The two versions take turns; the one that begins a round ends the next. Each measurement is a process of its own with an empty cache
of kernels. Writes experiments/results/earlier.md after each part; parts that are not named by `--only` stay as they are. Three
rounds take 10 minutes. Sequences that were searched are the subject of `versions`.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import kernel_calls, lanes, sparse
from .conditions import stamp, stamp_text
from .measuring import median
from .turns import run_text
from .versions import ROOT, checkout, imports
from .writing import parser_of, read_results, table, write_results

FILE = "earlier"
LIMIT_S = 400.0  # of one process
_SIZE = "256"  # cells along an axis of the sparse programs
_TIMES = ("build_ms", "root_ms", "descent_ms", "bound_us", "text_ms")  # of think_speed
Found = dict[str, float]


def _calls(folder: Path) -> Found:
    """Seconds until a first call returns, and of the calls behind it."""
    cold, warm = (kernel_calls.run_one("kernelscape", sys.executable, folder) for _ in range(2))
    found = {}
    for name, way in (("nothing compiled", cold), ("from the cache", warm)):
        found[f"from the start to the first result, {name}"] = way["process"]
        found[f"the first call alone, {name}"] = way["first"]
    return found | {f"a call: {way}": warm[way] for way in kernel_calls.CALLS}


def _sparse(folder: Path) -> Found:
    """Nanoseconds a cell."""
    cache = str(folder / "cache")
    return {
        name: run_text(
            sys.executable, text, folder, LIMIT_S, "kernelscape", _SIZE, XDG_CACHE_HOME=cache
        )["ns"]
        for name, text in sparse.PROGRAMS.items()
    }


def _lanes(folder: Path) -> Found:
    """Seconds a call."""
    return {
        name: lanes.run_one("in lanes", sys.executable, name, folder)["seconds"]
        for name in lanes.PROGRAMS
    }


def _thinking(folder: Path) -> Found:
    """Geometric means over the sequences of the library: of times, and of the time of a propagation."""
    command = [sys.executable, "-m", "kernelscape.experiments.think_speed"]
    command += ["--results", str(folder), "--descents", "60", "--walks", "100"]
    # Its exit status says whether its own limits are kept, which is not the question here.
    subprocess.run(command, cwd=folder, capture_output=True, timeout=LIMIT_S)
    (file,) = folder.rglob("think_speed.*.json")
    rows = json.loads(file.read_text())["rows"]
    found = {}
    for name in _TIMES:
        values = [r[name]["median"] if isinstance(r[name], dict) else r[name] for r in rows]
        found[name.rsplit("_", 1)[0]] = _geometric(values)
    return found | {"propagation": _geometric([1 / r["propagations_per_s"] for r in rows])}


PARTS: Mapping[str, Callable[[Path], Found]] = {
    "calls": _calls,
    "sparse": _sparse,
    "lanes": _lanes,
    "thinking": _thinking,
}


def measure(part: str, before: Path, rounds: int) -> dict[str, list[Sequence[float]]]:
    """The values of (earlier, this) version, by name: a pair a round."""
    pairs: dict[str, list[Sequence[float]]] = defaultdict(list)
    for k in range(rounds):
        order = [before, ROOT][:: 1 if k % 2 else -1]
        found = {package: _in_package(package, PARTS[part]) for package in order}
        for name, value in found[ROOT].items():
            pairs[name].append((found[before][name], value))
    return dict(pairs)


def _in_package(package: Path, once: Callable[[Path], Found]) -> Found:
    with (
        tempfile.TemporaryDirectory(prefix="kernelscape-earlier-") as folder,
        _environment(imports(package)),
    ):
        return once(Path(folder))


@contextmanager
def _environment(words: Mapping[str, str]) -> Iterator[None]:
    """Processes that begin inside have these variables, too."""
    former = dict(os.environ)
    os.environ.update(words)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(former)


def _geometric(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _ratios(pairs: Sequence[Sequence[float]]) -> list[float]:
    return [now / before for before, now in pairs]


def report(values: dict[str, Any]) -> str:
    """The results as Markdown."""
    blocks = ["# Is this version as fast as an earlier one?", stamp_text(values["stamp"])]
    blocks.append(
        f"Times of this version over those of {values['before']} (below 1: this version is faster): the median of"
        f" {values['rounds']} rounds, in which both took turns, and each of them. The mean of a part is geometric."
    )
    for part, found in values["parts"].items():
        body = []
        for name, pairs in found.items():
            ratios = _ratios(pairs)
            each = " ".join(f"{x:.2f}" for x in ratios)
            body.append([name, f"{median(ratios):.2f}", each])
        mean = _geometric([median(_ratios(pairs)) for pairs in found.values()])
        body.append(["mean", f"{mean:.2f}", ""])
        blocks += [f"## {part}", table(["", "ratio", "each round"], body)]
    return "\n\n".join(blocks) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--before", required=True, help="a revision, or a folder with it")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    former = read_results(FILE, given.results).get("parts", {})
    with checkout(given.before) as before:
        for part in given.only:
            former[part] = measure(part, before, given.rounds)
            values = {
                "stamp": stamp(None),
                "before": given.before,
                "rounds": given.rounds,
                "parts": former,
            }
            print(f"{part}: {write_results(FILE, report, values, given.results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
