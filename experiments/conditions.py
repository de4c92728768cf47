"""The stamp of every result: what machine, under which conditions, with which versions."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Any

import msgspec

from ..runtime.cpu.device import CpuDevice
from ..runtime.measure.conditions import take_conditions


def stamp(device: CpuDevice | None = None, memory_bytes_per_ns: float = 0.0) -> dict[str, Any]:
    """The conditions now, as JSON values; with a device also its compiler and flags."""
    if device is None:
        return dict(msgspec.to_builtins(take_conditions(memory_bytes_per_ns=memory_bytes_per_ns)))
    taken = take_conditions(
        compiler=device.builder.compiler.version,
        flags=device.builder.compiler.flags,
        memory_bytes_per_ns=memory_bytes_per_ns,
    )
    return dict(msgspec.to_builtins(taken))


def stamp_text(taken: dict[str, Any]) -> str:
    """The stamp as Markdown."""
    caches = ", ".join(f"{n} {b >> 10} KiB" for n, b in taken["caches"].items())
    versions = ", ".join(f"{n} {v}" for n, v in taken["versions"].items())
    lines = [
        f"- taken {taken['taken']}, load {taken['load_1min']:.1f} at that moment",
        f"- {taken['cpu']}, {taken['cores']} cores, caches of all cores {caches}",
        f"- {taken['kernel']}, huge pages {taken['huge_pages']}, {taken['binding']}",
        f"- {versions}",
    ]
    if taken["compiler"]:
        lines.append(f"- {taken['compiler']}, {' '.join(taken['flags'])}")
    if taken["memory_bytes_per_ns"]:
        lines.append(f"- memory read {taken['memory_bytes_per_ns']:.1f} GB/s at that moment")
    return "\n".join(lines)


def moment() -> dict[str, Any]:
    """When a row was taken, and how busy the machine was."""
    taken = stamp()
    return {key: taken[key] for key in ("taken", "load_1min")}


def versions_in(pythons: Mapping[str, str]) -> dict[str, str]:
    """The version of each package in the environment of its interpreter. Raises OSError, ValueError where it is not there."""
    found = {}
    for package, python in pythons.items():
        code = f"from importlib.metadata import version; print(version({package!r}))"
        done = subprocess.run([python, "-c", code], capture_output=True, text=True)
        if done.returncode:
            raise ValueError(f"{python} has no {package}")
        found[package] = done.stdout.strip()
    return found
