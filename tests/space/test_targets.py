"""Kinds of targets are data: what a choice may be is a number in one of their files."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text import csyntax as c
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.library import load
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space import build
from kernelscape.space.backbone import INNER
from kernelscape.space.candidate import Candidate
from kernelscape.space.decisions import restore
from kernelscape.space.targets.cpu import CPU_KIND
from kernelscape.space.targets.kind import CPU, GPU
from kernelscape.testing import checking
from kernelscape.testing.syntax import loops, program_of


def test_a_prime_to_unroll_a_loop_by_is_one_number(monkeypatch):
    monkeypatch.setitem(build.KINDS, CPU, replace(CPU_KIND, inner_sizes=(1, 7), most_whole=1))
    args = load("vadd").make_arguments({"n": 30}, np.dtype(np.float32), np.random.default_rng(0))
    problem = normalise(record_sequence(load("vadd").sequence, args, "vadd"))
    space = build.build_space(problem, checking.target(1, 16))
    inner = next(d for d in space.backbone.dims if d.level == INNER)
    wanted = {f"size({inner.name})": "7", f"dim_kind({inner.name})": "UNROLL"}
    found = restore(space, wanted.items())
    assert isinstance(found, Candidate), found
    made = found.complete()
    assert isinstance(made, Candidate), made
    loop = plan_of(made).tasks[inner.task].loop(inner.loop.name)
    assert (loop.inner, loop.is_vector) == (7, False)
    assert any(x.step in (7, c.Num("7")) for x in loops(program_of(made)))


def test_every_file_of_choices_is_found_and_says_for_which_kinds_it_is():
    assert {f.name for f in build.FAMILIES[GPU]} - {f.name for f in build.FAMILIES[CPU]} == {
        "block_memory",
        "block_order",
        "fragments",
        "grid",
        "grid_stride",
        "load_hints",
        "register_stages",
        "settling",
        "team",
        "threads",
        "warp_tile",
    }
    assert {f.name for f in build.FAMILIES[CPU]} - {f.name for f in build.FAMILIES[GPU]} == {
        "accuracy",
        "batch_layout",
        "gathers",
        "lane_parts",
        "leaf_tiles",
        "local_arrays",
        "prefetch_distance",
        "prefetching",
        "ranges",
        "remainders",
        "row_lengths",
        "row_stores",
        "rows",
        "scatter_colours",
        "scatter_sorts",
        "schedule",
        "shifting",
        "sorted_ahead",
        "splitting",
        "unrolling",
        "wavefronts",
    }
