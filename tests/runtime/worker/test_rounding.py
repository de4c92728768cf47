"""Right code is not called wrong, and wrong code is, where rounding alone would decide: on thresholds, and where a program carries
each rounding far. The kinds: an element that lies on a branch, an error that recurrences and divisions grow, faults beside both.

What is right is computed by generated code, or by NumPy with its own order of sums, never by the runs that give the tolerance.
"""

from __future__ import annotations

import importlib.util
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from kernelscape.explorer.workload import make_workload
from kernelscape.runtime.api.outcome import Disagreement
from kernelscape.runtime.forked import Stopped
from kernelscape.runtime.reference import Reference
from kernelscape.runtime.worker.inputs import make_input_sets
from kernelscape.runtime.worker.rounding import MEASURED, Rounding, branch_sentences
from kernelscape.runtime.worker.verify import Expected, UndecidedElements, find_mismatch
from kernelscape.testing.interpreted import run_reference

WORKS = Path(__file__).parents[2] / "works"
FAULTS = {"strict": 1, "row": 2, "threshold": 3, "border": 4}


class Begun:
    """A run that is made when its result is wanted; counts those that have begun and are not ended."""

    n_running, most_running = 0, 0

    def __init__(self, run, seed):
        self.run, self.seed = run, seed
        Begun.n_running += 1
        Begun.most_running = max(Begun.n_running, Begun.most_running)

    def result(self):
        self.end()
        return self.run(self.seed)

    def end(self):
        Begun.n_running -= 1


@cache
def work(name):
    spec = importlib.util.spec_from_file_location(name, WORKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arguments(name, dtype, **sizes):
    return work(name).make_arguments(sizes, dtype, np.random.default_rng(1))


def sets_of(name, args, **options):
    s = make_workload(getattr(work(name), name), args, sequence=name, name=name)
    rng = np.random.default_rng(1)
    return make_input_sets(s.recording, s.problem, s.arguments, rng, 1, Reference(), **options)


def run(name, args):
    """The arrays after a call of generated code."""
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    getattr(work(name), name)(*copies)
    return copies


def faulty(name, args, fault):
    """The arrays after a call of the program with a fault, interpreted in its own types."""
    s = make_workload(getattr(work(name), name), (*args, fault), sequence=name, name=name)
    found = run_reference(s.recording, s.arguments.arrays, s.arguments.scalars)
    return [found[p.name] for p in s.recording.arrays]


@cache
def right(name, dtype, **sizes):
    """Arguments, and what is expected, by which the results of generated code are right."""
    args = arguments(name, dtype, **sizes)
    input_set = sets_of(name, args).sets[0]
    assert verdict(input_set, run(name, args))[0] is None
    return args, input_set


def verdict(input_set, results):
    """A worker's verdict on results in the order of the arrays, and its level."""
    level, rounding = 0, input_set.rounding
    got = dict(zip(input_set.arrays, results, strict=False))
    while True:
        expected = rounding.expected(level)
        found = {name: find_mismatch(got[name], e) for name, e in expected.items()}
        wrong = [(name, m) for name, m in found.items() if m is not None]
        if not wrong:
            return None, level
        name, m = wrong[0]
        at = Disagreement(0, name, m.index, "", "", m.n_wrong, m.n_elements)
        if not rounding.is_worth(level + 1, at):
            return f"{name}{m}", level
        level += 1


def on_a_branch():
    """Arguments of `edges` whose limit lies between a value of NumPy's in f32 and the one in f64: generated code and reference take
    different sides there.
    """
    args = list(arguments("edges", np.float32, n=64))
    size = run("edges", args)[2]
    exact = sets_of("edges", args).sets[0].expected["size"].want
    is_above = size.astype(np.float64) > exact
    i, j = np.argwhere(is_above & (np.arange(64)[:, None] >= 34))[7]
    args[4] = float(size[i, j])
    return args, (i, j)


def test_an_element_on_a_branch_may_have_either_value():
    args, (i, j) = on_a_branch()
    results = run("edges", args)
    input_set = sets_of("edges", args).sets[0]
    want = input_set.expected["edge"].want
    assert results[3][i, j] != want[i, j]
    assert verdict(input_set, results)[0] is None
    said = branch_sentences(input_set.measured().expected)
    assert said == ("1 of 4,096 elements of edge lies on a branch",)
    results[3][i, j] = 0.5  # is neither
    assert verdict(input_set, results)[0] is not None
    results[3][i, j] = want[i, j]
    results[3][i, j - 1] = 1 - want[i, j - 1]  # beside it
    assert verdict(input_set, results)[0] is not None


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["edges", "terrain", "front"])
def test_faults_beside_thresholds_are_seen(name, fault):
    args, input_set = right(name, np.float32, n=96)
    assert verdict(input_set, faulty(name, args, FAULTS[fault]))[0] is not None


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("lu", {"n": 24}), ("stencil", {"n": 40}), ("mandelbrot", {"n": 30, "m": 20, "steps": 100})],
)
def test_a_relative_fault_of_a_billionth_in_one_step_is_seen(name, sizes):
    args, input_set = right(name, np.float64, **sizes)
    assert verdict(input_set, faulty(name, args, 1))[0] is not None


