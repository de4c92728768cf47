"""Explanation of a bound in text: for every resource its busy time and its load."""

from __future__ import annotations

import msgspec

from ...space.candidate import Space
from ...space.targets.kind import CPU, GPU
from ...space.targets.target import Target
from .bounder import Bound, Bounder, Phase
from .core_costs import CLOCK_SLACK
from .gathers import lanes_rate
from .operations import SureOperations
from .tables import function_rates
from .weights import calls_of


class ResourceUse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Guaranteed use of one resource. `ns`: the time of this use alone.

    `amount` is in `unit`: "B", "flop", "instructions", "additions in a row", or "" if nothing is
    counted.
    """

    resource: str
    ns: float
    amount: float
    unit: str


def explain(bound: Bound, space: Space) -> list[str]:
    """Returns one sentence per resource, the limiting one first, then one per phase."""
    rates = rate_texts(space)
    lines = [f"at least {time_text(bound.ns)}, limited by {bound.limiting}"]
    lines += [f"{name}: {time_text(ns)}, {rates[name]}" for name, ns in bound.terms]
    return lines + explain_phases(bound, space)


def explain_phases(bound: Bound, space: Space) -> list[str]:
    """Returns sentences on the possible cache contents, then one per phase on the bytes of each array."""
    if not bound.phases:
        return []
    return [_KEPT[space.target.kind](space.target), *map(_phase, bound.phases)]


def _kept_by_caches(target: Target) -> str:
    held = size_text(float(sum(level.capacity_bytes for level in target.levels)))
    kept = f"the caches may hold {held} of each phase from before"
    if target.streams:
        kept += ", of what is gone through once a call no more than was measured"
    return kept


def _kept_by_l2(target: Target) -> str:
    """Returns a sentence on the possible contents of a GPU's L2.

    Levels inside multiprocessors are empty at a launch.
    """
    held = size_text(float(target.levels[-1].capacity_bytes))
    return f"L2 may hold {held} of each launch from before"


_KEPT = {CPU: _kept_by_caches, GPU: _kept_by_l2}


def rate_texts(space: Space) -> dict[str, str]:
    """Returns, by resource, the assumed rate as text."""
    target = space.target
    rates = {
        "memory read": f"at {target.memory_read_bytes_per_ns:.1f} GB/s",
        "memory write": f"at {target.memory_write_bytes_per_ns:.1f} GB/s",
        "memory": f"reads and writes at {target.memory_mixed_bytes_per_ns:.1f} GB/s",
        "streams": "what is gone through once a call, at the best mix of measured ways for its size",
        "operations": _arithmetic_rates(space),
        "chain": f"dependent additions of {target.add_latency_ns:.2f} ns",
        "ports": _port_rates(target),
        "packing": "of the ports' loads and stores, those that pack blocks of operands",
        "tiles": "what one iteration of some loop touches beyond what caches (or few of their sets) hold, read again in the next",
        "tails": "of the operations, what partial register tiles add, element by element or whole",
        "functions": "the one that takes longest, " + _function_rates(space),
        "atomics": f"atomic updates, as if no other core wanted the element: {_atomic_rates(target)}",
    }
    for level in target.levels:
        rates[level.name] = f"out of {level.name} at {level.read_bytes_per_ns:.0f} GB/s"
    return rates | _RATES_OF_KIND[target.kind](target)


def _port_rates(target: Target) -> str:
    rates = {
        "loads": target.loads_per_ns,
        "loads of vectors": target.vector_loads_per_ns,
        "gathered elements": lanes_rate(target),
        "stores": target.stores_per_ns,
        "stores of vectors": target.vector_stores_per_ns,
    }
    return ", ".join(f"{n:.0f} {what} a ns" for what, n in rates.items() if n)


def _function_rates(space: Space) -> str:
    """Returns the rates of the functions that a sequence surely computes, as text."""
    counter, rates = SureOperations(space.profile), function_rates(space.target)
    keys = {key for task in space.problem.tasks for key in calls_of(counter.amounts(task))}
    cores = space.target.cores
    said = [
        f"{x.op} {cores / x.vector_per_ns:.2f} ns an element on a core in vectors "
        f"and {cores / x.scalar_per_ns:.2f} one by one ({x.dtype})"
        for x in (rates[key] for key in sorted(keys & rates.keys()))
    ]
    return ", ".join(said) or "of none is the rate known"


def _atomic_rates(target: Target) -> str:
    rates = {
        "f32": target.atomic_f32_per_ns,
        "f64": target.atomic_f64_per_ns,
        "i32": target.atomic_i32_per_ns,
    }
    return ", ".join(f"{target.cores / n:.1f} ns on a core ({t})" for t, n in rates.items() if n)


def _rates_of_warps(target: Target) -> dict[str, str]:
    return {
        "L1": f"sectors of warps' requests at {target.levels[0].read_bytes_per_ns:.0f} GB/s",
        "shared memory": f"requests of warps at {target.shared_bytes_per_ns:.0f} GB/s",
        "issue": f"{target.instructions_per_ns:.0f} instructions of warps a ns",
        "latency": "dependent additions, barriers and loads, wave by wave of blocks",
        "launches": "one after the other",
    }


def _rates_of_teams(_: Target) -> dict[str, str]:
    return {"launches": "the call, starting teams of threads, and barriers"}


_NOT_COUNTED = {
    *("launches", "latency", "ports", "packing", "tiles", "tails"),
    *("atomics", "functions"),
}
_RATES_OF_KIND = {CPU: _rates_of_teams, GPU: _rates_of_warps}


def uses(bounder: Bounder, bound: Bound) -> tuple[ResourceUse, ...]:
    """Returns the terms of a bound with their amounts, largest first; `bounder` computed the bound.

    Bytes are distinct bytes of each phase that no closer level can have held before.
    """
    return tuple(
        ResourceUse(name, ns, *_amount(bounder, bound, name, ns)) for name, ns in bound.terms
    )


def _amount(bounder: Bounder, bound: Bound, name: str, ns: float) -> tuple[float, str]:
    tables, space = bounder.tables, bounder.space
    if name == "operations":
        counter = SureOperations(space.profile)
        return float(sum(t.n_runs * sum(counter.count(t)) for t in space.problem.tasks)), "flop"
    if name == "chain":
        return ns / space.target.add_latency_ns, "additions in a row"
    if name in _NOT_COUNTED:
        return 0.0, ""
    if bounder.gpu is not None:
        return _moved_on_gpu(bounder, name, ns)
    if name == "streams":
        moved = (p.n_runs * n for p in bound.phases for _, n in (*p.read_bytes, *p.written_bytes))
        return sum(moved), "B"
    cached = float(tables.capacity[-1])
    if name == "memory write":
        held, rate = cached, tables.write_rate
    elif name == "memory":
        held, rate = cached + min(cached, tables.reused_bytes), tables.mixed_rate
    elif name == "memory read":
        held, rate = cached, float(tables.rate[-1])
    else:
        level = [x.name for x in space.target.levels].index(name)
        held, rate = float(tables.capacity[level]), float(tables.rate[level])
        if level < len(space.target.levels) - 1 or level == 0:
            # The term of what one core alone reads counts at a share of the rate of all.
            rate /= max(1.0, tables.cores / CLOCK_SLACK)
    # The term is the larger of the sum over phases and of all as one phase, which only it knows.
    return max(_crossing(bound, name, held), ns * rate), "B"


def _moved_on_gpu(bounder: Bounder, name: str, ns: float) -> tuple[float, str]:
    """Returns the amount that keeps a GPU's resource busy for `ns` at its full rate, and its unit.

    Idle multiprocessors and unused parts of sectors are included.
    """
    target, tables = bounder.space.target, bounder.tables
    if name == "issue":
        return ns * target.instructions_per_ns, "instructions"
    rates = {
        "memory read": float(tables.rate[-1]),
        "memory write": tables.write_rate,
        "memory": tables.mixed_rate,
        "L2": target.levels[-1].read_bytes_per_ns,
        "L1": target.levels[0].read_bytes_per_ns,
        "shared memory": target.shared_bytes_per_ns,
    }
    return ns * rates[name], "B"


def _crossing(bound: Bound, name: str, held_bytes: float) -> float:
    """Returns the bytes of all phases beyond the `held_bytes` that may be cached when each begins."""
    total = 0.0
    for phase in bound.phases:
        read = sum(n for _, n in phase.read_bytes) if name != "memory write" else 0.0
        written = sum(n for _, n in phase.written_bytes) if name.startswith("memory") else 0.0
        written = 0.0 if name == "memory read" else written
        total += max(0.0, read + written - held_bytes) * phase.n_runs
    return total


def _arithmetic_rates(space: Space) -> str:
    sizes = {task.dtype.size_bytes for task in space.problem.tasks}
    rates = {4: space.target.f32_flops_per_ns, 8: space.target.f64_flops_per_ns}
    named = [
        f"{rates[n]:.0f} GFLOP/s (f{8 * n}{_beside(space.target, n)})"
        for n in sorted(sizes & set(rates))
    ]
    return "at " + " and ".join(named) if named else "of no floating-point type"


def _beside(target: Target, size_bytes: int) -> str:
    """Returns the rate with additions beside multiply-adds as text; "" where it was not measured or is no higher."""
    fused, mixed = {
        4: (target.f32_flops_per_ns, target.f32_mixed_flops_per_ns),
        8: (target.f64_flops_per_ns, target.f64_mixed_flops_per_ns),
    }[size_bytes]
    return f", with further additions {mixed:.0f}" if mixed > fused else ""


def _phase(phase: Phase) -> str:
    tasks = ", ".join(phase.tasks)
    parts = [f"{verb} {_arrays(amounts)}" for verb, amounts in _sides(phase) if amounts]
    again = f", {phase.n_runs} times" if phase.n_runs > 1 else ""
    return f"{tasks}: {' and '.join(parts) if parts else 'surely touches no memory'}{again}"


def _sides(phase: Phase) -> tuple[tuple[str, tuple[tuple[str, float], ...]], ...]:
    return ("reads", phase.read_bytes), ("writes", phase.written_bytes)


def _arrays(amounts: tuple[tuple[str, float], ...]) -> str:
    largest = sorted(amounts, key=lambda amount: -amount[1])
    return ", ".join(f"{name} {size_text(n)}" for name, n in largest)


def size_text(n: float) -> str:
    """Returns a number of bytes as readable text."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if n >= scale:
            return f"{n / scale:.1f} {unit}"
    return f"{n:.0f} B"


def time_text(ns: float) -> str:
    """Returns a number of nanoseconds as readable text."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= scale:
            return f"{ns / scale:.3g} {unit}"
    return f"{ns:.3g} ns"
