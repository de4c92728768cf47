"""Limit on the private memory of generated code, in addition to its arrays."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def unlimited_memory() -> Iterator[None]:
    """Context manager without the limit: the memory of a probe is not counted for a candidate."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def limit_memory(allowance_bytes: int | None) -> int:
    """Limits private memory to the current use plus the allowance (None: no limit). Returns the limit in bytes."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if allowance_bytes is None:
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
        return 0
    used_pages = int(Path("/proc/self/statm").read_text().split()[5])
    limit_bytes = used_pages * resource.getpagesize() + allowance_bytes
    if hard != resource.RLIM_INFINITY:
        limit_bytes = min(limit_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, hard))
    return limit_bytes
