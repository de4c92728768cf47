"""Sequences that assume lists and active cells as their runs before have left them: tasks, and random candidates, compiled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.recorder import Recording, record_program
from kernelscape.kernels.tasks.archive import ArchiveError, from_values, to_values
from kernelscape.kernels.tasks.entry_facts import assuming, tree_work, tree_work_alone
from kernelscape.kernels.tasks.naive_activation import cell_by_cell
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.testing import sparse_emulation, sparse_periods
from kernelscape.testing.interpreted import run_reference
from kernelscape.testing.sparse_emulation import Shape

POINTERS = Shape((("pointer", (2, 3)), ("dense", (3, 2))), 0, 2)
HASHED = Shape((("dense", (2, 1)), ("hash", (3, 5)), ("dense", (2, 2))), 1, 3)
DEEP = Shape((("pointer", (2, 2)), ("pointer", (2, 2)), ("dense", (2, 3))), 1, 3)


def recorded(p: SimpleNamespace, names: str) -> Recording:
    return record_program(lambda: [getattr(p, name)() for name in names.split()], ())[0]


@pytest.mark.parametrize(
    ("names", "alone", "first", "later"),
    [
        ("fill add", (1, 1), (1, 1), (0, 0)),
        ("fill add add down coarse", (4, 2), (2, 2), (0, 0)),
        # A repeat tests in its first step, so in all.
        ("fill" + " add" * 40, (40, 1), (40, 1), (0, 0)),
        ("add thin fill", (2, 1), (1, 1), (1, 1)),
        ("fill thin down coarse", (3, 2), (3, 2), (3, 2)),
        ("fill coarse thin", (2, 1), (2, 1), (1, 1)),
    ],
)
def test_lists_and_activations_of_a_first_and_of_later_runs(
    p: SimpleNamespace,
    names: str,
    alone: tuple[int, int],
    first: tuple[int, int],
    later: tuple[int, int],
) -> None:
    recording = recorded(p, names)
    assert (recording.repeats != ()) == (len(names.split()) > 20)
    assert tree_work_alone(recording) == alone
    assert tree_work(recording) == first
    assumed = assuming(recording, ())
    assert tree_work(assumed) == later
    n_made = sum(bool(t.body.trees.lists) for t in normalise(assumed).tasks if t.body is not None)
    assert n_made == later[0]


def each_other(n_times: int = 1) -> tuple[Recording, dict[str, np.ndarray]]:
    """Returns a sequence on two trees that activate each other's cells, and the arrays that it begins with."""
    x, y = ks.field(ks.i32), ks.field(ks.i32)
    ks.root.pointer(ks.i, 8).dense(ks.i, 4).place(x)
    ks.root.pointer(ks.i, 8).dense(ks.i, 4).place(y)

    @ks.kernel
    def up():
        for i in x:
            y[i] = x[i] + i

    @ks.kernel
    def back():
        for i in y:
            x[i] = y[i] % 100

    x[5], y[31] = 3, 9
    recording, arrays = record_program(lambda: [f() for f in (up, back) * n_times], ())
    return recording, {name: np.array(a) for name, a in arrays.items()}


@pytest.mark.usefixtures("p")
def test_trees_that_activate_each_other_are_settled_behind_two_runs() -> None:
    recording, _ = each_other()
    made = []
    for most_runs in (1, 2, 5):
        assumed = assuming(recording, (), most_runs)
        made.append((assumed.n_assumed_runs, *tree_work(assumed)))
        n_lists = sum(bool(t.body.trees.lists) for t in normalise(assumed).tasks if t.body)
        assert n_lists == made[-1][1]
    assert tree_work(recording) == (2, 2)
    assert made == [(1, 1, 0), (2, 0, 0), (2, 0, 0)]
    one = next(iter(t.tree.name for t in recording.trees))
    unsure = assuming(recording, {one}, 2)
    assert (unsure.n_assumed_runs, *tree_work(unsure)) == (1, 2, 2)


def test_more_runs_are_assumed_only_where_tasks_gain_from_them(p: SimpleNamespace) -> None:
    for names in ("fill add", "fill add add down coarse", "fill coarse thin", "fill" + " add" * 40):
        recording = recorded(p, names)
        assert assuming(recording, (), 2) == assuming(recording, ())


def test_trees_that_others_change_are_not_assumed(p: SimpleNamespace) -> None:
    recording = recorded(p, "fill add down coarse")
    of_x, of_z = (t.tree.name for t in recording.trees)
    assert assuming(recording, ()).assumed == tuple(sorted((of_x, of_z)))
    assert assuming(recording, {of_z}).assumed == (of_x,)
    assert tree_work(assuming(recording, {of_z})) == (1, 1)
    assert assuming(recording, {of_x, of_z}).assumed == ()


def test_files_hold_what_is_assumed(p: SimpleNamespace) -> None:
    recording = assuming(recorded(p, "fill add"), ())
    values = to_values(recording)
    assert normalise(from_values(values)).key == normalise(recording).key
    assert normalise(recording).key != normalise(replace(recording, assumed=())).key
    for wrong in (["none"], ["x"]):
        with pytest.raises(ArchiveError, match="assumes active cells of trees that it does not"):
            from_values(values | {"assumed": wrong})


@pytest.mark.usefixtures("p")
def test_files_hold_how_many_runs_are_assumed() -> None:
    """One that does not say it is of one run, as those of versions before."""
    recording, _ = each_other()
    once, twice = (assuming(recording, (), most_runs) for most_runs in (1, 2))
    assert from_values(to_values(twice)) == twice
    values = to_values(once)
    assert "n_assumed_runs" not in values
    assert from_values(values).n_assumed_runs == 1
    assert normalise(from_values(values)).key == normalise(once).key != normalise(twice).key
    with pytest.raises(ArchiveError, match="it assumes active cells of 0 runs before"):
        from_values(values | {"n_assumed_runs": 0})


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("shape", "calls"),
    [
        (POINTERS, (("store", 5), ("bump", 0), ("carry", 0), ("bump", 0))),
        (DEEP, (("fill", 3), ("bump", 0), ("spread", 4), ("carry", 0))),
        (HASHED, (("store", 5), ("bump", 0), ("carry", 0), ("bump", 0))),
    ],
)
def test_candidates_that_assume_leave_what_the_reference_leaves(
    shape: Shape, calls: tuple[tuple[str, int], ...], tmp_path: Path
) -> None:
    recording, before = sparse_emulation.recorded(shape, calls)
    assumed = assuming(recording, ())
    assert sum(tree_work(assumed)) < sum(tree_work(recording))
    behind = run_reference(cell_by_cell(recording), before, {})
    sources = sparse_periods.drawn_sources(assumed, 3, seed=1)
    assert sparse_periods.fault(assumed, behind, sources, tmp_path) == ""


@pytest.mark.compiler
@pytest.mark.parametrize("n_times", [1, 30])
def test_candidates_that_assume_two_runs_leave_what_the_reference_leaves(
    n_times: int, tmp_path: Path
) -> None:
    ks.init()
    recording, state = each_other(n_times)
    assert (recording.repeats != ()) == (n_times > 1)
    assumed = assuming(recording, (), 2)
    assert (assumed.n_assumed_runs, *tree_work(assumed)) == (2, 0, 0)
    for _ in range(assumed.n_assumed_runs):
        state = run_reference(cell_by_cell(recording), state, {})
    sources = sparse_periods.drawn_sources(assumed, 3, seed=1)
    assert sparse_periods.fault(assumed, state, sources, tmp_path) == ""
