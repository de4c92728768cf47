"""First candidates as the compiler of CUDA reports them: no spills, and blocks beside one another where memory is the limit."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernelscape.runtime.api.artifact import BuildReport
from kernelscape.runtime.api.errors import DeviceError
from kernelscape.runtime.cuda import nvrtc
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.proposals import default_sketch, sketches
from kernelscape.space.candidate import Candidate
from kernelscape.testing import gpu_checking
from kernelscape.testing.machines import library_space

# Blocks a multiprocessor: where loads are most of the time, one block goes on while another waits at a barrier.
LEAST_BLOCKS = {"axpydot": 2, "gemver": 2, "bicgk": 2, "matmul": 1}


def sources(name):
    """The distinct texts of all sketches of a library sequence."""
    space = library_space(name, gpu_checking.target(), n=1024)
    tried = dict.fromkeys((default_sketch(space), *sketches(space)))
    made = [complete_sketch(space.root(), sketch) for sketch in tried]
    found = [gpu_checking.source_of(x) for x in made if isinstance(x, Candidate)]
    return list({x.text: x for x in found}.values())


@pytest.mark.parametrize("sheet", gpu_checking.SHEETS)
@pytest.mark.parametrize("name", LEAST_BLOCKS)
def test_sketches_fit_without_spills(name: str, sheet: str, tmp_path: Path) -> None:
    try:
        nvrtc.library()
    except DeviceError as e:
        pytest.skip(str(e))
    device = open_device("cuda", DeviceOptions(build_folder=tmp_path, profile=sheet))
    texts = sources(name)
    assert len(texts) > 4
    for source in texts:
        report = device.reporter.report(source)
        assert isinstance(report, BuildReport), report
        spilled = [(x.kernel, x.spill_bytes) for x in report.launches if x.spill_bytes]
        assert not spilled, source.text
        assert all(0 < x.registers <= 255 for x in report.launches)
        alone = [
            (x.kernel, x.shape, x.registers, x.shared_bytes, x.limit)
            for x in report.launches
            if x.blocks_per_core < LEAST_BLOCKS[name]
        ]
        assert not alone, source.text
