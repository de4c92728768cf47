"""Who adds up the partial results of a team: one thread behind it where they are few, else all threads once they have met."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernelscape.codegen.loops.ir import Barrier, CombineSums, loops_in, phases_of
from kernelscape.codegen.passes.pipeline import launches_of
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.starts import count_starts
from kernelscape.explorer.entry import library_workload
from kernelscape.kernels.library import load
from kernelscape.search.starts.complete import sketched_candidates
from kernelscape.search.starts.sketches import TileSizes
from kernelscape.space.build import build_space
from kernelscape.testing import checking


def loops_of_first(name, cores=2, **sizes):
    """The loop IR of the first candidates, and what they start, by their sketches."""
    problem = library_workload(load(name), sizes, "f32", 1).problem
    space = build_space(problem, replace(checking.target(2, 64), cores=cores))
    return {
        sketch: (launches_of(plan_of(c), space.target), count_starts(c))
        for sketch, c in sketched_candidates(space)
    }


def has_barrier(launch):
    lists = [launch.nodes, *(n.children for n in loops_in(launch.nodes))]
    return any(isinstance(n, Barrier) for nodes in lists for n in nodes)


@pytest.mark.parametrize(
    ("n", "cores", "meets"),
    [(1000, 2, False), (1024, 2, True), (127, 16, False), (128, 16, True)],
)
def test_few_partial_results_are_added_behind_the_team(n, cores, meets):
    (launch,), starts = next(
        made
        for sketch, made in loops_of_first("bicgk", cores, m=4096, n=n).items()
        if sketch.tile == TileSizes(8, 2)
    )
    assert has_barrier(launch) == meets == bool(starts.n_barriers)
    assert [type(x) for x in launch.after] == ([] if meets else [CombineSums])
    inside = [p for x in launch.nodes for p in phases_of(x)]
    assert any(isinstance(p, CombineSums) for p in inside) == meets


def one_launch(name, **sizes):
    """The launches of first candidates that are one launch of a team."""
    found = loops_of_first(name, **sizes).values()
    return [made[0] for made, starts in found if starts.n_launches == starts.n_teams == 1]


def test_a_sum_that_the_team_goes_on_with_is_added_before():
    """All threads need all of x, a sum over rows: they wait for it. A row of standardise is one thread's, with its mean."""
    assert all(map(has_barrier, one_launch("gemver", n=64)))
    assert one_launch("gemver", n=64)
    assert one_launch("standardise", m=64, n=64)
    assert not any(map(has_barrier, one_launch("standardise", m=64, n=64)))
