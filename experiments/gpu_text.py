"""The GPU table as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .gpu_goals import GOALS, verdicts
from .gpu_stamp import device_text
from .rows import Columns, Row, table_of, title
from .writing import ratio_text, share_text, time_text

PROTOCOL = """Each row is made in a process of its own: an exploration, then rounds of {a copy of 1 GiB from device to device;
best and default, sample by sample in turn; the cuBLAS sequence; torch.compile}, each library in a process of its own, in an order
that rotates. Times are of calls that follow one another on arrays in the GPU's memory, between CUDA events; outputs and temporaries
are allocated beforehand; from 32 calls a sample on they are recorded as CUDA graphs, ours as torch's (CuPy cannot). Values are
medians over rounds, ratios and shares are formed inside a round, ± is half the inter-quartile range. "cuBLAS" is the sequence of
BLAS calls by CuPy or by torch (whose copies, axpys, scals and rank-one updates are its own kernels), whichever is faster, TF32 off.
Shares count every argument once: an implementation that reads a matrix twice cannot pass 50 %. The gap compares the bound with
this table's best time."""


def _time(key: str) -> Callable[[Row], str]:
    return lambda r: time_text(r[key])


def _over(key: str) -> Callable[[Row], str]:
    return lambda r: ratio_text(r[key], r[f"{key}_spread"])


def _rate(r: Row) -> str:
    moved, unit = (r["flops"], "GF/s") if r["is_computed"] else (r["bytes"], "GB/s")
    return f"{moved / r['best_ns']:.0f} {unit}"


COLUMNS: Columns = {
    "sequence": title,
    "best": _time("best_ns"),
    "± %": lambda r: f"{100 * r['best_spread']:.1f}",
    "default": _time("default_ns"),
    "cuBLAS": _time("cublas_ns"),
    "by": lambda r: r["cublas_by"] or "–",
    "torch.compile": _time("compiled_ns"),
    "x default": _over("over_default"),
    "x cuBLAS": _over("over_cublas"),
    "x compile": _over("over_compiled"),
    "rate": _rate,
    "share": lambda r: share_text(r["share"], r["share_spread"]),
    "of": lambda r: "FP32 rate" if r["is_computed"] else "copy",
    "bound": _time("bound_ns"),
    "gap": lambda r: "–" if r["gap"] is None else f"{r['gap']:.0%}",
    "search s": lambda r: f"{r['options']['seconds']:.0f}",
    "evaluations": lambda r: str(r["evaluations"]),
    "failures": lambda r: ", ".join(f"{n} {kind}" for kind, n in r["failures"].items()) or "none",
    "below bound": lambda r: str(r["below_bound"]),
    "ended": lambda r: r["search_status"],
}


def report(made: dict[str, Any]) -> str:
    """Rows, goals and stamp as Markdown."""
    rows: list[Row] = made["rows"]
    good = [r for r in rows if r["status"] == "ok"]
    parts = ["# What the search finds on a GPU", "", PROTOCOL, ""]
    if any(r["options"]["target"] != "cuda" for r in rows):
        parts += ["**Made on the emulator: it shows that the table is made, and no speed.**", ""]
    if good:
        parts += [*_stamp(good), ""]
    parts += [table_of(COLUMNS, good), ""]
    parts += [f"- {title(r)} failed: {r['why']}" for r in rows if r["status"] != "ok"]
    notes = [f"- {title(r)}, {key}: {why}" for r in good for key, why in r["absent"].items()]
    if notes:
        parts += ["Not timed:", "", *notes, ""]
    parts += [f"Measurements below their bound: {sum(r['below_bound'] for r in good)}.", ""]
    parts += [GOALS, ""]
    parts += [f"- {v.word}: {v.text}" for v in verdicts(rows)]
    return "\n".join([*parts, ""])


def missed(made: dict[str, Any]) -> list[str]:
    """The goals that were measured and not met."""
    return [v.text for v in verdicts(made["rows"]) if v.is_met is False]


def _stamp(good: Sequence[Row]) -> list[str]:
    last = max(good, key=lambda r: str(r["stamp"]["taken"]))
    copies = [r["copy_bytes_per_ns"] for r in good if r["copy_bytes_per_ns"] is not None]
    spreads = [r["copy_spread"] for r in good if r["copy_spread"] is not None]
    lines = [device_text(last["stamp"])]
    if copies:
        lines.append(
            f"- copy bandwidth, bytes read and written, {min(copies):.0f} – {max(copies):.0f} GB/s over the rows,"
            f" ± {100 * max(spreads):.1f} % at most inside one"
        )
    source = "calibrated" if last["is_calibrated"] else "data sheet"
    lines.append(f"- FP32 rate {last['f32_flops_per_ns'] / 1e3:.1f} TF/s ({source})")
    first = min(r["stamp"]["taken"] for r in good)
    rounds = sorted({r["options"]["rounds"] for r in good})
    lines.append(f"- rows from {first}, {' or '.join(map(str, rounds))} rounds, f32")
    return lines
