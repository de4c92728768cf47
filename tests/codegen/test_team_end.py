"""Who adds up the partial results of a team: one thread behind it where they are few, else all threads once they have met."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernelscape.codegen.describe import count_starts
from kernelscape.codegen.lower import lower
from kernelscape.codegen.lower import print_source as printed
from kernelscape.explorer.entry import library_workload
from kernelscape.kernels.library import load
from kernelscape.runtime.cpu.dialect import C_TEAM
from kernelscape.search.starts.complete import sketched_candidates
from kernelscape.search.starts.sketches import Tile
from kernelscape.space.build import build_space
from kernelscape.testing import checking

BARRIER = "ks_team_meet(team);"


def texts_of(name, cores=2, **sizes):
    """Texts and starts of the first candidates by their sketches."""
    problem = library_workload(load(name), sizes, "f32", 1).problem
    space = build_space(problem, replace(checking.target(2, 64), cores=cores))
    return {
        sketch: (printed(lower(c), C_TEAM).text, count_starts(c))
        for sketch, c in sketched_candidates(space)
    }


@pytest.mark.parametrize(
    ("n", "cores", "meets"),
    [(1000, 2, False), (1024, 2, True), (127, 16, False), (128, 16, True)],
)
def test_few_partial_results_are_added_behind_the_team(n, cores, meets):
    text, starts = next(
        made
        for sketch, made in texts_of("bicgk", cores, m=4096, n=n).items()
        if sketch.tile == Tile(8, 2)
    )
    assert (BARRIER in text) == meets == bool(starts.n_barriers)
    behind = (
        text.partition("ks_team_run(launch_")[2]
        .partition("\n    }\n")[2]
        .partition("void run_sequence")[0]
    )
    assert ("s[j" in behind) != meets
    assert "tid" not in behind


def test_a_sum_that_the_team_goes_on_with_is_added_before():
    """The mean of a column is needed by all threads, so they wait for it."""
    texts = texts_of("standardise", m=64, n=64)
    one_launch = [
        text for text, starts in texts.values() if starts.n_launches == starts.n_teams == 1
    ]
    assert one_launch
    assert all(BARRIER in text for text in one_launch)
