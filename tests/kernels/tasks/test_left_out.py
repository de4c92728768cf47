"""Derived rewrites that a recording leaves out: what tasks then have again, with equal results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.explorer.rewrites import rewrites_of
from kernelscape.explorer.workload import make_workload
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import Recording, record_program, record_sequence
from kernelscape.kernels.ir.errors import LanguageError
from kernelscape.kernels.ir.rewrites import REWRITES
from kernelscape.kernels.tasks.archive import ArchiveError, from_values, to_values
from kernelscape.kernels.tasks.entry_facts import assuming, tree_work, tree_work_alone
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.testing import sparse_emulation, sparse_periods
from kernelscape.testing.interpreted import run_reference
from kernelscape.testing.run_tasks import run_tasks
from kernelscape.testing.sparse_emulation import Shape

nd = types.ndarray()
N = 64
EVERY = tuple(REWRITES)


@kernel
def turn(x: nd, y: nd):
    for i in range(N):
        y[i] = x[N - 1 - i] + 1.0


@kernel
def copy(x: nd, y: nd):
    for i in range(N):
        y[i] = x[i]


@kernel
def clear(y: nd):
    for i in range(N):
        y[i] = 0.0


def steps(a: Any, b: Any) -> None:
    for _ in range(4):
        clear(b)
        turn(a, b)
        copy(b, a)


def recording_of(fn: Any) -> tuple[Recording, dict[str, np.ndarray]]:
    given = [np.arange(N) * (k + 2.0) + k for k in range(2)]
    recording = record_sequence(fn, given, name="steps")
    return recording, dict(zip((p.name for p in recording.arrays), given, strict=True))


def n_tasks(recording: Recording, *without: str) -> dict[str, int]:
    """The number of tasks of each kernel."""
    found = {"clear": 0, "turn": 0, "copy": 0}
    for task in normalise(recording.leaving_out(without)).tasks:
        found[task.kernel] += 1
    return found


def test_tasks_have_the_stores_and_copies_that_are_left_in() -> None:
    recording, arrays = recording_of(steps)
    assert n_tasks(recording) == {"clear": 0, "turn": 4, "copy": 1}  # at the end
    assert n_tasks(recording, "copies") == {"clear": 0, "turn": 4, "copy": 4}
    assert n_tasks(recording, "copies", "dead_stores") == {"clear": 4, "turn": 4, "copy": 4}
    assert n_tasks(recording, "lists", "activations") == n_tasks(recording)
    wanted = run_reference(recording, arrays, {}, dtype=np.float64)
    for without in ((), ("copies",), ("dead_stores",), EVERY):
        problem = normalise(recording.leaving_out(without))
        got = run_tasks(problem, arrays, {}, float64=True)
        for name in arrays:
            np.testing.assert_array_equal(got[name], wanted[name], err_msg=f"{name} {without}")


@pytest.mark.parametrize(
    ("without", "first", "later"),
    [
        ((), (2, 2), (0, 0)),
        (("lists",), (4, 2), (4, 0)),  # each loop makes its own
        (("activations",), (2, 2), (2, 2)),  # lists of what they may change are old behind them
        (("lists", "activations"), (4, 2), (4, 2)),
        (("dead_stores", "copies"), (2, 2), (0, 0)),
    ],
)
def test_loops_make_the_lists_and_activations_that_are_left_in(
    p: SimpleNamespace, without: tuple[str, ...], first: tuple[int, int], later: tuple[int, int]
) -> None:
    names = ["fill", "add", "add", "down", "coarse"]
    recording = record_program(lambda: [getattr(p, name)() for name in names], ())[0]
    assert tree_work_alone(recording) == (4, 2)
    left = recording.leaving_out(without)
    assumed = assuming(left, ())
    assert (tree_work(left), tree_work(assumed)) == (first, later)
    n_made = sum(bool(t.body.trees.lists) for t in normalise(assumed).tasks if t.body is not None)
    assert n_made == later[0]


@pytest.mark.compiler
@pytest.mark.parametrize("without", [("lists",), ("activations",), EVERY])
def test_candidates_without_rewrites_leave_what_the_reference_leaves(
    without: tuple[str, ...], tmp_path: Path
) -> None:
    shape = Shape((("pointer", (2, 3)), ("dense", (3, 2))), 0, 2)
    calls = (("store", 5), ("bump", 0), ("store", 5), ("carry", 0), ("bump", 0))
    recording, before = sparse_emulation.recorded(shape, calls)
    left = recording.leaving_out(without)
    assert normalise(left).key != normalise(recording).key
    sources = sparse_periods.drawn_sources(left, 2, seed=1)
    assert sparse_periods.fault(left, before, sources, tmp_path) == ""


def test_files_hold_what_is_left_out() -> None:
    recording, _ = recording_of(steps)
    left = recording.leaving_out(("copies", "dead_stores", "copies"))
    assert left.left_out == ("dead_stores", "copies")
    values = to_values(left)
    assert from_values(values) == left and normalise(from_values(values)).key == normalise(left).key
    assert "left_out" not in to_values(recording)
    with pytest.raises(ArchiveError, match="it leaves out rewrites that there are not"):
        from_values(values | {"left_out": ["lists", "stores"]})


def test_explanations_name_what_is_not_left_out() -> None:
    recording, _ = recording_of(steps)
    assert rewrites_of(recording).stores == ("clear0: b", "clear1: a", "clear2: b", "clear3: a")
    assert rewrites_of(recording.leaving_out(("dead_stores",))).stores == ()


@pytest.mark.parametrize(
    ("without", "sentence"),
    [
        (("stores",), "there is no rewrite 'stores'; there are dead_stores, copies, lists, activ"),
        (
            "copies",
            r"without= takes the names of rewrites, such as \('dead_stores',\), not 'copies'",
        ),
        ((1,), "without= takes the names of rewrites"),
    ],
)
def test_other_names_are_refused(without: Any, sentence: str) -> None:
    with pytest.raises(LanguageError, match=sentence):
        recording_of(steps)[0].leaving_out(without)


def test_all_sets_of_arguments_leave_out_the_same() -> None:
    sets = [tuple(np.full(N, k + 1.0) for k in range(2)) for _ in range(2)]
    made = make_workload(
        steps, sets[0], sequence="x:steps", name="steps", more=sets[1:], without=("copies",)
    )
    assert len(made.more) == 1 and made.recording.left_out == ("copies",)
    assert replace(made.recording, left_out=()) == record_sequence(steps, sets[0], name="steps")


def test_what_a_search_without_rewrites_finds_is_not_stored(tmp_path: Path, monkeypatch) -> None:
    arrays, options = [np.ones(N), np.ones(N)], []
    monkeypatch.setattr(
        "kernelscape.explorer.sitting.Sitting.session",
        lambda self, w, o, f: options.append(o) or 1 / 0,
    )
    for without in ((), ("copies",)):
        with pytest.raises(ZeroDivisionError):
            ks.explore(steps, *arrays, without=without, directory=tmp_path / str(len(without)))
    assert [o.store for o in options] == [True, False]
