"""Functions in the bound: hand-worked values by width, the one that takes longest, and nothing where no rate is known."""

from __future__ import annotations

from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.bound.core_costs import CLOCK_SLACK
from kernelscape.search.bound.explain import explain
from kernelscape.search.bound.raising import raised
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.sketches import Sketch
from kernelscape.space import choices as ch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, Space
from kernelscape.space.targets.target import FunctionRate
from kernelscape.testing.machines import root_of, round_target

N = 1 << 16
nd: Any = ks.types.ndarray()
WIDE, ALONE = 2.0, 0.5  # elements a ns of two cores
RATES = tuple(
    FunctionRate(op=op, dtype=dtype, vector_per_ns=WIDE, scalar_per_ns=ALONE)
    for op in ("exp", "sin", "pow")
    for dtype in ("f32", "f64")
)


@ks.kernel
def one(x: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] = ks.exp(x[i])


@ks.kernel
def twice(x: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] = ks.exp(x[i]) + 2.0 * ks.exp(x[i]) + ks.exp(x[i] * x[i])


@ks.kernel
def several(x: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] = ks.exp(x[i]) + ks.sin(x[i]) + ks.sin(y[i])


@ks.kernel
def squared(x: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] = x[i] ** 2.5 + ks.log(x[i])


@ks.kernel
def some(x: nd, y: nd):
    for i in range(x.shape[0]):
        if x[i] > 0:
            y[i] = ks.exp(x[i])


@ks.kernel
def one_side(x: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] = ks.pow(x[i], y[i]) if x[i] > 0.0 else 0.0


@ks.kernel
def either(x: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] = ks.exp(x[i]) if x[i] > 0.0 else ks.sin(x[i])


@ks.kernel
def later(x: nd, y: nd):
    for i in range(x.shape[0]):
        v = x[i]
        if x[i] > 0.0:
            v = ks.exp(x[i])
        y[i] = v


@ks.kernel
def summed(x: nd, y: nd):
    for i in range(x.shape[0]):
        if x[i] > 0.0:
            y[0] += ks.exp(x[i])


@ks.kernel
def neighbours(x: nd, y: nd):
    for i in range(1, x.shape[0] - 1):
        y[i] = ks.exp(x[i - 1]) + ks.exp(x[i]) + ks.exp(x[i + 1])


@ks.kernel
def signs(x: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] = ks.sin(x[i]) * ks.sin(-x[i])


@ks.kernel
def neighbours_of_a_body(x: nd, y: nd):
    for i in range(x.shape[0] - 1):
        y[int(x[i])] = ks.exp(x[i]) + ks.exp(x[i + 1])


@ks.kernel
def body(x: nd, y: nd):
    for i in range(x.shape[0]):
        y[int(x[i])] = ks.exp(x[i])


def space_of(fn: Any, dtype: type = np.float32, functions: Any = RATES) -> Space:
    arguments = np.ones(N, dtype), np.ones(N, dtype)
    problem = normalise(record_sequence(lambda *a: fn(*a), arguments, name="one"))
    return build_space(problem, round_target(functions=functions))


def functions_ns(space: Space, domains: Any) -> float:
    return dict(Bounder(space).bound(domains).terms).get("functions", 0.0)


def without_vectors(space: Space) -> Any:
    domains = root_of(space).domains.copy()
    for var in space.variables.kind.values():
        if int(domains[var]) & ~(1 << ch.VECTOR):
            domains[var] = int(domains[var]) & ~(1 << ch.VECTOR)
    return domains


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("fn", "calls"), [(one, 1), (twice, 2), (several, 2), (squared, 0), (some, 0)]
)
def test_the_function_that_is_computed_most_counts_in_vectors_and_alone(fn, calls, dtype) -> None:
    """Kind: equal values counted twice, functions that a core computes side by side added up, a power that is a product."""
    space = space_of(fn, dtype)
    assert functions_ns(space, root_of(space)) == pytest.approx(calls * N / WIDE)
    assert functions_ns(space, without_vectors(space)) == pytest.approx(calls * N / ALONE)


@pytest.mark.parametrize("fn", [one_side, either, later, summed])
def test_functions_count_only_where_conditions_cannot_leave_them_out(fn) -> None:
    """The kind: a side of a condition that no iteration may take."""
    assert functions_ns(space_of(fn), root_of(space_of(fn))) == 0


@pytest.mark.parametrize(("fn", "n"), [(neighbours, N - 2), (signs, N)])
def test_values_that_iterations_may_share_count_once(fn, n) -> None:
    """The kind: unrolled, an iteration takes what the one before has computed; so do functions that are even or odd."""
    space = space_of(fn)
    assert functions_ns(space, root_of(space)) == pytest.approx(n / WIDE)


def test_of_a_body_the_call_that_runs_most_counts() -> None:
    space = space_of(neighbours_of_a_body)
    assert not space.problem.tasks[0].is_structured
    assert functions_ns(space, root_of(space)) == pytest.approx(
        (N - 1) / WIDE * space.target.cores / CLOCK_SLACK
    )


def test_functions_of_bodies_count_in_vectors() -> None:
    """A compiler may put a body into vectors that no choice puts there; this one has one thread."""
    space = space_of(body)
    assert not space.problem.tasks[0].is_structured
    assert functions_ns(space, without_vectors(space)) == pytest.approx(
        N / WIDE * space.target.cores / CLOCK_SLACK
    )


def test_nothing_follows_where_no_rate_is_known() -> None:
    """Calibrations of older versions know no functions, and a rate of zero is none."""
    unknown = FunctionRate(op="exp", dtype="f32", vector_per_ns=0.0, scalar_per_ns=0.0)
    odd = FunctionRate(op="exp", dtype="f7", vector_per_ns=1.0, scalar_per_ns=1.0)
    for functions in ((), (unknown,), (odd,)):
        space = space_of(one, functions=functions)
        assert functions_ns(space, root_of(space)) == 0


def test_fewer_choices_never_lower_the_bound() -> None:
    space = space_of(several)
    bounder = Bounder(space)
    made = complete_sketch(root_of(space), Sketch())
    assert isinstance(made, Candidate)
    least = bounder.bound(root_of(space))
    narrowed = bounder.bound(without_vectors(space))
    complete = bounder.bound(made)
    assert least.ns <= narrowed.ns
    assert least.ns <= complete.ns
    assert dict(least.terms)["functions"] <= dict(complete.terms)["functions"]


def test_a_measurement_below_the_bound_raises_the_rates() -> None:
    space = space_of(one)
    made = complete_sketch(root_of(space), Sketch())
    assert isinstance(made, Candidate)
    bound = Bounder(space).bound(made)
    assert bound.limiting == "functions"
    found = raised(made, bound.ns * 0.9)
    assert found is not None
    rates = {(x.op, x.dtype): x.vector_per_ns for x in found.functions}
    assert WIDE < rates["exp", "f32"] < 1.2 * WIDE


def test_the_bound_says_what_functions_cost() -> None:
    space = space_of(several)
    said = [
        x for x in explain(Bounder(space).bound(root_of(space)), space) if x.startswith("functions")
    ]
    each = "1.00 ns an element on a core in vectors and 4.00 one by one (f32)"
    assert said == [
        f"functions: {2 * N / WIDE / 1e3:.3g} us, the one that takes longest, exp {each}, sin {each}"
    ]
