"""Sequences of programs: their kernels work on fields, and a search on the data that these hold."""

from __future__ import annotations

from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.language.record import record_program

from .command import objects

PROGRAM = """
import kernelscape as ks

ks.init(default_fp=ks.f32)
x = ks.Vector.field(2, ks.f32, shape=(16, 8))
d = ks.field(ks.f32, shape=(16, 8))

@ks.kernel
def combine():
    for i, j in d:
        d[i, j] = 2 * x[i, j].x - x[i, j].y

@ks.kernel
def scale(a: ks.f32):
    for i, j in d:
        d[i, j] *= a

def substep():
    combine()
    scale(0.5)

def of_one(a):
    scale(a)

for i in range(16):
    x[i, 3] = [i, 1]
"""


@pytest.fixture(autouse=True)
def no_program_is_left():
    yield
    ks.reset()


@pytest.mark.compiler
def test_what_a_program_calls_is_searched(explore) -> None:
    Path("program.py").write_text(PROGRAM)
    code, out, err = explore("run", "program.py:substep", "--max-evals", "3", "--json")
    assert code == 0, err
    assert objects(out)[-1]["event"] == "result"
    (run,) = Path("runs").iterdir()
    assert explore("replay", str(run))[0] in (0, 6)


def test_a_kernel_is_a_sequence_too(explore) -> None:
    Path("program.py").write_text(PROGRAM)
    code, out, _ = explore("show", "program.py:combine")
    assert code == 0
    assert "1 task" in out


def test_a_function_with_arguments_needs_them(explore) -> None:
    Path("program.py").write_text(PROGRAM)
    code, _, err = explore("run", "program.py:of_one")
    assert code == 2 and err.count("\n") == 1
    assert "has no function 'make_arguments'" in err


def test_fields_are_arguments_of_what_was_found(tmp_path: Path) -> None:
    ks.init()
    x, y = ks.field(ks.f32, shape=64), ks.field(ks.f32, shape=64)

    @ks.kernel
    def double():
        for i in x:
            y[i] = 2 * x[i]

    x.from_numpy(np.arange(64, dtype=np.float32))
    recording, fields = record_program(lambda: double(), ())
    assert {p.name for p in recording.arrays} == {"x", "y"} == fields.keys()
    assert fields["x"] is x.array
    ks.explore(lambda: double(), max_evals=3, target="fake", directory=tmp_path / "run")
    assert not y.to_numpy().any()  # the program's data stay as they are
