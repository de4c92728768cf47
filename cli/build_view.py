"""Output of `explore run --build-only`: device resources of compiled implementations, one row per launch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from ..explorer.building import BuiltOnly
from ..runtime.api.outcome import Failure
from .speaking import say

_HEAD = (
    f"{'implementation':<20} {'bound':>10}  {'launch':<10} {'threads':>7} {'counted':>7} {'expected':>8} {'registers':>9} "
    f"{'shared':>8} {'spills':>7} {'occupancy':>9}  limit"
)


def show_builds(builds: Iterable[BuiltOnly], is_json: bool) -> int:
    """Prints each implementation when it is built; returns the number that compiled."""
    n_ok = 0
    for k, built in enumerate(builds):
        if is_json:
            say(json.dumps(build_fields(built), allow_nan=False))
        else:
            say("\n".join([*([] if k else [_HEAD]), *build_lines(built)]))
        n_ok += not isinstance(built.report, Failure)
    return n_ok


def build_lines(built: BuiltOnly) -> Iterator[str]:
    """Yields the table rows of an implementation, for people."""
    name, bound = f"{built.tag} {built.candidate.key.hex()[:6]}", f"{built.bound_ns / 1e3:.4g} us"
    report = built.report
    if isinstance(report, Failure):
        yield f"{name:<20} {bound:>10}  {report.kind}: {report.advice}"
        return
    for x, record, expected in zip(report.launches, built.launches, built.expected, strict=True):
        counted, foreseen = "-", "-"  # of a launch without sums nothing is counted
        if record.counted:
            counted, foreseen = str(record.counted), f"{expected:.0f}"
        yield (
            f"{name:<20} {bound:>10}  {x.kernel:<10} {x.shape:>7} {counted:>7} {foreseen:>8} {x.registers:>9} "
            f"{x.shared_bytes:>6} B {x.spill_bytes:>5} B {x.occupancy:>9.0%}  {x.limit}"
        )
        name, bound = "", ""
    if report.warnings:
        yield f"{name:<20} the compiler warns: {report.warnings.strip()}"


def build_fields(built: BuiltOnly) -> dict[str, Any]:
    """Returns the JSON object of an implementation."""
    fields: dict[str, Any] = {
        "event": "built",
        "tag": built.tag,
        "candidate": built.candidate.key.hex(),
        "bound_ns": built.bound_ns,
    }
    report = built.report
    if isinstance(report, Failure):
        return fields | {"status": report.kind, "why": report.advice}
    launches = [
        {
            "kernel": x.kernel,
            "block": list(x.block),
            "registers": x.registers,
            "registers_counted": record.counted,
            "registers_expected": expected if record.counted else None,
            "shared_bytes": x.shared_bytes,
            "spill_bytes": x.spill_bytes,
            "occupancy": x.occupancy,
            "limit": x.limit,
        }
        for x, record, expected in zip(report.launches, built.launches, built.expected, strict=True)
    ]
    return fields | {"status": "ok", "warnings": report.warnings, "launches": launches}
