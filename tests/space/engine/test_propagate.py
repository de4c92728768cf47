"""Filters against brute force, CP-SAT and the truths; the fixpoint against every shuffle."""

import random
from math import prod
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelscape.space.candidate import Candidate, DeadEnd
from kernelscape.space.engine import cpsat
from kernelscape.space.engine.builder import ModelBuilder
from kernelscape.space.engine.declarations import Group, Literal, Term
from kernelscape.space.engine.propagate import (
    EXCLUDED,
    FIXPOINT,
    LIMIT,
    decide,
    guided_completion,
    make_scratch,
    propagate,
    propagate_all,
    random_descent,
    shave,
)
from kernelscape.testing.bare import bare_space
from kernelscape.testing.violations import violations

from . import oracle

# ---- random small models, as plain recipes: the builder and the oracle each read them


@st.composite
def recipes(draw):
    n_objects = draw(st.integers(0, 3))
    n_others = draw(st.integers(1, 4))
    sizes = [5] * n_objects**2 + draw(
        st.lists(st.integers(1, 4), min_size=n_others, max_size=n_others)
    )
    leaves = [draw(st.booleans()) for _ in range(n_objects)]
    var = st.integers(0, len(sizes) - 1)

    def mask(of):
        return draw(st.integers(0, (1 << sizes[of]) - 1))

    constraints = []
    for _ in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(["table2", "table3", "clause", "sum", "product", "budget"]))
        if kind.startswith("table"):
            scope = tuple(draw(var) for _ in range(int(kind[-1])))
            # A cheap arbitrary predicate; its density decides how much it filters.
            salt, density = draw(st.integers(0, 999)), draw(st.integers(2, 6))
            constraints.append((kind, scope, salt, density))
        elif kind == "clause":
            scope = draw(st.lists(var, min_size=1, max_size=3))
            constraints.append((kind, [(v, mask(v)) for v in scope]))
        elif kind == "budget":
            groups = []
            for _ in range(draw(st.integers(0, 3))):
                asked = [(v, mask(v)) for v in draw(st.lists(var, min_size=1, max_size=2))]
                counted = draw(st.lists(var, min_size=1, max_size=3))
                weights = [tuple(draw(st.integers(0, 9)) for _ in range(sizes[v])) for v in counted]
                groups.append((asked, list(zip(counted, weights, strict=True))))
            constraints.append((kind, groups, draw(st.integers(0, 40))))
        else:
            low = 0 if kind == "sum" else 1
            terms = []
            for v in draw(st.lists(var, max_size=4)):
                weights = tuple(draw(st.integers(low, 9)) for _ in range(sizes[v]))
                asked = draw(st.none() | var)
                terms.append((None if asked is None else (asked, mask(asked)), v, weights))
            constraints.append((kind, terms, draw(st.integers(low, 30))))
    return n_objects, leaves, sizes, constraints


def predicate(salt, density):
    return lambda *values: hash((salt, *values)) % 8 < density


def truth(constraint):
    kind, scope, *rest = constraint
    if kind.startswith("table"):
        holds = predicate(*rest)
        return lambda values: holds(*(values[v] for v in scope))
    if kind == "clause":
        return lambda values: any(mask >> values[v] & 1 for v, mask in scope)

    if kind == "budget":
        return lambda values: (
            rest[0]
            >= sum(
                prod(weights[values[v]] for v, weights in terms)
                for asked, terms in scope
                if any(mask >> values[v] & 1 for v, mask in asked)
            )
        )

    def counted(values):
        total = 0 if kind == "sum" else 1
        for condition, v, weights in scope:
            if condition is None or condition[1] >> values[condition[0]] & 1:
                weight = weights[values[v]]
                total = total + weight if kind == "sum" else total * weight
        return total <= rest[0]

    return counted


def declare(builder, number, constraint):
    kind, scope, *rest = constraint
    name = f"{kind} {number}"
    if kind == "table2":
        builder.table2(name, *scope, predicate(*rest))
    elif kind == "table3":
        builder.table3(name, *scope, predicate(*rest), share=tuple(rest))
    elif kind == "clause":
        builder.clause(name, scope)
    elif kind == "budget":
        groups = [
            Group(tuple(Literal(*x) for x in asked), tuple(Term(None, *x) for x in terms))
            for asked, terms in scope
        ]
        builder.groups_at_most(name, groups, *rest)
    else:
        terms = [Term(*term) for term in scope]
        (builder.sum_at_most if kind == "sum" else builder.product_at_most)(name, terms, *rest)


