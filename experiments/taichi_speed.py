"""How long does a frame of well-known programs take here, in Taichi, and in its fork quadrants?

    python -m kernelscape.experiments.taichi_speed --taichi PYTHON --quadrants PYTHON [--rounds 5] [--seconds 240] [--only NAME ...]

The programs are those of Taichi's examples, unchanged. All libraries take turns, each in a process of its own, with nothing
compiled before and without windows (taichi_driver). A round is every program in every library; rows are kept, so it may be run
again until it says that none is left. A round takes some minutes, most of them for sdf_renderer. `--again` forgets what is there.
Writes experiments/results/taichi_speed.md.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .conditions import moment, stamp, stamp_text
from .taichi_programs import Asked, examples_of, run_one
from .turns import pythons_of, turns_parser
from .writing import read_results, table, time_text, write_results

FILE = "taichi_speed"
LIMIT_S = 200.0  # of one program in one library
# Frames of each; a frame of sdf_renderer are ten renderings.
PROGRAMS = {
    "simulation/game_of_life": 60,
    "simulation/mpm128": 20,
    "simulation/mpm88": 20,
    "simulation/nbody": 12,
    "simulation/stable_fluid": 12,
    "rendering/sdf_renderer": 2,
}
WHO = ("ours", "taichi", "quadrants")


def make_row(name: str, who: str, asked: Asked) -> dict[str, Any]:
    """One process: what the driver says of it, and when that was."""
    with tempfile.TemporaryDirectory(prefix="kernelscape-speed-") as scratch:
        found = run_one(who, asked, name, Path(scratch) / "state.npz")
    kept: dict[str, Any] = {
        key: found[key] for key in ("first_s", "frame_s", "why") if key in found
    }
    if "why" in kept:
        kept["why"] = kept["why"].replace(f"{asked.examples}/", "").splitlines()[0]
    return {"name": name, "who": who, "frames": asked.frames, **moment(), **kept}


def frames_of(rows: Sequence[Mapping[str, Any]], name: str, who: str) -> list[float]:
    """Seconds a frame, one a process."""
    chosen = [r for r in rows if (r["name"], r["who"]) == (name, who)]
    return [r["frame_s"] for r in chosen if r.get("frame_s")]


def ratio_of(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Our median time over that of the better of the others; None where there is nothing to compare."""
    ours = frames_of(rows, name, "ours")
    others = [statistics.median(x) for who in WHO[1:] if (x := frames_of(rows, name, who))]
    return statistics.median(ours) / min(others) if ours and others else None


def _cell(rows: Sequence[Mapping[str, Any]], name: str, who: str) -> str:
    times = frames_of(rows, name, who)
    if not times:
        why = [r["why"] for r in rows if (r["name"], r["who"]) == (name, who) and "why" in r]
        return why[0].replace("|", "/") if why else "–"
    middle = statistics.median(times)
    return f"{time_text(middle * 1e9)} +- {50 * (max(times) - min(times)) / middle:.0f} %"


def report(values: dict[str, Any]) -> str:
    """The results as Markdown."""
    rows = values["rows"]
    names = sorted({r["name"] for r in rows})
    ratios = {name: ratio_of(rows, name) for name in names}
    known = [x for x in ratios.values() if x is not None]
    said = "Nothing is compared."
    if known:
        mean = math.exp(sum(map(math.log, known)) / len(known))
        said = (
            f"Geometric mean of our time over that of the better of the two: {mean:.2f};"
            f" {sum(x <= 1 for x in known)} of {len(known)} are no slower."
        )
    body = [
        [
            name,
            *(_cell(rows, name, who) for who in WHO),
            "–" if (ratio := ratios[name]) is None else f"{ratio:.2f}",
        ]
        for name in names
    ]
    others = ", ".join(f"{name} {version}" for name, version in values["versions"].items())
    loads = sorted(r["load_1min"] for r in rows)
    return (
        "\n\n".join(
            [
                "# Frames of well-known programs",
                "\n".join(
                    [
                        stamp_text(values["stamp"]),
                        f"- rows taken from {min(r['taken'] for r in rows)} to {max(r['taken'] for r in rows)},"
                        f" load from {loads[0]:.1f} to {loads[-1]:.1f}",
                        f"- beside {others or 'nobody'}; programs of Taichi's examples, unchanged, in turn",
                        "- Medians over processes of the median frame of each, and half of their range. No pictures are drawn.",
                    ]
                ),
                said,
                table(["program", *WHO, "over the better"], body),
            ]
        )
        + "\n"
    )


@dataclass(frozen=True)
class Turns:
    """What is run: programs with their frames, in libraries by their Python (None: ours), so many rounds."""

    examples: Path
    programs: Mapping[str, int]
    pythons: Mapping[str, str | None]
    rounds: int
    limit_s: float = LIMIT_S

    def left(self, rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
        """The program and the library of the rows that are not there yet, in turn."""
        done = Counter((r["name"], r["who"]) for r in rows)
        return [
            (name, who)
            for k in range(self.rounds)
            for name in self.programs
            for who in self.pythons
            if done[name, who] <= k
        ]

    def row(self, name: str, who: str) -> dict[str, Any]:
        python = self.pythons[who]
        return make_row(name, who, Asked(self.examples, python, self.programs[name], self.limit_s))


def run(turns: Turns, values: dict[str, Any], seconds: float, folder: Path | None) -> int:
    """Makes rows for so many seconds; how many are left."""
    started_s, rows = time.monotonic(), values["rows"]
    left = turns.left(rows)
    while left and time.monotonic() - started_s < seconds:
        name, who = left.pop(0)
        rows.append(turns.row(name, who))
        print(f"{name} {who}: {_cell(rows[-1:], name, who)}", flush=True)
        write_results(FILE, report, values, folder)
    print(f"{len(left)} left")
    return len(left)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = turns_parser(__doc__, 5, libraries=WHO[1:])
    parser.add_argument("--examples", type=Path, metavar="FOLDER")
    parser.add_argument("--only", nargs="*", default=(), metavar="NAME")
    parser.add_argument("--frames", type=int, help="of every program")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds a program may take")
    parser.add_argument("--seconds", type=float, default=240, help="begin no row after so many")
    parser.add_argument("--again", action="store_true", help="forget rows that are there")
    given = parser.parse_args(arguments)
    if given.examples is None and given.taichi is None:
        parser.error("give --taichi PYTHON, or --examples FOLDER")
    asked = {"taichi": given.taichi, "quadrants": given.quadrants}
    pythons, versions = pythons_of(parser, asked)
    try:
        examples = (given.examples or examples_of(given.taichi)).resolve()
    except (OSError, ValueError) as e:
        parser.error(str(e))
    chosen = {
        name: given.frames or frames
        for name, frames in PROGRAMS.items()
        if not given.only or name.split("/")[-1] in given.only
    }
    if not chosen:
        parser.error(f"there is none of {', '.join(given.only)}")
    kept = {} if given.again else read_results(FILE, given.results)
    values: dict[str, Any] = {"rows": [], "versions": {}} | kept
    values |= {"stamp": stamp(), "versions": values["versions"] | versions}
    turns = Turns(examples, chosen, {"ours": None, **pythons}, given.rounds, given.limit)
    run(turns, values, given.seconds, given.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
