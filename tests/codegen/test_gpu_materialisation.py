"""Values that two bodies compute alike, on a GPU: blocks load what an earlier launch has stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernelscape.space import choices as ch
from kernelscape.space.candidate import DeadEnd
from kernelscape.space.families.materialisation import RECOMPUTED, STORED

from .gpu_cases import NEEDS_COMPILER, drawn, gpu, nvrtc_is_there, root_of
from .materialisation_cases import decided, inputs_of, loads_stored_values, nest, problem_of

pytestmark = NEEDS_COMPILER


@pytest.mark.parametrize("value", [RECOMPUTED, STORED])
def test_values_of_another_launch_are_those_of_the_interpreter(
    value: int, tmp_path: Path, nvrtc_folder: Path
) -> None:
    recording, problem, _ = problem_of(nest)
    root = decided(root_of(problem), value)
    fused = root.space.variables.fused[0, 1]
    together = root.decide(fused, 1 << ch.SAME_LAUNCH)
    assert isinstance(together, DeadEnd) == (value == STORED)
    (candidate,) = drawn(root, 1, 1)
    assert loads_stored_values(candidate) == (value == STORED)
    source = gpu.source_of(candidate)
    assert gpu.check(source, inputs_of(recording, nest), tmp_path) == "", source.text
    if nvrtc_is_there():
        assert gpu.compiler_says(source, nvrtc_folder) == ""
