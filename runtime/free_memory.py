"""Arguments that do not fit into memory: an error at once, where the system would let them grow and then end some process."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def available_bytes() -> int | None:
    """Memory that programs can get now without swapping; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(found[0][1]) << 10 if found else None


def total_bytes() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def n_killed_for_memory() -> int | None:
    """The number of processes that the system has ended for their memory since it started; None where it does not say."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


@contextmanager
def within_free_memory() -> Iterator[None]:
    """Inside, allocations beyond the memory that is free now raise MemoryError (Linux; elsewhere nothing is limited)."""
    free = available_bytes()
    if free is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    limits = (used + free, *(x for x in (soft, hard) if x != resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