@pytest.mark.parametrize(("name", "sizes"), [("adi", {"n": 100, "t": 5}), ("durbin", {"n": 100})])
def test_what_carries_rounding_far_is_right(name, sizes):
    """Of ADI a tolerance from inputs that were moved in their last places called 51 of 10,000 elements wrong."""
    args = arguments(name, np.float64, **sizes)
    said, level = verdict(sets_of(name, args).sets[0], run(name, args))
    assert said is None
    assert level > 0  # that of sums does not do


def test_sums_in_another_order_within_a_recurrence_are_right():
    """Forward substitution of 4,000 rows: 1 element was off by 8e-15 of itself, and called wrong."""
    a, b, x = arguments("forward", np.float64, n=4000)
    input_set = sets_of("forward", (a, b, x)).sets[0]
    for i in range(len(x)):
        x[i] = (b[i] - a[i, :i] @ x[:i]) / a[i, i]
    assert verdict(input_set, (a, b, x))[0] is None
    x[2000] *= 1 + 1e-11
    assert verdict(input_set, (a, b, x))[0] is not None


def test_equal_seeds_give_equal_tolerances():
    args = arguments("durbin", np.float64, n=30)
    first, second = (sets_of("durbin", args).sets[0].measured().expected for _ in range(2))
    for name, e in first.items():
        np.testing.assert_array_equal(e.magnitude, second[name].magnitude)


BRANCHES = UndecidedElements(
    np.array([1, 2]), np.array([[0.0, 1.0], [np.nan, 5.0]]), np.zeros(2), n_allowed=1
)


