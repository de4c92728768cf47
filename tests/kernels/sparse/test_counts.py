"""Counts of sequences on sparse fields: what they are, when they hold in later calls, and that no way to run a task does less."""

from dataclasses import replace
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.recorder import record_program
from kernelscape.kernels.ir.task import Problem, Task
from kernelscape.kernels.tasks.execution_counts import counting
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.kernels.tasks.profile import Profile
from kernelscape.kernels.tasks.variants import in_each, staged
from kernelscape.search.bound.bodies import body_bytes
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.bound.operations import SureOperations
from kernelscape.space.build import build_space
from kernelscape.testing import checking
from kernelscape.testing.interpreted import run_reference

N_CELLS = 3 * 16  # in the active blocks of x


Recorded = tuple[Problem, dict[str, Any], Profile]


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    """Three loops on a tree with 3 of 12 blocks of 4 x 4 cells, and a coarser field; the last activates a block more a call."""
    ks.init(arch=ks.cpu)
    x, y, coarse, grown = (ks.field(ks.f32) for _ in range(4))
    calls = ks.field(ks.i32, shape=())
    ks.root.pointer(ks.ij, (4, 3)).dense(ks.ij, (4, 4)).place(x, y)
    ks.root.pointer(ks.ij, (4, 3)).dense(ks.ij, (2, 2)).place(coarse)
    ks.root.pointer(ks.i, 32).dense(ks.i, 8).place(grown)

    @ks.kernel
    def fill() -> None:
        for k in range(3):
            x[4 * k + 1, 4 * k] = 1.0 + k

    @ks.kernel
    def blurred() -> None:
        for i, j in x:
            y[i, j] = 0.5 * x[i, j] + x[i + 1, j] + x[i, j + 1] + x[i - 1, j - 1]

    @ks.kernel
    def coarsened() -> None:
        for i, j in y:
            if i % 2 == 0 and j % 2 == 0:
                coarse[i // 2, j // 2] = y[i, j]

    @ks.kernel
    def grow() -> None:
        for _ in range(1):
            grown[8 * calls[None]] = 1.0
            calls[None] += 1

    @ks.kernel
    def scaled() -> None:
        for i in grown:
            grown[i] *= 2.0

    def step() -> None:
        blurred()
        coarsened()
        grow()
        scaled()

    fill()
    step()
    recording, arrays = record_program(step, ())
    before = {name: np.array(a) for name, a in arrays.items()}
    ks.reset()
    problem = normalise(recording)
    return problem, before, profile_of(problem, before)


def profile_of(problem: Problem, before: dict[str, Any], n_calls: int = 2) -> Profile:
    made = counting(problem)
    assert made is not None
    state, found = before, list[Profile]()
    for _ in range(n_calls):
        given = {**state, **made.arrays()}
        state = run_reference(made.recording, given, {})
        found.append(made.read(given, state))
    return found[0] if n_calls == 1 else found[0].and_then(found[1])


def loop_of(problem: Problem, name: str) -> Task:
    """The task that runs over the cells."""
    return [t for t in problem.tasks if t.name.startswith(name)][-1]


def test_counts_are_of_active_cells_and_hold_while_lists_stay(
    recorded: Recorded,
) -> None:
    problem, before, profile = recorded
    blur, coarsen, scale = (loop_of(problem, n) for n in ("blurred", "coarsened", "scaled"))
    known = profile.of(blur)
    assert known is not None and N_CELLS in known.entered
    fields = {x.array: x for x in known.touched if x.written_elements or x.read_elements}
    assert [x.written_elements for x in fields.values() if x.written_elements] == [N_CELLS]
    # Inactive cells need not be read, and lines say nothing where fields may lie side by side.
    assert [x.read_elements for x in fields.values() if x.read_elements] == [N_CELLS]
    assert not any(x.read_lines or x.written_lines for x in fields.values())
    # Its slots are settled in the first call: in the second all is as it will be.
    assert profile_of(problem, before, n_calls=1).of(coarsen) is None
    assert profile.of(coarsen) is not None
    # The second loop over a list that grows has one block in this call, and others in later ones.
    about = profile.about(scale)
    assert about is not None and not about.holds and 16 in about.entered
    assert profile.of(scale) is None


def test_bounds_count_active_cells_of_lists_that_stay(
    recorded: Recorded,
) -> None:
    problem, _, profile = recorded
    blur, scale = loop_of(problem, "blurred"), loop_of(problem, "scaled")
    f32, _ = SureOperations(profile).count(blur)
    assert 0.9 * 4 * N_CELLS < f32 <= 4 * N_CELLS
    assert SureOperations(profile).count(scale) == SureOperations().count(scale) == (0, 0)
    space = build_space(problem, checking.target(2, 32))
    bounds = [Bounder(s).bound(s.root()) for s in (space, space.profiled(profile))]  # type: ignore[arg-type]
    assert "operations" not in dict(bounds[0].terms) and "operations" in dict(bounds[1].terms)


def test_no_other_body_of_a_task_does_less(recorded: Recorded) -> None:
    """A task may activate in each cell, or read out of tiles: bounds count what the body does that a search begins with."""
    problem, before, profile = recorded
    for name in ("coarsened", "blurred"):
        task = loop_of(problem, name)
        assert task.body is not None
        tiles = [x.name for x in task.body.trees.tiles]
        other = staged(problem, task, tiles) if tiles else in_each(problem, task)
        assert other is not None and other.statements != task.body.statements
        changed = replace(task, body=other)
        tasks = tuple(changed if t is task else t for t in problem.tasks)
        theirs = profile_of(replace(problem, tasks=tasks), before, n_calls=1)
        about = Profile(tuple(replace(t, holds=True) for t in theirs.tasks))
        for a in problem.arrays:
            least, found = body_bytes(task, a, profile), body_bytes(changed, a, about)
            assert least[0] <= found[0] / 0.98 and least[1] <= found[1] / 0.98, (name, a)
        if not tiles:  # of what is read out of tiles less is known
            least_ops = sum(SureOperations(profile).count(task))
            assert least_ops <= sum(SureOperations(about).count(changed)) / 0.98
