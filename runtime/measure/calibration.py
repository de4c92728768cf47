"""Calibrations: measured machine facts, merged over time, stored in a file for each machine.

The bound needs the optimistic end of every rate, and one measurement is not enough to know it: a rate keeps the largest value ever
seen, a latency the smallest.
"""

from __future__ import annotations

from dataclasses import fields, replace
from math import sqrt
from pathlib import Path

import msgspec

from ...space.targets.target import StreamCurve, Target
from ..api.calibration import Calibration
from ..device import cache_folder
from ..files import NOTE_BYTES, read_regular, write_atomically
from .timing import spread

SCHEMA = 2
_STREAM = "stream_"
LATENCIES = (
    "launch_ns",
    "barrier_ns",
    "call_ns",
    "add_latency_ns",
    "load_latency_ns",
    "far_load_latency_ns",
)


def fresh_calibration(machine: str, target: Target, samples: dict[str, list[float]]) -> Calibration:
    """Returns the calibration from one set of samples."""
    spreads = {name: spread(s) for name, s in samples.items() if parse_stream(name) is None}
    return Calibration(SCHEMA, machine, target, spreads, 1)


def stream_name(kind: str, cores: int, n_bytes: int) -> str:
    """Sample name of a way of reading and writing arrays of `n_bytes` together repeatedly."""
    return f"{_STREAM}{cores}_{n_bytes}_{kind}"


def parse_stream(name: str) -> tuple[str, int, int] | None:
    """Returns kind, cores and bytes from a name of `stream_name`; None for any other name."""
    if not name.startswith(_STREAM):
        return None
    cores, n_bytes, kind = name.removeprefix(_STREAM).split("_", 2)
    return kind, int(cores), int(n_bytes)


def keep(fresh: Calibration, folder: Path | None = None) -> Calibration:
    """Merge with the stored calibration of the same machine, store the result, and return it."""
    stored = load_calibration(fresh.machine, folder)
    merged = fresh if stored is None else merge(stored, fresh)
    store_calibration(merged, folder)
    return merged


def keep_latencies(machine: str, now: dict[str, float], folder: Path | None = None) -> None:
    """Lower the latencies of the stored calibration to smaller ones in `now`. No effect without a stored calibration."""
    stored = load_calibration(machine, folder)
    if stored is None:
        return
    before = {name: getattr(stored.target, name) for name in now}
    lower = {name: min(ns, now[name]) for name, ns in before.items()}
    if lower != before:
        target = replace(stored.target, **lower)
        store_calibration(msgspec.structs.replace(stored, target=target), folder)


def keep_factors(machine: str, factors: tuple[float, ...], folder: Path | None = None) -> None:
    """Stores the mean, in logarithms, of factors of the prediction and those stored before. No effect without a calibration."""
    stored = load_calibration(machine, folder)
    if stored is None:
        return
    if len(stored.factors) == len(factors):
        factors = tuple(sqrt(x * y) for x, y in zip(stored.factors, factors, strict=True))
    store_calibration(msgspec.structs.replace(stored, factors=factors), folder)


def load_calibration(machine: str, folder: Path | None = None) -> Calibration | None:
    """Returns the stored calibration of the machine with that key; None when there is none or it cannot be read."""
    try:
        content = read_regular(_folder(folder) / f"{machine}.json", NOTE_BYTES)
        found = msgspec.json.decode(content, type=Calibration)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.schema == SCHEMA and found.machine == machine else None


def merge(old: Calibration, new: Calibration) -> Calibration:
    """Returns the union: the larger of two rates, the smaller of two latencies, the larger spread."""
    names = [f.name for f in fields(Target) if f.name.endswith("_per_ns")] + ["core_boost"]
    rates = {n: max(getattr(old.target, n), getattr(new.target, n)) for n in names}
    latencies = {n: min(getattr(old.target, n), getattr(new.target, n)) for n in LATENCIES}
    seen = {level.name: level.read_bytes_per_ns for level in old.target.levels}
    levels = tuple(
        replace(x, read_bytes_per_ns=max(x.read_bytes_per_ns, seen.get(x.name, 0.0)))
        for x in new.target.levels
    )
    streams = _merge_streams(old.target.streams, new.target.streams)
    target = replace(new.target, levels=levels, streams=streams, **rates, **latencies)
    spreads = {
        n: max(old.spreads.get(n, 0.0), new.spreads.get(n, 0.0))
        for n in old.spreads.keys() | new.spreads.keys()
    }
    return Calibration(
        SCHEMA, new.machine, target, spreads, old.n_calibrations + 1, old.factors or new.factors
    )


def _merge_streams(
    old: tuple[StreamCurve, ...], new: tuple[StreamCurve, ...]
) -> tuple[StreamCurve, ...]:
    """Returns every point of either curve set, with the larger of two rates."""
    points: dict[tuple[str, int], dict[tuple[int, int], float]] = {}
    for curve in (*old, *new):
        known = points.setdefault((curve.kind, curve.cores), {})
        sizes = zip(curve.read_bytes, curve.written_bytes, strict=True)
        for size, rate in zip(sizes, curve.bytes_per_ns, strict=True):
            known[size] = max(rate, known.get(size, 0.0))
    return tuple(curve_of(kind, cores, known) for (kind, cores), known in points.items())


def curve_of(kind: str, cores: int, rates: dict[tuple[int, int], float]) -> StreamCurve:
    """The curve through `rates`, bytes a nanosecond by (bytes read, bytes written)."""
    sizes = sorted(rates)
    return StreamCurve(
        kind=kind,
        cores=cores,
        read_bytes=tuple(read for read, _ in sizes),
        written_bytes=tuple(written for _, written in sizes),
        bytes_per_ns=tuple(rates[size] for size in sizes),
    )


def store_calibration(calibration: Calibration, folder: Path | None = None) -> None:
    """Write the calibration of its machine, in one step."""
    content = msgspec.json.format(msgspec.json.encode(calibration), indent=2)
    write_atomically(_folder(folder) / f"{calibration.machine}.json", content)


def _folder(folder: Path | None) -> Path:
    return folder or cache_folder() / "targets"