@pytest.mark.parametrize(
    ("got", "is_right"),
    [
        ([3, 0, 2], True),
        ([3, 1, 2], True),
        ([3, 9, 2], False),
        ([3, 0, np.nan], True),
        ([3, 1, 5], False),  # two of them, and one may
        ([3, 1, np.nan], True),  # the second is the program's own
        ([2, 1, 2], False),
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_elements_on_branches_have_one_of_their_values(got, is_right, dtype):
    expected = Expected(np.array([3.0, 0.0, 2.0]), branches=BRANCHES)
    found = find_mismatch(np.array(got, dtype), expected)
    assert (found is None) == is_right


def test_too_many_on_branches_are_wrong_and_the_option_is_named():
    want = np.zeros(10, np.int64)
    branches = UndecidedElements(
        np.arange(10), np.stack([want, want + 1], axis=1), want * 0.0, n_allowed=2
    )
    expected = Expected(want, branches=branches)
    assert find_mismatch(np.array([1, 1, *[0] * 8]), expected) is None
    assert find_mismatch(np.array([1, 2, *[0] * 8]), expected).n_wrong == 1
    found = find_mismatch(np.array([1, 1, 1, *[0] * 7]), expected)
    assert "3 of 10 elements lie on a branch and took the other side, more than 2" in str(found)
    assert "allow a larger share of undecided elements" in str(found)


def test_the_share_that_is_undecided_can_be_raised():
    def moved(seed):
        return {"y": (np.arange(1000) % 10 < (seed or 0) % 2).astype(np.float32)}

    plain = {"y": Expected(np.zeros(1000), 16.0, 1.0)}
    got = (np.arange(1000) % 10 < 1).astype(np.float32)
    rounding = Rounding(plain, partial(Begun, moved), lambda: False)
    assert find_mismatch(got, rounding.expected(MEASURED)["y"]) is not None
    assert (
        find_mismatch(
            got, Rounding(plain, partial(Begun, moved), lambda: False, 0.2).expected(MEASURED)["y"]
        )
        is None
    )


@pytest.mark.parametrize(
    ("sides", "is_spread"),
    [
        ((0, 1, -1, 2, -2), True),
        ((0, 1, 4, -1, -3), True),
        ((0, 1, 2, 3, 0), False),  # a counter behind a branch: none below what is expected
        ((0, 1, 0, 1, 0), False),
        ((0, 1, -1.5, 1, 0), False),
    ],
)
def test_noise_of_one_amplified_rounding_is_no_branch(sides, is_spread):
    """Kind: few values far apart that are no sides of a branch. A candidate rounds less than whole units, as by a multiply-add."""

    def moved(seed):
        y = np.ones(1000)
        y[7] += 1e-12 * sides[(seed or 0) % len(sides)]
        return {"y": y}

    plain = {"y": Expected(np.ones(1000), 16.0, 1.0)}
    rounding = Rounding(plain, partial(Begun, moved), lambda: False)
    between, far = np.ones(1000), np.ones(1000)
    between[7] += 0.4e-12
    far[7] += 1e-10
    assert (find_mismatch(between, rounding.expected(MEASURED + 1)["y"]) is None) == is_spread
    assert find_mismatch(far, rounding.expected(MEASURED + 1)["y"]) is not None
    beside = between.copy()
    beside[8] += 1e-12  # an element beside it, of which no run is far
    assert find_mismatch(beside, rounding.expected(MEASURED + 1)["y"]) is not None


def spreads(jump):
    """The analysis of 1,000 ones that spread in the ninth digit; one of them is farther off by `jump` in each second run."""

    def moved(seed):
        y = 1 + 1e-9 * np.random.default_rng(seed or 0).uniform(-1, 1, 1000)
        y[7] += jump * ((seed or 0) % 2)
        return {"y": y}

    return Rounding({"y": Expected(np.ones(1000), 16.0, 1.0)}, partial(Begun, moved), lambda: False)


def test_one_perturbed_run_shows_a_spread():
    """Kind: searches of long programs that measure rounding for all of their time."""
    e = spreads(0.0).expected(2)["y"]
    assert find_mismatch(np.full(1000, 1 + 4e-9), e) is None
    assert find_mismatch(np.full(1000, 1 + 1e-7), e) is not None


def test_one_perturbed_run_is_no_reason_to_allow_another_branch():
    """The side that a run took, and the distance of the sides, count once more runs tell them from a spread."""
    rounding, beside, other = spreads(0.5), np.ones(1000), np.ones(1000)
    beside[8], other[7] = 1.3, 1.5
    for level in (2, MEASURED):
        assert find_mismatch(beside, rounding.expected(level)["y"]) is not None
    assert find_mismatch(other, rounding.expected(2)["y"]) is not None
    assert find_mismatch(other, rounding.expected(MEASURED)["y"]) is None


def own_values(n):
    """The analysis of 1,000 zeros, of which `n` are ones in the types of the sequence; the seeds of its runs."""
    seeds = []

    def moved(seed):
        seeds.append(seed)
        return {"y": (np.arange(1000) < n).astype(np.float32)}

    plain = {"y": Expected(np.zeros(1000), 16.0, 1.0)}
    return Rounding(plain, partial(Begun, moved), lambda: False), seeds


def test_values_of_the_program_in_its_own_types_are_right_without_perturbed_runs():
    """So it is in MacCormack's advection: no perturbed run is needed."""
    rounding, seeds = own_values(10)
    e = rounding.expected(1)["y"]
    assert seeds == [None]
    ones = (np.arange(1000) < 10).astype(np.float32)
    assert find_mismatch(ones, e) is None
    assert find_mismatch(ones * (np.arange(1000) % 2), e) is None
    for at, value in ((3, 0.5), (10, 1.0), (3, np.nan)):
        got = ones.copy()
        got[at] = value
        assert find_mismatch(got, e).index == (at,)


def test_values_of_a_program_that_carries_rounding_far_are_not_taken_by_themselves():
    rounding, seeds = own_values(11)
    assert rounding.expected(1)["y"] is rounding.plain["y"]
    rounding.expected(2)
    assert seeds == [None, 1]
    rounding.expected(MEASURED)
    assert seeds == [None, 1, 2, 3, 4]


@pytest.mark.parametrize("level", [2, MEASURED])
def test_own_values_stay_right_once_others_were_perturbed(level):
    """Kind: verdicts on a candidate that depend on which candidates were verified before."""
    rounding, _ = own_values(10)
    e = rounding.expected(level)["y"]
    assert find_mismatch((np.arange(1000) < 10).astype(np.float32), e) is None


def test_a_run_that_failed_has_no_values_of_its_own():
    def moved(seed):
        if seed is None:
            raise IndexError
        return {"n": np.arange(9) + (np.arange(9) < 3 * (seed % 2))}

    rounding = Rounding({"n": Expected(np.arange(9), 0.0)}, partial(Begun, moved), lambda: False)
    assert rounding.expected(1)["n"] is rounding.plain["n"]
    got = np.arange(9)
    got[0] += 1
    assert find_mismatch(got, rounding.expected(MEASURED)["n"]) is None
    got[1] += 1
    assert find_mismatch(got, rounding.expected(MEASURED)["n"]) is not None


def test_runs_that_say_nothing_are_left_out():
    """They leave an array, or do not end; where the user ends them, that is passed on."""

    def moved(seed):
        if seed == 1:
            raise IndexError
        if seed == 2:
            raise Stopped
        return {"y": np.full(3, 1.0 + (seed or 0))}

    plain = {"y": Expected(np.ones(3), 16.0, 1.0)}
    e = Rounding(plain, partial(Begun, moved), lambda: False).expected(MEASURED)["y"]
    assert find_mismatch(np.full(3, 1.0 + 8 * 4), e) is None
    assert find_mismatch(np.full(3, 2.0 + 8 * 4), e) is not None
    with pytest.raises(Stopped):
        Rounding(plain, partial(Begun, moved), lambda: True).expected(MEASURED)


@pytest.mark.parametrize("is_over", [False, True])
def test_runs_side_by_side_say_what_runs_in_turn_say(is_over):
    """At most so many have begun, none is left, and their order is that of their seeds."""
    order = []

    def moved(seed):
        order.append(seed)
        if seed == 3 and is_over:
            raise Stopped
        return {"y": np.full(3, 1.0 + (seed or 0))}

    Begun.n_running = Begun.most_running = 0
    plain = {"y": Expected(np.ones(3), 16.0, 1.0)}
    rounding = Rounding(plain, partial(Begun, moved), lambda: is_over, at_once=3)
    if is_over:
        with pytest.raises(Stopped):
            rounding.expected(MEASURED)
    else:
        e = rounding.expected(MEASURED)["y"]
        assert find_mismatch(np.full(3, 1.0 + 8 * 4), e) is None
        assert find_mismatch(np.full(3, 2.0 + 8 * 4), e) is not None
    assert order == [None, 1, 2, 3, *([] if is_over else [4])]
    assert (Begun.n_running, Begun.most_running) == (0, 3)


def test_integers_that_no_rounding_reaches_are_exact():
    plain = {"n": Expected(np.array([1, 2]), 0.0)}
    values = {None: [1, 2], 1: [1, 3]}
    rounding = Rounding(
        plain, partial(Begun, lambda seed: {"n": np.array(values.get(seed, [1, 2]))}), lambda: False
    )
    e = rounding.expected(MEASURED)["n"]
    assert find_mismatch(np.array([1, 3]), e) is None
    assert find_mismatch(np.array([2, 2]), e) is not None
    assert find_mismatch(np.array([1, 4]), e) is not None


def test_integers_that_take_many_values_may_take_others():
    """As the steps of a chaotic orbit: no run of seventeen had the value of the candidates."""
    plain = {"n": Expected(np.array([5, 189]), 0.0)}
    values = {1: 190, 2: 176, 3: 181, 4: 183}
    rounding = Rounding(
        plain,
        partial(Begun, lambda seed: {"n": np.array([5, values.get(seed, 189)])}),
        lambda: False,
    )
    e = rounding.expected(MEASURED)["n"]
    assert find_mismatch(np.array([5, 192]), e) is None
    assert find_mismatch(np.array([5, 900]), e) is not None
    assert find_mismatch(np.array([6, 189]), e) is not None
