"""Comparison of a step of MacCormack and a scatter of particles with C that a person writes by hand.

    python -m kernelscape.experiments.by_hand [--only p2g_sorted] [--seconds 40] [--rounds 3] [--piece 15] [--again]

Each program has a row for one thread and one for all. Rows that are in the results already are kept unless --again is given.
None begins after --piece minutes. With --seconds 0 nothing is searched: MacCormack runs by its default plan alone, and a scatter,
which is one kernel, as it is called. Writes experiments/results/by_hand.md after every row. The exit status is 1 when a row fails,
or takes more times the C by hand than are wanted. A row takes as long as its search, and half a minute.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from tempfile import TemporaryDirectory
from typing import Any

from ..runtime.worker.channel import available_cores
from . import row
from .by_hand_ways import (
    BY_HAND,
    CALLED,
    EXPLORED,
    HAND,
    MACCORMACK,
    PLANNED,
    SEARCH,
    SORTED,
    UNSORTED,
    Asked,
)
from .conditions import stamp
from .measuring import median, spread
from .question import Question, asked, failures
from .rows import Columns, Job, Row, page, table_of
from .turns import last_said
from .writing import ratio_text, time_text

LIMIT_S = 240.0  # of a process, beside its search
WALL, CPU = 0, 1  # places in a time
WANTED: Mapping[str, float] = {MACCORMACK: 2.0, SORTED: 1.5, UNSORTED: 1.5}
USUAL, MOST = 1e-4, {MACCORMACK: 1.0, SORTED: 1e-4, UNSORTED: 1e-4}
PROTOCOL = """MacCormack: a step of three channels on an n^3 grid in blocks of 8^3 cells, as in `programs`. P2G: four given values
of each of n particles are added to the 27 nodes around it, on a dense grid of 64^3, as in `scatters`. Sorted ones are in the order
of blocks. "called" runs kernel by kernel. "explored" is what a search of the given time found, "planned" the default plan, and
"best" the faster of both.
"by hand" is the fastest function of the C in experiments/expert/programs, on copies of the same values. It is compiled by the same
compiler with all passes, -O3 and OpenMP. Each way runs in a process of its own, in turn; each round begins with another one.
A time of a round is the least of five samples, each behind an untimed call: wall, and in brackets CPU time of all threads.
Medians of rounds are shown. Ratios are formed inside each round; ± is half their inter-quartile range. Values are compared with
those of "called", in parts of the greatest. "differ" is the most, without one element in 10,000. In MacCormack such elements are at
the edge of the dye, where rounding decides if a value is among those around it. A row fails above 1e-4, of P2G at any element."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of a program: `n` cells along an axis, or particles, and the number of threads."""

    allowed: tuple[int, ...] = ()  # extents; (): any

    def complete(self, sizes: dict[str, int]) -> dict[str, int]:
        """All of its sizes; threads are as many as there are cores where none are given. Raises ValueError."""
        found = {"threads": available_cores(), **sizes}
        if found.keys() != {"n", "threads"} or found["n"] < 1:
            raise ValueError("the sizes are n and threads, both at least 1")
        if not 1 <= found["threads"] <= available_cores():
            raise ValueError(f"threads are 1 to {available_cores()} here, not {found['threads']}")
        if self.allowed and found["n"] not in self.allowed:
            raise ValueError(f"n is one of {', '.join(map(str, self.allowed))}, not {found['n']}")
        return {"n": found["n"], "threads": found["threads"]}


WORKS = {MACCORMACK: Sizes((16, 32, 64, 128)), SORTED: Sizes(), UNSORTED: Sizes()}
JOBS = tuple(
    Job(name, {"n": n, "threads": threads})
    for name, n in ((MACCORMACK, 128), (SORTED, 200_000), (UNSORTED, 200_000))
    for threads in sorted({1, available_cores()})
)


@dataclass(frozen=True)
class ByHandOptions:
    """Options of one row."""

    seconds: float = asked(40.0, "of each search; 0: none", least=0)
    rounds: int = asked(3)
    seed: int = asked(1, least=0)
    evaluations: int | None = None  # end the search, too


def make_row(job: Job, options: ByHandOptions) -> Row:
    """Times and differences of all ways. Raises RuntimeError where values differ too much."""
    runs: dict[str, list[list[float]]] = {}
    differs: dict[str, dict[str, float]] = {}
    with TemporaryDirectory(prefix="kernelscape-by-hand-") as folder:

        def answer(way: str) -> dict[str, Any]:
            n, threads = job.sizes["n"], job.sizes["threads"]
            told = (options.seed, options.seconds, options.evaluations)
            return said(Asked(way, job.name, n, threads, folder, *told))

        found = answer(SEARCH) if options.seconds else None
        ways = [CALLED, HAND]
        if found is not None and found["best_ns"] is not None:
            ways.insert(1, EXPLORED)
        if job.name == MACCORMACK:
            ways.insert(1, PLANNED)
        for k in range(options.rounds):
            first = k % len(ways)
            for way in (*ways[first:], *ways[:first]):
                one = answer(way)
                for name, times in one["times_ns"].items():
                    runs.setdefault(name, []).append(times)
                for name, x in one["differs"].items():
                    worst = differs.setdefault(name, x)
                    differs[name] = {key: max(x[key], worst[key]) for key in x}
    for name, x in differs.items():
        if not (x["usual"] <= USUAL and x["most"] <= MOST[job.name]):
            raise RuntimeError(f"{name} differs by {x['usual']:.1e}, at most {x['most']:.1e}")
    return {"runs": runs, "differs": differs, "found": found, "stamp": stamp(row.cpu())}