def build(recipe, shuffle=None):
    n_objects, leaves, sizes, constraints = recipe
    builder = ModelBuilder()
    for i in range(n_objects):
        builder.add_object(f"o{i}", leaf=leaves[i])
    for k, size in enumerate(sizes[n_objects**2 :]):
        builder.add("x", (f"x{k}",), tuple("abcd"[:size]))
    numbered = list(enumerate(constraints))
    if shuffle is not None:
        shuffle.shuffle(numbered)
    for number, constraint in numbered:
        declare(builder, number, constraint)
    return bare_space(builder.freeze())


def solve(recipe):
    n_objects, leaves, sizes, constraints = recipe
    domains = [set(range(size)) for size in sizes]
    for i in range(n_objects):
        domains[i * n_objects + i] = {oracle.MERGED}
        for j in range(n_objects):
            if i != j and leaves[i]:
                domains[i * n_objects + j] -= {oracle.OUTER, oracle.MERGED}
                domains[j * n_objects + i] -= {oracle.INNER, oracle.MERGED}
    return list(oracle.solutions(n_objects, domains, [truth(c) for c in constraints]))


def bits(values):
    return sum(1 << value for value in values)


@settings(max_examples=300, deadline=None)
@given(recipes(), st.randoms(use_true_random=False))
def test_no_filter_removes_a_value_that_a_solution_uses(recipe, rng):
    space, found = build(recipe), solve(recipe)
    candidate = space.root()
    for _ in range(4):
        used = [bits(values) for values in oracle.used_values(found, space.n_choices)]
        if isinstance(candidate, DeadEnd):
            assert not found
            return
        assert all(int(d) & u == u for d, u in zip(candidate.domains, used, strict=True))
        if candidate.is_complete:
            assert len(found) == 1
            return
        var = rng.choice(list(candidate.open_choices()))
        mask = bits(rng.sample(candidate.values(var), 1))
        candidate = candidate.decide(var, mask)
        found = [values for values in found if mask >> values[var] & 1]


@settings(max_examples=150, deadline=None)
@given(recipes(), st.integers(0, 2**30))
def test_complete_candidates_are_solutions_and_satisfy_every_truth(recipe, seed):
    space, found = build(recipe), set(solve(recipe))
    root = space.root()
    if isinstance(root, DeadEnd):
        assert not found
        return
    rng = np.random.default_rng(seed)
    for _ in range(3):
        candidate = root.random_completion(rng)
        if isinstance(candidate, Candidate):
            assert candidate.is_complete
            assert tuple(candidate.assignment().tolist()) in found
            assert violations(space.model, candidate.assignment()) == []
    completed = root.complete(max_backtracks=10_000)
    assert isinstance(completed, Candidate) == bool(found)
    if found:
        assert tuple(completed.assignment().tolist()) in found


@settings(max_examples=100, deadline=None)
@given(recipes())
def test_truths_judge_assignments_as_the_oracle_does(recipe):
    space, found = build(recipe), set(solve(recipe))
    rng = random.Random(0)
    sizes = recipe[2]
    for values in [*list(found)[:20], *([rng.randrange(s) for s in sizes] for _ in range(20))]:
        assert (violations(space.model, values) == []) == (tuple(values) in found)


@settings(max_examples=40, deadline=None)
@given(recipes(), st.randoms(use_true_random=False))
def test_cp_sat_counts_and_proves_the_same(recipe, rng):
    space, found = build(recipe), solve(recipe)
    initial = space.model.initial
    assert cpsat.count(space.model, initial, 100_000) == (len(found), True)
    root = space.root()
    if isinstance(root, DeadEnd):
        assert cpsat.complete(space.model, initial) is None
        return
    if len(root.open_choices()):
        child = root.decide(
            var := rng.choice(list(root.open_choices())), bits(root.values(var)[:1])
        )
        left = sum(values[var] == root.values(var)[0] for values in found)
        if isinstance(child, DeadEnd):
            assert left == 0
        else:
            assert cpsat.count(space.model, child.domains, 100_000) == (left, True)


