"""Results that the next step of a repeat overwrites: computed in the last step, and programs compute what their calls compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.fields.canonical_state import canonical
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import (
    Recording,
    ndarray,
    record_program,
    record_sequence,
)
from kernelscape.kernels.ir.task import Problem
from kernelscape.kernels.tasks import last_steps
from kernelscape.kernels.tasks.cleaned_calls import cleaned_calls
from kernelscape.kernels.tasks.needless import needless_work
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.testing.interpreted import run_reference
from kernelscape.testing.run_tasks import run_tasks

nd = types.ndarray()
N = 24
GIVEN = [np.arange(N) * (k + 2.0) % 7 - k for k in range(3)]
Sequence = Callable[..., None]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of small arrays lose enough stores."""
    monkeypatch.setattr(last_steps, "_LEAST_STORES", 10)


@kernel
def turn(x: nd, y: nd):
    for i in range(N):
        y[i] = x[N - 1 - i] + 1.0


@kernel
def half(x: nd):
    for i in range(N):
        x[i] = 0.5 * x[i]


@kernel
def most(x: nd, y: nd):
    for i in range(1, N):
        y[i] = x[i] - 2.0


@kernel
def sum_up(x: nd, y: nd):
    s = 0.0
    for i in range(N):
        s += x[i]
    y[0] = s


@kernel
def both(x: nd, y: nd):
    for i in range(N):
        t = x[N - 1 - i]
        y[i] = t
        if t > 3.0:
            y[i] = t - 3.0


@kernel
def onto(x: nd, y: nd):
    for i in range(N):
        y[i] += x[i]


@kernel
def later(x: nd, y: nd, t: int):
    for i in range(N):
        y[i] = x[i] + t


@kernel
def sweeps(x: nd, y: nd):
    for _ in range(7):
        for i in range(N):
            y[i] = 0.5 * x[i]
        for i in range(N):
            x[i] = 0.25 * x[i] + 1.0


CALLS: dict[str, Callable[[Any, Any], None]] = {
    "turn": turn,
    "most": most,
    "sum_up": sum_up,
    "both": both,
    "onto": onto,
    "half": lambda x, y: half(x),
    "sweeps": sweeps,
}
Calls = list[tuple[str, int, int]]


def recorded(sequence: Sequence) -> Recording:
    return record_sequence(sequence, GIVEN, name="steps")


def checked(sequence: Sequence) -> Problem:
    """The problem of a sequence on three arrays; its results are those of the calls."""
    recording = recorded(sequence)
    problem = normalise(recording)
    arrays = dict(zip((p.name for p in recording.arrays), GIVEN, strict=True))
    wanted = run_reference(recording, arrays, {}, dtype=np.float64)
    got = run_tasks(problem, arrays, {}, float64=True)
    for name in (a.name for a in problem.arrays if a.role in ("output", "inout")):
        np.testing.assert_allclose(got[name], wanted[name], rtol=1e-12, err_msg=name)
    return problem


def steps(calls: Calls, count: int) -> Sequence:
    """A sequence on three arrays and a temporary that makes the calls `count` times."""

    def sequence(a: Any, b: Any, c: Any) -> None:
        arrays = a, b, c, ndarray(np.float64, N)
        for _ in range(count):
            for name, x, y in calls:
                CALLS[name](arrays[x], arrays[y])

    return sequence


def nested(inner: Sequence, outer: Sequence, n: int) -> Sequence:
    def sequence(a: Any, b: Any, c: Any) -> None:
        for _ in range(n):
            inner(a, b, c)
            outer(c, a, b)

    return sequence


