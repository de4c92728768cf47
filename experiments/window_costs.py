"""Costs of windows: calls that wait, periods by plans, broken periods, lists that are emptied again and again, long windows.

    python -m kernelscape.experiments.window_costs [--peer NAME=PYTHON ...] [--only calls ...] [--rounds 3] [--piece 6]

PYTHON is the interpreter of an environment with a peer that has Taichi's language. All ways take turns, each in a process of its
own. Rows that are there are kept unless --again is given, and none begins after --piece minutes; all take about five. Writes
experiments/results/window_costs.md after every row. The exit status is 1 where a row fails or a goal is missed.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from .conditions import moment, stamp, stamp_text
from .fresh_caches import fresh_caches
from .program_texts import TEXTS
from .programs import HEAD
from .turns import Found, by_turns, last_said, pythons_of, run_text, turns_parser
from .window_parts import CALLED, DISTINCT, MGPCG, N_CALLS, PLANNED, STEPS
from .writing import read_results, table, write_results

FILE = "window_costs"
LIMIT_S = 300.0  # of one process
HELD_US, PERIOD_US, BROKEN, SOONER = 0.7, 1.0, 1.5, 1.6
ONE, TWO = "one compiler", "as many as cores"
FIRST = ("maccormack", "mgpcg_2d", "mls_mpm")  # programs whose first results are measured
# Windows by name, with their arguments, and the CPU seconds in which they are to be at their roots.
ROOTS: Mapping[str, tuple[tuple[str, int], float]] = {
    "100 distinct kernels": ((DISTINCT, 100), 2.0),
    "250 distinct kernels": ((DISTINCT, 250), 5.0),
    "an iteration of MGPCG": ((MGPCG, 1), 2.0),
}
PARTS = ("calls", "emptied", "compilers", "roots")

# A list that is emptied and filled again and again, behind the head of `programs`.
EMPTIED = """
n = 3000 // shrink
x = ti.field(ti.i32)
cells = ti.root.dynamic(ti.i, 1024, chunk_size=32)
cells.place(x)

@ti.kernel
def append():
    for i in range(16):
        ti.append(x.parent(), [], i)

@ti.kernel
def total() -> ti.i32:
    s = 0
    for i in x:
        s += x[i]
    return s

def periods():
    for _ in range(n):
        cells.deactivate_all()
        append()
    ti.sync()

def n_planned():
    return ks.engine.stats().n_planned if way == "planned" else 0

periods()
until = time.monotonic() + 60  # plans are built beside
while time.monotonic() < until:
    before = n_planned()
    periods()
    if way != "planned" or n_planned() - before >= n:
        break
    time.sleep(0.05)
begin, wall = time.process_time(), time.perf_counter()
periods()
cpu, wall = time.process_time() - begin, time.perf_counter() - wall
print(json.dumps({"cpu_us": cpu / n * 1e6, "wall_us": wall / n * 1e6, "result": total()}))
"""
# A program up to the first result of its first period: before it the head of `programs`.
FIRST_HEAD = "begin = time.perf_counter()\n"
FIRST_TAIL = """
step()
ti.sync()
wall_s = time.perf_counter() - begin
import resource
spent = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({"first_s": wall_s, "compilers_s": spent.ru_utime + spent.ru_stime}))
"""

PROTOCOL = f"""All ways take turns in each round, each in a process of its own. Values are medians of the rounds, with half of their
range. "called" runs kernel by kernel, "planned" holds calls (`ks.init(async_mode=True)`) and runs them by plans.
A period has {N_CALLS} calls on fields of 16 floats; of each process the median period counts. The last call of a period runs it.
Its code are the kernels of its plan, called by Python; beside that the last call takes what a held call takes, and what the engine
adds. Broken periods are timed up to `ks.sync()`: by a call that was never there, by one that was there before, by a read of an
element. A list is emptied and filled by 3,000 periods of `deactivate_all(); append`. First results count from `ks.init` on, with
nothing compiled before; with one compiler the others wait until it is done. Roots are CPU times of one process."""


@dataclass(frozen=True)
class Effort:
    """Size of the measurements. `shrink`: times fewer periods and cells."""

    rounds: int
    periods: int
    breaks: int
    shrink: int


@dataclass(frozen=True)
class Goal:
    """Values of a row's rounds that are to be at most, or at least, `wanted`. `form`: how they are written."""

    values: Sequence[float]
    wanted: float
    form: str
    is_least: bool = False

    @property
    def is_missed(self) -> bool:
        found = median(self.values)
        return found < self.wanted if self.is_least else found > self.wanted

    @property
    def words(self) -> str:
        return f"at {'least' if self.is_least else 'most'} {self.wanted:{self.form}}"


