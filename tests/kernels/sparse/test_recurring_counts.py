"""Counts of sequences that make their lists in each call: when they hold, for threads that share cells, and of lists themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.analysis.must_execute import blocks_of
from kernelscape.kernels.frontend.recorder import Recording, record_program
from kernelscape.kernels.ir.on_trees import ANEW, making
from kernelscape.kernels.ir.task import Task
from kernelscape.kernels.sparse.recorded import UsedTree
from kernelscape.kernels.tasks.execution_counts import counting
from kernelscape.kernels.tasks.guarded_bodies import followed
from kernelscape.kernels.tasks.leaf_loops import with_leaf_loops
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.kernels.tasks.profile import Profile
from kernelscape.kernels.tasks.recurrence import Recurrence
from kernelscape.search.bound.bodies import SURE
from kernelscape.search.bound.bounder import Bounder
from kernelscape.space.build import build_space
from kernelscape.testing import gpu_checking
from kernelscape.testing.interpreted import run_reference
from kernelscape.testing.machines import root_of, round_target

BLOCKS, CELLS = 64, 8
PLACES = (3, 41, 17, 8, 60)  # blocks in the order in which they become active
ENTRY_BYTES = 4  # of a table
Recorded = tuple[Recording, dict[str, Any]]


def recorded(*, moves: bool = False, appends: bool = False) -> Recorded:
    """A sequence that makes all cells inactive, activates some, and runs over them; in each call others, if it `moves`.

    The blocks are in two levels of pointers. With `appends`, a dynamic node of the tree gets an element, too.
    """
    ks.init(arch=ks.cpu)
    x, y = ks.field(ks.f32), ks.field(ks.f32)
    places, shift = ks.field(ks.i32, len(PLACES)), ks.field(ks.i32, ())
    upper = ks.root.pointer(ks.i, BLOCKS // 4)
    upper.pointer(ks.i, 4).dense(ks.i, CELLS).place(x, y)
    if appends:
        items = upper.dynamic(ks.j, 32)
        items.place(ks.field(ks.f32))
    places.from_numpy(np.array(PLACES, np.int32))

    @ks.kernel
    def empty():
        for b in upper:
            ks.deactivate(upper, b)

    @ks.kernel
    def fill():
        for k in range(len(PLACES)):
            x[CELLS * places[k] + shift[None]] = 1.0 + k

    @ks.kernel
    def add():
        for b in range(1):
            ks.append(items, b, 1.0)

    @ks.kernel
    def move():
        for _ in range(1):
            shift[None] = (shift[None] + CELLS) % (2 * CELLS)

    @ks.kernel
    def double():
        for i in x:
            y[i] = 2.0 * x[i] + y[i]

    def step() -> None:
        empty()
        fill()
        if appends:
            add()
        if moves:
            move()
        double()

    for _ in range(2):  # pools settle
        step()
    recording, arrays = record_program(step, ())
    before = {name: np.array(a) for name, a in arrays.items()}
    ks.reset()
    return recording, before


@pytest.fixture(scope="module")
def remade() -> Recorded:
    return recorded()


def profile_of(given: Recorded, trees: tuple[UsedTree, ...] | None = None) -> Profile:
    """The profile of one call."""
    recording, before = given
    made = counting(normalise(recording), recording.trees if trees is None else trees)
    assert made is not None
    arrays = {**before, **made.arrays()}
    return made.read(arrays, run_reference(made.recording, arrays, {}))


def task_of(recording: Recording, name: str, *, is_list: bool = False) -> Task:
    tasks = [t for t in normalise(recording).tasks if t.name.startswith(name) and t.body]
    return [t for t in tasks if bool(t.body and t.body.trees.lists) is is_list][-1]


def test_counts_hold_where_a_call_leaves_the_same_cells_in_other_slots(remade: Recorded) -> None:
    """Kind: loops over cells without any bound, since slots are taken again in another order."""
    double = task_of(remade[0], "double")
    assert profile_of(remade, trees=()).of(double) is None
    known = profile_of(remade).of(double)
    assert known is not None and len(PLACES) * CELLS in known.entered
    assert [x.written_elements for x in known.touched if x.written_elements] == [
        len(PLACES) * CELLS
    ]


@pytest.mark.parametrize("which", ["moves", "appends"])
def test_counts_do_not_hold_where_cells_or_their_order_may_differ(which: str) -> None:
    recording, before = given = recorded(**{which: True})
    assert profile_of(given).of(task_of(recording, "double")) is None
    after = run_reference(recording, before, {})
    problem, seen = normalise(recording), Recurrence(recording.trees, before, after)
    lists = [problem.array(x.array) for x in problem.parts.states if x.kind == "list"]
    assert not all(map(seen.holds, lists))


def test_a_list_that_each_call_makes_looks_at_words_of_its_table(remade: Recorded) -> None:
    """Kind: lists for nothing, below a list of which only values say how long it is."""
    recording, _ = remade
    problem, profile = normalise(recording), profile_of(remade)
    space = build_space(problem, round_target(loads_per_ns=2.0))
    found = [space, space.profiled(profile)]
    roots = [root_of(s) for s in found]
    ports = [
        dict(Bounder(s).bound(r).terms).get("ports", 0.0) for s, r in zip(found, roots, strict=True)
    ]
    n_upper = len({p // 4 for p in PLACES})
    words = BLOCKS // 4 + 4 * n_upper  # of the upper table, and of the active blocks below
    least_ns = SURE * words * ENTRY_BYTES / (2.0 * space.target.vector_bytes)
    assert Bounder(found[1]).tables.scan["counted_ns"].sum() == pytest.approx(least_ns)
    assert ports[1] - ports[0] >= least_ns


def test_who_makes_all_lists_again_looks_at_no_fewer_words(remade: Recorded) -> None:
    """The judge counts the tasks as GENERATE has them."""
    recording, before = remade
    problem, profile = normalise(recording), profile_of(remade)
    made = counting(replace(problem, tasks=tuple(map(anew, problem.tasks))), recording.trees)
    assert made is not None
    arrays = {**before, **made.arrays()}
    judged = made.read(arrays, run_reference(made.recording, arrays, {}))
    n_counted = 0
    for task in (t for t in problem.tasks if t.body is not None and t.body.trees.lists):
        known, other = profile.of(task), judged.about(task)
        assert known is not None and other is not None
        most = {x.array: x.read_elements for x in other.touched}
        assert all(x.read_elements <= most[x.array] for x in known.touched)
        n_counted += any(x.read_elements for x in known.touched)
    assert n_counted > 1


def anew(task: Task) -> Task:
    """A task that makes its lists for each use, if it makes lists."""
    body = task.body
    if body is None or not body.trees.lists:
        return task
    statements = making(body.statements, [ANEW] * len(body.trees.lists))
    return replace(task, body=replace(body, statements=statements))


def test_threads_that_share_cells_have_the_counts_of_each_cell(remade: Recorded) -> None:
    """The judge counts the tasks with these loops."""
    recording, before = remade
    own = with_leaf_loops(normalise(recording))
    made = counting(own, recording.trees)
    assert made is not None
    arrays = {**before, **made.arrays()}
    judged = made.read(arrays, run_reference(made.recording, arrays, {}))
    profile, n_shared = profile_of(remade), 0
    for task in own.tasks:
        plain = next((x for x in judged.tasks if x.task == task.name), None)
        if plain is not None:
            known, body = profile.about(task), followed(task).body
            assert known is not None and body is not None
            is_used = [bool(block.statements) for block in blocks_of(body.statements)]
            pairs = zip(known.entered, plain.entered, is_used, strict=True)
            assert all(n == wanted for n, wanted, used in pairs if used)
            assert known.touched == plain.touched
            n_shared += len(task.loops) > 1
    assert n_shared


def test_a_gpu_is_bounded_by_active_cells(remade: Recorded) -> None:
    """Kind: no bound for loops whose cells threads share."""
    recording, _ = remade
    space = build_space(normalise(recording), gpu_checking.target(4))
    found = [space, space.profiled(profile_of(remade))]
    plain, counted = (dict(Bounder(s).bound(root_of(s)).terms) for s in found)
    assert plain.get("operations", 0.0) == 0 < counted["operations"]


def test_arrays_of_trees_count_no_lines(remade: Recorded) -> None:
    """Kind: lines of one call that a later one does not touch, since its cells are in slots that lie together."""
    recording, _ = remade
    of_trees = {name for used in recording.trees for _, name in used.sections}
    touched = [x for t in profile_of(remade).tasks for x in t.touched if x.array in of_trees]
    assert any(x.read_elements for x in touched)
    assert not any(x.read_lines or x.written_lines for x in touched)
