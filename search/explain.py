"""A bound in words: for every resource, how long it is busy and with what."""

from __future__ import annotations

from ..space.candidate import Space
from .bound import Bound, Phase


def explain(bound: Bound, space: Space) -> list[str]:
    """One sentence a resource, the limiting one first, then one a phase."""
    target = space.target
    rates = {
        "memory read": f"at {target.memory_read_bytes_per_ns:.1f} GB/s",
        "memory write": f"at {target.memory_write_bytes_per_ns:.1f} GB/s",
        "memory": f"reads and writes at {target.memory_mixed_bytes_per_ns:.1f} GB/s",
        "operations": _arithmetic_rates(space),
        "chain": f"dependent additions of {target.add_latency_ns:.2f} ns",
        "launches": "the call, starting teams of threads, and barriers",
    }
    for level in target.levels:
        rates[level.name] = f"out of {level.name} at {level.read_bytes_per_ns:.0f} GB/s"
    lines = [f"at least {_time(bound.ns)}, limited by {bound.limiting}"]
    lines += [f"{name}: {_time(ns)}, {rates[name]}" for name, ns in bound.terms]
    if bound.phases:
        held = _size(float(sum(level.capacity_bytes for level in target.levels)))
        lines.append(f"the caches may hold {held} of each phase from before")
    return lines + [_phase(phase) for phase in bound.phases]


def _arithmetic_rates(space: Space) -> str:
    sizes = {task.dtype.size_bytes for task in space.problem.tasks}
    rates = {4: space.target.f32_flops_per_ns, 8: space.target.f64_flops_per_ns}
    named = [f"{rates[n]:.0f} GFLOP/s (f{8 * n})" for n in sorted(sizes & set(rates))]
    return "at " + " and ".join(named) if named else "of no floating-point type"


def _phase(phase: Phase) -> str:
    tasks = ", ".join(phase.tasks)
    parts = [f"{verb} {_arrays(amounts)}" for verb, amounts in _sides(phase) if amounts]
    return f"{tasks}: " + (" and ".join(parts) if parts else "surely touches no memory")


def _sides(phase: Phase) -> tuple[tuple[str, tuple[tuple[str, float], ...]], ...]:
    return ("reads", phase.read_bytes), ("writes", phase.written_bytes)


def _arrays(amounts: tuple[tuple[str, float], ...]) -> str:
    largest = sorted(amounts, key=lambda amount: -amount[1])
    return ", ".join(f"{name} {_size(n)}" for name, n in largest)


def _size(n: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if n >= scale:
            return f"{n / scale:.1f} {unit}"
    return f"{n:.0f} B"


def _time(ns: float) -> str:
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= scale:
            return f"{ns / scale:.3g} {unit}"
    return f"{ns:.3g} ns"
