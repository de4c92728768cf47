"""Pixels on GPUs: threads compute with small integers as CPUs do, on the emulator and for NVRTC's compiler."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .gpu_cases import NEEDS_COMPILER, drawn, gpu, nvrtc_is_there, root_of
from .pixel_cases import PROGRAMS, recorded, recorded_pipeline

pytestmark = NEEDS_COMPILER


def test_a_pipeline_is_numpys(tmp_path: Path, nvrtc_folder: Path) -> None:
    """Blocks in shared memory, values handed over, vectors of a thread."""
    problem, inputs = recorded_pipeline(9, 70)
    for candidate in drawn(root_of(problem), 5, 2):
        source = gpu.source_of(candidate)
        assert gpu.check(source, inputs, tmp_path) == "", source.text
        if nvrtc_is_there():
            assert gpu.compiler_says(source, nvrtc_folder) == "", source.text


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_numpys(name: str, tmp_path: Path) -> None:
    problem, inputs = recorded(name, np.int8)
    (candidate,) = drawn(root_of(problem), 2, 1)
    source = gpu.source_of(candidate)
    assert gpu.check(source, inputs, tmp_path) == "", source.text
