"""Which of Taichi's own examples run here as they are, are their fields equal to Taichi's, and how fast are their frames?

    python -m kernelscape.experiments.taichi_programs --taichi PYTHON [--only NAME ...] [--seconds 280] [--again]

PYTHON is the interpreter of an environment with taichi 1.7.4 and Pillow; its examples are run, each by a process of its own, for
ten frames without a screen (taichi_driver.py). Without --taichi, `--examples FOLDER` names programs that are run with us alone.
Rows that are there are kept: call it until it says that none is left. `--again` forgets those of the programs that are chosen: give
it once, at the beginning. Writes experiments/results/taichi_programs.md.
"""

from __future__ import annotations

import ast
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .conditions import moment, stamp, stamp_text, versions_in
from .taichi_driver import FRAME_RATE
from .turns import this_package, without_scratch
from .writing import parser_of, read_results, table, time_text, write_results

FILE = "taichi_programs"
FRAMES = 10
LIMIT_S = 120.0  # of one program with one of the two
# Why fields differ, where it was looked into.
_HASHED = (
    "a hash multiplies the rounding of a sine by 262,144, so the colours of pixels near the contour change;"
    " edges and all else are equal"
)
_NEAR_REST = "energies near rest are smaller than the rounding of the terms they are the sum of; positions are equal"
REASONS = {
    "algorithm/marching_squares": _HASHED,
    "algorithm/print_offset": "shows where elements lie: nested dense nodes are one array here, row by row, and tiles in Taichi",
    "algorithm/mgpcg": "residuals are 10^-7 of the first one, so they are the rounding of sums; the solution is equal to 10^-5",
    "real_func/algorithm/marching_squares": _HASHED,
    "ggui_examples/fem128_ggui": _NEAR_REST,
    "simulation/fem128": _NEAR_REST,
}
# What their fields are computed from; since then both see the same one.
READ_THE_CLOCK = (
    "algorithm/marching_squares",
    "real_func/algorithm/marching_squares",
    "simulation/initial_value_problem",
)
# Greatest difference that counts as equal, in units of the greatest value of the field: sums in another order, ten frames long.
PRECISION = {"float64": 1e-9, "float32": 1e-3, "float16": 2e-2}


@dataclass(frozen=True)
class Asked:
    """What is run: programs in a folder, here and (where there is one) with the Python of Taichi."""

    examples: Path
    taichi: str | None = None
    frames: int = FRAMES
    limit_s: float = LIMIT_S
    version: str = ""  # of Taichi
    beside: str = ""  # folder of packages that programs import, for our Python
    finds_files: bool = False  # where they run programs find the files that lie beside them


def programs(examples: Path) -> list[str]:
    """The programs of a folder, by their paths without suffix."""
    found = sorted(p for p in examples.rglob("*.py") if p.name != "__init__.py")
    return [p.relative_to(examples).with_suffix("").as_posix() for p in found]