@pytest.mark.parametrize(
    ("calls", "tasks", "runs"),
    [
        ([("half", 0, 0), ("sum_up", 0, 1)], 3, 21),
        ([("sum_up", 0, 1), ("half", 0, 0)], 3, 21),
        ([("half", 0, 0), ("most", 0, 1)], 3, 21),  # the element that no step writes stays
        ([("half", 0, 0), ("both", 0, 1)], 3, 21),
        ([("half", 0, 0), ("turn", 0, 1), ("sum_up", 1, 2)], 4, 22),  # what only dead ones read
        ([("half", 0, 0), ("sum_up", 0, 1), ("onto", 1, 2)], 3, 60),  # each sum is read
        ([("half", 0, 0), ("onto", 0, 1)], 2, 40),
        ([("turn", 0, 1), ("turn", 1, 0)], 2, 40),
    ],
)
def test_what_the_next_step_overwrites_is_computed_in_the_last_step(
    calls: Calls, tasks: int, runs: int
) -> None:
    problem = checked(steps(calls, 20))
    assert (len(problem.tasks), sum(t.n_runs for t in problem.tasks)) == (tasks, runs)


def test_two_steps_have_no_repeat_left() -> None:
    calls = [("half", 0, 0), ("sum_up", 0, 1)] * 5
    problem = checked(steps([*calls, ("half", 2, 2)], 2))
    assert [t.repeats for t in problem.tasks].count(()) == len(problem.tasks)


def test_time_loops_of_a_kernel_have_last_steps_too() -> None:
    problem = checked(lambda a, b, c: sweeps(a, b))
    assert [t.n_runs for t in problem.tasks] == [6, 1, 1]


def test_few_stores_are_not_worth_a_second_text() -> None:
    @kernel
    def first(x: nd, y: nd):
        y[0] = x[0] + x[1]

    def sequence(a: Any, b: Any, c: Any) -> None:
        for _ in range(20):
            half(a)
            first(a, b)

    assert sum(t.n_runs for t in checked(sequence).tasks) == 40


def test_a_step_whose_number_is_used_stays() -> None:
    def sequence(a: Any, b: Any, c: Any) -> None:
        for t in range(20):
            half(a)
            later(a, b, t)

    assert sum(t.n_runs for t in checked(sequence).tasks) == 40


def test_steps_around_repeats_have_last_ones() -> None:
    """The repeat inside has two texts then, which stay two: 20 steps of 30, one of them with the sum."""

    def sequence(a: Any, b: Any, c: Any) -> None:
        for _ in range(20):
            for _ in range(30):
                half(a)
                onto(a, c)
            sum_up(c, b)

    problem = checked(sequence)
    assert [(t.kernel, t.n_runs) for t in problem.tasks] == [
        ("half", 570),
        ("onto", 570),
        ("half", 30),
        ("onto", 30),
        ("sum_up", 1),
    ]

    def twice(a: Any, b: Any, c: Any) -> None:
        for _ in range(2):
            for _ in range(30):
                half(a)
            for _ in range(30):
                onto(a, c)
            sum_up(c, b)
            for _ in range(30):
                half(a)

    problem = checked(twice)
    assert [t.n_runs for t in problem.tasks] == [30] * 5 + [1, 30]


def test_steps_of_one_repeat_within_another_have_last_ones() -> None:
    """A result that neither the next inner nor the next outer step reads is computed once."""

    def sequence(a: Any, b: Any, c: Any) -> None:
        for _ in range(20):
            for _ in range(30):
                half(a)
                turn(a, b)
            onto(a, c)

    problem = checked(sequence)
    assert sum(t.n_runs for t in problem.tasks if t.kernel == "turn") == 1


@pytest.mark.parametrize("number", range(6))
def test_random_repeats_compute_what_their_calls_compute(number: int) -> None:
    rng, n_apart = np.random.default_rng(number), 0

    def drawn(n: int) -> Calls:
        names = [*CALLS]
        return [
            (names[int(rng.integers(len(names)))], *map(int, rng.choice(4, 2, replace=False)))
            for _ in range(n)
        ]

    for _ in range(6):
        inner = steps(drawn(int(rng.integers(1, 5))), int(rng.choice([2, 5, 17])))
        outer = steps(drawn(int(rng.integers(1, 5))), int(rng.choice([1, 1, 4])))
        n_outer = int(rng.choice([1, 2, 5]))

        sequence = nested(inner, outer, n_outer)
        checked(sequence)
        (_, live), (apart, _), _ = cleaned_calls(recorded(sequence)).dropped
        n_apart += apart != live
    assert n_apart > 0


