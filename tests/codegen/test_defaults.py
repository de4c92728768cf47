"""Decisions are names, whoever takes them: rules for a standalone kernel, a hand, or a search. One reading, one lowering."""

from __future__ import annotations

from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.lower import lower
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.plan.defaults import defaults
from kernelscape.codegen.plan.nest_plan import NestPlan
from kernelscape.codegen.plan.reading import read_plan
from kernelscape.kernels.frontend.recorder import record_program, record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.kernels.tasks.standalone import standalone
from kernelscape.runtime.engine.planning import decided_plan, default_plan
from kernelscape.space import choices as ch
from kernelscape.space.backbone import INNER, MID, OUTER
from kernelscape.space.build import build_space
from kernelscape.space.decisions import by_kind
from kernelscape.testing import checking

A: Any = ks.types.ndarray


@ks.kernel
def smooth(x: A(), y: A(), r: A()):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] * 2.0
    for i in range(x.shape[0]):
        r[0] += x[i, 0]


@ks.kernel
def rows(first: A(), x: A(), y: A()):
    for i in range(y.shape[0]):
        for k in range(first[i], first[i + 1]):
            y[i] += x[k]


@ks.kernel
def near(f: A(), x: A()):
    for i in range(3, x.shape[0]):
        for j in range(4):
            f[i - 3, j] += x[i]
            f[i, j] -= x[i]


def given(n: int) -> tuple[Any, ...]:
    x = np.zeros((4, n), np.float32)
    return x, x.copy(), np.zeros(1, np.float32)


def test_rules_name_values_of_the_choices_that_a_search_has() -> None:
    """A loop is distributed with the one inside of it if it is short itself, and a short one by one thread."""
    ir = smooth.instantiate(*given(1 << 18))
    plan = default_plan(ir, 4, 32)
    assert plan.choices == {
        "nests": {0: "ONE_BY_ONE"},
        "dim_kind": {(0, "i@1", OUTER): "PARALLEL", (0, "j@2", OUTER): "PARALLEL"}
        | {(0, "i@3", OUTER): "LOOP"},
        "iterations": {(0, "i@1"): "ANY_ORDER", (0, "j@2"): "ANY_ORDER"},
        "threads_from": {(0, "i@1"): plan.choice("threads_from", (0, "i@1"))},
        "size": {(0, "i@1", MID): "16"},
        "schedule": {(0, "i@1", OUTER): "BLOCKED"},
        "reduction": {(0, "i@3"): "PARTIALS"},
    }
    of_rows = rows.instantiate(np.zeros(9001, np.int32), np.zeros(5), np.zeros(9000))
    uneven = default_plan(of_rows, 4, 32).choices
    assert uneven["schedule"] == {(0, "i@1", OUTER): "BALANCED"}
    assert {*uneven["dim_kind"].values()} <= {*ch.DIM_KIND}


@pytest.mark.parametrize(
    ("changes", "cores", "overlap"),
    [
        ({}, 4, 3),
        ({}, 2000, 0),
        ({"schedule": {(0, "i@1", OUTER): "GUIDED"}}, 4, 0),
        ({"dim_kind": {(0, "i@1", OUTER): "PARALLEL", (0, "j@2", OUTER): "PARALLEL"}}, 4, 0),
    ],
)
def test_updates_are_atomic_where_parts_cannot_be_told_apart(changes, cores, overlap) -> None:
    """The kind: decisions that hold for one number of threads or one schedule, read with another."""
    ir = near.instantiate(np.zeros((10009, 4)), np.zeros(10009))
    found = {k: dict(v) for k, v in default_plan(ir, 4, 32).choices.items()}
    assert found["scatter"] == {(0, "i@1"): "COLOUR"}
    (step,) = decided_plan(ir, found | changes, cores, 32).tasks[0].steps
    assert isinstance(step, NestPlan)
    assert (step.partition.overlap, bool(step.atomics)) == (overlap, not overlap)


def test_other_decisions_are_lowered_on_the_same_road() -> None:
    """A hand decides what rules do not: one thread for a long loop, and vectors for one that compilers vectorise."""
    ir = smooth.instantiate(*given(1 << 18))
    (task,) = standalone(ir).tasks
    assert task.body is not None
    found = {k: dict(v) for k, v in default_plan(ir, 4, 32).choices.items()}
    assert [f.is_parallel for f in lower(default_plan(ir, 4, 32)).functions] == [True, False]
    found["dim_kind"] = dict.fromkeys(found["dim_kind"], "LOOP")
    assert [f.is_parallel for f in lower(decided_plan(ir, found, 4, 32)).functions] == [False]
    found["dim_kind"][0, "j@2", INNER], found["size"][0, "j@2", INNER] = "VECTOR", "8"
    plan = decided_plan(ir, found, 4, 32)
    assert "j@2 in 8 lanes" in " ".join(lower(plan).decisions)


def test_a_candidate_is_its_names() -> None:
    """The plan of names alone, with the objects of choices found anew, is that of the candidate."""
    problem = normalise(record_sequence(lambda *xs: smooth(*xs), given(64), name="smooth"))
    target = checking.target(2, 32)
    space = build_space(problem, target)
    rng = np.random.default_rng(1)
    for _ in range(5):
        candidate = checking.random_candidate(space.root(), rng)
        again = read_plan(problem, by_kind(candidate), target)
        assert again == plan_of(candidate) and lower(again) == lower(plan_of(candidate))


def test_defaults_are_of_problems_and_targets() -> None:
    """With one core nothing is distributed."""
    ir = smooth.instantiate(*given(1 << 18))
    kinds = defaults(standalone(ir), checking.target(1, 32))["dim_kind"]
    assert ch.DIM_KIND[ch.PARALLEL] not in kinds.values()


def test_loops_that_would_scatter_parts_of_vectors_stay_scalar() -> None:
    """Leaf loops that store every second cell to a coarser tree, as long as their iterations are light."""
    ks.init()
    fine, coarse = ks.field(ks.f32), ks.field(ks.f32)
    for field in (fine, coarse):
        ks.root.pointer(ks.i, 64).dense(ks.i, 16).place(field)

    @ks.kernel
    def halves():
        for i in fine:
            if i % 2 == 0:
                coarse[i // 2] = fine[i]

    @ks.kernel
    def roots():
        for i in fine:
            if i % 2 == 0:
                coarse[i // 2] = ks.sqrt(fine[i]) / ks.sqrt(fine[i] + 3.0) / (1.0 + fine[i])

    @ks.kernel
    def own():
        for i in fine:
            if i % 2 == 0:
                fine[i] *= 2.0

    def iterations(kernel: Any) -> set[str]:
        (call,) = record_program(kernel, ())[0].calls
        ir, plan = call.ir, default_plan(call.ir, 2, 32)
        found = plan.choices.get("iterations", {}).items()
        nests = [step for step in plan.tasks[0].steps if isinstance(step, NestPlan)]
        scalar = {name for step in nests for name in step.scalar}
        assert scalar == {name for (_, name), x in found if x == "SCALAR"}
        return {x for (_, name), x in found if name.partition("@")[0] in ir.independent}

    assert iterations(halves) == {"SCALAR"}
    assert iterations(roots) == {"ANY_ORDER"}
    assert "SCALAR" not in iterations(own)
    ks.reset()
