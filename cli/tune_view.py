"""Output of `explore tune`: one row or JSON object per shape."""

from __future__ import annotations

from typing import Any

from ..explorer.result_text import TimeUnit
from ..explorer.tuning import TunedShape


def shape_line(done: TunedShape) -> str:
    """Returns the row of a shape, for people."""
    sizes = ", ".join(f"{name}={extent}" for name, extent in done.sizes.items())
    if done.entry is None:
        status = "" if done.run is None else done.run.status
        return f"{sizes:<24} nothing valid was found ({status})"
    e = done.entry
    speed_up = (
        "" if e.baseline_ns is None else f"   {e.baseline_ns / e.time_ns:.2f}x unfused default"
    )
    how = "had already" if done.run is None else e.status
    return f"{sizes:<24} {TimeUnit(e.time_ns).text(e.time_ns)} +/- {e.spread:.1%}{speed_up}   {how}"


def shape_fields(done: TunedShape) -> dict[str, Any]:
    """Returns the JSON object of a shape."""
    e = done.entry
    return {
        "event": "shape",
        "sizes": done.sizes,
        "status": "" if e is None else e.status,
        "time_ns": None if e is None else e.time_ns,
        "bound_ns": None if e is None else e.bound_ns,
        "baseline_ns": None if e is None else e.baseline_ns,
        "is_new": done.run is not None,
        "run_dir": None if done.run is None else str(done.run.directory),
    }
