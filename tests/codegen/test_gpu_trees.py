"""Texts of GPUs in which parts of trees lie otherwise than programs have them: the compiler of CUDA takes them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.api.artifact import BuildReport
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.decisions import fix
from kernelscape.testing import checking, sparse_emulation
from kernelscape.testing.sparse_emulation import Shape

from .gpu_cases import gpu, nvrtc_is_there

pytest.importorskip("kernelscape.runtime.cuda")

POINTERS = Shape((("pointer", (2, 3)), ("bitmasked", (4, 2))), 0, 2)
HASHED = Shape((("dense", (2, 1)), ("hash", (3, 5)), ("dense", (2, 2))), 1, 3)
ALL = [("store", 5), ("drop", 3), ("append", 4), ("bump", 0)]
LOOPS = [("bump", 0), ("bump", 0)]  # a list is made once, and taken twice
WAYS = [
    (POINTERS, ALL, [("leaf_layout", "AOSOA"), ("cell_order", "MORTON")]),
    (POINTERS, LOOPS, [("record", "CELL"), ("leaf_layout", "AOS"), ("cell_order", "COLUMNS")]),
    (HASHED, ALL, [("directory", "TABLE"), ("leaf_layout", "AOS"), ("cell_order", "MORTON")]),
]


@pytest.mark.skipif(not nvrtc_is_there(), reason="no NVRTC")
def test_converted_trees_are_taken_by_the_compiler_of_cuda(tmp_path: Path) -> None:
    sources = []
    for shape, calls, decided in WAYS:
        recording, _ = sparse_emulation.recorded(shape, calls)
        root = fix(build_space(normalise(recording), gpu.target()), decided).root()
        candidate = None
        while not isinstance(candidate, Candidate):
            assert isinstance(root, Candidate), root
            candidate = checking.random_candidate(root, np.random.default_rng(2))
        converting = [t.task.name for t in plan_of(candidate).tasks][
            len(root.space.problem.tasks) :
        ]
        assert len(converting) >= len(decided) - 1  # tiles and orders of leaves go together
        sources.append(gpu.source_of(candidate))
    # 550: old values of updates of masks that nobody looks at.
    device = open_device("cuda", DeviceOptions(build_folder=tmp_path, profile="h200"))
    for source in sources:
        quiet = replace(source, flags=(*source.flags, "--diag-suppress=550"))
        report = device.reporter.report(quiet)
        assert isinstance(report, BuildReport), report
        assert report.warnings == ""
        assert len(report.launches) == len(source.launches)