# --- fields of trees


@pytest.fixture
def fields() -> Iterator[list[Any]]:
    ks.init(arch=ks.cpu)
    x, y, z, w = found = [ks.field(ks.f64) for _ in range(4)]
    ks.root.pointer(ks.i, 12).dense(ks.i, 4).place(x, y, w)
    ks.root.bitmasked(ks.i, 48).place(z)
    yield found
    ks.reset()


@ks.kernel
def fill(x: ks.template(), n: ks.template()):
    for i in range(n):
        x[3 * i] = i % 7 - 2.0


@ks.kernel
def shrink(x: ks.template(), c: ks.template()):
    for i in x:
        x[i] = c * x[i]


@ks.kernel
def around(x: ks.template(), y: ks.template()):
    for i in x:
        y[i] = x[i - 1] + x[i + 1]


@ks.kernel
def some(x: ks.template(), y: ks.template()):
    for i in x:
        if x[i] > 1.0:
            y[i] = x[i]


@ks.kernel
def down(x: ks.template(), z: ks.template()):
    for i in x:
        z[i // 2] += x[i]


@ks.kernel
def put(z: ks.template()):
    for i in z:
        z[i] = 2.0 * i


@ks.kernel
def thin(z: ks.template()):
    for i in z:
        if i % 5 == 0:
            ks.deactivate(z.parent(), i)


def checked_on_trees(calls: Callable[[], None]) -> Problem:
    recording, arrays = record_program(calls, ())
    problem = normalise(recording)
    wanted = canonical(recording.trees, run_reference(recording, arrays, {}))
    got = canonical(recording.trees, run_tasks(problem, arrays, {}))
    for name, array in got.items():
        np.testing.assert_array_equal(array, wanted[name], err_msg=name)
    return problem


def runs(problem: Problem) -> dict[str, int]:
    """The number of runs of the loops of each kernel."""
    found: dict[str, int] = {}
    for t in (t for t in problem.tasks if t.loops):
        found[t.kernel] = found.get(t.kernel, 0) + t.n_runs
    return found


@pytest.mark.parametrize(
    ("what", "n_runs"),
    [("around", 1), ("some", 20), ("read", 20), ("masked", 1), ("thinned", 20)],
)
def test_loops_on_trees_whose_results_the_next_step_overwrites(
    fields: list[Any], what: str, n_runs: int
) -> None:
    x, y, z, _ = fields
    fill(x, 14)
    fill(z, 12)
    tested = {"around": "around", "some": "some", "read": "around"}.get(what, "put")

    def calls() -> None:
        for _ in range(20):
            shrink(x, 0.5)
            match what:
                case "around":
                    around(x, y)
                case "some":  # cells that the next step leaves as they are
                    some(x, y)
                case "read":
                    around(x, y)
                    down(y, z)
                case "masked":
                    put(z)
                case "thinned":  # cells that are inactive in the next step
                    put(z)
                    thin(z)

    problem = checked_on_trees(calls)
    assert runs(problem)[tested] == n_runs
    assert runs(problem)["shrink"] == 20


def test_lists_and_tiles_of_two_texts_of_a_step_have_names_of_their_own(fields: list[Any]) -> None:
    x, y, z, w = fields
    fill(x, 14)

    def calls() -> None:
        for _ in range(20):
            around(x, y)
            down(y, z)
            around(x, w)

    problem = checked_on_trees(calls)
    trees = [t.body.trees for t in problem.tasks if t.body is not None]
    lists, tiles = (
        [site.name for t in trees for site in getattr(t, k)] for k in ("lists", "tiles")
    )
    assert (runs(problem)["around"], runs(problem)["down"]) == (21, 20)
    for names in (lists, tiles):
        assert len(names) == len({*names}) > 1


def test_stores_of_all_steps_but_the_last_are_named_as_needless() -> None:
    recording = recorded(steps([("half", 0, 0), ("turn", 0, 1)], 20))
    b = recording.arrays[1].name
    assert needless_work(cleaned_calls(recording)).stores == (f"turn0: {b}",)
