"""How fast is what the search finds? Every library sequence, against the default and NumPy.

    python -m kernelscape.experiments.run_table [--seconds 60] [--only bicgk axpydot:n=2^26] [--again]

Rows that are in the results already are kept unless --again is given, so that the table can be made
in pieces. Writes experiments/results/run_table.md and .json after every row. The exit status is 1
when a check of the whole table fails.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..kernels.library import load, names
from .conditions import stamp_text
from .rows import in_fresh_process
from .run_row import RowOptions, make_row
from .writing import RESULTS, table, write_results

SPEED_UP = 1.5
ROOF_SHARE = 0.85
CHECKED = ("axpydot", "waxpby", "vadd", "bicgk", "gemver")
_TWO_SIZES = ("heat", "standardise")  # in memory and in the last cache
Row = tuple[str, dict[str, int]]  # sequence, sizes
_ROW_MARGIN_S = 420.0  # set-up and comparison of the largest size on a busy machine

PROTOCOL = """Each row is made in a process of its own: a calibration, an exploration, then
rounds of {a probe of memory; best and default, sample by sample in turn; NumPy in a child of its own
with its own threads and no OPENBLAS_* set}. Times are medians over rounds of medians, ratios are
formed inside a round; ± is half the inter-quartile range. Caches are warm: calls follow one another.
GB/s counts every argument once (compulsory bytes of the fused sequence, no write-allocate). The
share of the roofline in memory is of the probe of the same round whose mix of reads and writes is
nearest, in caches of the calibrated read rate; of compute-bound rows of the calibrated peak. The gap
compares the bound with this table's best time. "compiler" is the share of the search's time in which
the compiler ran. A default that fails its verification says
so. Seconds count from the start of the exploration: "set-up" until the search begins,
"within 5 %" until something that near the search's best was measured."""


def all_rows() -> list[tuple[str, dict[str, int]]]:
    """(sequence, sizes) of the whole table, small sizes first: a mistake shows early."""
    rows = []
    for name in names():
        entry = load(name)
        sizes = [dict(s) for s in entry.benchmark_sizes]
        if name == "matmul":
            sizes.append({"m": 2048, "n": 2048, "k": 2048})
        if name in _TWO_SIZES:
            sizes = [s for s in sizes if s["n"] in (8192, 1024)]
        rows += [(name, s) for s in sizes]
    return sorted(rows, key=lambda row: _volume(row[1]))


def _volume(sizes: dict[str, int]) -> int:
    volume = 1
    for extent in sizes.values():
        volume *= extent
    return volume


def row_key(name: str, sizes: dict[str, int]) -> str:
    """A row's name: sequence and sizes, as `--only` takes it."""
    return name + ":" + ",".join(f"{k}={v}" for k, v in sizes.items())


def parse_row(text: str, rows: Sequence[Row] = ()) -> list[Row]:
    """The rows that a name, or a name with sizes (powers as 2^26), stands for, among `rows` (default: all of this
    table). Raises ValueError.
    """
    name, _, given = text.partition(":")
    if name.lower() not in names():
        raise ValueError(f"no sequence {name!r}")
    if not given:
        return [row for row in rows or all_rows() if row[0] == name.lower()]
    sizes = {}
    for part in given.split(","):
        key, _, number = part.partition("=")
        base, _, power = number.partition("^")
        sizes[key] = int(base) ** int(power) if power else int(base)
    return [(name.lower(), load(name).complete(sizes))]


def run_row(name: str, sizes: dict[str, int], options: RowOptions) -> dict[str, Any]:
    """The row, made in a child. A row that fails says why."""
    asked = {"name": name, "sizes": sizes, "options": asdict(options)}
    made = in_fresh_process("run_table", asked, 4 * options.seconds + _ROW_MARGIN_S)
    return made if isinstance(made, dict) else {"status": "failed", **asked, "why": made}


