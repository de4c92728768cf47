"""CPU properties from the operating system: model, cores, caches, vector width."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

_SYSFS = Path("/sys/devices/system/cpu")
_SUFFIXES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Cache:
    """The data or unified caches of one level: all instances that usable cores can access."""

    name: str  # "L1"
    capacity_bytes: int  # of all instances together
    n_instances: int
    # No part of the machine's key:
    ways: int = field(default=0, repr=False)  # lines of a set, 0: unknown
    shared_by: int = field(default=1, repr=False)  # most cores that share an instance


@dataclass(frozen=True)
class HostCpu:
    """A CPU, restricted to the cores that this process may use."""

    model: str
    cores: int
    caches: tuple[Cache, ...]  # innermost first
    vector_bytes: int
    memory_bytes: int

    @property
    def key(self) -> str:
        """Key usable in file names, equal for machines that may share calibrations."""
        parts = (self.model, self.cores, self.caches, self.vector_bytes)
        digest = hashlib.blake2b(repr(parts).encode(), digest_size=4).hexdigest()
        name = re.sub(r"[^a-z0-9]+", "-", self.model.lower()).strip("-")
        return f"cpu-{name[:40]}-{self.cores}c-{digest}"


def read_machine() -> HostCpu:
    """Returns the CPU of this machine. Its caches are () if the system does not report them."""
    info = _read(Path("/proc/cpuinfo"))
    cpus = sorted(os.sched_getaffinity(0))
    return HostCpu(
        model=_model(info),
        cores=len(cpus),
        caches=_caches(cpus),
        vector_bytes=vector_bytes(info),
        memory_bytes=os.sysconf("SC_PAGESIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def cpu_key() -> str:
    """Returns a key that is equal for CPUs with the same instructions, as far as the system reports them."""
    info = _read(Path("/proc/cpuinfo"))
    found = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", info, re.MULTILINE)
    features = sorted(found.group(1).split()) if found else [platform.processor()]
    text = " ".join([platform.machine(), *features])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _model(info: str) -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def vector_bytes(info: str | None = None) -> int:
    """Returns the bytes of a vector register, from the system's description of the CPU (`info`)."""
    if info is None:
        info = _read(Path("/proc/cpuinfo"))
    found = re.search(r"^flags\s*:\s*(.+)$", info, re.MULTILINE)
    flags = found.group(1).split() if found else []
    if "avx512f" in flags:
        return 64
    return 32 if "avx2" in flags else 16


def _caches(cpus: list[int]) -> tuple[Cache, ...]:
    sizes: dict[int, dict[str, int]] = {}  # level -> cores that share an instance -> bytes
    ways: dict[int, set[tuple[int, int]]] = {}  # level -> ways and bytes of an instance
    sharers: dict[int, Counter[str]] = {}  # level -> cores that share an instance -> usable ones
    for cpu in cpus:
        for index in sorted((_SYSFS / f"cpu{cpu}" / "cache").glob("index*")):
            if _read(index / "type").strip() not in ("Data", "Unified"):
                continue
            size = re.fullmatch(r"(\d+)([KMG])", _read(index / "size").strip())
            level = _read(index / "level").strip()
            if size is None or not level.isdigit():
                continue
            shared = _read(index / "shared_cpu_list").strip() or str(cpu)
            n_bytes = int(size[1]) * _SUFFIXES[size[2]]
            sizes.setdefault(int(level), {})[shared] = n_bytes
            sharers.setdefault(int(level), Counter())[shared] += 1
            text = _read(index / "ways_of_associativity").strip()
            n_ways = int(text) if text.isdigit() else 0
            ways.setdefault(int(level), set()).add((n_ways, n_bytes))
    # Cores with other caches: of their sets nothing is said.
    same = {level: known.pop()[0] if len(known) == 1 else 0 for level, known in ways.items()}
    found = []
    for number, instances in sorted(sizes.items()):
        n_bytes = sum(instances.values())
        # Of caches of several sizes the share of these cores is no less than the largest.
        largest = -(-max(instances.values()) * len(cpus) // max(n_bytes, 1))
        shared_by = max(largest, *sharers[number].values())
        found.append(Cache(f"L{number}", n_bytes, len(instances), same[number], shared_by))
    return tuple(found)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def flush_stdout() -> None:
    """Flushes Python's standard output, so that it precedes output of C code."""
    if sys.stdout is not None:
        sys.stdout.flush()
