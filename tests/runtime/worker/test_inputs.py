"""Input sets: what is drawn keeps the path, right code is right on them, and wrong code is not."""

from __future__ import annotations

from functools import cache

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.explorer.workload import make_workload
from kernelscape.runtime.reference import Reference
from kernelscape.runtime.worker import inputs
from kernelscape.runtime.worker.inputs import Arguments, make_input_sets
from kernelscape.runtime.worker.verify import find_mismatch, near
from kernelscape.testing.interpreted import run_reference

from ..recurrences import CASES, nd


@cache
def workload_of(name, lost=0):
    kernel, args = CASES[name]
    return make_workload(kernel, (*args, lost), sequence=name, name="drawn")


@cache
def input_sets_of(name, n_sets=3):
    """Made once: what takes longest is the reference in float64."""
    s = workload_of(name)
    return make_input_sets(s.recording, s.problem, s.arguments, np.random.default_rng(1), n_sets)


def wrong_sets(input_sets, recording, change=0.0):
    """On which sets the results of a recording in its own types are called wrong."""
    rng, found = np.random.default_rng(5), []
    for k, s in enumerate(input_sets.sets):
        arrays = {
            name: near(a, change, rng) if change and a.dtype.kind == "f" else a
            for name, a in s.arrays.items()
        }
        with np.errstate(all="ignore"):
            got = run_reference(recording, arrays, s.scalars)
        expected = s.measured().expected
        if any(find_mismatch(got[name], e) is not None for name, e in expected.items()):
            found.append(k)
    return found


@pytest.mark.parametrize("name", CASES)
def test_right_code_is_right_and_one_lost_step_is_seen(name):
    input_sets = input_sets_of(name)
    assert wrong_sets(input_sets, workload_of(name).recording) == []
    assert wrong_sets(input_sets, workload_of(name, lost=1).recording) != []


@pytest.mark.parametrize("name", ["lu", "lu in single precision", "durbin", "vadv", "mandelbrot"])
def test_rounding_as_of_inputs_in_their_last_places_is_right(name):
    eps = np.finfo(CASES[name][1][0].dtype).eps
    assert wrong_sets(input_sets_of(name), workload_of(name).recording, change=eps) == []


@pytest.mark.parametrize("name", ["lu", "durbin", "vadv", "syrk", "trmm"])
def test_one_element_that_is_off_a_little_is_wrong(name):
    """A thousand times the rounding of an operation, of the largest element: nobody may be that tolerant."""
    for s in input_sets_of(name).sets:
        for e in s.measured().expected.values():
            got = e.want.copy()
            at = np.unravel_index(np.nanargmax(np.abs(got)), got.shape)
            got[at] *= 1 + 1000 * np.finfo(got.dtype).eps
            assert find_mismatch(got, e) is not None


@pytest.mark.parametrize("name", CASES)
def test_every_set_keeps_the_path(name):
    input_sets = input_sets_of(name)
    assert len(input_sets.sets) == 3
    first = input_sets.sets[0]
    for s in input_sets.sets[1:]:
        assert any(
            not np.array_equal(a, first.arrays[k], equal_nan=True) for k, a in s.arrays.items()
        )
        for k, e in s.expected.items():
            assert np.isnan(e.want).sum() == np.isnan(first.expected[k].want).sum()
            assert not np.isinf(e.want).any()
        for k in ("first", "column", "p"):  # lists and permutations mean something as a whole
            if k in s.arrays:
                np.testing.assert_array_equal(s.arrays[k], first.arrays[k])


def test_what_may_be_drawn_is_drawn():
    input_sets = input_sets_of("single to double")
    whole, signed = (s.arrays["a"] for s in input_sets.sets[1:])
    assert set(np.unique(whole)) == {-2, -1, 0, 1, 2}
    assert (np.abs(signed) <= 1).all()


def test_what_is_written_before_it_is_read_is_not_drawn(monkeypatch):
    """It begins as poison in every set; drawing it took a quarter of the time of a sum of three large arrays."""
    drawn = []
    for name in ("integers_like", "signed_like"):
        fill = getattr(inputs, name)
        monkeypatch.setattr(
            inputs, name, lambda a, rng, fill=fill: drawn.append(a.shape) or fill(a, rng)
        )
    s = workload_of("single to double")
    make_input_sets(s.recording, s.problem, s.arguments, np.random.default_rng(1), 3)
    assert drawn == 2 * [s.arguments.arrays["a"].shape, s.arguments.arrays["x"].shape]


@pytest.mark.parametrize(
    ("values", "is_exact"),
    [
        ([1.0, -3.0, np.nan], True),
        ([np.nan, np.nan], True),
        ([1.0, 2.5], False),
        ([1.0, np.inf], False),
        ([1.0, -(2.0**48)], False),
    ],
)
def test_results_are_exact_where_all_are_small_integers(values, is_exact):
    s = workload_of("scatter")
    roles = {p.name: s.problem.array(p.name).role for p in s.recording.arrays}
    maker = inputs._Maker(s.recording, s.problem, roles, Reference())
    found = {"x": np.ones(1), "y": np.array(values)}
    assert maker._is_exact(found) is is_exact


def test_an_overflow_of_what_is_drawn_is_left_out():
    @ks.kernel
    def power(x: nd, y: nd):
        for i in range(x.shape[0]):
            y[i] = ks.exp(2000.0 * x[i])

    args = (np.full(50, 0.01), np.zeros(50))
    s = make_workload(power, args, sequence="t", name="t")
    input_sets = make_input_sets(s.recording, s.problem, s.arguments, np.random.default_rng(1), 3)
    assert len(input_sets.sets) == 3
    for made in input_sets.sets:
        assert np.isfinite(made.expected["y"].want).all()


def test_more_sets_of_the_caller_follow_the_first():
    s = workload_of("lu")
    other = Arguments({"a": 3.0 * np.eye(14)}, {})
    input_sets = make_input_sets(
        s.recording, s.problem, s.arguments, np.random.default_rng(1), 2, more=[other]
    )
    assert len(input_sets.sets) == 3
    np.testing.assert_array_equal(input_sets.sets[1].arrays["a"], other.arrays["a"])


def test_no_more_sets_once_there_are_enough():
    s = workload_of("lu")
    rng = np.random.default_rng(1)
    input_sets = make_input_sets(
        s.recording, s.problem, s.arguments, rng, 3, is_enough=lambda: True
    )
    assert len(input_sets.sets) == 1