def problems(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The checks of the table; one sentence for each that fails."""
    found = [f"{title(r)} failed: {r['why']}" for r in rows if r["status"] != "ok"]
    for r in (r for r in rows if r["status"] == "ok"):
        if r["below_bound"] or r["alarms"]:
            found.append(f"{title(r)}: {r['below_bound']} measurements below their bound")
        if r["name"] in CHECKED and r["level"] == "memory":
            if r["over_numpy"] < SPEED_UP:
                found.append(f"{title(r)}: {r['over_numpy']:.2f} x NumPy")
            if r["roof_share"] < ROOF_SHARE:
                found.append(f"{title(r)}: {r['roof_share']:.0%} of the roofline")
    return found


def report(rows: Sequence[dict[str, Any]]) -> str:
    """The table as Markdown."""
    heads = [
        *("sequence", "best", "± %", "default", "NumPy", "x default", "x NumPy", "rate"),
        *("of", "roofline", "bound", "gap", "budget s", "evaluations", "/s", "compiler"),
        *("below bound", "set-up s", "within 5 % s", "ended"),
    ]
    good = [r for r in rows if r["status"] == "ok"]
    missed = problems(rows)
    n_below = sum(r["below_bound"] for r in good)
    parts = ["# What the search finds", "", PROTOCOL, ""]
    if good:
        last = max(good, key=lambda r: str(r["stamp"]["taken"]))
        read = [r["stamp"]["memory_bytes_per_ns"] for r in good]
        seconds = sorted({f"{r['options']['seconds']:g}" for r in good})
        parts += [
            stamp_text(last["stamp"]),
            f"- memory read {min(read):.0f} – {max(read):.0f} GB/s over the rows,"
            f" rows from {min(r['stamp']['taken'] for r in good)}",
            f"- {' or '.join(seconds)} s a row, {good[0]['options']['rounds']} rounds, f32",
            "",
        ]
    parts += [table(heads, [_cells(r) for r in rows]), ""]
    parts += [f"Measurements below their bound, of all evaluations: {n_below}.", ""]
    parts += [f"Checks ({', '.join(CHECKED)} in memory at least {SPEED_UP} x NumPy and at least"]
    parts += [f"{ROOF_SHARE:.0%} of the roofline; no measurement below its bound):", ""]
    parts += [f"- {line}" for line in missed or ["all met"]]
    return "\n".join([*parts, ""])


def _cells(r: dict[str, Any]) -> list[str]:
    if r["status"] != "ok":
        return [title(r), f"failed: {r['why']}".replace("|", "/"), *[""] * 18]
    rate = r["flops"] if r["is_computed"] else r["bytes"]
    failed = r["default_ns"] is None
    spent_s, search_s = r["spent_s"], max(r["search_s"], 1e-9)
    return [
        title(r),
        time_text(r["best_ns"]),
        f"{100 * r['best_spread']:.1f}",
        r["default_fails"].split(":")[0] if failed else time_text(r["default_ns"]),
        time_text(r["numpy_ns"]),
        "–" if failed else f"{r['over_default']:.2f} ± {100 * r['over_default_spread']:.0f} %",
        f"{r['over_numpy']:.2f} ± {100 * r['over_numpy_spread']:.0f} %",
        f"{rate / r['best_ns']:.0f} {'GF/s' if r['is_computed'] else 'GB/s'}",
        "peak" if r["is_computed"] else r["level"],
        f"{r['roof_share']:.0%} ± {100 * r['roof_share_spread']:.0f} %",
        "–" if r["bound_ns"] is None else time_text(r["bound_ns"]),
        "–" if r["gap"] is None else f"{r['gap']:.0%}",
        f"{r['options']['seconds']:g}",
        str(r["evaluations"]),
        f"{r['evaluations'] / search_s:.1f}",
        f"{spent_s['compile'] / search_s:.0%}",
        str(r["below_bound"]),
        f"{r['set_up_s']['started']:.1f}",
        f"{r['near_s']:.1f}",
        r["search_status"],
    ]


def title(r: dict[str, Any]) -> str:
    extents = list(r["sizes"].values())
    if len(extents) == 1:
        power = extents[0].bit_length() - 1
        return f"{r['name']} " + (f"2^{power}" if extents[0] == 1 << power else str(extents[0]))
    if len(set(extents)) == 1:
        return f"{r['name']} {extents[0]}^{len(extents)}"
    return f"{r['name']} " + "x".join(map(str, extents))


def time_text(ns: float) -> str:
    for unit, factor in (("ms", 1e6), ("us", 1e3)):
        if ns >= factor:
            return f"{ns / factor:.3g} {unit}" if ns < 100 * factor else f"{ns / factor:.0f} {unit}"
    return f"{ns:.0f} ns"


def make_table(
    wanted: Sequence[tuple[str, dict[str, int]]],
    options: RowOptions,
    again: bool,
    folder: Path | None,
) -> list[dict[str, Any]]:
    """Make the rows that are missing, writing after each; all rows of the results."""
    place = (folder or RESULTS) / "run_table.json"
    stored = json.loads(place.read_text())["rows"] if place.exists() else []
    rows = {row_key(r["name"], r["sizes"]): r for r in stored}
    order = [row_key(*row) for row in all_rows()]
    for name, sizes in wanted:
        key = row_key(name, sizes)
        if not again and rows.get(key, {}).get("status") == "ok":
            continue
        started_s = time.monotonic()
        row = rows[key] = run_row(name, sizes, options)
        said = row.get("why") or f"{time_text(row['best_ns'])}, {row['over_numpy']:.2f} x NumPy"
        print(f"{title(row)}: {said} ({time.monotonic() - started_s:.0f} s)", flush=True)
        keys = [k for k in order if k in rows] + sorted(rows.keys() - set(order))
        ordered = [rows[k] for k in keys]
        write_results("run_table", report(ordered), {"rows": ordered}, folder)
    return list(rows.values())


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=(), help="NAME or NAME:n=2^20,...")
    parser.add_argument("--again", action="store_true", help="also rows that are there already")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each exploration")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-calibrate", action="store_true")
    parser.add_argument("--results", type=Path, help="folder of the results")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.child:
        asked = json.loads(given.child)
        row = make_row(asked["name"], asked["sizes"], RowOptions(**asked["options"]))
        print(json.dumps(row))
        return 0
    options = RowOptions(given.seconds, given.rounds, given.seed, not given.no_calibrate)
    wanted = [row for text in given.only for row in parse_row(text)] or all_rows()
    rows = make_table(wanted, options, given.again, given.results)
    missed = problems(rows)
    print("\n".join(f"missed: {line}" for line in missed) or "all checks met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