@settings(max_examples=150, deadline=None)
@given(recipes(), st.randoms(use_true_random=False))
def test_fixpoint_depends_on_no_order(recipe, rng):
    """Not on the order of constraints, nor of decisions, nor on deciding one by one or at once."""
    first = build(recipe)
    n = recipe[0]
    decisions = []
    for var in map(int, first.searchable):
        if rng.random() < 0.5:
            decisions.append((var, rng.randrange(1, 1 << len(first.choices[var].values))))

    def narrowed(space, order):
        candidate = space.root()
        for var, mask in order:
            if isinstance(candidate, DeadEnd):
                return None
            if var < n * n and rng.random() < 0.5:  # the same decision by its other name
                mirror = var % n * n + var // n
                inverse = bits({0: 1, 1: 0, 2: 3, 3: 2, 4: 4}[v] for v in range(5) if mask >> v & 1)
                var, mask = mirror, inverse
            candidate = candidate.decide(var, mask)
        return None if isinstance(candidate, DeadEnd) else candidate.key

    expected = narrowed(first, decisions)
    for _ in range(3):
        shuffled = rng.sample(decisions, len(decisions))
        assert narrowed(build(recipe, shuffle=rng), shuffled) == expected
    together = first.model.initial.copy()
    for var, mask in decisions:
        first.model.narrow(together, var, mask)
    at_once = first.candidate(together)
    assert (None if isinstance(at_once, DeadEnd) else at_once.key) == expected


@settings(max_examples=100, deadline=None)
@given(recipes())
def test_both_orientations_stay_inverse_and_expand_agrees_with_decide(recipe):
    space = build(recipe)
    root = space.root()
    if isinstance(root, DeadEnd):
        return
    before = root.key
    for var in root.open_choices()[:3]:
        children = root.expand(var)
        assert [value for value, _ in children] == list(root.values(var))
        for value, child in children:
            decided = root.decide(var, 1 << value)
            if isinstance(child, DeadEnd):
                assert child == decided
                continue
            assert child.key == decided.key
            n = recipe[0]
            order = child.domains[: n * n].reshape(n, n)
            assert all(
                space.model.arrays.inverse[order[i, j]] == order[j, i]
                for i in range(n)
                for j in range(n)
            )
    assert root.key == before


@settings(max_examples=150, deadline=None)
@given(recipes())
def test_shaving_leaves_just_the_values_that_do_not_fail_at_once(recipe):
    model = build(recipe).model
    scratch, domains = make_scratch(model), model.initial.copy()
    if propagate_all(model.arrays, scratch, domains) != FIXPOINT:
        return
    shaved, seen = domains.copy(), np.empty_like(domains)
    status = shave(model.arrays, scratch, shaved, model.searchable, seen)
    expected = plainly_shaved(model, scratch, domains)
    assert (status == FIXPOINT) is (expected is not None)
    assert expected is None or (shaved == expected).all()


def plainly_shaved(model, scratch, domains):
    """Every value is tried again after each that goes; None where nothing is left."""
    made = np.empty_like(domains)

    def status(var, mask):
        return decide(model.arrays, scratch, domains, var, mask, made)

    for var in map(int, model.searchable):
        for value in range(int(domains[var]).bit_length()):
            if int(domains[var]) >> value & 1 and status(var, 1 << value) != FIXPOINT:
                if status(var, int(domains[var]) & ~(1 << value)) != FIXPOINT:
                    return None
                return plainly_shaved(model, scratch, made)
    return domains


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 7), st.integers(0, 2**30))
def test_orders_at_the_fixpoint_are_path_consistent(n, seed):
    builder = ModelBuilder()
    for i in range(n):
        builder.add_object(f"o{i}", leaf=i % 3 == 2)
    builder.order(0, 0)
    space, rng = bare_space(builder.freeze()), random.Random(seed)
    composition = space.model.arrays.composition
    candidate = space.root()
    while isinstance(candidate, Candidate):
        order = candidate.domains.reshape(n, n)
        for a in range(n):
            for b in range(n):
                assert (order[a] & ~composition[order[a, b], order[b]] == 0).all()
        if candidate.is_complete:
            break
        var = rng.choice(list(candidate.open_choices()))
        candidate = candidate.decide(var, 1 << rng.choice(candidate.values(var)))


