"""Texts of GPUs in which parts of trees lie otherwise than programs have them: the compiler of CUDA takes them."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest
from kernelscape.codegen.loops.verify import IllFormedError, verify
from kernelscape.codegen.passes.pipeline import launches_of
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text.source import Source
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
LISTS = [
    (shape, LOOPS, [("listgen", "GENERATE"), ("compaction", way)])
    for shape, way in ((POINTERS, "APPEND"), (HASHED, "APPEND"), (POINTERS, "BLOCK_SCAN"))
]


@pytest.mark.skipif(not nvrtc_is_there(), reason="no NVRTC")
def test_converted_trees_are_taken_by_the_compiler_of_cuda(tmp_path: Path) -> None:
    made = [drawn(*way) for way in WAYS]
    for candidate, (_, _, decided) in zip(made, WAYS, strict=True):
        converting = [t.task.name for t in plan_of(candidate).tasks][
            len(candidate.space.problem.tasks) :
        ]
        assert len(converting) >= len(decided) - 1  # tiles and orders of leaves go together
    compiled([gpu.source_of(x) for x in made], tmp_path)


@pytest.mark.skipif(not nvrtc_is_there(), reason="no NVRTC")
def test_lists_of_many_threads_are_taken_by_the_compiler_of_cuda(tmp_path: Path) -> None:
    """Threads look at a cell each, where there are enough."""
    made = [drawn(*way) for way in LISTS]
    sources = [gpu.source_of(x) for x in made]
    compiled(sources, tmp_path)
    for source, candidate in zip(sources, made, strict=True):
        tasks = plan_of(candidate).tasks
        of_lists = [
            x for x in source.launches if any(tasks[t].compaction != "SERIAL" for t in x.tasks)
        ]
        assert of_lists
        assert all(prod((*x.grid, *x.block)) >= 32 for x in of_lists)


def test_what_many_threads_make_is_alone_in_its_launch() -> None:
    candidate = drawn(POINTERS, LOOPS, [("compaction", "BLOCK_SCAN")])
    plan = plan_of(candidate)
    launches = launches_of(plan, candidate.space.target)
    (made,) = (x for x in launches if plan.tasks[x.tasks[0]].compaction != "SERIAL")
    other = next(x for x in launches if x is not made)
    verify(made, plan)
    both = replace(made, tasks=made.tasks + other.tasks, nodes=made.nodes + other.nodes)
    with pytest.raises(IllFormedError, match="shares the blocks of its lists"):
        verify(both, plan)


@pytest.mark.skipif(not nvrtc_is_there(), reason="no NVRTC")
@pytest.mark.parametrize("shape", [POINTERS, HASHED])
def test_pools_reclaimed_by_many_threads_are_taken_by_the_compiler_of_cuda(
    shape: Shape, tmp_path: Path
) -> None:
    """Threads clear a slot each, one pool behind the other; the counters of all change behind them."""
    candidate = drawn(shape, ALL, [("settling", "ALL_BLOCKS")])
    source = gpu.source_of(candidate)
    compiled([source], tmp_path)
    tasks = plan_of(candidate).tasks
    shared = [x for x in source.launches if any(tasks[t].settling != "ONE_THREAD" for t in x.tasks)]
    assert shared
    assert all(prod((*x.grid, *x.block)) >= 256 for x in shared)


def test_a_pool_that_many_threads_reclaim_is_alone_in_its_launch() -> None:
    candidate = drawn(POINTERS, ALL, [("settling", "ALL_BLOCKS")])
    plan = plan_of(candidate)
    launches = launches_of(plan, candidate.space.target)
    own = next(x for x in launches if plan.tasks[x.tasks[0]].settling == "ALL_BLOCKS")
    other = next(x for x in launches if x is not own and x.tasks[0] > own.tasks[0])
    verify(own, plan)
    both = replace(own, tasks=own.tasks + other.tasks, nodes=own.nodes + other.nodes)
    with pytest.raises(IllFormedError, match="shares the blocks of its pools"):
        verify(both, plan)


def drawn(shape: Shape, calls: list[tuple[str, int]], decided: list[tuple[str, str]]) -> Candidate:
    """A random candidate of a sequence, with decisions."""
    recording, _ = sparse_emulation.recorded(shape, calls)
    root = fix(build_space(normalise(recording), gpu.target()), decided).root()
    candidate = None
    while not isinstance(candidate, Candidate):
        assert isinstance(root, Candidate), root
        candidate = checking.random_candidate(root, np.random.default_rng(2))
    return candidate


def compiled(sources: Sequence[Source], tmp_path: Path) -> None:
    """Compiles all texts, without a warning."""
    # 550: old values of updates of masks that nobody looks at.
    device = open_device("cuda", DeviceOptions(build_folder=tmp_path, profile="h200"))
    for source in sources:
        quiet = replace(source, flags=(*source.flags, "--diag-suppress=550"))
        report = device.reporter.report(quiet)
        assert isinstance(report, BuildReport), report
        assert report.warnings == ""
        assert len(report.launches) == len(source.launches)
