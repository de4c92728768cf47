"""Values that two bodies compute alike, computed twice or stored: candidates against the interpreter, filters against CP-SAT."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernelscape.codegen.describe import describe
from kernelscape.kernels.frontend.recorder import Call, Recording
from kernelscape.kernels.ir.kernel import (
    NOWHERE,
    ArrayParam,
    Cast,
    DType,
    Expr,
    For,
    If,
    KernelIR,
    Load,
    Local,
    LoopIndex,
    SetLocal,
    Stmt,
    Store,
    Unary,
    Update,
    UpdateLocal,
)
from kernelscape.kernels.ir.simplify import binary, compare, const
from kernelscape.kernels.ir.walk import children, loads, nested_statements
from kernelscape.kernels.tasks import shared_values as module
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.kernels.tasks.shared_values import materialised, shared_values
from kernelscape.search.bound import tables
from kernelscape.search.bound.bounder import Bounder
from kernelscape.space import build
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, DeadEnd
from kernelscape.space.choices import BEFORE, SEPARATE
from kernelscape.space.component_space import component_spaces
from kernelscape.space.engine import cpsat
from kernelscape.space.families.materialisation import RECOMPUTED, STORED
from kernelscape.space.targets.cpu import CPU_KIND
from kernelscape.space.targets.kind import CPU
from kernelscape.testing import checking
from kernelscape.testing.run_tasks import run_tasks
from kernelscape.testing.violations import violations

from .materialisation_cases import (
    apart,
    changing,
    cleared_between,
    decided,
    gradient,
    inputs_of,
    loads_stored_values,
    moved_between,
    moved_by_itself,
    nest,
    problem_of,
)


@pytest.mark.parametrize("fn", [gradient, nest])
def test_stored_values_are_those_that_are_computed_again(fn: Any) -> None:
    _, problem, arrays = problem_of(fn)
    (pair,) = shared_values(problem)
    assert (pair.producer, pair.consumer) == (0, 1)
    other = materialised(problem, [pair])
    assert len(other.tasks) == len(problem.tasks)
    n_loads = [
        sum(
            x.array == "x"
            for s in nested_statements(p.tasks[1].body.statements)
            for e in children(s)
            for x in loads(e)
        )
        for p in (problem, other)
    ]
    assert n_loads[1] < n_loads[0]
    want, found = (run_tasks(p, arrays, {}) for p in (problem, other))
    for name, array in want.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("fn", [moved_between, moved_by_itself])
def test_values_whose_operands_are_overwritten_are_not_shared(fn: Any) -> None:
    _, problem, _ = problem_of(fn)
    assert shared_values(problem) == ()
    assert materialised(problem, ()) is problem


def test_integers_loaded_from_an_array_that_changes_are_stored() -> None:
    _, problem, arrays = problem_of(cleared_between)
    pairs = shared_values(problem)
    want, found = (run_tasks(p, arrays, {}) for p in (problem, materialised(problem, pairs)))
    for name, array in want.items():
        np.testing.assert_array_equal(found[name], array)


def test_the_bound_counts_no_value_that_may_be_loaded() -> None:
    """Also of locals that change several times, and where a part of the sequence is bounded by itself."""
    _, problem, _ = problem_of(changing)
    space = build_space(problem, checking.target(1, 16))
    other = build_space(materialised(problem, shared_values(problem)), checking.target(1, 16))
    stored, root = decided(space.root(), STORED), other.root()
    assert Bounder(space).bound(stored).ns <= Bounder(other).bound(root).ns


def test_parts_of_a_sequence_spare_the_loads_of_their_own_pairs() -> None:
    root: Any = build_space(problem_of(apart)[1], checking.target(1, 16)).root()
    parts = component_spaces(root, root.random_completion(np.random.default_rng(0)))
    pairs = [list(x.space.variables.of_places.get("materialised", ())) for x in parts]
    assert any(pairs)
    for part, places in zip(parts, pairs, strict=True):
        assert {t for t, _ in tables._spared(part.space)} == {t for t, _ in places}


@pytest.mark.compiler
@pytest.mark.parametrize("fn", [gradient, nest])
def test_candidates_compute_what_the_interpreter_does(fn: Any, tmp_path: Path) -> None:
    recording, problem, _ = problem_of(fn)
    inputs = inputs_of(recording, fn)
    rng, candidates = np.random.default_rng(1), []
    for cores, width, n in ((2, 32, 3), (3, 16, 3)):
        root: Any = build_space(problem, checking.target(cores, width)).root()
        stored = decided(root, STORED)
        made = [checking.random_candidate(stored, rng) for _ in range(n)]
        candidates += [c for c in made if isinstance(c, Candidate)]
        fused = root.space.variables.fused[0, 1]
        candidates.append(decided(stored, STORED, (fused, 1 << SEPARATE)).random_completion(rng))
    assert len(candidates) >= 7
    assert all(map(loads_stored_values, candidates))
    sources = [checking.source_of(c) for c in candidates]
    assert not checking.fault(sources, inputs, tmp_path, may_warn=True)


def test_decision_changes_text_and_words_and_no_bound() -> None:
    _, problem, _ = problem_of(gradient)
    root: Any = build_space(problem, checking.target(2, 32)).root()
    made = [decided(root, v) for v in (RECOMPUTED, STORED)]
    bounds = [Bounder(root.space).bound(c).ns for c in (root, *made)]
    assert bounds[0] == bounds[1] == bounds[2] > 0
    whole = [c.random_completion(np.random.default_rng(4)) for c in made]
    assert list(map(loads_stored_values, whole)) == [False, True]
    texts = [checking.source_of(c) for c in whole]
    assert texts[0].key != texts[1].key
    told = [describe(c)["values"] for c in whole]
    assert told[0][-1] == "energy0->force0 computes shared values twice"
    assert told[1][-1] == "energy0->force0 stores shared values in temporary arrays"


def test_filters_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(CPU_KIND, mid_sizes=(1,), inner_sizes=(1,), most_whole=1)
    monkeypatch.setitem(build.KINDS, CPU, small)
    _, problem, _ = problem_of(gradient)
    space = build_space(problem, checking.target(2, 16))
    found, left = [], [space.root()]
    while left:
        c: Any = left.pop()
        if isinstance(c, Candidate):
            if c.is_complete:
                found.append(c)
            else:
                left += [child for _, child in c.expand(int(c.open_choices()[0]))]
    (var,) = space.variables.of_places["materialised"].values()
    assert {c.value(var) for c in found} == {RECOMPUTED, STORED}
    assert cpsat.count(space.model, space.root().domains, 100_000) == (len(found), True)
    assert all(violations(space.model, c.assignment()) == [] for c in found)
    early = (space.model.order(*reversed(space.backbone.body_ids)), 1 << BEFORE)
    assert not isinstance(decided(space.root(), RECOMPUTED, early), DeadEnd)
    assert isinstance(decided(space.root(), STORED, early), DeadEnd)


class RandomBodies:
    """Two bodies over one loop, from a pool of statements that each has most of, in the same order."""

    def __init__(self, number: int) -> None:
        self.rng = np.random.default_rng(number)
        self.names = ["v0"]
        self.firsts = [self.start("v0")]
        self.pool = [*self.firsts, *(self.statement() for _ in range(9))]

    def start(self, name: str) -> SetLocal:
        return SetLocal(name, Load("x", (LoopIndex("i"),), DType.f64), NOWHERE)

    def other(self, s: Stmt) -> Stmt:
        """Sets the local of a statement to another value."""
        return self.start(s.name) if isinstance(s, SetLocal) else s

    def value(self) -> Expr:
        a, b = (Local(str(n), DType.f64) for n in self.rng.choice(self.names, 2))
        at = Cast(Load("k", (LoopIndex("i"),), DType.i32), DType.i64)
        some = Load(str(self.rng.choice(["x", "y"])), (at,), DType.f64)
        operand = some if self.rng.integers(3) == 0 else b
        return binary(
            ("add", "mul", "max")[self.rng.integers(3)], Unary("sin", a, DType.f64), operand
        )

    def statement(self) -> Stmt:
        value, kind = self.value(), self.rng.integers(6)
        name = str(self.rng.choice(self.names))
        if kind == 0:
            return UpdateLocal(name, "add", value, NOWHERE)
        if kind == 1:
            test = compare("lt", Local(name, DType.f64), const(0.5, DType.f64))
            return If(test, (SetLocal(name, value, NOWHERE),), (), NOWHERE)
        if kind == 2:
            return SetLocal(name, value, NOWHERE)
        self.names.append(f"v{len(self.names)}")
        self.firsts.append(SetLocal(self.names[-1], value, NOWHERE))
        return self.firsts[-1]

    def kernel(self, name: str, out: str) -> KernelIR:
        kept = [s for s in self.pool if s in self.firsts or self.rng.integers(8)]
        kept = [s if self.rng.integers(8) else self.other(s) for s in kept]
        ends: list[Stmt] = [
            Store(out, (LoopIndex("i"), const(k, DType.i64)), Local(n, DType.f64), NOWHERE)
            for k, n in enumerate(self.names)
        ]
        at = (Cast(Load("k", (LoopIndex("i"),), DType.i32), DType.i64),)
        if self.rng.integers(2):
            ends.append(Update("y", at, "add", Local(self.names[-1], DType.f64), NOWHERE))
        body = (For("i", const(7, DType.i64), (*kept, *ends), NOWHERE),)
        arrays = (*map(self.param, ("x", "y", "k")), self.param(out))
        return KernelIR(name, arrays, (), body, NOWHERE)

    def param(self, name: str) -> ArrayParam:
        shape = (7, len(self.names)) if name in ("first", "second") else (7,)
        return ArrayParam(name, DType.i32 if name == "k" else DType.f64, shape)


@pytest.mark.parametrize("first", range(0, 60, 15))
def test_random_bodies_load_the_bits_that_they_would_compute(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LEAST_SAVED", 0)
    n_pairs = 0
    for number in range(first, first + 15):
        made = RandomBodies(number)
        irs = [made.kernel(n, n) for n in ("first", "second")]
        calls = tuple(Call(x, tuple(p.name for p in x.arrays), (), NOWHERE) for x in irs)
        arrays = dict.fromkeys(p for x in irs for p in x.arrays)
        problem = normalise(Recording("both", tuple(arrays), (), (), calls))
        given = {p.name: made.rng.uniform(-1, 1, p.shape) for p in arrays}
        given["k"] = made.rng.integers(0, 7, 7).astype(np.int32)
        found = shared_values(problem)
        n_pairs += len(found)
        want, other = (run_tasks(p, given, {}) for p in (problem, materialised(problem, found)))
        for name, array in want.items():
            np.testing.assert_array_equal(other[name], array, err_msg=f"{number} {name}")
    assert n_pairs >= 3
