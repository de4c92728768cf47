"""The stamp of every result: what machine, under which conditions, with which versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from ..runtime.conditions import take_conditions
from ..runtime.cpu.device import CpuDevice

RESULTS = Path(__file__).resolve().parent / "results"


def stamp(device: CpuDevice | None = None, memory_bytes_per_ns: float = 0.0) -> dict[str, Any]:
    """The conditions now, as JSON values; with a device also its compiler and flags."""
    if device is None:
        return dict(msgspec.to_builtins(take_conditions(memory_bytes_per_ns=memory_bytes_per_ns)))
    taken = take_conditions(
        compiler=device.compiler.version,
        flags=device.compiler.flags,
        memory_bytes_per_ns=memory_bytes_per_ns,
    )
    return dict(msgspec.to_builtins(taken))


def stamp_text(taken: dict[str, Any]) -> str:
    """The stamp as Markdown."""
    caches = ", ".join(f"{n} {b >> 10} KiB" for n, b in taken["caches"].items())
    versions = ", ".join(f"{n} {v}" for n, v in taken["versions"].items())
    lines = [
        f"- taken {taken['taken']}, load {taken['load_1min']:.1f} at that moment",
        f"- {taken['cpu']}, {taken['cores']} cores, caches of all cores {caches}",
        f"- {taken['kernel']}, huge pages {taken['huge_pages']}, {taken['binding']}",
        f"- {versions}",
    ]
    if taken["compiler"]:
        lines.append(f"- {taken['compiler']}, {' '.join(taken['flags'])}")
    if taken["memory_bytes_per_ns"]:
        lines.append(f"- memory read {taken['memory_bytes_per_ns']:.1f} GB/s at that moment")
    return "\n".join(lines)


def write_results(name: str, markdown: str, values: object, folder: Path | None = None) -> Path:
    """Write NAME.md and NAME.json (default: experiments/results/); the path of the text."""
    place = folder or RESULTS
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{name}.json").write_text(json.dumps(values, indent=1) + "\n")
    text = place / f"{name}.md"
    text.write_text(markdown)
    return text


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; the first column is text, the others are numbers."""
    rule = ["---", *("---:" for _ in heads[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, rule, *rows))
