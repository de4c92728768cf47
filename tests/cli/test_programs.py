"""Sequences of programs: their kernels work on fields, and a search on the data that these hold."""

from __future__ import annotations

from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.recorder import record_program

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
    code, out, err = explore("run", "program.py:substep", "--max-evals", "1", "--json")
    assert code == 0, err
    assert objects(out)[-1]["event"] == "result"
    (run,) = Path("runs").iterdir()
    assert explore("replay", str(run))[0] in (0, 6)


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


def particles() -> tuple[object, ks.MatrixField, ks.ScalarField]:
    """Particles that give their mass to a grid: where, follows from positions."""
    n, n_cells = 40, 16
    x = ks.Vector.field(2, ks.f32, shape=n)
    mass = ks.field(ks.f32, shape=(n_cells, n_cells))

    @ks.kernel
    def clear():
        for i, j in mass:
            mass[i, j] = 0.0

    @ks.kernel
    def scatter():
        for p in x:
            base = (x[p] * n_cells - 0.5).cast(int)
            fx = x[p] * n_cells - base.cast(float)
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            for i, j in ks.static(ks.ndrange(3, 3)):
                mass[base + ks.Vector([i, j])] += w[i].x * w[j].y

    def step():
        clear()
        scatter()

    x.from_numpy(np.random.default_rng(5).uniform(0.1, 0.8, (n, 2)).astype(np.float32))
    return step, x, mass


@pytest.mark.compiler
def test_inputs_keep_the_path_where_indices_are_computed(tmp_path: Path) -> None:
    ks.init()
    step, x, mass = particles()
    before = x.to_numpy()
    run = ks.explore(step, max_evals=1, directory=tmp_path)
    assert run.ended.verified
    assert run.ended.n_input_sets >= 2  # more than the program's own, all inside the grid
    np.testing.assert_array_equal(x.to_numpy(), before)
    assert not mass.to_numpy().any()  # the snapshot is the input: the program's own fields stay
    tuned = run.best.compile()
    step()
    expected = mass.array.copy()
    given = {p.name: {"x": x, "mass": mass}[p.name].array for p in run.best.file.stored.parameters}
    given["mass"] = np.full_like(expected, np.nan)
    tuned(**given)
    np.testing.assert_allclose(given["mass"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.compiler
def test_what_is_not_opened_is_said_beside_the_status(tmp_path: Path) -> None:
    ks.init()
    x, y = ks.field(ks.f32, shape=8), ks.field(ks.f32, shape=8)

    @ks.kernel
    def prefix():
        for _ in range(1):
            for i in range(1, 8):
                y[i] = y[i - 1] + ks.sqrt(x[i])

    run = ks.explore(prefix, time_limit=30, directory=tmp_path, target="fake")
    assert run.status in ("optimal_open", "exhausted")
    assert run.non_affine
    assert [t.task for t in run.non_affine.tasks] == ["prefix0"]
