"""How fast are loops over sparse fields, beside Taichi?

    python -m kernelscape.experiments.sparse [--taichi PYTHON] [--rounds 3] [--only NAME ...] [--size 256]

PYTHON is the interpreter of an environment with taichi 1.7.4. Each library runs each program in a process of its own, in turn, on
one thread. Takes about a minute a round with Taichi. Writes experiments/results/sparse.md.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .conditions import moment, stamp, stamp_text
from .turns import Found, by_turns, pythons_of, run_text, turns_parser
from .writing import table, write_results

FILE = "sparse"
LIMIT_S = 240.0
OURS = "kernelscape"
CALLS = 21  # of a program in a process, the first of which is not counted

_START = """
import json, sys, time
library, size = sys.argv[1], int(sys.argv[2])
if library == "taichi":
    import taichi as ti
else:
    import kernelscape.compat.taichi as ti
ti.init(arch=ti.cpu, cpu_max_num_threads=1)
x, y = ti.field(ti.f32), ti.field(ti.f32)
low, high = size // 4, 3 * size // 4

def best(call, before=lambda: None):
    seconds = []
    for _ in range(CALLS):
        before()
        begin = time.perf_counter()
        call()
        ti.sync()
        seconds.append(time.perf_counter() - begin)
    return min(seconds[1:])

@ti.kernel
def fill():
    for i, j, k in ti.ndrange((low, high), (low, high), (low, high)):
        x[i, j, k] = 0.1 * i + 0.01 * j + k
        y[i, j, k] = 0.0
"""
_TREE = """
block = ti.root.pointer(ti.ijk, size // LEAF)
block.dense(ti.ijk, LEAF).place(x, y)
fill()
"""
# The active cells of the trees, and what is beside them, as a dense field.
_DENSE = """
at = (low - 1, low - 1, low - 1)
ti.root.dense(ti.ijk, high - low + 2).place(x, offset=at)
ti.root.dense(ti.ijk, high - low + 2).place(y, offset=at)
fill()
"""
_STENCIL = """
@ti.kernel
def stencil():
    for i, j, k in LOOP:
        near = x[i - 1, j, k] + x[i + 1, j, k] + x[i, j - 1, k] + x[i, j + 1, k] + x[i, j, k - 1] + x[i, j, k + 1]
        y[i, j, k] = 0.4 * x[i, j, k] + 0.1 * near

seconds, n = best(stencil), (high - low) ** 3
total = float(y.to_numpy().sum())
"""
_LIST = """
@ti.kernel
def count() -> ti.i32:
    n = 0
    for I in ti.grouped(block):
        n += 1
    return n

@ti.kernel
def change():
    x[0, 0, 0] = 1.0
    ti.deactivate(block, [0, 0, 0])

seconds, n = best(count, change), (size // LEAF) ** 3
total = float(count())
"""
_END = 'print(json.dumps({"ns": seconds / n * 1e9, "n": n, "total": total}))\n'


def _program(text: str, **words: str) -> str:
    """A program, in which words stand for numbers and loops."""
    whole = _START + text + _END
    for word, meaning in {"CALLS": str(CALLS), **words}.items():
        whole = whole.replace(word, meaning)
    return whole


# Programs, with the cells along an axis of their leaves; nanoseconds are for each cell that is active, or looked at for a list.
PROGRAMS: Mapping[str, str] = {
    "7-point stencil, dense field": _program(
        _DENSE + _STENCIL, LOOP="ti.ndrange((low, high), (low, high), (low, high))"
    ),
    "7-point stencil, leaves of 8^3": _program(_TREE + _STENCIL, LEAF="8", LOOP="x"),
    "7-point stencil, leaves of 4^3": _program(_TREE + _STENCIL, LEAF="4", LOOP="x"),
    "list of a pointer node": _program(_TREE + _LIST, LEAF="4"),
}


def measure(
    pythons: Mapping[str, str], names: Sequence[str], rounds: int, size: int, folder: Path
) -> Found:
    """The runs of each program by each library."""

    def once(library: str, python: str, name: str) -> dict[str, Any]:
        return run_text(python, PROGRAMS[name], folder, LIMIT_S, library, str(size))

    return by_turns(pythons, names, rounds, once)


def report(values: dict[str, Any]) -> str:
    """The results as Markdown."""
    body, n_calls = [], values.get("calls", 5)
    for name, ways in values["found"].items():
        times = {
            library: statistics.median(x["ns"] for x in runs) for library, runs in ways.items()
        }
        ours = times[OURS]
        others = [f"{t:.2f} ({t / ours:.1f}x)" for library, t in times.items() if library != OURS]
        sums = [runs[-1]["total"] for runs in ways.values()]
        unlike = max(abs(s / sums[0] - 1) for s in sums)
        body.append([name, f"{ways[OURS][0]['n']:,}", f"{ours:.2f}", *others, f"{unlike:.1e}"])
    heads = ["program", "cells", *values["libraries"], "sums differ by"]
    return "\n".join(
        [
            "# Loops over sparse fields",
            "",
            stamp_text(values["stamp"]),
            f"- ended {values['ended']['taken']}, load {values['ended']['load_1min']:.1f} at that moment",
            f"- Nanoseconds a cell, medians of {values['rounds']} rounds of the best of {n_calls} calls; f32, one thread.",
            "- A pointer node above dense leaves; an eighth of the cells is active. Lists are made anew for each call.",
            "",
            table(heads, body),
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = turns_parser(__doc__, 3, list(PROGRAMS))
    parser.add_argument("--size", type=int, default=256, help="cells along each axis")
    given = parser.parse_args(arguments)
    if given.rounds < 1 or given.size < 32 or given.size % 32:
        parser.error("--rounds must be positive, and --size a multiple of 32")
    pythons, versions = pythons_of(parser, {"taichi": given.taichi}, OURS)
    with TemporaryDirectory() as folder:
        found = measure(
            pythons, given.only or list(PROGRAMS), given.rounds, given.size, Path(folder)
        )
    values = {
        "stamp": stamp(),
        "versions": versions,
        "libraries": list(pythons),
        "rounds": given.rounds,
        "calls": CALLS - 1,
        "found": found,
        "ended": moment(),
    }
    print(write_results(FILE, report, values, given.results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
