"""Threads where they pay: as standalone kernels have them."""

from __future__ import annotations

from typing import Any

import kernelscape as ks
import numpy as np
from kernelscape.codegen.plan.nest_plan import NestPlan
from kernelscape.kernels.analysis.must_execute import blocks_of
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.kernels.tasks.profile import Profile, TaskProfile
from kernelscape.runtime.engine.planning import default_plan
from kernelscape.search.starts.complete import complete_sketch, sketched_candidates
from kernelscape.search.starts.profitability import what_pays
from kernelscape.search.starts.sketches import Along, Fusion, Sketch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Space
from kernelscape.space.decisions import to_names
from kernelscape.testing.machines import root_of, round_target

A: Any = ks.types.ndarray()
LARGE, SMALL = 1 << 18, 64
APART = Fusion(launch=False, loops=False)


@ks.kernel
def scale(x: A, a: float) -> None:
    for i in range(x.shape[0]):
        x[i] = a * x[i]


@ks.kernel
def tally(bins: A, at: A) -> None:
    for i in range(at.shape[0]):
        bins[at[i]] += 1.0


@ks.kernel
def halvings(x: A, n: A) -> None:
    for i in range(x.shape[0]):
        for _ in range(n[i]):
            x[i] *= 0.5


def space_of(call: Any, *args: Any) -> Space:
    return build_space(normalise(record_sequence(call, args)), round_target())


def both(x: Any, y: Any) -> None:
    scale(x, 2.0)
    scale(y, 3.0)


def scattered(bins: Any, at: Any) -> None:
    tally(bins, at)


def halved(x: Any, n: Any) -> None:
    halvings(x, n)


def zeros(n: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(n, dtype)


def test_tasks_have_a_team_where_the_kernel_alone_would_have_one() -> None:
    space = space_of(both, zeros(LARGE), zeros(SMALL))
    alone = [
        any(isinstance(s, NestPlan) and s.is_shared for s in plan.tasks[0].steps)
        for x in (zeros(LARGE), zeros(SMALL))
        for plan in [default_plan(scale.instantiate(x, 2.0), round_target().cores)]
    ]
    assert [t in what_pays(space, are_merged=False).tasks for t in (0, 1)] == alone == [True, False]
    kinds = [
        {dict(to_names(c)).get(f"dim_kind({t.name}.i.outer)") for t in space.problem.tasks}
        for sketch, c in sketched_candidates(space)
        if isinstance(sketch.threads, Along) and sketch.threads.where_pays
    ]
    assert {"PARALLEL", "LOOP"} in kinds


def test_tasks_that_share_loops_are_worth_a_team_together() -> None:
    def many(x: Any) -> None:
        for _ in range(64):
            scale(x, 2.0)

    space = space_of(many, zeros(1 << 11))
    assert not what_pays(space, are_merged=False).tasks
    together = what_pays(space, are_merged=True).tasks
    assert together == (set(range(len(space.problem.tasks))) if space.backbone.merges else set())


def test_what_was_counted_decides_where_only_values_say_how_long_a_loop_is() -> None:
    x, n = zeros(SMALL), zeros(SMALL, np.int32)
    space = space_of(halved, x, n)
    assert not what_pays(space, are_merged=False).tasks
    (task,) = space.problem.tasks
    assert task.body is not None
    _, *inside = blocks_of(task.body.statements)
    for trips, pays in ((1e6, {0}), (1.0, set())):
        entered = (float(SMALL), *(trips for _ in inside))
        counted = Profile((TaskProfile(task.name, entered),))
        assert what_pays(space.profiled(counted), are_merged=False).tasks == pays


def test_updates_that_threads_share_are_made_as_a_kernel_alone_makes_them() -> None:
    """Few elements in copies of threads; where there are more than iterations, one after the other."""
    for n_bins, way in ((16, "PRIVATE"), (1 << 20, "SERIAL")):
        bins, at = zeros(n_bins), zeros(LARGE if n_bins == 16 else 1 << 15, np.int32)
        space = space_of(scattered, bins, at)
        (step,) = default_plan(tally.instantiate(bins, at), round_target().cores).tasks[0].steps
        assert isinstance(step, NestPlan)
        assert step.is_shared == (way != "SERIAL") and bool(step.partition.copied) == (
            way == "PRIVATE"
        )
        made = complete_sketch(root_of(space), Sketch(fusion=APART, threads=Along(where_pays=True)))
        assert made is not None
        assert dict(to_names(made))[f"scatter({space.problem.tasks[0].name}.bins)"] == way
