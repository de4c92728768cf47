"""How fast are whole programs: call by call, by default plans, as searched, and beside libraries that have Taichi's language?

    python -m kernelscape.experiments.programs [--peer NAME=PYTHON ...] [--only NAME ...] [--seconds 60] [--rounds 3] [--piece 15]

The programs are ten micro-benchmarks and five applications of Hu et al., AsyncTaichi (2020), written anew. PYTHON is the
interpreter of an environment with a peer; one called `jax` runs those that are written in JAX, too. Each way runs each program in a
process of its own, in turn, on all cores; the first round begins with nothing compiled. Rows that are there are kept unless --again
is given, and none begins after --piece minutes. `--fix` also searches applications with one optimisation switched off: rows that
are there get the searches that they lack. Without it such searches are kept. Writes experiments/results/programs.md after every
row.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from pathlib import Path
from statistics import geometric_mean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from .conditions import moment, stamp, stamp_text
from .fresh_caches import fresh_caches
from .program_texts import APPLICATIONS, IN_JAX, MICRO, TEXTS
from .sparse_sequences import TASKS
from .turns import pythons_of, run_text, turns_parser
from .writing import read_results, table, time_text, write_results

FILE = "programs"
LIMIT_S = 900.0  # of a process beside its search
PLAIN, PLANNED, EXPLORED = "called", "planned", "explored"
OURS = (PLAIN, PLANNED, EXPLORED)
JAX = "jax"  # the peer with another language: it runs the programs that are written in it


class Ablation(NamedTuple):
    """An optimisation that a search does without: by decisions, and without the rewrites that rest on none."""

    fixed: Mapping[str, str]
    without: tuple[str, ...] = ()


ABLATIONS: Mapping[str, Ablation] = {
    "lists made for each loop": Ablation({"listgen": "GENERATE"}, ("lists",)),
    "cells activated in each loop": Ablation({"activate": "ACTIVATE"}, ("activations",)),
    "no fusion": Ablation({"fused": "SEPARATE"}),
    "dead stores kept": Ablation({"store": "KEEP"}, ("dead_stores",)),
    "copies made": Ablation({}, ("copies",)),
}
COUNTS = (
    "backend_s",
    *(
        f"n_{what}{end}"
        for what in ("launches", "lists", "activations")
        for end in ("", "_without")
    ),
)

PROTOCOL = """"called" runs kernel by kernel, "planned" holds calls (`ks.init(async_mode=True)`) and runs recognised periods by
default plans, "explored" replays what a search of the period found in the given time. Times of a period: the least of seven samples
in each round, of all rounds, each behind an untimed period; wall, and in brackets CPU time of all threads. "first" is the first
period in the first round, with nothing compiled before. Ratios are of the better peer's time to ours. Results are compared with
those of the first peer, or of "called".

Counts are of a period by its plan, and behind "of" by kernels alone. "backend" is the time in compiled code: by plans on average,
by kernels alone the least of the held periods before the plan is there. "compiled" counts kernels, of plans those beside "called".

"implementations" are distinct pairs of a component and its text that were measured. "least of ten" is the least number of them
of one of the ten components that take most of the period. "first result" is the time from the begin of a search to its first
verified implementation."""

HEAD = """
import json, sys, time
way, shrink, folder, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
(fixed, without), counted = json.loads(sys.argv[5]), json.loads(sys.argv[6])
if way in ("called", "planned", "explored", "explore"):
    import kernelscape.compat.taichi as ti
    import kernelscape as ks
    how = {"planned": {"async_mode": True}, "explored": {"decisions": folder}}
    ks.init(**how.get(way, {}))
elif way == "quadrants":
    import quadrants as ti
    ti.init(arch=ti.cpu)
elif way == "jax":
    from types import SimpleNamespace
    ti = SimpleNamespace(sync=lambda: jax.block_until_ready(made))
else:
    import taichi as ti
    ti.init(arch=ti.cpu)
"""
TAIL = """
begin = time.perf_counter()
step()
ti.sync()
first_s = time.perf_counter() - begin
if way == "explore":
    from pathlib import Path
    from kernelscape.experiments.period_search import searched_period
    step()  # a search assumes what two periods leave
    ti.sync()
    best, found = searched_period(step, Path(folder), seconds, fixed, without)
    found["tasks"] = None if best is None else n_tasks(best)