# ---- each filter by hand


def others(*sizes):
    builder = ModelBuilder()
    return builder, [
        builder.add("x", (str(k),), tuple(map(str, range(size)))) for k, size in enumerate(sizes)
    ]


def fixpoint(builder, **narrowed):
    space = bare_space(builder.freeze())
    domains = space.model.initial.copy()
    for name, mask in narrowed.items():
        domains[int(name[1:])] &= mask
    result = space.candidate(domains)
    return result if isinstance(result, DeadEnd) else list(map(int, result.domains))


@pytest.mark.parametrize(
    ("masks", "expected"),
    [
        ({}, [0b111, 0b111]),
        ({"x0": 0b100}, [0b100, 0b100]),
        ({"x0": 0b010}, [0b010, 0b110]),
        ({"x1": 0b001}, [0b001, 0b001]),
        ({"x0": 0b100, "x1": 0b011}, None),
    ],
)
def test_table2_at_most(masks, expected):
    builder, (a, b) = others(3, 3)
    builder.table2("a <= b", a, b, lambda x, y: x <= y)
    result = fixpoint(builder, **masks)
    if expected is None:
        assert result.why == "a <= b leaves no value"
    else:
        assert result == expected


def test_table3_sum():
    builder, (a, b, c) = others(3, 3, 5)
    builder.table3("a + b = c", a, b, c, lambda x, y, z: x + y == z)
    assert fixpoint(builder, x2=0b00011) == [0b011, 0b011, 0b00011]
    assert fixpoint(builder, x0=0b100, x1=0b110) == [0b100, 0b110, 0b11000]


def test_clause_forces_its_last_literal():
    builder, (a, b) = others(2, 3)
    builder.clause("a or b", [(a, 0b10), (b, 0b101), (b, 0b001)])
    assert fixpoint(builder) == [0b11, 0b111]
    assert fixpoint(builder, x0=0b01) == [0b01, 0b101]
    assert fixpoint(builder, x1=0b010) == [0b10, 0b010]
    assert fixpoint(builder, x0=0b01, x1=0b010).why == "a or b leaves no value"


def test_a_clause_of_one_literal_holds_at_the_root():
    builder, (a,) = others(3)
    builder.clause("a is 1", [(a, 0b010)])
    assert fixpoint(builder) == [0b010]


def test_product_removes_heavy_values_and_heavy_conditions():
    builder, (a, b, asked) = others(4, 4, 2)
    sizes = (1, 2, 4, 8)
    builder.product_at_most("fits", [Term(None, a, sizes), Term((asked, 0b10), b, sizes)], 8)
    assert fixpoint(builder, x2=0b10) == [0b1111, 0b1111, 0b10]
    assert fixpoint(builder, x0=0b0100, x2=0b10) == [0b0100, 0b0011, 0b10]
    assert fixpoint(builder, x0=0b0100, x1=0b1000) == [0b0100, 0b1000, 0b01]
    assert fixpoint(builder, x0=0b0100, x2=0b01) == [0b0100, 0b1111, 0b01]


def test_sum_counts_what_is_sure():
    builder, (a, b) = others(3, 3)
    builder.sum_at_most("fits", [Term(None, a, (0, 3, 5)), Term(None, b, (1, 2, 9))], 5)
    assert fixpoint(builder) == [0b011, 0b011]
    assert fixpoint(builder, x0=0b010) == [0b010, 0b011]
    assert isinstance(fixpoint(builder, x0=0b100), DeadEnd)


def test_huge_weights_do_not_overflow():
    builder, vars_ = others(*[2] * 40)
    terms = [Term(None, var, (2**30, 2**60)) for var in vars_]
    builder.product_at_most("fits", terms, 2**31 - 1)
    assert isinstance(fixpoint(builder), DeadEnd)


