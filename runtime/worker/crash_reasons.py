"""Crash reasons: converts the death of a worker's child to a failure of its candidate."""

from __future__ import annotations

import signal

from ..api.outcome import Failure
from .channel import Death
from .messages import Fault, Ready

# Half of the unreadable margin around an array: one address is as near to one array at most.
_NEAR_BYTES = 8 << 20


def explain(death: Death, ready: Ready) -> Failure:
    """Returns the failure for the death of a child.

    `ready`: the child's report when it was prepared, with its memory limit and address ranges.
    """
    limit_bytes, fault = ready.limit_bytes, death.fault
    used_bytes = fault.used_bytes if fault is not None else death.used_bytes
    # A failed allocation leaves use just under the limit, by less than one block of the
    # allocator's growth.
    is_full = limit_bytes > 0 and used_bytes > limit_bytes - (64 << 20)
    if death.signal == signal.SIGKILL:
        return Failure("memory", "the system killed it, most likely for its memory", death.log)
    if is_full:
        return Failure("memory", f"it used up the {limit_bytes >> 20} MiB it may have", death.log)
    if death.timed_out:
        return Failure("timeout", f"no answer within {death.deadline_s:.1f} s", death.log)
    for said, first, end in ready.shared:
        if fault is not None and first <= fault.address < end:
            return Failure("wrong", said, death.log)
    where = _locate(fault, ready) if fault is not None else ""
    return Failure("crash", death.what + where, death.log)


def _locate(fault: Fault, ready: Ready) -> str:
    for name, first, end in ready.regions:
        if first <= fault.address < end:
            return f" writing inside the read-only input {name}"
    for name, first, end in ready.regions:
        if first - _NEAR_BYTES <= fault.address < end + _NEAR_BYTES:
            return f" {_offset(fault.address, first, end)} of {name}"
    return f" at address {fault.address:#x}" if fault.signal in (11, 7) else ""


def _offset(address: int, first: int, end: int) -> str:
    if address < first:
        return f"{first - address} bytes before the start"
    return f"{address - end} bytes past the end"
