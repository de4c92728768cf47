"""Names of devices on a command line: `cpu`, `cpu:0-3` (these cores), `cuda:1` (the second GPU)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

_NAME = re.compile(r"([a-z][a-z0-9_]*)(?::([0-9,\-]+))?")
_PART = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


@dataclass(frozen=True)
class NamedDevice:
    """A device named by its backend, with its exclusive cores (none given: all) or the number of a GPU."""

    name: str
    backend: str
    cpus: tuple[int, ...] = ()
    number: int | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that make a process use this device only."""
        return {} if self.number is None else {"CUDA_VISIBLE_DEVICES": str(self.number)}


def parse_device(text: str) -> NamedDevice:
    """Returns the device that a text names. Raises ValueError, one sentence."""
    match = _NAME.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no device, such as cpu, cpu:0-3 or cuda:0")
    backend, places = match[1], match[2]
    if places is None:
        return NamedDevice(backend, backend)
    numbers = _numbers(text, places)
    if backend != "cpu":
        if len(numbers) > 1:
            raise ValueError(f"{text!r} names several devices: repeat --device, once for each")
        return NamedDevice(text, backend, number=numbers[0])
    missing = sorted(set(numbers) - os.sched_getaffinity(0))
    if missing:
        raise ValueError(f"{text!r} names core {missing[0]}, which this process may not use")
    return NamedDevice(text, backend, cpus=tuple(sorted(numbers)))


def parse_devices(texts: Sequence[str]) -> tuple[NamedDevice, ...]:
    """Returns the named devices.

    Raises ValueError, one sentence, also if two share a core or are the same device.
    """
    found = [parse_device(text) for text in texts]
    for k, one in enumerate(found):
        for other in found[:k]:
            if one.name == other.name:
                raise ValueError(f"the device {one.name} is named twice")
            if one.backend == other.backend and _overlap(one, other):
                raise ValueError(f"the devices {other.name} and {one.name} share cores")
    return tuple(found)


def spare_cores(devices: Sequence[NamedDevice]) -> tuple[int, ...]:
    """Returns the cores of this process that belong to no device; () if some device has all cores."""
    taken: set[int] = set()
    for device in devices:
        if device.backend == "cpu":
            taken |= set(device.cpus) or os.sched_getaffinity(0)
    return tuple(sorted(os.sched_getaffinity(0) - taken))


def _overlap(a: NamedDevice, b: NamedDevice) -> bool:
    if a.backend != "cpu":
        return a.number is None or b.number is None
    return not a.cpus or not b.cpus or bool(set(a.cpus) & set(b.cpus))


def _numbers(text: str, places: str) -> list[int]:
    numbers: list[int] = []
    for part in places.split(","):
        match = _PART.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            raise ValueError(f"{text!r} is no device: {part!r} is no number and no range")
        numbers += range(first, last + 1)
    return list(dict.fromkeys(numbers))