def said(told: Asked) -> dict[str, Any]:
    """The answer of a process. Raises RuntimeError."""
    command = [sys.executable, "-m", f"{__package__}.by_hand_ways", json.dumps(asdict(told))]
    return last_said(command, LIMIT_S + told.seconds, {})


# --- the page ------------------------------------------------------------------------------------


def _of(r: Row, way: str, which: int = WALL) -> list[float]:
    """The times of a way by rounds, [] where it did not run."""
    return [x[which] for x in r["runs"].get(way, ())]


def fastest(r: Row) -> str:
    """The function by hand that takes the least time on the clock."""
    return min(BY_HAND[r["name"]], key=lambda way: median(_of(r, way)))


def ratios(r: Row, way: str, which: int = WALL) -> list[float]:
    """The times of one of our ways over those of the fastest by hand, by rounds."""
    ours = _of(r, way, which)
    return [x / y for x, y in zip(ours, _of(r, fastest(r), which), strict=True)] if ours else []


def _time(way: Callable[[Row], str]) -> Callable[[Row], str]:
    def cell(r: Row) -> str:
        if not _of(r, way(r)):
            return "–"
        wall, cpu = (time_text(median(_of(r, way(r), which))) for which in (WALL, CPU))
        return f"{wall} ({cpu})"

    return cell


def _ratio(way: Callable[[Row], str], which: int) -> Callable[[Row], str]:
    def cell(r: Row) -> str:
        found = ratios(r, way(r), which)
        return ratio_text(median(found), spread(found)) if found else "–"

    return cell


def best_way(r: Row) -> str:
    """Our way that is compared: the faster of explored and planned, and where neither ran called."""
    ways = [way for way in (EXPLORED, PLANNED) if way in r["runs"]] or [CALLED]
    return min(ways, key=lambda way: median(_of(r, way)))


COLUMNS: Columns = {
    "program": lambda r: f"{r['name']} {r['sizes']['n']}",
    "threads": lambda r: str(r["sizes"]["threads"]),
    "called": _time(lambda r: CALLED),
    "explored": _time(lambda r: EXPLORED),
    "planned": _time(lambda r: PLANNED),
    HAND: _time(fastest),
    "its way": lambda r: fastest(r).replace("_", " "),
    "called, wall": _ratio(lambda r: CALLED, WALL),
    "CPU": _ratio(lambda r: CALLED, CPU),
    "best, wall": _ratio(best_way, WALL),
    "CPU ": _ratio(best_way, CPU),
    "wanted": lambda r: f"{WANTED[r['name']]:.1f}",
    "candidates": lambda r: str(r["found"]["evaluations"]) if r["found"] else "–",
    "differ": lambda r: f"{max(x['usual'] for x in r['differs'].values()):.1e}",
}
_EACH: Columns = {
    "program": COLUMNS["program"],
    "threads": COLUMNS["threads"],
    "by hand": lambda r: r["way"].replace("_", " "),
    "time": _time(lambda r: r["way"]),
}


def report(made: dict[str, Any]) -> str:
    """The table as Markdown, and one of all functions by hand."""
    text = page("Beside C by hand", PROTOCOL, COLUMNS, made["rows"], by_time=True)
    good = [r for r in made["rows"] if r["status"] == "ok"]
    each = [r | {"way": way} for r in good for way in BY_HAND[r["name"]]]
    return f"{text}\n## Every function by hand\n\n{table_of(_EACH, each)}\n"


def missed(made: Sequence[Row]) -> list[str]:
    """The rows that failed, and those that take more times the C by hand than are wanted."""
    slow = []
    for r in made:
        if r["status"] != "ok":
            continue
        over = median(ratios(r, best_way(r)))
        if over > WANTED[r["name"]]:
            slow.append(f"{Job.of(r).key} takes {over:.2f} times the C by hand")
    return failures(made) + slow


def _say(r: Row) -> str:
    ours = (_time(lambda r: CALLED)(r), _time(best_way)(r))
    return f"called {ours[0]}, {best_way(r)} {ours[1]}, by hand {COLUMNS[HAND](r)}, {fastest(r)}"


QUESTION = Question(
    file="by_hand",
    doc=__doc__,
    order=JOBS,
    options=ByHandOptions,
    make=make_row,
    limit_s=lambda job, options: 2 * options.seconds + 4 * LIMIT_S,
    report=report,
    say=_say,
    missed=missed,
    works=WORKS,
)
main = QUESTION.main

if __name__ == "__main__":
    sys.exit(main())
