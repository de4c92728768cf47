"""Output of `explore compare`: two results as text or JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..explorer.comparison import Comparison
from ..explorer.result_text import TimeUnit
from ..runtime.records.record import BestFile
from ..search.events import gap_text

_SHOWN = 12  # decisions without -v


def compare_lines(names: tuple[str, str], c: Comparison, verbosity: int) -> Iterator[str]:
    """Yields both results side by side, then the decisions in which they differ.

    `names`: displayed names of the two results.
    """
    unit = TimeUnit(max(c.a.time_ns, c.b.time_ns))
    rows = [("", *(f"{head}: {name}" for head, name in zip("AB", names, strict=True)))]
    rows += [(title, text(c.a, unit), text(c.b, unit)) for title, text in _ROWS]
    width = max(len(row[1]) for row in rows) + 2
    yield from (f"{title:<12} {a:<{width}} {b}".rstrip() for title, a, b in rows)
    told = "a tie" if c.is_within_noise else f"{'B' if c.ratio < 1 else 'A'} is faster"
    yield f"{'B over A':<12} {c.ratio:.3f}: {told}"
    yield from (f"note: {note}" for note in c.notes)
    differing = c.differing
    yield f"{'Decisions':<12} {c.n_alike} alike, {len(differing)} differ"
    shown = list(differing.items())[: None if verbosity > 1 else _SHOWN]
    for name, (a, b) in shown:
        yield f"  {name}: {a or '-'} | {b or '-'}"
    if len(shown) < len(differing):
        yield f"  ... {len(differing) - len(shown)} more, which -v shows"


def compare_fields(names: tuple[str, str], c: Comparison) -> dict[str, Any]:
    """Returns the comparison as one JSON object."""
    return {
        "event": "comparison",
        "a": _side(names[0], c.a),
        "b": _side(names[1], c.b),
        "ratio": c.ratio,
        "tie": c.is_within_noise,
        "notes": list(c.notes),
        "alike": c.n_alike,
        "differing": {name: list(values) for name, values in c.differing.items()},
    }


def _side(name: str, best: BestFile) -> dict[str, Any]:
    return {
        "path": name,
        "sequence": best.sequence,
        "sizes": best.sizes,
        "time_ns": best.time_ns,
        "spread": best.spread,
        "bound_ns": best.bound_ns or None,
        "evaluations": best.evaluations,
        "status": best.status,
    }


def _shape(best: BestFile, unit: TimeUnit) -> str:
    sizes = ", ".join(f"{name}={extent}" for name, extent in best.sizes.items())
    return f"{best.sequence} {sizes} {best.dtype}"


def _gap(best: BestFile, unit: TimeUnit) -> str:
    return f"{unit.text(best.bound_ns)}, gap {gap_text(best.gap)}" if best.bound_ns else "withdrawn"


_ROWS = (
    ("Sequence", _shape),
    ("Target", lambda best, unit: f"{best.target} {best.conditions.cpu}"),
    ("Time", lambda best, unit: f"{unit.text(best.time_ns)} +/- {best.spread:.1%}"),
    ("Bound", _gap),
    ("Default", lambda best, unit: unit.text(best.baseline_ns)),
    ("NumPy", lambda best, unit: unit.text(best.numpy_ns)),
    (
        "Search",
        lambda best, unit: f"{best.status}, {best.evaluations} evaluations, seed {best.seed}",
    ),
    ("Compiler", lambda best, unit: best.conditions.compiler or "-"),
)
