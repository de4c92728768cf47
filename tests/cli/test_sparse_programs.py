"""A program on sparse fields from exploring to following, as a user goes: run, replay, follow, show, and what is wrong is said."""

from __future__ import annotations

import json
import re
import runpy
import warnings
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.fields.program import current_program

from .command import made

PROGRAM = """
import os
import kernelscape as ks

ks.init(decisions=os.environ.get("FOUND") or None)
x, y = ks.field(ks.f32), ks.field(ks.f32)
block = ks.root.pointer(ks.i, CELLS)
block.dense(ks.i, 4).place(x, y)
items = ks.field(ks.i32)
lists = ks.root.pointer(ks.i, 2).dynamic(ks.j, 3, chunk_size=2)
lists.place(items)
n = ks.field(ks.i32, shape=())

@ks.kernel
def grow():
    for i in range(n[None]):
        x[i] += 1.0

@ks.kernel
def add():
    for i in x:
        y[i] += 2.0 * x[i]

@ks.kernel
def back():
    for i in y:
        x[i] += 0.5 * y[i]

@ks.kernel
def collect():
    for i in range(n[None]):
        ks.append(lists, i % 2, i)

def step():
    grow()
    add()
    back()

def collecting():
    collect()
    add()

n[None] = GROWN
"""


def write(file: Path, cells: int = 4, grown: int = 6) -> Path:
    file.write_text(PROGRAM.replace("CELLS", str(cells)).replace("GROWN", str(grown)))
    return file


@pytest.fixture(autouse=True)
def no_program_is_left():
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ks.reset()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a program that is no longer there."""
    folder = tmp_path_factory.mktemp("found")
    program = write(folder / "program.py")
    run = made(folder, f"{program}:step", "--max-evals", 2)
    program.unlink()
    return run


def started(cells: int = 4) -> dict[str, Any]:
    """The program, begun, in a file elsewhere."""
    return runpy.run_path(str(write(Path("program.py"), cells)))


def n_runs() -> int:
    return sum(s.n_runs for s in current_program().follower._sequences)


@pytest.mark.compiler
def test_replaying_needs_no_program(found: Path, explore) -> None:
    code, out, err = explore("replay", found)
    assert code in (0, 6), err
    assert "verified on" in out


@pytest.mark.compiler
def test_what_rules_left_out_is_explained(found: Path, explore) -> None:
    code, out, err = explore("explain", found)
    assert code == 0, err
    assert re.search(r"\n  lists +1 still valid, used again\n +back0: pointer node 0 of ", out)
    assert re.search(r"\n  AsyncTaichi +0 patterns of calls", out)


@pytest.mark.compiler
def test_a_program_that_follows_leaves_what_it_leaves_alone(found: Path, monkeypatch) -> None:
    states = []
    for decisions in ("", str(found)):
        monkeypatch.setenv("FOUND", decisions)
        program = started()
        for _ in range(3):
            program["step"]()
        states.append([program[name].to_numpy() for name in "xy"])
    assert n_runs() == 3
    np.testing.assert_allclose(states[0], states[1], rtol=1e-6)
    assert np.count_nonzero(states[0]) == 2 * 6


@pytest.mark.compiler
def test_writes_that_are_not_made_end_what_follows_in_a_sentence(found: Path, monkeypatch) -> None:
    monkeypatch.setenv("FOUND", str(found))
    program = started()
    program["n"][None] = 17
    with pytest.raises(AssertionError, match=r"step: an index of a sparse field is outside"):
        program["step"]()
    np.testing.assert_array_equal(program["x"].to_numpy(), 2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it was run
        ks.reset()


@pytest.mark.compiler
def test_another_tree_is_not_that_of_the_decisions(found: Path, monkeypatch) -> None:
    monkeypatch.setenv("FOUND", str(found))
    program = started(cells=8)
    program["step"]()
    assert n_runs() == 0
    assert program["x"][2] == 2.0
    with pytest.warns(RuntimeWarning, match="never called its kernel grow with fields of these"):
        ks.reset()


def test_trees_are_shown(explore) -> None:
    write(Path("program.py"))
    code, out, err = explore("show", "program.py:step")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == "Trees"
    assert [line.split()[0] for line in lines[2:5]] == ["node", "pointer", "dense"]
    # As the program states it: lowered, an activation is twenty lines.
    assert "activate tree0_0.1[" in out and "atomic_bit_or" not in out
    _, whole, _ = explore("show", "program.py:step", "-v")
    assert "more lines" not in whole and "atomic_bit_or" in whole


@pytest.mark.parametrize(
    ("grown", "function", "wrong"),
    [
        (17, "step", "index of a sparse field is outside"),
        (7, "collecting", "sparse fields is full (pointer 2, dynamic 3)"),
    ],
)
@pytest.mark.compiler
def test_writes_that_are_not_made_end_exploring_in_a_sentence(
    grown: int, function: str, wrong: str, explore
) -> None:
    write(Path("program.py"), grown=grown)
    code, _, err = explore("run", f"program.py:{function}", "-q")
    assert code == 2
    assert err.count("\n") == 1
    assert "with these arguments, " in err and wrong in err


DECIDED = """
import os
import kernelscape as ks

