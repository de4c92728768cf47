"""Output of `explore list`: the library sequences as text or JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..kernels.library import load, names
from ..runtime.device import backends


def list_fields() -> Iterator[dict[str, Any]]:
    """Yields one JSON object per library sequence."""
    for name in names():
        entry = load(name)
        yield {
            "event": "sequence",
            "name": entry.name,
            "formula": entry.formula,
            "sizes": dict(entry.sizes),
            "targets": list(backends()),
        }


def list_lines() -> Iterator[str]:
    """Yields the lines of a table of the library sequences."""
    rows = list(list_fields())
    sizes = [", ".join(f"{n}={x}" for n, x in row["sizes"].items()) for row in rows]
    wide = max(len(s) for s in sizes)
    yield f"{'sequence':<15} {'targets':<17} {'default size':<{wide}}  formula"
    for row, size in zip(rows, sizes, strict=True):
        targets = ",".join(row["targets"])
        yield f"{row['name']:<15} {targets:<17} {size:<{wide}}  {row['formula']}"
