"""Early memory errors: allocations beyond free memory fail at once, before the system kills a process."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def available_bytes() -> int | None:
    """Returns the bytes available to programs without swapping; None if the system does not report them."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(found[0][1]) << 10 if found else None


def total_bytes() -> int:
    """Returns the bytes of this machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def n_killed_for_memory() -> int | None:
    """Number of processes that the out-of-memory killer has ended since boot; None if not reported."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


@contextmanager
def within_free_memory() -> Iterator[None]:
    """Context manager: allocations beyond the memory free at its start raise MemoryError (Linux only)."""
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
