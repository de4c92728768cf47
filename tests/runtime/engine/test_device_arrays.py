"""Copies of arrays on a device: of sparse trees, only the part in use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from kernelscape.runtime.engine.device_arrays import DeviceArrays, Part
from kernelscape.runtime.fake.device import FakeDevice


@dataclass
class Section:
    """An array of which the one counter of a tree says how much is in use; `is_whole`: the counter itself."""

    counters: Any
    is_whole: bool = False

    def n_used(self) -> int:
        return 1 if self.is_whole else int(self.counters[0])


def test_counters_are_read_before_the_arrays_that_they_are_about() -> None:
    """The array is on the device before the counter, and stays as it is behind the part in use."""
    arrays = DeviceArrays(FakeDevice().runner)
    counters, field = np.array([2]), np.zeros((2, 8), np.float32)
    field[:, :2] = 1
    part = Part(Section(counters), 4, 8)
    there = arrays.on_device(field, is_written=True, part=part)
    assert there.download().tolist() == [[1, 1, 0, 0, 0, 0, 0, 0]] * 2
    whole = Part(Section(counters, is_whole=True), 1, 1)
    counter = arrays.on_device(counters, is_written=True, part=whole)
    there.upload(np.full((2, 8), 3, np.float32))  # as a kernel does
    counter.upload(np.array([4]))
    assert arrays.is_newer(counters) and arrays.n_held(field) == 8
    arrays.to_host()
    assert counters.tolist() == [4] and field.tolist() == [[3, 3, 3, 3, 0, 0, 0, 0]] * 2
    counters[0], field[...] = 1, 0  # as Python makes cells inactive
    assert arrays.on_device(field, is_written=True, part=part) is there
    assert there.download().tolist() == [[0, 0, 0, 0, 3, 3, 3, 3]] * 2
