"""Blocks of arrays with their borders: any tile of any stencil computes the same, on CPUs and on GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernelscape.codegen.passes.storage import WindowLayout
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space import choices as ch
from kernelscape.space.backbone.patterns import operands
from kernelscape.space.build import build_space
from kernelscape.testing import checking
from kernelscape.testing.checking import Way
from kernelscape.testing.syntax import declared, program_of

from .halo_cases import GUARDED, HALOS, recorded, with_halos
from .packed_cases import inputs_of


@pytest.mark.parametrize(
    ("name", "halos"),
    [
        ("two sweeps", {"cross0.x": {"i": 2, "j": 3}, "cross1.t": {"i": 2, "j": 3}}),
        ("a turned one", {"cross0.y": {"i": 2, "j": 3}, "turned0.x": {"j": 1, "i": 2}}),
        ("corners", {"corners0.x": {"i": 1, "j": 1, "k": 1}}),
        ("slopes", {"slopes0.x": {"i": 3}}),
        ("edges", {"edges0.x": {"i": 1}}),
        ("obstacles", {"obstacles0.x": {"i": 2, "j": 2}}),
        ("two colours", {f"sweep{k}.x": {"i": 2, "j": 2} for k in (0, 1)}),
        ("statements", {"largest_around0.x": {"i": 1, "j": 2}}),
        ("no windows", {}),
    ],
)
def test_what_iterations_read_around_their_own_element_is_a_window(name, halos):
    problem = normalise(recorded(name)[0])
    found = [o for k, t in enumerate(problem.tasks) for o in operands(k, t) if o.is_window]
    assert {o.name: dict(o.halo) for o in found} == halos


@pytest.mark.slow
@pytest.mark.compiler
@pytest.mark.parametrize("name", [*HALOS, *GUARDED])
def test_blocks_with_borders_compute_the_same(tmp_path, name):
    recording, args = recorded(name)
    space = build_space(normalise(recording), checking.target(2, 32))
    candidates = with_halos(space, 2, seed=3)
    assert len(candidates) == 2
    for candidate in candidates:
        assert any(x.name.endswith("_halo") for x in declared(program_of(candidate)))
    sources = [checking.crowded_source_of(c) for c in candidates]
    ways, inputs = (Way(repeats=3), Way(repeats=1, thread_limit=1)), inputs_of(recording, args)
    assert not checking.fault(sources, inputs, tmp_path, *ways)


def test_rows_of_vectors_are_not_out_of_copies():
    space = build_space(normalise(recorded("two colours")[0]), checking.target(2, 32))
    (first, _), v = space.problem.tasks, space.variables
    rows = space.root().decide(v.of_tasks["rows"][0], 1 << ch.ROWS)
    copies = {o.task: space.choices[var].values for o, var in v.staged.items()}
    assert copies == {0: ("WALK", "HALO"), 1: ("WALK", "HALO")} and first.is_guarded
    (own,) = (var for o, var in v.staged.items() if o.task == 0)
    assert rows.domains[own] == 1 << ch.DIRECT


@pytest.mark.parametrize("name", ["edges", "statements"])
def test_a_border_may_reach_beyond_the_array(name):
    problem = normalise(recorded(name)[0])
    (window,) = operands(0, problem.tasks[0])
    shape = problem.array("x").shape
    rows, columns = problem.tasks[0].loops
    assert window.inside(shape)["i"] == (1, shape[0] + 1)
    assert window.leaves(rows, shape) and not window.leaves(columns, shape)


def test_a_block_with_its_border_fits_into_the_cache():
    """The border counts: without it blocks of twice the size would be taken."""
    problem = normalise(recorded("corners")[0])
    given = checking.target(2, 32)
    levels = tuple(replace(level, capacity_bytes=1 << 11) for level in given.levels)
    small = replace(given, levels=levels)
    space = build_space(problem, small)
    array, sizes = problem.array("x"), set()
    for candidate in with_halos(space, 40, seed=5):
        (task,) = plan_of(candidate).tasks
        (operand,) = task.copies
        sizes.add(WindowLayout.of(task, operand, array).n_elements * array.dtype.size_bytes)
    assert max(sizes) <= small.last_cache_bytes < 2 * max(sizes)
