"""Calibrations: measured machine facts, merged over time, stored in a file for each machine.

The bound needs the optimistic end of every rate, and one measurement is not enough to know it: a rate keeps the largest value
ever seen, a latency the smallest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from math import sqrt
from pathlib import Path

import msgspec

from ...space.targets.target import FunctionRate, StreamCurve, Target
from ..api.calibration import Calibration
from ..device import cache_folder
from ..files import NOTE_BYTES, read_regular, write_atomically
from .timing import spread

SCHEMA = 2
OTHER_WORK = "other_work"  # name of samples: share of each round that threads waited for a core
_LEAST_SEEN = 3  # samples; of fewer nothing is known
_AGREED = 0.03
_STREAM = "stream_"
FUNCTION = "function_"  # begins the names of samples of functions such as exp
LATENCIES = (
    "launch_ns",
    "barrier_ns",
    "call_ns",
    "add_latency_ns",
    "load_latency_ns",
    "far_load_latency_ns",
)


def fresh_calibration(machine: str, target: Target, samples: dict[str, list[float]]) -> Calibration:
    """Returns the calibration from one set of samples; each list is in the order of measurement."""
    rates = {n: s for n, s in samples.items() if _is_rate(n)}
    return Calibration(
        SCHEMA,
        machine,
        target,
        spreads={name: spread(s) for name, s in rates.items()},
        n_calibrations=1,
        unsure=unsure(rates),
        other_work=min(samples.get(OTHER_WORK, [0.0])),
    )


def _is_rate(name: str) -> bool:
    """True if samples of this name are of one rate or latency: not of a curve, and not of one of many functions."""
    return parse_stream(name) is None and not name.startswith(FUNCTION) and name != OTHER_WORK


def unsure(samples: Mapping[str, Sequence[float]]) -> tuple[str, ...]:
    """Returns the names of rates and latencies whose best value was measured only once.

    Other work may have hidden a better value. A second value within 3 % counts if it was taken at least a third of all samples
    apart, since other work disturbs whole rounds.
    """
    return tuple(name for name, found in samples.items() if not _is_seen_again(name, found))


def _is_seen_again(name: str, found: Sequence[float]) -> bool:
    best = (min if name in LATENCIES else max)(found)
    at, apart = found.index(best), -(-len(found) // 3)
    others = (x for k, x in enumerate(found) if abs(k - at) >= apart)
    return len(found) < _LEAST_SEEN or any(abs(x / best - 1) <= _AGREED for x in others)


def stream_name(kind: str, cores: int, n_bytes: int) -> str:
    """Returns the sample name of repeated access to arrays of `n_bytes` in all, for one kind of access."""
    return f"{_STREAM}{cores}_{n_bytes}_{kind}"


def parse_stream(name: str) -> tuple[str, int, int] | None:
    """Returns (kind of access, cores, bytes) from a name made by `stream_name`; None for any other name."""
    if not name.startswith(_STREAM):
        return None
    cores, n_bytes, kind = name.removeprefix(_STREAM).split("_", 2)
    return kind, int(cores), int(n_bytes)


def keep(fresh: Calibration, folder: Path | None = None) -> Calibration:
    """Merges `fresh` with the stored calibration of the same machine, stores the result and returns it."""
    stored = load_calibration(fresh.machine, folder)
    merged = fresh if stored is None else merge(stored, fresh)
    store_calibration(merged, folder)
    return merged


def keep_latencies(machine: str, now: dict[str, float], folder: Path | None = None) -> None:
    """Lowers the latencies of the stored calibration to smaller ones in `now`. No effect without one."""
    stored = load_calibration(machine, folder)
    if stored is None:
        return
    before = {name: getattr(stored.target, name) for name in now}
    lower = {name: min(ns, now[name]) for name, ns in before.items()}
    if lower != before:
        target = replace(stored.target, **lower)
        store_calibration(msgspec.structs.replace(stored, target=target), folder)


def keep_alarm(machine: str, raised: Target | None, folder: Path | None = None) -> None:
    """Counts a time below its bound in the stored calibration, and permanently raises its rates to those of `raised`.

    No effect without a stored calibration.
    """
    stored = load_calibration(machine, folder)
    if stored is None:
        return
    target = stored.target if raised is None else at_best(stored.target, raised)
    more = msgspec.structs.replace(stored, target=target, alarms=stored.alarms + 1)
    store_calibration(more, folder)


def keep_factors(machine: str, factors: tuple[float, ...], folder: Path | None = None) -> None:
    """Stores the geometric mean of these factors of the prediction and the stored ones.

    No effect without a calibration.
    """
    stored = load_calibration(machine, folder)
    if stored is None:
        return
    if len(stored.factors) == len(factors):
        factors = tuple(sqrt(x * y) for x, y in zip(stored.factors, factors, strict=True))
    store_calibration(msgspec.structs.replace(stored, factors=factors), folder)


def load_calibration(machine: str, folder: Path | None = None) -> Calibration | None:
    """Returns the stored calibration of the machine with that key; None if missing or unreadable."""
    try:
        content = read_regular(_folder(folder) / f"{machine}.json", NOTE_BYTES)
        found = msgspec.json.decode(content, type=Calibration)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.schema == SCHEMA and found.machine == machine else None


def merge(old: Calibration, new: Calibration) -> Calibration:
    """Returns the merged calibration: the larger of two rates, the smaller of two latencies, the larger spread.

    Values that either calibration is sure of are sure.
    """
    spreads = {
        n: max(old.spreads.get(n, 0.0), new.spreads.get(n, 0.0))
        for n in old.spreads.keys() | new.spreads.keys()
    }
    return msgspec.structs.replace(
        new,
        target=at_best(new.target, old.target),
        spreads=spreads,
        n_calibrations=old.n_calibrations + 1,
        factors=old.factors or new.factors,
        alarms=old.alarms + new.alarms,
        unsure=tuple(n for n in new.unsure if n in old.unsure or n not in old.spreads),
    )


def at_best(target: Target, other: Target) -> Target:
    """Returns `target` with the larger of two rates and the smaller of two latencies."""
    names = [f.name for f in fields(Target) if f.name.endswith("_per_ns")] + ["core_boost"]
    rates = {n: max(getattr(target, n), getattr(other, n)) for n in names}
    rates |= {f"{n}_mixed_flops_per_ns": _mixed(n, target, other) for n in ("f32", "f64")}
    latencies = {n: min(getattr(target, n), getattr(other, n)) for n in LATENCIES}
    seen = {level.name: level.read_bytes_per_ns for level in other.levels}
    levels = tuple(
        replace(x, read_bytes_per_ns=max(x.read_bytes_per_ns, seen.get(x.name, 0.0)))
        for x in target.levels
    )
    streams = _merge_streams(other.streams, target.streams)
    functions = _merge_functions(other.functions, target.functions)
    return replace(
        target, levels=levels, streams=streams, functions=functions, **rates, **latencies
    )


def _mixed(name: str, *targets: Target) -> float:
    """Returns the rate of multiply-adds beside additions, at the highest rate of multiply-adds alone.

    A run that other work disturbed was slow at both.
    """
    fused: list[float] = [getattr(x, f"{name}_flops_per_ns") for x in targets]
    mixed: list[float] = [getattr(x, f"{name}_mixed_flops_per_ns") for x in targets]
    pairs = zip(mixed, fused, strict=True)
    return max(rate * max(fused) / own if own else rate for rate, own in pairs)


def _merge_functions(
    old: tuple[FunctionRate, ...], new: tuple[FunctionRate, ...]
) -> tuple[FunctionRate, ...]:
    """Returns the rates of all functions of both, the larger ones of what both have."""
    found: dict[tuple[str, str], FunctionRate] = {}
    for x in (*old, *new):
        known = found.get((x.op, x.dtype), x)
        found[x.op, x.dtype] = replace(
            x,
            vector_per_ns=max(x.vector_per_ns, known.vector_per_ns),
            scalar_per_ns=max(x.scalar_per_ns, known.scalar_per_ns),
        )
    return tuple(found.values())


def _merge_streams(
    old: tuple[StreamCurve, ...], new: tuple[StreamCurve, ...]
) -> tuple[StreamCurve, ...]:
    """Returns curves with all points of both, and the larger rate where both have a point."""
    points: dict[tuple[str, int], dict[tuple[int, int], float]] = {}
    for curve in (*old, *new):
        known = points.setdefault((curve.kind, curve.cores), {})
        sizes = zip(curve.read_bytes, curve.written_bytes, strict=True)
        for size, rate in zip(sizes, curve.bytes_per_ns, strict=True):
            known[size] = max(rate, known.get(size, 0.0))
    return tuple(curve_of(kind, cores, known) for (kind, cores), known in points.items())


def curve_of(kind: str, cores: int, rates: dict[tuple[int, int], float]) -> StreamCurve:
    """Returns the curve through `rates`, bytes per ns by (bytes read, bytes written)."""
    sizes = sorted(rates)
    return StreamCurve(
        kind=kind,
        cores=cores,
        read_bytes=tuple(read for read, _ in sizes),
        written_bytes=tuple(written for _, written in sizes),
        bytes_per_ns=tuple(rates[size] for size in sizes),
    )


def store_calibration(calibration: Calibration, folder: Path | None = None) -> None:
    """Writes the calibration of its machine in one step."""
    content = msgspec.json.format(msgspec.json.encode(calibration), indent=2)
    write_atomically(_folder(folder) / f"{calibration.machine}.json", content)


def _folder(folder: Path | None) -> Path:
    return folder or cache_folder() / "targets"
