"""Descriptions of bodies: their kind, and how they were opened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from kernelscape.codegen.describe import body_words
from kernelscape.codegen.passes.pipeline import launches_of
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing.checking import random_candidate
from kernelscape.testing.machines import root_of, round_target

nd: Any = types.ndarray()


@kernel
def positive(x: nd, at: nd, y: nd):
    for i in range(x.shape[0]):
        if x[i] > 0.0:
            y[i] = x[i]


@kernel
def picked(x: nd, at: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] = x[at[i]] * 2.0


@kernel
def halved(x: nd, at: nd, y: nd):
    for i in range(x.shape[0]):
        t = x[i]
        while t > 0.5:
            t = t * 0.5
        y[i] = t


@kernel
def counted(x: nd, at: nd, y: nd):
    for i in range(x.shape[0]):
        y[at[i]] += x[i]


def twice(x: Any, at: Any, y: Any, z: Any) -> None:
    picked(x, at, y)
    picked(x, at, z)


def words_of(fn: Any, seed: int, n_results: int = 1) -> Iterator[str]:
    """Of one random candidate."""
    n = 64
    x, *results = (np.zeros(n, np.float32) for _ in range(1 + n_results))
    problem = normalise(record_sequence(fn, (x, np.zeros(n, np.int32), *results), name="one"))
    space = build_space(problem, round_target())
    found = random_candidate(root_of(space), np.random.default_rng(seed))
    if isinstance(found, Candidate):
        plan = plan_of(found)
        yield from body_words(plan, launches_of(plan, space.target))


@pytest.mark.parametrize(
    ("fn", "name", "wanted"),
    [
        (positive, "positive0: an assignment under a condition", ("blends", "shared by threads")),
        (picked, "picked0: statements that always run", ("shared by threads", "lanes")),
        (halved, "halved0: loops of run-time length", ("lanes with masks", "a while")),
        (
            counted,
            "counted0: statements that always run",
            ("updates y each atomically", "in place, slab by slab"),
        ),
    ],
)
def test_each_way_is_said(fn: Any, name: str, wanted: tuple[str, ...]) -> None:
    said = [phrase for seed in range(16) for phrase in words_of(fn, seed)]
    assert said
    assert all(phrase.startswith(name) for phrase in said)
    assert all(any(part in phrase for phrase in said) for part in wanted), said


def test_bodies_that_became_one_say_so() -> None:
    said = (phrase for seed in range(60) for phrase in words_of(twice, seed, 2))
    assert any("one body with picked1, equal values computed once" in phrase for phrase in said)