Line = tuple[list[str], Goal | None]
"""Cells of a line of a table, the first of which names it, and its goal."""


# --- rows ----------------------------------------------------------------------------------------


def measure(part: str, peers: Mapping[str, str], effort: Effort) -> Found:
    """Values by program and way, one a round. Raises RuntimeError."""
    with TemporaryDirectory(prefix="kernelscape-windows-") as scratch:
        return _MEASURES[part](Path(scratch), peers, effort)


def _calls(folder: Path, peers: Mapping[str, str], effort: Effort) -> Found:
    numbers = (str(effort.periods), str(effort.breaks))

    def once(way: str, python: str, name: str) -> dict[str, Any]:
        return _own("calls", way, *numbers, folder=folder)

    return by_turns(
        dict.fromkeys((CALLED, PLANNED), sys.executable), ["calls"], effort.rounds, once
    )


def _emptied(folder: Path, peers: Mapping[str, str], effort: Effort) -> Found:
    def once(way: str, python: str, name: str) -> dict[str, Any]:
        return _text(way, python, HEAD + EMPTIED, folder, effort.shrink)

    ways = dict.fromkeys((CALLED, PLANNED), sys.executable) | dict(peers)
    return by_turns(ways, ["emptied"], effort.rounds, once)


def _compilers(folder: Path, peers: Mapping[str, str], effort: Effort) -> Found:
    def once(way: str, python: str, name: str) -> dict[str, Any]:
        with TemporaryDirectory(dir=folder) as empty:  # nothing is compiled before
            path = one_at_a_time(Path(empty)) if way == ONE else {}
            text = HEAD + FIRST_HEAD + TEXTS[name] + FIRST_TAIL
            return _text(CALLED, python, text, Path(empty), effort.shrink, **path)

    ways = dict.fromkeys((ONE, TWO), sys.executable)
    return by_turns(ways, FIRST, effort.rounds, once)


def _roots(folder: Path, peers: Mapping[str, str], effort: Effort) -> Found:
    def once(way: str, python: str, name: str) -> dict[str, Any]:
        (window, size), _ = ROOTS[name]
        cells = size * effort.shrink if window == MGPCG else max(1, size // effort.shrink)
        return _own("roots", window, str(cells), folder=folder)

    return by_turns({CALLED: sys.executable}, list(ROOTS), effort.rounds, once)


_Measure = Callable[[Path, Mapping[str, str], Effort], Found]
_MEASURES: Mapping[str, _Measure] = dict(
    zip(PARTS, (_calls, _emptied, _compilers, _roots), strict=True)
)


def _own(*asked: str, folder: Path) -> dict[str, Any]:
    """Values that a process of `window_parts` measures."""
    command = [sys.executable, "-m", f"{__package__}.window_parts", *asked]
    return last_said(command, LIMIT_S, fresh_caches(folder / "cache"))


def _text(
    way: str, python: str, text: str, folder: Path, shrink: int, **environment: str
) -> dict[str, Any]:
    """Values that a program prints, which begins with the head of `programs`."""
    given = {
        **fresh_caches(folder / "cache"),
        "TI_OFFLINE_CACHE_FILE_PATH": str(folder / "taichi"),
        "QD_OFFLINE_CACHE_FILE_PATH": str(folder / "quadrants"),
        **environment,
    }
    return run_text(
        python, text, folder, LIMIT_S, way, str(shrink), "", "0", "[{}, []]", "[]", **given
    )


def one_at_a_time(folder: Path, name: str = "gcc") -> dict[str, str]:
    """An environment in which one compiler runs at a time, and others wait for it. Raises RuntimeError if there is none."""
    compiler = shutil.which(name)
    if compiler is None or shutil.which("flock") is None:
        raise RuntimeError(f"one compiler at a time needs {name} and flock")
    place = folder / "bin"
    place.mkdir()
    script = place / name
    # The open file holds the lock as long as the compiler or a part of it runs.
    script.write_text(
        f"#!/bin/sh\nexec 9>>'{folder / 'compiler.lock'}'\nflock 9\nexec '{compiler}' \"$@\"\n"
    )
    script.chmod(0o755)
    return {"PATH": f"{place}{os.pathsep}{os.environ['PATH']}"}


# --- the page ------------------------------------------------------------------------------------


def _of(row: Mapping[str, Any], name: str, way: str, key: str) -> list[float]:
    """The values of all rounds."""
    return [x[key] for x in row["found"][name][way]]


def _with_spread(values: Sequence[float], form: str) -> str:
    """The median, and half of the range."""
    return f"{median(values):{form}} ± {(max(values) - min(values)) / 2:{form}}"


def _us(values: Sequence[float]) -> str:
    return f"{_with_spread(values, '.2f')} us"


def _ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(above, below, strict=True)]


