"""The space of real sequences: nothing that is legal is missing, and nothing that is there is illegal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import ndarray, record_sequence
from kernelscape.kernels.library import load, names
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space import backbone, build, families
from kernelscape.space import choices as ch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, DeadEnd, Space
from kernelscape.space.decisions import to_names
from kernelscape.space.draft import Family
from kernelscape.space.engine import cpsat
from kernelscape.space.engine.builder import ModelBuilder
from kernelscape.space.families import order
from kernelscape.space.targets.cpu import CPU_KIND
from kernelscape.space.targets.kind import CPU
from kernelscape.testing import checking
from kernelscape.testing.legality import Judge, illegal
from kernelscape.testing.violations import violations

nd = types.ndarray()


def library_problem(name, **sizes):
    entry = load(name)
    rng = np.random.default_rng(0)
    args = entry.make_arguments(entry.complete(sizes), np.dtype(np.float32), rng)
    return normalise(record_sequence(entry.sequence, args, name))


@pytest.fixture
def small_universes(monkeypatch):
    small = replace(CPU_KIND, mid_sizes=(1, 2), inner_sizes=(1, 4), most_whole=1)
    monkeypatch.setitem(build.KINDS, CPU, small)


def leaves(space: Space) -> list[Candidate]:
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


SMALL = [
    ("sscal", {"n": 8}, 2),
    ("waxpby", {"n": 8}, 2),
    ("axpydot", {"n": 8}, 2),
    ("vadd", {"n": 8}, 1),
    ("sgemv", {"m": 4, "n": 4}, 1),
    ("sgemv", {"m": 4, "n": 4}, 2),
]


@pytest.mark.parametrize(("name", "sizes", "cores"), SMALL)
def test_filters_lose_nothing_and_leave_nothing_illegal(small_universes, name, sizes, cores):
    space = build_space(library_problem(name, **sizes), checking.target(cores, 16))
    found = leaves(space)
    assert len({c.key for c in found}) == len(found) > 10
    assert cpsat.count(space.model, space.model.initial, 100_000) == (len(found), True)
    for candidate in found:
        assert violations(space.model, candidate.assignment()) == []
        assert illegal(candidate) == ""


@pytest.mark.parametrize(("name", "sizes", "cores"), SMALL)
def test_different_candidates_are_different_programs(small_universes, name, sizes, cores):
    found = leaves(build_space(library_problem(name, **sizes), checking.target(cores, 16)))
    texts = {checking.source_of(c).key for c in found}
    # Equal texts are left where the copies of an unrolled sum are the whole of its loop.
    assert len(texts) >= 0.85 * len(found)
    if len(sizes) == 1:
        assert len(texts) == len(found)


@pytest.mark.parametrize(
    ("mid", "inner", "is_there"),
    [
        (8, 16, True),
        (16, 16, False),
        (64, 16, False),
        (4, 16, True),
        (32, 4, True),
        (64, 1, True),
    ],
)
def test_of_tiles_that_hold_a_whole_loop_only_the_smallest_is_there(mid, inner, is_there):
    """A hundred iterations: eight times 16 hold them all, and 16 times would be the same code."""
    space = build_space(library_problem("waxpby", n=100), checking.target(2, 64))
    v, b = space.variables, space.backbone
    at = space.root()
    for level, size in ((backbone.MID, mid), (backbone.INNER, inner)):
        d = b.dim(0, "i", level)
        at = at.decide(v.size[d], 1 << v.universe[d].index(size))
        if isinstance(at, DeadEnd):
            break
    assert isinstance(at, Candidate) == is_there


@pytest.mark.parametrize("name", names())
def test_random_descents_seldom_end_dead(name):
    entry = load(name)
    sizes = dict.fromkeys(entry.sizes, 96)
    root = build_space(library_problem(name, **sizes), checking.TARGET).root()
    assert isinstance(root, Candidate)
    rng = np.random.default_rng(1)
    ends = [root.random_completion(rng) for _ in range(200)]
    dead = [e for e in ends if isinstance(e, DeadEnd)]
    assert len(dead) < 10, {e.why for e in dead}
    for end in ends[:20]:
        if isinstance(end, Candidate):
            assert violations(end.space.model, end.assignment()) == []


# --- the judge itself: without a constraint it has to find what the constraint is for ---------------


@kernel
def half(a: nd, out: nd):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[i, j] = 0.5 * a[i, j]


@kernel
def product(a: nd, b: nd, out: nd):
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            acc = 0.0
            for k in range(a.shape[1]):
                acc += a[i, k] * b[k, j]
            out[i, j] = acc


def half_product_problem(n):
    def half_product(a, b, out):
        t = ndarray(np.float32, (n, n), name="t")
        half(a, t)
        product(t, b, out)

    arrays = [np.ones((n, n), np.float32) for _ in range(3)]
    return normalise(record_sequence(half_product, arrays, "half_product"))


def verdicts(problem, tries=200):
    """Yields the verdict of the judge on one random candidate after another."""
    root = build_space(problem, checking.target(2, 16)).root()
    assert isinstance(root, Candidate)
    rng = np.random.default_rng(0)
    for _ in range(tries):
        drawn = root.random_completion(rng)
        if isinstance(drawn, Candidate):
            yield illegal(drawn)


def all_legal(problem):
    return not any(verdicts(problem))


@kernel
def double_into(x: nd, out: nd):
    for i in range(x.shape[0]):
        out[i] = 2.0 * x[i]


@kernel
def total_into(x: nd, out: nd):
    acc = 0.0
    for i in range(x.shape[0]):
        acc += x[i]
    out[0] = acc


@kernel
def partly_into(x: nd, out: nd):
    for i in range(1, x.shape[0] - 1):
        out[i] = x[i + 1] - x[i - 1]


def chain(x, y, z, s):
    total_into(y, s)
    double_into(x, y)  # overwrites what the first read
    double_into(z, x)  # as does this


def twice(x, y, z, s):
    double_into(x, y)
    partly_into(z, y)  # overwrites only the inner elements
    double_into(z, s)


def chain_problem(sequence=chain):
    rng = np.random.default_rng(0)
    x, y, z = (rng.uniform(-1, 1, 13).astype(np.float32) for _ in range(3))
    return normalise(
        record_sequence(sequence, (x, y, z, rng.uniform(-1, 1, 13).astype(np.float32)), "chain")
    )


def test_the_judge_accepts_what_all_constraints_allow():
    assert all_legal(chain_problem())
    assert all_legal(library_problem("atax", m=5, n=7))


def between_tasks_but(kind, draft):
    """The order of tasks without dependences of a kind."""
    found = draft.backbone
    kept = tuple(d for d in found.dependences if d.kind != kind)
    object.__setattr__(found, "dependences", kept)
    order.between_tasks(draft)


def replaced(old, new):
    return tuple(new if family is old else family for family in build.FAMILIES[CPU])


@pytest.mark.parametrize("kind", ["flow", "anti", "output"])
def test_the_judge_sees_dependences_that_are_ignored(monkeypatch, kind):
    every = backbone.build.dependences

    def some(problem):
        return tuple(d for d in every(problem) if d.kind != kind)

    if kind == "flow":  # the flows themselves stay, only their order is free
        problem = library_problem("atax", m=5, n=7)
        unordered = Family("order", {CPU: (order.within_tasks, partial(between_tasks_but, kind))})
        monkeypatch.setitem(build.FAMILIES, CPU, replaced(order.FAMILY, unordered))
    else:
        problem = chain_problem(chain if kind == "anti" else twice)
        monkeypatch.setattr(backbone.build, "dependences", some)
    assert not all_legal(problem)


@pytest.mark.parametrize("predicate", ["not_nested", "merged_equal", "elided", "separate"])
def test_the_judge_sees_constraints_that_are_missing(monkeypatch, predicate):
    def anything(*values):
        return True

    modules = [import_module(f"{families.__name__}.{f.name}") for f in build.FAMILIES[CPU]]
    for module in modules:
        if hasattr(module, predicate):
            monkeypatch.setattr(module, predicate, anything)
    problems = (library_problem(name, m=5, n=7) for name in ("atax", "gemver"))
    assert not all(map(all_legal, problems))


def without(declare, reason):
    def only_others(self, why, *rest, **more):
        if not why.startswith(reason):
            declare(self, why, *rest, **more)

    return only_others


@pytest.mark.parametrize(
    "reason",
    [
        "copy of finished values",
        "copy from memory",
        "packed by a team",
        "packed in step",
        "one thread keeps",
        "no foreign body",
    ],
)
def test_the_judge_sees_declarations_that_are_missing(monkeypatch, reason):
    for method in ("clause", "table2"):
        monkeypatch.setattr(ModelBuilder, method, without(getattr(ModelBuilder, method), reason))
    problems = (half_product_problem(7), library_problem("atax", m=5, n=7))
    assert not all(map(all_legal, problems))


def test_the_judge_reads_every_element():
    root = build_space(library_problem("bicgk", m=3, n=5), checking.target(2, 16)).root()
    candidate = root.random_completion(np.random.default_rng(0))
    judge = Judge(candidate, 2)
    judge.run()
    assert judge.seen == set(judge.want)
    assert len(judge.want) >= 2 * 2 * 15  # two products read a matrix and a vector each


# --- particular constraints ---------------------------------------------------------------------------


def test_a_copy_is_made_of_finished_values_in_memory():
    problem = half_product_problem(16)
    space = build_space(problem, checking.TARGET)
    operand = next(o for o in space.backbone.operands if o.access.array == "t")
    flow = next(f for f in space.backbone.flows if f.array == operand.access.array)
    root = space.root()
    copied = root.decide(space.variables.staged[operand], 1 << ch.COPY)
    assert isinstance(copied, Candidate)
    assert copied.values(space.variables.mem_space[flow]) == (ch.GLOBAL,)
    rng = np.random.default_rng(0)
    body = space.backbone.body_ids[flow.producer]
    for _ in range(50):
        made = copied.random_completion(rng)
        if isinstance(made, DeadEnd):
            continue
        outer = [space.backbone.dim(flow.consumer, x, backbone.OUTER) for x in operand.loops]
        orders = {made.value(space.model.order(body, d.order_id)) for d in outer}
        assert ch.BEFORE in orders


@dataclass(frozen=True)
class Flipped:
    """A complete candidate with another value of one choice, whether that is legal or not."""

    space: Space
    values: Any

    def value(self, var: int) -> int:
        return int(self.values[var])


def test_a_team_packs_exactly_where_the_judge_lets_it():
    space = build_space(half_product_problem(7), checking.target(2, 16))
    rng = np.random.default_rng(3)
    found = {True: 0, False: 0}
    for _ in range(400):
        operands = list(space.variables.staged)
        operand = operands[rng.integers(len(operands))]
        root = space.root().decide(space.variables.staged[operand], 1 << ch.COPY)
        made = root if isinstance(root, DeadEnd) else root.random_completion(rng)
        if isinstance(made, DeadEnd):
            continue
        values = made.assignment().copy()
        values[space.variables.packed_by[operand]] = ch.BY_TEAM
        allowed = violations(space.model, values) == []
        assert allowed == (illegal(Flipped(space, values)) == ""), dict(to_names(made))
        found[allowed] += 1
    assert min(found.values()) > 5, found


@kernel
def add_half(a: nd, c: nd, b: nd):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            b[i, j] = 0.5 * a[i, j] - c[i, j]


@kernel
def gram(b: nd, a: nd, c: nd):
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            acc = 0.0
            for k in range(a.shape[0]):
                acc += b[i, j] * a[k, j]
            c[i, j] = acc


def test_an_input_is_kept_only_where_all_that_is_wanted_has_been_read():
    """`gram` wants every row of `a` in each of its own rows, so it may not share the loop in which `add_half` reads them."""

    def sequence(a, c, b):
        add_half(a, c, b)
        gram(b, a, c)

    arrays = [np.zeros((6, 5), np.float32) for _ in range(3)]
    space = build_space(
        normalise(record_sequence(sequence, arrays, "gram_of_half")), checking.target(2, 16)
    )
    [kept] = [var for f, var in space.variables.mem_space.items() if f.is_read and f.array == "a"]
    dims = [space.backbone.dim(t, "i", backbone.OUTER).order_id for t in (0, 1)]
    root = space.root().decide(kept, 1 << ch.SHARED)
    assert isinstance(root, Candidate)
    assert isinstance(root.decide(space.model.order(*dims), 1 << ch.MERGED), DeadEnd)
    rng = np.random.default_rng(0)
    for candidate in [root.random_completion(rng) for _ in range(60)]:
        assert not isinstance(candidate, Candidate) or illegal(candidate) == ""
