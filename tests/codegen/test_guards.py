"""Guarded assignments in all of their ways against the interpreter: branches, blends, strides, rows of vectors in place."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernelscape.codegen.describe import describe
from kernelscape.codegen.text import csyntax as c
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.cpu.compiler import FEWER_PASSES
from kernelscape.space import choices as ch
from kernelscape.space.backbone import INNER
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking
from kernelscape.testing.legality import illegal
from kernelscape.testing.syntax import declared, innermost, nodes, program_of

CANDIDATES = 3
pytestmark = [pytest.mark.compiler]
nd: Any = types.ndarray()


@kernel
def sweep(z: nd, r: nd, colour: int):
    for i in range(1, z.shape[0] - 1):
        for j in range(1, z.shape[1] - 1):
            if (i + j) % 2 == colour:
                z[i, j] = 0.25 * (r[i, j] + z[i - 1, j] + z[i + 1, j] + z[i, j - 1] + z[i, j + 1])


def red_black(x, y, z):
    sweep(x, y, 0)
    sweep(x, y, 1)


@kernel
def relaxed(x: nd, y: nd):
    for i in range(x.shape[0]):
        for j in range(2, x.shape[1] - 2):
            if j % 3 != 1:
                y[i, j] = x[i, j]
            if j % 3 == 1:
                x[i, j] = 0.5 * x[i, j] + 0.125 * (x[i, j - 2] + x[i, j + 1] + x[i, j - 1])


def thirds(x, y, z):
    relaxed(x, y)


@kernel
def life(x: nd, y: nd):
    for i in range(1, x.shape[0] - 1):
        for j in range(1, x.shape[1] - 1):
            n = x[i - 1, j - 1] + x[i - 1, j] + x[i - 1, j + 1] + x[i, j - 1] + x[i, j + 1]
            n += x[i + 1, j - 1] + x[i + 1, j] + x[i + 1, j + 1]
            if x[i, j] > 0.0:
                if n < 2.0 or n > 3.0:
                    y[i, j] = 0.0
                else:
                    y[i, j] = 1.0
            elif n > 2.0 and n < 4.0:
                y[i, j] = 1.0
            else:
                y[i, j] = 0.0


def generations(x, y, z):
    life(x, y)
    life(y, z)


@kernel
def clamp(x: nd, y: nd, z: nd):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            t = x[i, j]
            if t < 0.0:
                t = 0.0
                z[i, j] += 1.0
            elif t > 2.0:
                t = 2.0
            if i > 0 and j < x.shape[1] - 1:
                y[i, j] = t + x[i - 1, j + 1]
            else:
                y[i, j] = -t


@kernel
def follow(y: nd, z: nd):
    for i in range(y.shape[0]):
        for j in range(y.shape[1]):
            if y[i, j] > 0.5:
                z[i, j] = y[i, j] * 2.0


def chain(x, y, z):
    clamp(x, y, z)
    follow(y, z)


@kernel
def sums(x: nd, y: nd, z: nd):
    for i in range(x.shape[0]):
        s = 0.0
        for j in range(x.shape[1]):
            if x[i, j] > y[i, j]:
                s += x[i, j]
        if s > 1.0:
            z[i, 0] = s
        for j in range(x.shape[1]):
            if (i - j) % 2 == 0 and x[i, j] > 0.0:
                y[i, j] = x[i, j] - y[i, j]


def rows(x, y, z):
    sums(x, y, z)


@kernel
def halves(x: nd, y: nd):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if x[i, j] > 0.0:
                y[i, j] = 2.0 * y[i, j]
            else:
                y[i, j] += x[i, j]


def opposites(x, y, z):
    halves(x, y)


SEQUENCES = (red_black, thirds, generations, chain, rows)


@pytest.fixture(scope="module")
def folder():
    made = Path(tempfile.mkdtemp(prefix="guards-"))
    yield made
    shutil.rmtree(made)


def drawn(sequence: Any, shape: tuple[int, int], dtype: Any, width: int, seed: int) -> Any:
    """A sequence with its inputs and some random candidates of it, the ways of guards in turn."""
    rng = np.random.default_rng(seed)
    arrays = {name: rng.standard_normal(shape).astype(dtype) for name in "xyz"}
    recording = record_sequence(sequence, tuple(arrays.values()), name="guards")
    problem = normalise(recording)
    inputs = checking.make_inputs(recording, problem, arrays, {})
    root = build_space(problem, checking.target(2, width)).root()
    assert isinstance(root, Candidate)
    candidates = []
    for k in range(CANDIDATES):
        wanted = root
        of_tasks = root.space.variables.of_tasks
        for var in (*of_tasks["guard"].values(), *of_tasks["rows"].values()):
            values = wanted.values(var)
            made = wanted.decide(var, 1 << values[(k + 1) % len(values)])
            wanted = made if isinstance(made, Candidate) else wanted
        candidates.append(checking.random_candidate(wanted, rng))
    return inputs, [c for c in candidates if isinstance(c, Candidate)]


@pytest.mark.parametrize("sequence", SEQUENCES, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("shape", "dtype", "width", "compiler"),
    [((7, 53), np.float32, 32, "gcc"), ((12, 37), np.float64, 16, "clang")],
    ids=["f32", "f64"],
)
def test_guarded_tasks_compute_what_the_interpreter_does(
    sequence: Any, shape: tuple[int, int], dtype: Any, width: int, compiler: str, folder: Path
) -> None:
    inputs, candidates = drawn(sequence, shape, dtype, width, 5)
    assert inputs
    assert candidates
    sources = [checking.source_of(c) for c in candidates]
    compiler = compiler if shutil.which(compiler) else "gcc"
    stem = f"{sequence.__name__}_{width}"
    flags = FEWER_PASSES if compiler == "gcc" else ()
    flags = (*flags, *checking.PLAINLY) if dtype is np.float32 else flags
    assert not checking.fault(
        sources, inputs, folder, stem=stem, compiler=compiler, more_flags=flags
    )


@pytest.mark.parametrize("sequence", SEQUENCES, ids=lambda f: f.__name__)
def test_a_judge_finds_nothing_in_candidates_of_guarded_tasks(sequence: Any) -> None:
    _, candidates = drawn(sequence, (6, 9), np.float32, 16, 3)
    assert candidates
    assert [illegal(c) for c in candidates] == [""] * len(candidates)


def test_a_blend_hands_over_what_was_there_where_it_assigns_nothing() -> None:
    rng = np.random.default_rng(1)
    arrays = [np.ones((4, 9), np.float32) for _ in "xyz"]
    problem = normalise(record_sequence(opposites, tuple(arrays), name="guards"))
    v = (space := build_space(problem, checking.target(2, 16))).variables
    made: Any = space.root()
    for var, value in (
        (v.of_tasks["guard"][0], ch.BLEND),
        *((x, ch.REGISTER) for x in v.mem_space.values()),
    ):
        made = made.decide(var, 1 << value)
        assert isinstance(made, Candidate)
    assert v.mem_space
    candidate = checking.random_candidate(made, rng)
    assert isinstance(candidate, Candidate)
    assert illegal(candidate) == ""


def test_rows_hand_the_last_vector_of_a_tile_on_to_the_next() -> None:
    """To load it again would be to wait for what was just stored there."""
    x = np.ones((9, 70), np.float32)
    problem = normalise(record_sequence(lambda z, r: sweep(z, r, 0), (x, x.copy()), name="one"))
    space = build_space(problem, checking.target(1, 32))
    v, made = space.variables, space.root()
    inner = space.backbone.dim(0, "j", INNER)
    for var, value in (
        (v.of_tasks["rows"][0], ch.ROWS),
        (v.size[inner], v.universe[inner].index(16)),
        (v.kind[space.backbone.dim(0, "i", INNER)], ch.ABSENT),
    ):
        assert isinstance(made, Candidate)
        made = made.decide(var, 1 << value)
    assert isinstance(made, Candidate)
    program = program_of(checking.random_candidate(made, np.random.default_rng(1)))
    (name,) = (x.name for x in declared(program) if x.name.endswith("_before"))
    (along,) = (x for x in innermost(program) if [y for y in assigned(x.body) if y == name])
    assert name not in {x.name for x in declared(along.body)}


def assigned(x: Any) -> list[str]:
    """Names of what is assigned to."""
    found = (n.target for n in nodes(x) if isinstance(n, c.Assign))
    return [t.name for t in found if isinstance(t, c.Id)]


def test_words_say_how_branches_were_opened() -> None:
    _, candidates = drawn(red_black, (6, 53), np.float32, 16, 3)
    for candidate in candidates:
        v = candidate.space.variables
        how = [ch.GUARD[candidate.value(x)] for x in v.of_tasks["guard"].values()]
        words = {"BRANCH": "tests its", "BLEND": "stores in each", "STRIDE": "strides over"}
        found = describe(candidate)["branches"]
        assert len(found) == len(how) == 2
        assert all(words[x] in text for x, text in zip(how, found, strict=True))
