"""Sequences that assume lists and active cells as their run before has left them: their tasks, and random candidates, compiled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

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
