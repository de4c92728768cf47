"""Spaces of sequences with repeats: what a step leaves for the next is in memory, and no more than that is forbidden."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import ndarray, record_sequence
from kernelscape.kernels.frontend.repeat import repeat
from kernelscape.kernels.ir.errors import LanguageError
from kernelscape.kernels.ir.repeats import Repeat
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space import choices as ch
from kernelscape.space.backbone import build as backbone
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking
from kernelscape.testing.legality import illegal

from .gpu_target import GPU

nd = types.ndarray()
N = 6


@kernel
def step(a: nd, b: nd):
    for i in range(1, a.shape[0] - 1):
        b[i] = 0.5 * (a[i - 1] + a[i + 1])


@kernel
def add(a: nd, b: nd, c: nd):
    for i in range(a.shape[0]):
        c[i] = a[i] + 0.5 * b[i]


@kernel
def dot(a: nd, b: nd, r: nd):
    acc = 0.0
    for i in range(a.shape[0]):
        acc += a[i] * b[i]
    r[0] = acc


@kernel
def scale(r: nd, a: nd):
    for i in range(a.shape[0]):
        a[i] = a[i] - 0.01 * r[0]


def stencils(a, b, r):
    step(a, b)
    step(b, a)


def on_chip(a, b, r):
    """The temporary is written and read in one step."""
    t = ndarray(a.dtype, a.shape, name="t")
    add(a, b, t)
    add(t, b, a)


def carried(a, b, r):
    """The temporary is read by the next step, at the same elements."""
    t = ndarray(a.dtype, a.shape, name="t")
    add(t, a, b)
    add(a, b, t)


def sums(a, b, r):
    dot(a, b, r)
    scale(r, a)


def between(a, b, r):
    add(a, b, b)
    step(a, b)
    step(b, a)
    dot(a, b, r)


SEQUENCES = {
    "stencils": (stencils, (0, 2)),
    "on chip": (on_chip, (0, 2)),
    "carried": (carried, (0, 2)),
    "sums": (sums, (0, 2)),
    "between": (between, (1, 3)),
}


def recorded(name, count, n=N):
    """The sequence, a part of it so many times."""
    fn, (first, stop) = SEQUENCES[name]
    recording = record_sequence(fn, [np.zeros(n), np.zeros(n), np.zeros(1)], name.replace(" ", "_"))
    return replace(recording, repeats=(Repeat(first, stop, count),) if count > 1 else ())


def space_of(recording, vector_bytes=16):
    return build_space(normalise(recording), checking.target(2, vector_bytes))


def candidates(space, n, seed=1):
    rng = np.random.default_rng(seed)
    root = space.root()
    assert isinstance(root, Candidate)
    made = (checking.random_candidate(root, rng) for _ in range(n))
    return [m for m in made if isinstance(m, Candidate)]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("name", SEQUENCES)
def test_every_read_sees_the_value_that_it_should(name, count):
    made = candidates(space_of(recorded(name, count)), 40)
    assert len(made) > 30
    for candidate in made:
        assert illegal(candidate) == ""


def test_a_temporary_that_the_next_step_reads_is_written(monkeypatch):
    def elided(space):
        store = next(iter(space.variables.store.values()))
        return [c for c in candidates(space, 40) if c.value(store) == ch.ELIDED]

    assert elided(space_of(recorded("on chip", 3)))
    assert not elided(space_of(recorded("carried", 3)))
    monkeypatch.setattr(backbone, "carried_flows", lambda problem: ())
    assert any(illegal(c) for c in candidates(space_of(recorded("carried", 3)), 40))


def test_a_step_shares_no_launch_with_what_is_before_and_behind():
    space = space_of(recorded("between", 3))
    assert [list(c) for c in space.backbone.components] == [[0], [1, 2], [3]]
    assert set(space.variables.fused) == {(1, 2)}
    assert space_of(recorded("between", 1)).backbone.components == (range(4),)


@kernel
def copy_count(n: nd):
    n[0] = 7


@kernel
def count_down(n: nd, done: nd):
    n[0] -= 1
    done[0] = n[0] < 3


def counted(a, b, n, done):
    copy_count(n)
    for _ in repeat(9, until=done):
        step(a, b)
        count_down(n, done)


def test_a_gpu_cannot_end_its_repeats():
    arrays = [np.ones(N), np.ones(N), np.ones(1, np.int32), np.zeros(1, np.int32)]
    problem = normalise(record_sequence(counted, arrays))
    assert build_space(problem, checking.target(2, 32)).n_choices
    with pytest.raises(LanguageError, match="explore it on a CPU") as error:
        build_space(problem, GPU)
    assert "\n" not in str(error.value)


def test_a_hundred_steps_have_the_choices_of_two():
    few, many = (space_of(recorded("stencils", n)) for n in (2, 100))
    assert few.n_choices == many.n_choices
    assert len(few.model.declarations) == len(many.model.declarations)
    assert few.problem.key != many.problem.key


def test_generated_code_computes_what_the_interpreter_does(tmp_path):
    """After two and three steps, and with threads held back."""
    rng = np.random.default_rng(3)
    arrays = {"a": rng.random(37), "b": rng.random(37), "r": rng.random(1)}
    sources, inputs = [], []
    for name in SEQUENCES:
        for count in (2, 3):
            recording = recorded(name, count, 37)
            space = space_of(recording, 32)
            for candidate in candidates(space, 1, count):
                sources.append(checking.source_of(candidate))
                inputs.append(checking.make_inputs(recording, space.problem, arrays, {}))
    builds = checking.build_all(sources, tmp_path, "repeat")
    for built, given in zip(builds, inputs, strict=True):
        assert built.log == ""
        assert checking.check(built, given, checking.Way(repeats=6)) == ""
