"""What does a call of a small kernel cost, and how soon does the first one return, here and in Taichi and quadrants?

    python -m kernelscape.experiments.kernel_calls [--taichi PYTHON] [--quadrants PYTHON] [--rounds 7]

Each PYTHON is the interpreter of an environment that has the library. All take turns: in each round every one of them runs in a
process of its own, first with nothing compiled before, then with what that left. Writes experiments/results/kernel_calls.md;
half a minute a round.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .conditions import moment, stamp, stamp_text
from .turns import pythons_of, run_text, turns_parser
from .writing import table, time_text, write_results

FILE = "kernel_calls"
LIMIT_S = 120.0  # of one process
WAYS = ("first", "cached", "process", "process_cached", "field", "number", "array")
CALLS = WAYS[4:]
_HEADS = (
    "first call, nothing compiled",
    "from the cache",
    "from the start of the process, nothing compiled",
    "from the cache",
    "a call",
    "with a number",
    "with an array",
)

# Words that all three have; names are of the module `t`.
_PROGRAM = """
import json, os, sys, time
import numpy as np
import {module} as t
t.init(arch=t.cpu, **{settings})
x = t.field(t.f32, shape=16)

@t.kernel
def plain():
    for i in x:
        x[i] += 1.0

@t.kernel
def number(a: t.f32):
    for i in x:
        x[i] += a

@t.kernel
def array(y: t.types.ndarray(), a: t.f32):
    for i in range(16):
        y[i] += a

began = time.perf_counter()
plain()
assert x[3] == 1.0
found = {{"first": time.perf_counter() - began, "process": time.time() - float(os.environ["BEGAN"])}}
y = np.zeros(16, np.float32)
for name, call in (("field", plain), ("number", lambda: number(1.0)), ("array", lambda: array(y, 1.0))):
    call()
    time.sleep(1.0)  # what is compiled beside is there
    call()
    times = []
    for _ in range(15):
        began = time.perf_counter()
        for _ in range(500):
            call()
        times.append((time.perf_counter() - began) / 500)
    found[name] = sorted(times)[len(times) // 2]
print(json.dumps(found))
"""


def run_one(module: str, python: str, folder: Path) -> dict[str, float]:
    """Seconds of each way, in one process. Raises RuntimeError."""
    cache, place = folder / "cache", folder / "program"
    settings = {} if module == "kernelscape" else {"offline_cache_file_path": str(cache / module)}
    place.mkdir(exist_ok=True)
    text = _PROGRAM.format(module=module, settings=settings)
    began = repr(time.time())
    return run_text(python, text, place, LIMIT_S, XDG_CACHE_HOME=str(cache), BEGAN=began)


def measure(pythons: Mapping[str, str], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds by module and way, one a round."""
    found: dict[str, dict[str, list[float]]] = {m: {w: [] for w in WAYS} for m in pythons}
    for _ in range(rounds):
        for module, python in pythons.items():
            with tempfile.TemporaryDirectory(prefix="kernelscape-calls-") as folder:
                cold = run_one(module, python, Path(folder))
                warm = run_one(module, python, Path(folder))
            found[module]["first"].append(cold["first"])
            found[module]["cached"].append(warm["first"])
            found[module]["process"].append(cold["process"])
            found[module]["process_cached"].append(warm["process"])
            for way in CALLS:
                found[module][way].append(warm[way])
    return found


def _conditions(values: Mapping[str, Any]) -> list[str]:
    """When the last round ended, and what was measured beside us; the values of former versions do not say."""
    if "ended" not in values:
        return []
    others = ", ".join(f"{name} {version}" for name, version in values["versions"].items())
    return [
        f"- ended {values['ended']['taken']}, load {values['ended']['load_1min']:.1f} at that moment;"
        f" at most {values['limit_s']:.0f} s a process",
        f"- beside {others or 'nobody'}",
    ]


def report(values: dict[str, Any]) -> str:
    """The results as Markdown."""
    body = []
    for module, ways in values["seconds"].items():
        cells = []
        for way in WAYS:
            times = ways.get(way)
            if times is None:  # of a former version
                cells.append("–")
                continue
            middle = statistics.median(times)
            spread = (max(times) - min(times)) / 2 / middle
            cells.append(f"{time_text(middle * 1e9)} +- {100 * spread:.0f} %")
        body.append([module, *cells])
    return "\n".join(
        [
            "# Calls of small kernels",
            "",
            stamp_text(values["stamp"]),
            *_conditions(values),
            f"- A field of 16 floats; medians of {values['rounds']} rounds and half of their range, all libraries in turn.",
            "- First calls include reading back one element, and not what comes before: importing, `init`, the field, decorators."
            " From the start of the process all of it counts, and Python and NumPy.",
            "",
            table(["library", *_HEADS], body),
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = turns_parser(__doc__, 7, libraries=("taichi", "quadrants"))
    given = parser.parse_args(arguments)
    asked = {"taichi": given.taichi, "quadrants": given.quadrants}
    pythons, versions = pythons_of(parser, asked, "kernelscape")
    values = {
        "stamp": stamp(),
        "versions": versions,
        "limit_s": LIMIT_S,
        "rounds": given.rounds,
        "seconds": measure(pythons, given.rounds),
        "ended": moment(),
    }
    print(write_results(FILE, report, values, given.results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