def examples_of(taichi: str) -> Path:
    """The folder of examples that comes with the taichi of a Python. Raises OSError, ValueError."""
    code = "import importlib.util as u; print(u.find_spec('taichi').submodule_search_locations[0])"
    done = subprocess.run([taichi, "-c", code], capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{taichi} has no taichi")
    return Path(done.stdout.strip()) / "examples"


def uses(source: str, *names: str) -> bool:
    """Whether a program has one of the names of `ti`."""
    return any(
        isinstance(n, ast.Attribute)
        and n.attr in names
        and isinstance(n.value, ast.Name)
        and n.value.id == "ti"
        for n in ast.walk(ast.parse(source))
    )


def run_one(
    frontend: str, asked: Asked, name: str, state: Path, threads: int = 0
) -> dict[str, Any]:
    """What the driver says of a program, in a process and a folder of its own, with nothing compiled before. `threads`: most of
    Taichi's, 0 as many as it likes.
    """
    path = asked.examples / f"{name}.py"
    python = sys.executable if frontend == "ours" else str(asked.taichi)
    with this_package() as (place, environment):
        (place / "work").mkdir()
        for file in asked.examples.iterdir() if asked.finds_files else ():
            (place / "work" / file.name).symlink_to(file)
        command = [python, "-m", "kernelscape.experiments.taichi_driver", frontend]
        command += [str(path), "--frames", str(asked.frames), "--state", str(state)]
        if threads:
            environment["TI_CPU_MAX_NUM_THREADS"] = str(threads)
        environment["MPLBACKEND"] = "Agg"  # nobody looks at pictures
        if asked.beside and frontend == "ours":
            environment["PYTHONPATH"] += f"{os.pathsep}{asked.beside}"
        try:
            done = subprocess.run(
                command,
                cwd=place / "work",
                env=os.environ | environment,
                capture_output=True,
                text=True,
                timeout=asked.limit_s,
            )
        except subprocess.TimeoutExpired:
            return {"why": f"no end within {asked.limit_s:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines or not lines[-1].startswith("{"):
        said = (done.stderr.strip().splitlines() or ["no word"])[-1]
        code = done.returncode
        return {"why": f"{signal.Signals(-code).name if code < 0 else f'exit {code}'}: {said}"}
    made: dict[str, Any] = json.loads(lines[-1])
    return made


def compare_files(ours: Path, theirs: Path) -> dict[str, Any]:
    """`compare` of what two runs kept."""
    with np.load(ours) as a, np.load(theirs) as b:
        return compare(a, b)


def compare(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """How far our fields are from Taichi's: `fields` that both have, `unlike` and why (also what one of the two has not), greatest
    `error` of floats.
    """
    both = [k for k in theirs if k in ours]
    unlike = {k: "is not here" for k in theirs if k not in ours}
    unlike |= {k: "is not in Taichi" for k in ours if k not in theirs}
    worst = 0.0
    for key in both:
        a, b = np.asarray(ours[key]), np.asarray(theirs[key])
        if a.shape != b.shape or a.dtype != b.dtype:
            unlike[key] = f"{a.dtype}{list(a.shape)}, Taichi has {b.dtype}{list(b.shape)}"
            continue
        if not a.size:
            continue
        if a.dtype.kind != "f":
            share = float((a != b).mean())
            if share:
                unlike[key] = f"{share:.2%} of its elements differ"
            continue
        error = field_error(a, b)
        worst = max(worst, error)
        precision = PRECISION[a.dtype.name]
        if not error <= precision:
            scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0)) or 1.0
            far = ~np.isclose(a, b, rtol=0, atol=precision * scale, equal_nan=True)
            unlike[key] = f"{far.mean():.1g} of its elements differ, by {error:.1e} of the greatest"
    return {"fields": len(both), "unlike": unlike, "error": worst}


def field_error(a: Any, b: Any) -> float:
    """Greatest difference in units of the greatest value of `b`; infinite where one is no number and the other is."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(y)
    if not (np.isfinite(x) == finite).all() or not np.array_equal(
        x[~finite], y[~finite], equal_nan=True
    ):
        return float("inf")
    scale = np.abs(y[finite]).max(initial=0.0)
    difference = np.abs(x[finite] - y[finite]).max(initial=0.0)
    return float(difference / scale) if scale > 0 else float(difference)


def make_row(asked: Asked, name: str) -> dict[str, Any]:
    """One program: with us, with Taichi, compared; and under which conditions."""
    source = (asked.examples / f"{name}.py").read_text()
    row: dict[str, Any] = {
        "name": name,
        "random": uses(source, "random", "randn"),  # Taichi's random numbers are not ours
        "kernels": uses(source, "kernel"),
        **moment(),
        "limit_s": asked.limit_s,
        "frames": asked.frames,
        "clock": FRAME_RATE,
        "version": asked.version,
    }
    with tempfile.TemporaryDirectory(prefix="kernelscape-programs-") as scratch:
        states = {who: Path(scratch) / f"{who}.npz" for who in ("ours", "taichi")}
        row["ours"] = run_one("ours", asked, name, states["ours"])
        if asked.taichi is None:
            row["taichi"] = {"why": "no taichi was given"}
        else:
            row["taichi"] = run_one("taichi", asked, name, states["taichi"])
        for who in states:
            row[who].pop("trace", None)
            if "why" in row[who]:
                said = without_scratch(row[who]["why"])
                row[who]["why"] = said.replace(f"{asked.examples}/", "")
        if all(runs(row, who) for who in states) and not row["random"]:
            row["compared"] = compare_files(states["ours"], states["taichi"])
            if row["compared"]["unlike"]:
                alone = Path(scratch) / "alone.npz"  # sums and appends in the order of the program
                if runs({"alone": run_one("taichi", asked, name, alone, 1)}, "alone"):
                    row["itself"] = compare_files(alone, states["taichi"])
            counts = [row[who]["frames"] for who in ("ours", "taichi")]
            if counts[0] != counts[1]:
                said = f"are {counts[0]}, Taichi has {counts[1]}"
                row["compared"]["unlike"]["its frames"] = said
    return row


def runs(row: Mapping[str, Any], who: str = "ours") -> bool:
    return "why" not in row[who]


def is_equal(row: Mapping[str, Any]) -> bool:
    """Whether it has fields, and they are Taichi's."""
    return row["compared"]["fields"] > 0 and not row["compared"]["unlike"]


def verdict(row: Mapping[str, Any]) -> str:
    """Whether its fields are Taichi's."""
    if "compared" not in row:
        return "draws random numbers" if row["random"] and runs(row) else "–"
    found = row["compared"]
    if found["unlike"]:
        return f"no: {len(found['unlike'])} differ"
    return f"{found['fields']} fields, to {found['error']:.0e}" if found["fields"] else "no fields"


def _seconds(found: Mapping[str, Any], key: str) -> str:
    value = found.get(key)
    return time_text(None if value is None else value * 1e9)


def _ratios(rows: Sequence[Mapping[str, Any]]) -> str:
    """Our times over Taichi's, of the programs that both run and that have kernels (rows of former versions: fields)."""
    said = []
    rows = [r for r in rows if r.get("kernels", r["ours"]["fields"] > 0)]
    for key, what in (("first_s", "first frames"), ("frame_s", "frames")):
        pairs = [(r["ours"].get(key), r["taichi"].get(key)) for r in rows]
        # Frames that compute nothing are below a tenth of a millisecond: they are of the window alone.
        logs = [math.log(a / b) for a, b in pairs if a and b and max(a, b) > 1e-4]
        if logs:
            mean = math.exp(sum(logs) / len(logs))
            said.append(f"of {len(logs)} {what} {mean:.2f}")
    ratios = ", ".join(said) or "there is none"
    return f"Geometric mean of our time over Taichi's, where both run and have kernels: {ratios}."


def _conditions(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """When the rows were taken, and under which limits."""
    times, loads = (sorted(r[key] for r in rows if key in r) for key in ("taken", "load_1min"))
    frames, limits, versions = (
        ", ".join(
            f"{x:g}" if key != "version" else x
            for x in sorted({r[key] for r in rows if r.get(key)})
        )
        for key in ("frames", "limit_s", "version")
    )
    lines = [
        f"- {frames or FRAMES} frames each in a process of its own, nothing compiled before; nobody looks at pictures, so none is"
        " drawn. The first frame includes importing the library and compiling."
    ]
    if times:
        lines += [
            f"- rows taken from {times[0]} to {times[-1]}, load from {loads[0]:.1f} to {loads[-1]:.1f}",
            f"- taichi {versions or 'was not there'}, on the CPU; at most {limits} s a program",
        ]
    return lines


def _why(rows: Sequence[Mapping[str, Any]], who: str, head: str) -> str:
    failed = [r for r in rows if not runs(r, who)]
    return table(["program", head], [[r["name"], r[who]["why"].replace("|", "/")] for r in failed])


def _unlike(row: Mapping[str, Any]) -> str:
    """What is not Taichi's, the first three by name."""
    found = [f"{key} {said}" for key, said in row["compared"]["unlike"].items()]
    more = [f"{len(found) - 3} more"] if len(found) > 3 else []
    return "; ".join(found[:3] + more).replace("|", "/")


def _itself(row: Mapping[str, Any]) -> str:
    """Which of these are not Taichi's own either, where it has one thread."""
    if "itself" not in row:
        return ""
    found = row["itself"]["unlike"]
    own = [f"{key} {said}" for key, said in found.items() if key in row["compared"]["unlike"]]
    more = [f"{len(own) - 2} more"] if len(own) > 2 else []
    return "; ".join(own[:2] + more).replace("|", "/") or "none"


def _reason(row: Mapping[str, Any]) -> str:
    """Why its fields differ; "" where nobody looked into it."""
    if "clock" not in row and row["name"] in READ_THE_CLOCK:
        return "reads the clock, which was another in each run when this row was taken"
    return REASONS.get(row["name"], "")


def report(values: dict[str, Any]) -> str:
    """The results as Markdown."""
    rows = values["rows"]
    good = [r for r in rows if runs(r)]
    compared = [r for r in good if "compared" in r]
    with_fields = [r for r in compared if r["compared"]["fields"] or r["compared"]["unlike"]]
    unlike = [r for r in with_fields if not is_equal(r)]
    body = [
        [
            r["name"],
            verdict(r),
            *(
                _seconds(r[who], key)
                for key in ("first_s", "frame_s")
                for who in ("ours", "taichi")
            ),
        ]
        for r in good
    ]
    heads = ["program", "equal", "first frame", "Taichi", "a frame", "Taichi"]
    blocks = [
        "# Taichi's examples, as they are",
        "\n".join([stamp_text(values["stamp"]), *_conditions(rows)]),
        _ratios(good),
        f"{len(good)} of {len(rows)} run. {sum(runs(r, 'taichi') for r in good)} of these ran in Taichi, too;"
        f" {len(with_fields)} of them have fields and no random numbers,"
        f" and {len(with_fields) - len(unlike)} of these have the fields of Taichi.",
        table(heads, body),
    ]
    if unlike:
        said = [[r["name"], _unlike(r), _itself(r), _reason(r)] for r in unlike]
        heads = ["program", "what", "not those of Taichi on one thread either", "why"]
        blocks += ["Those whose fields are not Taichi's:", table(heads, said)]
    if not all(runs(r, "taichi") for r in good):
        blocks += [
            "Those that run here and did not in Taichi, and why:",
            _why(good, "taichi", "what Taichi said"),
        ]
    if len(good) < len(rows):
        blocks += ["Those that do not run here, and why:", _why(rows, "ours", "why")]
    return "\n\n".join(blocks) + "\n"


def run(
    asked: Asked, names: Sequence[str], seconds: float, again: bool, folder: Path | None
) -> int:
    """Makes rows for so many seconds; how many are left."""
    values: dict[str, Any] = {"rows": []} | read_results(FILE, folder) | {"stamp": stamp()}
    rows = {r["name"]: r for r in values["rows"] if not (again and r["name"] in names)}
    left = [name for name in names if name not in rows]
    started_s = time.monotonic()
    while left and time.monotonic() - started_s < seconds:
        name = left.pop(0)
        rows[name] = row = make_row(asked, name)
        print(f"{name}: {verdict(row) if runs(row) else row['ours']['why']}", flush=True)
        values["rows"] = [rows[key] for key in sorted(rows)]
        write_results(FILE, report, values, folder)
    print(f"{len(left)} left")
    return len(left)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--taichi", metavar="PYTHON")
    parser.add_argument("--examples", type=Path, metavar="FOLDER")
    parser.add_argument("--only", nargs="*", default=(), metavar="NAME")
    parser.add_argument("--frames", type=int, default=FRAMES)
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds a program may take")
    parser.add_argument("--seconds", type=float, default=280, help="begin no row after so many")
    parser.add_argument("--again", action="store_true", help="forget rows that are there")
    given = parser.parse_args(arguments)
    if given.examples is None and given.taichi is None:
        parser.error("give --taichi PYTHON, or --examples FOLDER")
    try:
        examples = given.examples or examples_of(given.taichi)
        version = versions_in({"taichi": given.taichi})["taichi"] if given.taichi else ""
    except (OSError, ValueError) as e:
        parser.error(str(e))
    asked = Asked(examples.resolve(), given.taichi, given.frames, given.limit, version)
    known = programs(asked.examples)
    chosen = [
        n for n in known if not given.only or n in given.only or n.split("/")[-1] in given.only
    ]
    if not chosen:
        parser.error(f"there is none of {', '.join(given.only)} in {examples}")
    run(asked, chosen, given.seconds, given.again, given.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