else:
    alone_s = []
    def by_kernels(n):  # periods; their time in kernels counts where no plan is there
        before = ks.engine.stats() if way == "planned" else None
        for _ in range(n):
            step()
        ti.sync()
        if before is None:
            return False
        after = ks.engine.stats()
        if after.n_planned == before.n_planned:
            alone_s.append((after.backend_s - before.backend_s) / n)
        return after.n_planned == before.n_planned
    by_kernels(6)  # windows know a period again
    if way == "planned":
        wait_until = time.monotonic() + 300  # its plan is built beside it
        while time.monotonic() < wait_until and by_kernels(1):
            time.sleep(0.2)
    n, n_counted, samples, counts = 1, 0, [], dict.fromkeys(counted, 0)
    while len(samples) < 7:
        again()
        step()
        ti.sync()
        before = ks.engine.stats() if way == "planned" else None
        begin, wall = time.process_time(), time.perf_counter()
        for _ in range(n):
            step()
        ti.sync()
        cpu, wall = time.process_time() - begin, time.perf_counter() - wall
        n_counted += n
        if before is not None:
            after = ks.engine.stats()
            counts = {k: v + getattr(after, k) - getattr(before, k) for k, v in counts.items()}
        if wall < 0.02 and n < 1000:
            n *= 2
            continue
        samples.append((cpu / n, wall / n))
    if way == "explored" and not ks.engine.stats().n_planned:
        raise SystemExit("no period ran as it was found")
    found = {"cpu_us": min(c for c, _ in samples) * 1e6, "wall_us": min(w for _, w in samples) * 1e6, "first_s": first_s}
    if way == "planned":
        found |= {k: v / n_counted for k, v in counts.items()} | {"backend_s_without": min(alone_s, default=None)}
    if way in ("called", "planned"):
        found["n_compiled"] = ks.engine.stats().n_compiled
    found["result"] = result()
print(json.dumps(found))
"""


class Program:
    """One program in a folder of its own, with caches that have no programs at first."""

    def __init__(self, name: str, shrink: int, seconds: float, folder: Path) -> None:
        self._name = name
        self._shrink, self._seconds, self._folder = shrink, seconds, folder
        self._environment = {
            **fresh_caches(folder / "cache"),
            "TI_OFFLINE_CACHE_FILE_PATH": str(folder / "taichi"),
            "QD_OFFLINE_CACHE_FILE_PATH": str(folder / "quadrants"),
        }

    def run(
        self, way: str, python: str = sys.executable, ablation: Ablation | None = None
    ) -> dict[str, Any]:
        """Returns the values that a process of one way prints. Raises RuntimeError.

        A search with an ablation stores its best apart, where no other way replays it.
        """
        fixed, without = ablation or Ablation({})
        name = "found" if ablation is None else "_".join(("fixed", *fixed, *without))
        asked = (str(self._shrink), str(self._folder / name), str(self._seconds))
        told = (way, *asked, json.dumps((dict(fixed), without)), json.dumps(COUNTS))
        limit_s = LIMIT_S + self._seconds
        text = IN_JAX[self._name] if way == JAX else TEXTS[self._name] + TASKS
        text = HEAD + text + TAIL
        return run_text(python, text, self._folder, limit_s, *told, **self._environment)


def measure(
    name: str, peers: Mapping[str, str], rounds: int, seconds: float, shrink: int, fix: bool
) -> dict[str, Any]:
    """The row of a program: values of each way by rounds, the result of the search, and of those with decisions fixed."""
    row: dict[str, Any] = {"name": name, "seconds": seconds, "shrink": shrink, "fixed": {}}
    peers = {way: python for way, python in peers.items() if way != JAX or name in IN_JAX}
    with TemporaryDirectory(prefix="kernelscape-programs-") as scratch:
        program = Program(name, shrink, seconds, Path(scratch))
        runs: dict[str, list[Any]] = {way: [] for way in (*OURS, *peers)}
        try:
            for at in range(rounds):
                for way in _turned((PLAIN, PLANNED, *peers), at):
                    runs[way].append(program.run(way, peers.get(way, sys.executable)))
                if at == 0 and seconds > 0:
                    row["explored"] = program.run("explore")
                if seconds > 0 and row["explored"]["best_ns"] is not None:
                    runs[EXPLORED].append(program.run(EXPLORED))
            if fix and seconds > 0:
                row["fixed"] = _ablated(program)
        except RuntimeError as e:
            return row | {"status": "failed", "why": str(e)}
    return row | {"status": "ok", "runs": {way: r for way, r in runs.items() if r}}


def _turned(ways: Sequence[str], at: int) -> Sequence[str]:
    """The ways in an order that rotates with the rounds."""
    return [*ways[at % len(ways) :], *ways[: at % len(ways)]]


def ablated(name: str, seconds: float, shrink: int) -> dict[str, Any]:
    """The searches of a program with one optimisation switched off, by their names."""
    with TemporaryDirectory(prefix="kernelscape-programs-") as scratch:
        return _ablated(Program(name, shrink, seconds, Path(scratch)))


def _ablated(program: Program) -> dict[str, Any]:
    return {about: _tried(program, ablation) for about, ablation in ABLATIONS.items()}


def _tried(program: Program, ablation: Ablation) -> dict[str, Any]:
    """Returns the result of a search with an ablation, or the reason of its failure: a program may lack the choice."""
    try:
        return program.run("explore", ablation=ablation)
    except RuntimeError as e:
        return {"why": str(e), "best_ns": None}


# --- the page ------------------------------------------------------------------------------------


def _least(row: Mapping[str, Any], way: str, key: str) -> float | None:
    """The least of all rounds, in ns; None where the way did not run."""
    runs = row["runs"].get(way)
    return None if not runs else 1e3 * min(x[key] for x in runs)


def _cell(row: Mapping[str, Any], way: str) -> str:
    wall, cpu = _least(row, way, "wall_us"), _least(row, way, "cpu_us")
    return "–" if wall is None else f"{time_text(wall)} ({time_text(cpu)})"


def ratio(row: Mapping[str, Any], peers: Iterable[str], way: str, key: str) -> float | None:
    """The better peer's time over that of one of our ways."""
    ours = _least(row, way, key)
    theirs = [t for peer in peers if (t := _least(row, peer, key)) is not None]
    return None if ours is None or not theirs else min(theirs) / ours