ks.init(decisions=os.environ.get("FOUND") or {})
x, y = ks.field(ks.i32), ks.field(ks.i32)
ks.root.pointer(ks.i, 4).dense(ks.i, 4).place(x, y)
wide = ks.field(ks.i32)
ks.root.pointer(ks.i, 2).dense(ks.i, 8).place(wide)

@ks.kernel
def fill():
    for i in range(10):
        x[i] = 1 + i

@ks.kernel
def add():
    for i in x:
        y[i] += x[i]
        wide[i // 2] += x[i]

def step():
    fill()
    add()
    add()
"""
WAYS = {
    "listgen(add0*)": "GENERATE",
    "compaction(add0*)": "TWO_PASS",
    "activate(add0*)": "ELEMENT",
    "activate(add1)": "ACTIVATE",
    "leaf_layout(*)": "AOS",
    "record(*)": "CELL",
}


@pytest.mark.compiler
def test_choices_of_sparse_loops_are_fixed_and_replayed_by_their_names(
    explore, monkeypatch
) -> None:
    monkeypatch.delenv("FOUND", raising=False)
    Path("program.py").write_text(DECIDED)
    code, out, _ = explore("show", "program.py:step", "-v", "--descents", "0")
    assert code == 0
    assert "  activate(add1) = DEMOTED, not ACTIVATE\n" in out
    fixed = [x for site, value in WAYS.items() for x in ("--fix", f"{site}={value}")]
    code, _, err = explore("run", "program.py:step", *fixed, "--max-evals", "1", "-q", "-o", "run")
    assert code == 0, err
    code, _, err = explore("run", "program.py:step", "--fix", "activate(add0*)=DEMOTED", "-q")
    assert (code, err.count("\n")) == (2, 1)
    found = dict(json.loads(Path("run/best.json").read_text())["decisions"])
    for site, value in WAYS.items():
        names = [x for x in found if fnmatch(x, site)]
        assert [found[x] for x in names] == [value]
    code, out, err = explore("explain", "run", "-v")
    assert code == 0, err
    for said in (
        "is made again",
        "makes cells active",
        "once for each leaf",
        "by all threads",
        "side by side",
        "lists places",
    ):
        assert said in out
    Path("program.py").rename("other.py")
    code, out, err = explore("replay", "run")
    assert code in (0, 6), err
    assert "verified on" in out
    monkeypatch.setenv("FOUND", "run")
    program = runpy.run_path("other.py")
    program["step"]()
    assert n_runs() == 1
    x = np.arange(1, 13) * (np.arange(12) < 10)
    np.testing.assert_array_equal(program["y"].to_numpy()[:12], 2 * x)
    np.testing.assert_array_equal(program["wide"].to_numpy()[:6], 2 * x.reshape(-1, 2).sum(axis=1))
