"""Measurement conditions: the machine and the circumstances under which times were taken."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

_PACKAGES = ("kernelscape", "numpy", "numba", "ortools")


class Conditions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Conditions of a measurement on a machine. Unavailable numbers are 0, unavailable texts empty."""

    taken: str  # UTC, ISO 8601
    machine: str  # key, equal for machines that share calibrations
    cpu: str
    cores: int
    caches: dict[str, int]  # bytes of all instances of a level
    kernel: str
    compiler: str
    flags: list[str]
    versions: dict[str, str]
    load_1min: float
    huge_pages: str  # the kernel's policy, e.g. "always [madvise] never"
    governor: str
    binding: str
    memory_bytes_per_ns: float  # what a probe read at that moment


def take_conditions(
    *,
    compiler: str = "",
    flags: tuple[str, ...] = (),
    memory_bytes_per_ns: float = 0.0,
    accelerator: str = "",
) -> Conditions:
    """Returns the current conditions of this machine; the arguments are facts that the caller measured."""
    from datetime import UTC, datetime

    from ..host import read_machine

    machine = read_machine()
    return Conditions(
        taken=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=f"{machine.key} {accelerator}".strip(),
        cpu=machine.model,
        cores=machine.cores,
        caches={c.name: c.capacity_bytes for c in machine.caches},
        kernel=f"{platform.system()} {platform.release()} {platform.machine()}",
        compiler=compiler,
        flags=list(flags),
        versions={"python": platform.python_version(), **_versions()},
        load_1min=os.getloadavg()[0],
        huge_pages=_line("/sys/kernel/mm/transparent_hugepage/enabled"),
        governor=_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        binding="a thread for each CPU",
        memory_bytes_per_ns=memory_bytes_per_ns,
    )


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