def _unlike(row: Mapping[str, Any], peers: Sequence[str]) -> str:
    """The greatest difference of results, as a share of the first peer's."""
    results = {way: runs[-1]["result"] for way, runs in row["runs"].items()}
    base = results[next((p for p in peers if p in results), PLAIN)]
    return f"{max(abs(x - base) for x in results.values()) / (abs(base) or 1.0):.1e}"


def _times(rows: Sequence[Mapping[str, Any]], peers: Sequence[str]) -> str:
    body = []
    for r in rows:
        ratios = [
            _ratio_text(ratio(r, peers, way, key)) for way in OURS for key in ("wall_us", "cpu_us")
        ]
        body.append(
            [r["name"], *(_cell(r, w) for w in (*OURS, *peers)), *ratios, _unlike(r, peers)]
        )
    means = ["geometric mean", *("" for _ in (*OURS, *peers))]
    for way in OURS:
        for key in ("wall_us", "cpu_us"):
            found = [x for r in rows if (x := ratio(r, peers, way, key)) is not None]
            means.append(f"{geometric_mean(found):.2f}" if found else "–")
    heads = ["program", *OURS, *peers, *(f"{w}, {k}" for w in OURS for k in ("wall", "CPU"))]
    return table([*heads, "results differ by"], [*body, [*means, ""]] if rows else [])


def _ratio_text(x: float | None) -> str:
    return "–" if x is None else f"{x:.2f}"


def _metrics(rows: Sequence[Mapping[str, Any]], peers: Sequence[str]) -> str:
    """The five metrics of a period, by its plan and by kernels alone, and first periods."""
    body = []
    for r in rows:
        planned = r["runs"].get(PLANNED, [{}])[-1]
        pairs = [
            _of(_figure(planned.get(f"n_{what}")), _figure(planned.get(f"n_{what}_without")))
            for what in ("launches", "lists", "activations")
        ]
        backend = _of(_lowest(r, "backend_s"), _lowest(r, "backend_s_without"))
        compiled = [_figure(r["runs"].get(w, [{}])[0].get("n_compiled")) for w in (PLANNED, PLAIN)]
        first = [
            time_text(1e9 * r["runs"][way][0]["first_s"]) if r["runs"].get(way) else "–"
            for way in (PLAIN, *peers)
        ]
        body.append([r["name"], backend, *pairs, *compiled, *first])
    heads = ["program", "backend", "launches", "lists", "activations", "compiled, planned"]
    return table([*heads, "compiled, called", *(f"first, {w}" for w in (PLAIN, *peers))], body)


def _of(planned: str, alone: str) -> str:
    return planned if planned == alone == "–" else f"{planned} of {alone}"


def _lowest(row: Mapping[str, Any], key: str) -> str:
    """The least of all rounds of a time in seconds of the plan's process, as text."""
    found = [x[key] for x in row["runs"].get(PLANNED, ()) if x.get(key) is not None]
    return time_text(1e9 * min(found)) if found else "–"


def _figure(x: float | None) -> str:
    return "–" if x is None else f"{x:.3g}" if isinstance(x, float) else str(x)


def _searches(rows: Sequence[Mapping[str, Any]]) -> str:
    """Table of the searches: candidates, implementations, the first result; loops and lists are of the best."""
    texts: Sequence[tuple[str, Callable[[Mapping[str, Any]], str]]] = (
        ("candidates", lambda x: _figure(x.get("evaluations"))),
        ("implementations", lambda x: _figure(x.get("n_tried"))),
        ("least of ten", lambda x: _figure(x.get("least_tried"))),
        ("first result", lambda x: _seconds(x.get("first_found_s"))),
        ("ended after", lambda x: _seconds(x.get("elapsed_s"))),
        ("loops", lambda x: _figure((x.get("tasks") or {}).get("loops"))),
        ("lists", lambda x: _figure((x.get("tasks") or {}).get("lists"))),
    )
    body = [[r["name"], *(text(r.get("explored") or {}) for _, text in texts)] for r in rows]
    return table(["program", *(head for head, _ in texts)], body)