def _lines_of_calls(row: Mapping[str, Any]) -> list[Line]:
    def called(key: str) -> list[float]:
        return _of(row, "calls", CALLED, key)

    def planned(key: str) -> list[float]:
        return _of(row, "calls", PLANNED, key)

    rest = [
        last - held - code
        for last, held, code in zip(planned("last"), planned("held"), planned("code"), strict=True)
    ]
    lines: list[Line] = []
    for words, key in (
        ("a call", "held"),
        ("a call with another number each period", "held_number"),
    ):
        goal = Goal(planned(key), HELD_US, ".2f")
        lines.append(([words, _us(called(key)), _us(planned(key)), "–"], goal))
    for words, key in (("the last call of a period", "last"), ("all of a period", "period")):
        ratios = _ratios(planned(key), called(key))
        lines.append(([words, _us(called(key)), _us(planned(key)), _times(ratios)], None))
    lines.append((["the code of its plan", "–", _us(planned("code")), "–"], None))
    lines.append(
        (["the last call beside its code", "–", _us(rest), "–"], Goal(rest, PERIOD_US, ".2f"))
    )
    for words, key in (
        ("a whole period and `ks.sync()`", "whole"),
        ("broken by a new call", "new"),
        ("broken by a call as before", "known"),
        ("broken by a read", "read"),
    ):
        ratios = _ratios(planned(key), called(key))
        goal_of = None if key == "whole" else Goal(ratios, BROKEN, ".2f")
        lines.append(([words, _us(called(key)), _us(planned(key)), _times(ratios)], goal_of))
    return lines


def _times(ratios: Sequence[float]) -> str:
    return _with_spread(ratios, ".2f")


def _lines_of_emptied(row: Mapping[str, Any]) -> list[Line]:
    ways = list(row["found"]["emptied"])
    lines: list[Line] = []
    for way in ways:
        wall, cpu = (_of(row, "emptied", way, key) for key in ("wall_us", "cpu_us"))
        goal, ratio = None, "–"
        if "taichi" in ways and way != "taichi":
            ratios = _ratios(wall, _of(row, "emptied", "taichi", "wall_us"))
            ratio = _times(ratios)
            goal = Goal(ratios, 1.0, ".2f") if way in (CALLED, PLANNED) else None
        results = {x["result"] for x in row["found"]["emptied"][way]}
        total = ", ".join(map(str, sorted(results)))
        lines.append(([way, _us(wall), _us(cpu), total, ratio], goal))
    return lines


def _lines_of_compilers(row: Mapping[str, Any]) -> list[Line]:
    lines: list[Line] = []
    for name in row["found"]:
        one, two = (_of(row, name, way, "first_s") for way in (ONE, TWO))
        busy = _of(row, name, TWO, "compilers_s")
        ratios = _ratios(one, two)
        cells = [name, *(f"{_with_spread(x, '.2f')} s" for x in (one, two, busy)), _times(ratios)]
        lines.append((cells, Goal(ratios, SOONER, ".2f", is_least=True)))
    return lines


def _lines_of_roots(row: Mapping[str, Any]) -> list[Line]:
    lines: list[Line] = []
    for name, ways in row["found"].items():
        (runs,) = ways.values()
        whole = [sum(x[step] for step in STEPS) for x in runs]
        counts = [str(runs[0][key]) for key in ("calls", "tasks", "choices")]
        steps = [f"{median(x[step] for x in runs):.2f} s" for step in STEPS]
        cells = [name, *counts, *steps, f"{_with_spread(whole, '.2f')} s"]
        lines.append((cells, Goal(whole, ROOTS[name][1], ".2g")))
    return lines


@dataclass(frozen=True)
class Section:
    """A part of the page: its heading, the heads of its table, and the lines that a row gives."""

    heading: str
    heads: Sequence[str]
    lines: Callable[[Mapping[str, Any]], list[Line]]


