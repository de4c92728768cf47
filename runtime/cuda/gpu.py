"""The GPU of this machine: its presence, and its facts from a data sheet or from the driver."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ..api.errors import DeviceError
from .driver import driver, gpu
from .profiles import DataSheet, find_profile


class Gpu:
    """The first GPU, or a data sheet if no GPU can be used. Raises DeviceError if there is no such sheet."""

    def __init__(self, sheet: str) -> None:
        self._sheet = find_profile(sheet)

    @cached_property
    def is_here(self) -> bool:
        """True if there is a GPU that the driver can use."""
        try:
            gpu()
        except DeviceError:
            return False
        return True

    @cached_property
    def profile(self) -> DataSheet:
        """Data sheet of the GPU; without a GPU, the sheet named in the options."""
        return _profile_of(gpu()) if self.is_here else self._sheet


_SHEETS = {"H200": "h200", "H100 80GB HBM3": "h100", "A100": "a100", "RTX 4090": "rtx4090"}
# Lanes for float32 a multiprocessor, and how many of them a float64 takes, by major and minor number of the architecture.
_LANES = {(7, 5): (64, 32), (8, 0): (64, 2), (9, 0): (128, 2), (10, 0): (128, 2)}
_OTHER_LANES = (128, 2)  # no chip has more


def _profile_of(device: Any) -> DataSheet:
    """Returns the data sheet of a known GPU; for an unknown one, a sheet from the driver's attributes."""
    name = str(device.name())
    for words, key in _SHEETS.items():
        if words in name:
            return find_profile(key)
    attribute, ask = driver().device_attribute, device.get_attribute
    major, minor = device.compute_capability()
    lanes, per_double = _LANES.get((major, minor), _OTHER_LANES)
    cores = ask(attribute.MULTIPROCESSOR_COUNT)
    ghz = ask(attribute.CLOCK_RATE) * 1e-6
    flops = 2.0 * lanes * cores * ghz
    memory_ghz = 2 * ask(attribute.MEMORY_CLOCK_RATE) * 1e-6  # two transfers a clock
    return DataSheet(
        name=name,
        source="the driver",
        architecture=f"sm_{major}{minor}",
        multiprocessors=cores,
        clock_ghz=ghz,
        memory_bytes=device.total_memory(),
        memory_bytes_per_ns=memory_ghz * ask(attribute.GLOBAL_MEMORY_BUS_WIDTH) / 8,
        f32_flops_per_ns=flops,
        f64_flops_per_ns=flops / per_double,
        l1_bytes=256 << 10,
        l2_bytes=ask(attribute.L2_CACHE_SIZE),
        shared_bytes_per_core=ask(attribute.MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
        shared_bytes_per_block_most=ask(attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        threads_per_core=ask(attribute.MAX_THREADS_PER_MULTIPROCESSOR),
        blocks_per_core=32,
    )