def _seconds(x: float | None) -> str:
    return "–" if x is None else f"{x:.3g} s"


def _ablations(rows: Sequence[Mapping[str, Any]]) -> str:
    body = []
    for r in rows:
        best = (r.get("explored") or {}).get("best_ns")
        for about, found in r["fixed"].items():
            ns, tasks = found["best_ns"], found.get("tasks") or {}
            over = "–" if ns is None or best is None else f"{ns / best:.2f}"
            said = [str(tasks.get(key, "–")) for key in ("loops", "lists")]
            why = found.get("why", "").split(": ", 1)[-1].split(";")[0]
            body.append([r["name"], about, time_text(ns), over, *said, why])
    return table(["program", "without", "found", "times", "loops", "lists", "why not"], body)


def report(values: dict[str, Any]) -> str:
    """The results as Markdown."""
    rows = [r for r in values["rows"] if r["status"] == "ok"]
    peers: list[str] = values["peers"]
    blocks = ["# Whole programs", PROTOCOL, stamp_text(values["stamp"])]
    asked = {f"{r['seconds']:.0f} s" for r in rows}
    blocks.append(f"- searches of {', '.join(sorted(asked))}; {_versions(values)}")
    for heading, names in (("Micro-benchmarks", MICRO), ("Applications", APPLICATIONS)):
        some = [r for r in rows if r["name"] in names]
        if some:
            blocks += [f"## {heading}", _times(some, peers), _metrics(some, peers)]
            blocks += [_searches(some)]
    if any(r["fixed"] for r in rows):
        blocks += ["## With one optimisation switched off", _ablations(rows)]
    blocks += [f"- {r['name']} failed: {r['why']}" for r in values["rows"] if r["status"] != "ok"]
    return "\n\n".join(blocks) + "\n"


def _versions(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} {v}" for k, v in values["versions"].items()) or "no peers"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = turns_parser(__doc__, 3, list(TEXTS), libraries=())
    parser.add_argument("--peer", metavar="NAME=PYTHON", action="append", default=[])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each search; 0: none")
    parser.add_argument("--shrink", type=int, default=1, help="so many times fewer cells an axis")
    parser.add_argument(
        "--fix", action="store_true", help="also search applications with decisions fixed"
    )
    parser.add_argument(
        "--piece", type=float, default=inf, help="minutes after which no row begins"
    )
    parser.add_argument("--again", action="store_true", help="also rows that are there already")
    given = parser.parse_args(arguments)
    if (
        given.rounds < 1
        or given.shrink < 1
        or given.seconds < 0
        or not all("=" in p for p in given.peer)
    ):
        parser.error(
            "--rounds and --shrink must be positive, --seconds not negative, and --peer a name=python"
        )
    peers = dict(p.split("=", 1) for p in given.peer)
    _, versions = pythons_of(parser, peers)
    end_s = time.monotonic() + 60 * given.piece
    stored: dict[str, Any] = {"rows": []} | read_results(FILE, given.results)
    rows = {r["name"]: r for r in stored["rows"]}
    for name in given.only or TEXTS:
        row: Any = rows.get(name)
        fix = given.fix and name in APPLICATIONS
        is_there = row is not None and row["status"] == "ok" and not given.again
        if is_there and not (fix and ABLATIONS.keys() - row["fixed"].keys()):
            continue
        if time.monotonic() >= end_s:
            print("no time left: run this again", flush=True)
            break
        seconds = given.seconds if not is_there or row["seconds"] == 0 else row["seconds"]
        if is_there and seconds == 0:
            continue
        if is_there:
            row |= {"fixed": ablated(name, seconds, row["shrink"])}
        else:
            kept = (row or {}).get("fixed", {})
            row = measure(name, peers, given.rounds, given.seconds, given.shrink, fix)
            row |= {"taken": moment(), "fixed": row["fixed"] if fix else kept}
        rows[name] = row
        print(f"{name}: {row.get('why') or _cell(row, PLAIN)}", flush=True)
        values = {"stamp": stamp(), "versions": stored.get("versions", {}) | versions}
        values["peers"] = [
            *dict.fromkeys((*stored.get("peers", ()), *peers))
        ]  # of rows that are kept
        values["rows"] = [rows[n] for n in TEXTS if n in rows]
        write_results(FILE, report, values, given.results)
    return 1 if any(r["status"] != "ok" for r in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
