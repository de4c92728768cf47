"""Operators mean what NumPy says in kernels on arrays, and what Taichi says in its language: each operation on each pair of types,
at the edges of these, in every way that a kernel is run. The kind of fault: one way, or all of them, has a value of its own.

A share of the table each; `python -m kernelscape.experiments.correctness --operators` runs the whole.
"""

from __future__ import annotations

from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.interpret.executor import interpret
from kernelscape.testing import operator_runs as runs
from kernelscape.testing.observing import taichi_of
from kernelscape.testing.operator_programs import (
    DIVISIONS,
    differs_from_taichi,
    language_cells,
    name_of,
    results_of,
    wrong_results,
)
from kernelscape.testing.operator_table import DIFFERENCES, Cell, cells, judged
from kernelscape.testing.taichi_values import kept

SHARE = 40
DOCS = Path(__file__).parents[2] / "docs" / "kernel.md"
# What was wrong: integer powers by doubles, quotients of both signs, remainders contracted, comparisons of both signs.
FAULTS = [
    *(Cell("pow", t, t) for t in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")),
    *(Cell("div", *pair) for pair in (("i8", "u64"), ("u32", "i32"), ("i64", "u64"))),
    *(Cell(op, t, t) for op in ("mod", "floordiv") for t in ("f32", "f64")),
    *(Cell(op, *pair) for op in ("lt", "ge", "eq", "min", "max") for pair in (("u64", "i64"), ("i8", "u32"))),
    *(Cell(op, "i32", "u64") for op in ("atan2", "hypot")),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _no_program_afterwards():
    yield
    ks.reset()


def test_the_interpreter_has_numpys_values(tmp_path: Path) -> None:
    every = cells()[::8]
    table = runs.table_of(every, tmp_path)
    assert table.wrong(lambda arrays: runs.interpreted(table, arrays), signs=True) == []


@pytest.mark.compiler
def test_cells_are_numpys_in_every_way(tmp_path: Path) -> None:
    drawn = list(dict.fromkeys((*FAULTS, *cells()[::SHARE])))
    found = runs.wrong_in_all_ways(drawn, tmp_path)
    assert {way: wrong for way, wrong in found.items() if wrong} == {}


def test_cells_are_taichis_in_its_language() -> None:
    stored = kept()
    known = {name_of(c): c for c in language_cells() if not differs_from_taichi(c)}
    drawn = [c for name, c in known.items() if name in stored]
    assert len(drawn) > 1400
    divisions = [c for c in drawn if c.op in DIVISIONS]
    others = [c for c in drawn if c.op not in DIVISIONS]
    with taichi_of("ours"), interpret():
        found = results_of(divisions[::3]) | results_of(others[::5])
    assert [x for x, got in found.items() if len(wrong_results(known[x], got, stored[x]))] == []


def test_what_differs_is_in_the_table_of_the_page() -> None:
    page = DOCS.read_text()
    assert [d.title for d in DIFFERENCES if f"| {d.title} |" not in page] == []


def test_the_judge_is_numpy() -> None:
    """A planted fault shows: a cell whose values are moved is wrong."""
    cell = Cell("mod", "f64", "f64")
    want, is_open = judged(cell)
    moved = np.where(np.isfinite(want), want + 1e-9, want)
    assert not len(runs.wrong_elements(cell, want.astype(float), want, is_open, signs=True))
    assert len(runs.wrong_elements(cell, moved, want, is_open))
