"""The experiment on registers counted and given."""

from __future__ import annotations

import pytest
from kernelscape.experiments import gpu_registers
from kernelscape.experiments.gpu_registers import Kernel, summary
from kernelscape.experiments.writing import read_results
from kernelscape.runtime.device import requirements

nvrtc = pytest.mark.skipif(
    not any(r.what == "nvrtc" and r.found for r in requirements("cuda")), reason="no NVRTC"
)


@nvrtc
def test_a_few_kernels_make_a_table(tmp_path):
    assert gpu_registers.main(["--n", "6", "-o", str(tmp_path)]) == 0
    found = read_results("gpu_registers", tmp_path)
    assert found["kernels"] >= 6
    assert found["kernels"] == sum(group["kernels"] for group in found["groups"])
    assert "registers to expect" in (tmp_path / "gpu_registers.md").read_text()


def test_half_of_the_kernels_is_asked_what_the_other_half_taught():
    kernels = [
        Kernel("matmul", "f32", 256, 4 + k // 2, 34 + k // 2, 0, k // 2 > 6) for k in range(20)
    ]
    found = summary([*kernels, Kernel("matmul", "f32", 256, 128, 64, 0, True)])
    assert (found["base"], found["slope"]) == (30, 1)
    assert (found["error_of_counts"], found["error_of_expectations"]) == (30, 0)
    assert (found["least_ratio"], found["room"]) == (0.5, 2)
    assert (found["cut"], found["cut_that_fit"]) == (7, 7)
