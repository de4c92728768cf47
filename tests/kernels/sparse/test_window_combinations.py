"""Combinations of the choices that windows have brought in, as CP-SAT enumerates them, leave what the interpreter does.

`experiments.correctness --combinations` runs hundreds of programs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernelscape.kernels.sparse.redundancy import Facts
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import sparse_candidates, sparse_periods, window_combinations
from kernelscape.testing.sparse_drawn import Part, Tree
from kernelscape.testing.sparse_programs import World, recorded
from kernelscape.testing.window_combinations import SmallProgram

FEW = Tree((("pointer", (3, 4)),), (("dense", (1, 1)),), 0, 2, "i32", 1)


@pytest.mark.compiler
def test_combinations_leave_what_the_interpreter_does(tmp_path: Path) -> None:
    found = window_combinations.run(map(window_combinations.drawn, (5, 11)), tmp_path, most=3)
    assert found.wrong == []
    assert found.n_texts >= 6
    assert {"first", "steady"} <= found.forms.keys()
    assert len({kind for kind, _ in found.values}) > 2


def test_a_drawn_program_takes_no_array_behind_its_first_call() -> None:
    # A recording refuses such an array: program 54 had one.
    with window_combinations.period_of(window_combinations.drawn(54)) as period:
        recording, _ = recorded(period)
    assert recording.calls


@pytest.mark.compiler
def test_a_list_that_is_old_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Facts, "_changed", lambda *_: set())
    program = SmallProgram(0, FEW, (("bump", 0), ("store", 5), ("bump", 0)))
    found = window_combinations.run([program], tmp_path, most=8)
    assert any("differ from the reference" in x for x in found.wrong)


def test_cpsat_and_filters_have_the_same_combinations() -> None:
    world = World(FEW)
    recording, _ = world.recorded((Part(1, 0, (("store", 1), ("bump", 0), ("bump", 0))),))
    world.end()
    space = build_space(normalise(recording), sparse_candidates.machine(0))
    kinds = ("listgen", "activate")
    chosen = [int(v) for v in space.searchable if space.choices[int(v)].kind in kinds]
    expected = {
        tuple(c.value(v) for v in chosen) for c in sparse_periods.combinations(space, kinds)
    }
    assert len(expected) > 4
    literals = window_combinations.values_of(space, kinds)
    found, are_all = window_combinations.combined(space, literals, 2000, np.random.default_rng(1))
    assert are_all and all(isinstance(c, Candidate) for c in found)
    assert {tuple(c.value(v) for v in chosen) for c in found} == expected
