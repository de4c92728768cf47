"""Stores that nobody sees: of which arrays they may be left away, and every implementation of small chains in place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.errors import LanguageError
from kernelscape.kernels.tasks.dependence import written_over
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space import build
from kernelscape.space import choices as ch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.targets.kind import CPU
from kernelscape.testing import checking
from kernelscape.testing.legality import illegal

nd = types.ndarray()


@kernel
def increment(x: nd):
    for i in range(x.shape[0]):
        x[i] = x[i] + 1.0


@kernel
def half(x: nd):
    for i in range(4):
        x[i] = x[i] * 2.0


@kernel
def copy(x: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] = x[i]


@kernel
def twice(x: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] = 2.0 * x[i]


@kernel
def neighbour(x: nd, y: nd):
    for i in range(x.shape[0] - 1):
        y[i] = x[i + 1]


@kernel
def reset(x: nd):
    for i in range(x.shape[0]):
        x[i] = 3.0


def thrice(x, y):
    increment(x)
    increment(x)
    increment(x)


def only_half_is_over(x, y):
    increment(x)
    half(x)


def seen_by_a_neighbour(x, y):
    increment(x)
    neighbour(x, y)
    increment(x)


def seen_by_two(x, y):
    increment(x)
    copy(x, y)
    increment(x)


def seen_as_an_output(x, y):
    twice(x, y)
    twice(y, x)
    reset(y)


def there_and_back(x, y):
    twice(x, y)
    increment(y)
    twice(y, x)


def half_is_written(x, y):
    half(y)
    copy(y, x)


def space_of(sequence, unseen=()):
    arrays = [np.zeros(8, np.float32) for _ in range(2)]
    problem = normalise(record_sequence(sequence, arrays, "some").with_unseen(unseen))
    return build_space(problem, checking.target(1, 16))


@pytest.fixture
def few_sizes(monkeypatch):
    small = replace(build.KINDS[CPU], mid_sizes=(1,), inner_sizes=(1, 4), most_whole=1)
    monkeypatch.setitem(build.KINDS, CPU, small)


def leaves(space):
    """Every implementation, found by deciding choice after choice."""
    found, open_ones = [], [space.root()]
    while open_ones:
        candidate = open_ones.pop()
        if not isinstance(candidate, Candidate):
            continue
        if candidate.is_complete:
            found.append(candidate)
            continue
        open_ones += [child for _, child in candidate.expand(int(candidate.open_choices()[0]))]
    return found


# By sequence: the tasks whose stores may be left away, and how many of these are in some implementation.
CHAINS = [
    (thrice, {0, 1}, 2),
    (only_half_is_over, set(), 0),
    (seen_by_a_neighbour, {0}, 0),
    (seen_by_two, {0}, 1),
    (seen_as_an_output, {0}, 1),
]


@pytest.mark.parametrize(("sequence", "over", "n_elided"), CHAINS)
def test_what_is_written_over_is_left_away_where_readers_have_it(
    few_sizes, sequence, over, n_elided
):
    space = space_of(sequence)
    assert written_over(space.problem) == over
    found = leaves(space)
    assert found
    stores = space.variables.store
    assert set(stores) == over
    elided = [sum(c.value(var) == ch.ELIDED for var in stores.values()) for c in found]
    assert max(elided) == n_elided
    assert [illegal(c) for c in found] == [""] * len(found)


def test_a_chain_in_place_is_one_loop_and_one_store(few_sizes):
    """Some implementation of three steps has one launch, and stores once."""
    space = space_of(thrice)
    one_launch = [
        c
        for c in leaves(space)
        if all(c.value(var) == ch.SAME_LAUNCH for var in space.variables.fused.values())
    ]
    assert any(
        all(c.value(var) == ch.ELIDED for var in space.variables.store.values()) for c in one_launch
    )


def test_array_that_nobody_reads_afterwards_need_not_be_stored(few_sizes):
    """Such an array is a temporary: in one loop none of its stores is left, and a task that only fills it is none."""
    space = space_of(there_and_back, ["y"])
    assert [a.role for a in space.problem.arrays] == ["inout", "temp"]
    stores = space.variables.store.values()
    assert any(all(c.value(var) == ch.ELIDED for var in stores) for c in leaves(space))
    assert [t.name for t in space_of(seen_by_two, ["y"]).problem.tasks] == [
        "increment0",
        "increment1",
    ]


@pytest.mark.parametrize(
    ("sequence", "unseen", "sentence"),
    [
        (there_and_back, ["x"], "x cannot be unseen: some may read it before all of it is written"),
        (half_is_written, ["y"], "y cannot be unseen: some may read it before"),
        (thrice, ["z"], "there is no array 'z' that could be unseen: some has x, y"),
        (thrice, "x", "unseen= takes the names of arrays"),
    ],
)
def test_array_whose_values_matter_is_not_unseen(sequence, unseen, sentence):
    with pytest.raises(LanguageError, match=sentence):
        space_of(sequence, unseen)
