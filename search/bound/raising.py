"""Corrects a machine's rates by a measured time below its bound, which proves that some rate is higher than calibrated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ...space.candidate import Candidate
from ...space.targets.target import Target
from .bounder import Bounder

# Cores of a virtual machine get twice as fast memory when they move. A bound that is further off has another reason than a rate.
_MOST = 2.0
_STEPS = 40
_SLACK = 1e-6  # so that rounding leaves no bound above the time

Raise = Callable[[Target, float], Target]


def raised(candidate: Candidate, time_ns: float) -> Target | None:
    """Returns the CPU target with rates raised until a candidate may take `time_ns`; None if no rates explain it.

    It raises the rate of the longest term until the bound is no longer above the time, each rate by
    at most a factor of two.
    """
    target, factors = candidate.space.target, dict[str, float]()
    for _ in range(_STEPS):
        bound = Bounder(replace(candidate.space, target=target)).bound(candidate)
        if bound.ns <= time_ns:
            return target
        name, step = bound.limiting, bound.ns / time_ns * (1 + _SLACK)
        factors[name] = factors.get(name, 1.0) * step
        if factors[name] > _MOST:
            return None
        target = _RATES.get(name, _level(name))(target, step)
    return None


def _level(name: str) -> Raise:
    def raise_level(target: Target, factor: float) -> Target:
        levels = (
            replace(x, read_bytes_per_ns=x.read_bytes_per_ns * factor) if x.name == name else x
            for x in target.levels
        )
        return replace(target, levels=tuple(levels))

    return raise_level


def _fields(*names: str) -> Raise:
    def raise_fields(target: Target, factor: float) -> Target:
        return replace(target, **{name: getattr(target, name) * factor for name in names})

    return raise_fields


def _latencies(*names: str) -> Raise:
    def lower(target: Target, factor: float) -> Target:
        return replace(target, **{name: getattr(target, name) / factor for name in names})

    return lower


def _streams(target: Target, factor: float) -> Target:
    curves = (
        replace(c, bytes_per_ns=tuple(rate * factor for rate in c.bytes_per_ns))
        for c in target.streams
    )
    return replace(target, streams=tuple(curves))


def _functions(target: Target, factor: float) -> Target:
    rates = (
        replace(
            x,
            vector_per_ns=x.vector_per_ns * factor,
            scalar_per_ns=x.scalar_per_ns * factor,
        )
        for x in target.functions
    )
    return replace(target, functions=tuple(rates))


def _every_level(target: Target, factor: float) -> Target:
    for level in target.levels:
        target = _level(level.name)(target, factor)
    return _memory(target, factor)


_ports = _fields(
    *("loads_per_ns", "vector_loads_per_ns", "gathers_per_ns"),
    *("stores_per_ns", "vector_stores_per_ns"),
)
_memory = _fields("memory_read_bytes_per_ns", "memory_mixed_bytes_per_ns")
_operations = _fields(
    *("f32_flops_per_ns", "f64_flops_per_ns"),
    *("scalar_f32_flops_per_ns", "scalar_f64_flops_per_ns"),
    *("f32_mixed_flops_per_ns", "f64_mixed_flops_per_ns"),
)
_RATES: Mapping[str, Raise] = {
    "memory read": _memory,
    "memory write": _fields("memory_write_bytes_per_ns", "memory_mixed_bytes_per_ns"),
    "memory": _fields(
        "memory_mixed_bytes_per_ns", "memory_read_bytes_per_ns", "memory_write_bytes_per_ns"
    ),
    "streams": _streams,
    "tiles": _every_level,
    "operations": _operations,
    "tails": _operations,
    "chain": _latencies("add_latency_ns"),
    "ports": _ports,
    "packing": _ports,
    "atomics": _fields("atomic_f32_per_ns", "atomic_f64_per_ns", "atomic_i32_per_ns"),
    "functions": _functions,
    "launches": _latencies("launch_ns", "barrier_ns", "call_ns"),
}