def test_thirty_two_values():
    builder, (a, b) = others(32, 32)
    builder.table2("next", a, b, lambda x, y: y == x + 1)
    top = 1 << 31
    assert fixpoint(builder) == [top - 1, 2 * top - 2]
    assert fixpoint(builder, x1=top) == [1 << 30, top]


def test_equal_tables_are_stored_once():
    builder, vars_ = others(3, 3, 3, 2)
    calls = []

    def differ(x, y):
        calls.append((x, y))
        return x != y

    builder.table2("ab", vars_[0], vars_[1], differ, share="differ")
    builder.table2("bc", vars_[1], vars_[2], differ, share="differ")
    assert len(calls) == 9
    builder.table2("ac", vars_[0], vars_[2], lambda x, y: x != y)
    rows = builder.freeze().arrays.first_row
    assert len(set(rows.tolist())) == 1
    builder.table2("ad", vars_[0], vars_[3], differ, share="differ")  # another shape
    assert len(set(builder.freeze().arrays.first_row.tolist())) == 2


def test_statuses():
    builder, (a, b) = others(2, 2)
    builder.table2("equal", a, b, lambda x, y: x == y)
    model = builder.freeze()
    scratch, domains = make_scratch(model), model.initial.copy()
    assert propagate_all(model.arrays, scratch, domains) == FIXPOINT
    domains[a] = 0b01
    assert propagate(model.arrays, scratch, domains, np.array([a], np.int32)) == FIXPOINT
    assert domains.tolist() == [0b01, 0b01]
    assert bare_space(model).root().decide(a, 0).why == "the decision leaves no value"
    domains[b] = 0
    assert propagate_all(model.arrays, scratch, domains) == EXCLUDED
    domains[:] = 0b01, 0b10
    assert propagate(model.arrays, scratch, domains, np.array([b], np.int32)) == 0


# ---- descents and completions


def pigeons(n_pigeons, n_holes):
    builder, vars_ = others(*[n_holes] * n_pigeons)
    for i, a in enumerate(vars_):
        for b in vars_[:i]:
            builder.table2(f"{a} and {b} differ", a, b, lambda x, y: x != y, share="differ")
    return bare_space(builder.freeze())


def test_completion_proves_that_there_is_none_or_gives_up():
    space = pigeons(6, 5)
    root = space.root()
    assert isinstance(root.complete(max_backtracks=100_000), DeadEnd)
    domains = root.domains.copy()
    assert guided_completion(space.model, space.scratch, domains, max_backtracks=3) == LIMIT
    assert cpsat.complete(space.model, root.domains) is None


def test_completion_follows_preferences():
    space = pigeons(4, 4)
    preference = np.tile(np.array([3, 1, 0, 2], np.uint8), (4, 1))
    var_order = np.array([2, 0, 3, 1])
    completed = space.root().complete(preference, var_order)
    assert [completed.value(var) for var in var_order] == [3, 1, 0, 2]


def test_descents_repeat_for_a_seed_and_respect_priority():
    space = pigeons(8, 8)
    priority = np.arange(8)[::-1].copy()
    runs = []
    for _ in range(2):
        domains = space.root().domains.copy()
        runs.append((random_descent(space.model, space.scratch, domains, 5, priority), domains))
    assert runs[0][0] == runs[1][0]
    assert (runs[0][1] == runs[1][1]).all()


def test_random_descents_of_85_objects(capsys):
    builder = ModelBuilder()
    for i in range(60):
        builder.add_object(f"d{i}")
    for i in range(25):
        builder.add_object(f"s{i}", leaf=True)
    space = bare_space(builder.freeze())
    root, times_ms, n_dead = space.root(), [], 0
    for seed in range(20):
        domains = root.domains.copy()
        start = perf_counter()
        status, n_decisions, _ = random_descent(space.model, space.scratch, domains, seed)
        times_ms.append(1e3 * (perf_counter() - start))
        n_dead += status != FIXPOINT
        if status == FIXPOINT:
            assert violations(space.model, Candidate(space, domains).assignment()) == []
    with capsys.disabled():
        print(f"\n85 objects: {np.median(times_ms):.2f} ms, {n_decisions} decisions, {n_dead} dead")