SECTIONS: Mapping[str, Section] = {
    "calls": Section(
        "Calls and periods",
        ("what", CALLED, PLANNED, "planned / called"),
        _lines_of_calls,
    ),
    "emptied": Section(
        "A list that is emptied again and again",
        ("way", "a period", "CPU", "sum of its cells", "times Taichi's"),
        _lines_of_emptied,
    ),
    "compilers": Section(
        "First results",
        ("program", ONE, TWO, "CPU of compilers", "so many times sooner"),
        _lines_of_compilers,
    ),
    "roots": Section(
        "Windows at the root of their space",
        ("window", "calls", "tasks", "choices", *STEPS, "all"),
        _lines_of_roots,
    ),
}


def missed(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The rows that failed, and the goals that are missed, one sentence each."""
    found = [f"{r['name']} failed: {r['why']}" for r in rows if r["status"] != "ok"]
    for r in rows:
        for cells, goal in SECTIONS[r["name"]].lines(r) if r["status"] == "ok" else ():
            if goal is not None and goal.is_missed:
                value = _with_spread(goal.values, goal.form)
                found.append(f"{r['name']}, {cells[0]}: {value}, {goal.words} wanted")
    return found


def report(values: dict[str, Any]) -> str:
    """The results as Markdown."""
    beside = ", ".join(f"{k} {v}" for k, v in values["versions"].items()) or "nobody"
    blocks = ["# Costs of windows", PROTOCOL, stamp_text(values["stamp"]), f"- beside {beside}"]
    for r in values["rows"]:
        section = SECTIONS[r["name"]]
        blocks.append(f"## {section.heading}")
        if r["status"] != "ok":
            blocks.append(f"- failed: {r['why']}")
            continue
        taken = r["taken"]
        blocks.append(
            f"- {r['rounds']} rounds, ended {taken['taken']}, load {taken['load_1min']:.1f} at that moment"
        )
        body = [[*cells, "–" if goal is None else goal.words] for cells, goal in section.lines(r)]
        blocks.append(table([*section.heads, "wanted"], body))
    return "\n\n".join(blocks) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = turns_parser(__doc__, 3, PARTS, libraries=())
    parser.add_argument("--peer", metavar="NAME=PYTHON", action="append", default=[])
    parser.add_argument("--periods", type=int, default=2000, help="that are timed in a process")
    parser.add_argument(
        "--breaks", type=int, default=50, help="of each kind in a process; at most 64"
    )
    parser.add_argument("--shrink", type=int, default=1, help="so many times smaller programs")
    parser.add_argument(
        "--piece", type=float, default=inf, help="minutes after which no row begins"
    )
    parser.add_argument("--again", action="store_true", help="also rows that are there already")
    given = parser.parse_args(arguments)
    effort = Effort(given.rounds, given.periods, given.breaks, given.shrink)
    if min(effort.rounds, effort.periods, effort.breaks, effort.shrink) < 1 or effort.breaks > 64:
        parser.error(
            "--rounds, --periods, --breaks, --shrink must be positive, --breaks at most 64"
        )
    if not all("=" in p for p in given.peer):
        parser.error("--peer must be a name=python")
    peers = dict(p.split("=", 1) for p in given.peer)
    _, versions = pythons_of(parser, peers)
    end_s = time.monotonic() + 60 * given.piece
    stored: dict[str, Any] = {"rows": []} | read_results(FILE, given.results)
    rows = {r["name"]: r for r in stored["rows"]}
    there = {name for name, r in rows.items() if r["status"] == "ok" and not given.again}
    for part in (p for p in given.only or PARTS if p not in there):
        if time.monotonic() >= end_s:
            print("no time left: run this again", flush=True)
            break
        row: dict[str, Any] = {"name": part, "rounds": effort.rounds}
        try:
            row |= {"status": "ok", "found": measure(part, peers, effort)}
        except RuntimeError as e:
            row |= {"status": "failed", "why": str(e)}
        rows[part] = row | {"taken": moment()}
        print(f"{part}: {row['status']}", flush=True)
        values: dict[str, Any] = {"stamp": stamp(), "versions": versions}
        values["rows"] = [rows[p] for p in PARTS if p in rows]
        write_results(FILE, report, values, given.results)
    lines = missed(list(rows.values()))
    print("\n".join(f"missed: {line}" for line in lines) or "nothing is missed")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
