"""With `deterministic` no choice is open by which the number or the order of threads reaches a result.

The kind: sums of floats whose order is another in each run. They are atomic updates, sums of each thread of a team
that may have fewer threads in the next call, parts that go to whichever thread is ready, and lists in the order of arrival.
"""

from __future__ import annotations

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.explorer.workload import Options, as_in_program, make_workload, space_for
from kernelscape.search.starts.complete import sketched_candidates
from kernelscape.testing.checking import target

N = 4000


@ks.kernel
def tally(at: ks.types.ndarray, weight: ks.types.ndarray, bins: ks.types.ndarray) -> None:
    for i in range(at.shape[0]):
        bins[at[i]] += weight[i]


@ks.kernel
def add_up(weight: ks.types.ndarray, total: ks.types.ndarray) -> None:
    for i in range(weight.shape[0]):
        total[0] += weight[i]


def histogram(at, weight, bins):
    tally(at, weight, bins)


def histogram_and_sum(at, weight, bins, total):
    tally(at, weight, bins)
    add_up(weight, total)


def arguments(dtype: type) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(1)
    weight = rng.uniform(0.0, 100.0, N).astype(dtype)
    return rng.integers(0, 8, N), weight, np.zeros(8, dtype)


def values_of(dtype: type, *, deterministic: bool) -> set[str]:
    given = (*arguments(dtype), np.zeros(1, dtype))
    workload = make_workload(histogram_and_sum, given, sequence="x:h", name="histogram")
    space = space_for(workload.problem, target(4, 32), Options(deterministic=deterministic))
    root = space.root()
    names = [(space.choices[v], v) for v in map(int, space.searchable)]
    return {
        choice.values[x]
        for choice, v in names
        if choice.kind in ("scatter", "schedule", "reduction", "compaction")
        for x in root.values(v)
    }


def test_calls_that_are_not_split_are_excluded() -> None:
    """By the rules of standalone calls threads share sums."""
    workload = make_workload(histogram, arguments(np.float32), sequence="x:h", name="histogram")
    for deterministic in (False, True):
        options = Options(deterministic=deterministic)
        space = space_for(workload.problem, target(4, 32), options)
        (default, *_) = [made for _, made in sketched_candidates(space)]
        assert bool(space.apart(default)) is not deterministic


def test_shared_sums_of_floats_are_excluded_and_those_of_integers_are_not() -> None:
    shared = {"ATOMIC", "PRIVATE", "PARTIALS"}
    assert shared <= values_of(np.float32, deterministic=False)
    assert not shared & values_of(np.float32, deterministic=True)
    assert {"SERIAL", "SEQUENTIAL", "LANES"} <= values_of(np.float32, deterministic=True)
    assert shared <= values_of(np.int32, deterministic=True)


def test_the_sequence_of_a_deterministic_program_is_explored_so() -> None:
    ks.init(deterministic=True)
    try:
        assert as_in_program(Options()).deterministic
    finally:
        ks.reset()
    assert not as_in_program(Options()).deterministic


def test_a_decision_that_contradicts_it_is_refused() -> None:
    workload = make_workload(histogram, arguments(np.float32), sequence="x:h", name="histogram")
    fixed = Options(deterministic=True, fixed=(("scatter", "ATOMIC"),))
    with pytest.raises(ks.errors.DecisionError, match="ATOMIC"):
        space_for(workload.problem, target(4, 32), fixed)


@pytest.mark.compiler
def test_two_calls_of_the_result_give_equal_bytes(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    at, weight, bins = arguments(np.float32)
    run = ks.explore(
        histogram, at, weight, bins, deterministic=True, max_evals=3, directory=tmp_path / "run"
    )
    assert run.best.decisions["scatter(tally0.bins)"] != "ATOMIC"
    tuned, found = run.compile(), set()
    for _ in range(20):
        bins[:] = 0
        tuned(at, weight, bins)
        found.add(bins.tobytes())
    assert len(found) == 1


@pytest.mark.compiler
def test_a_deterministic_program_keeps_the_order_of_sums() -> None:
    ks.init(deterministic=True)
    try:
        kernel = ks.kernel(tally.fn)
        at, weight, bins = arguments(np.float32)
        kernel(at, weight, bins)
        one_by_one = np.zeros_like(bins)
        for i, x in zip(at, weight, strict=True):
            one_by_one[i] += x
        assert bins.tobytes() == one_by_one.tobytes()
        assert not kernel.instantiate(at, weight, bins).fast_math
    finally:
        ks.reset()
