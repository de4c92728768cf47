"""Results as files: NAME.json with the values, NAME.md with the same as Markdown, and how tables, times and ratios are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


def write_results(name: str, markdown: str, values: object, folder: Path | None = None) -> Path:
    """Write NAME.md and NAME.json (default: experiments/results/); the path of the text."""
    place = folder or RESULTS
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{name}.json").write_text(json.dumps(values, indent=1) + "\n")
    text = place / f"{name}.md"
    text.write_text(markdown)
    return text


def read_results(name: str, folder: Path | None = None) -> dict[str, Any]:
    """The values that were written before, {} where there are none."""
    place = (folder or RESULTS) / f"{name}.json"
    values: dict[str, Any] = json.loads(place.read_text()) if place.exists() else {}
    return values


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; the first column is text, the others are numbers."""
    rule = ["---", *("---:" for _ in heads[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, rule, *rows))


def time_text(ns: float | None) -> str:
    """Three digits and a unit; a dash for no time."""
    if ns is None:
        return "–"
    for unit, factor in (("ms", 1e6), ("us", 1e3)):
        if ns >= factor:
            return f"{ns / factor:.3g} {unit}" if ns < 100 * factor else f"{ns / factor:.0f} {unit}"
    return f"{ns:.0f} ns"


def ratio_text(ratio: float | None, spread: float | None) -> str:
    """A ratio and its relative spread; a dash for none."""
    return "–" if ratio is None or spread is None else f"{ratio:.2f} ± {100 * spread:.0f} %"


def share_text(share: float | None, spread: float | None) -> str:
    """A share and its relative spread; a dash for none."""
    return "–" if share is None or spread is None else f"{share:.0%} ± {100 * spread:.0f} %"
