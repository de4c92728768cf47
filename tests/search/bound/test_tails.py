"""Partial register tiles in the bound: hand-worked values, monotone, and no more than the loop IR's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.bound.explain import explain
from kernelscape.space import choices as ch
from kernelscape.space.backbone import INNER, OUTER
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, Space
from kernelscape.testing.machines import library_space, root_of, round_target
from kernelscape.testing.port_counts import count_ports

# A multiply-add of one element a ns in vectors of sixteen.
SLOWER = 16 / 1.3 - 1


def space_of(name: str, cores: int = 1, vector_bytes: int = 64, **sizes: int) -> Space:
    target = round_target(cores=cores, vector_bytes=vector_bytes, f32_flops_per_ns=2.0)
    return library_space(name, target, **sizes)


def vectors(space: Space, loop: str, size: int, *, copied: bool = False) -> Any:
    """Domains of task 0 in vectors along a loop, in register tiles of this size; its operands are packed, or are not."""
    v, domains = space.variables, root_of(space).domains.copy()
    part = space.backbone.dim(0, loop, INNER)
    domains[v.kind[part]] = 1 << ch.VECTOR
    domains[v.size[part]] = 1 << v.universe[part].index(size)
    for d in space.backbone.dims_of(0):
        if d.level != OUTER and d != part:
            domains[v.kind[d]] = int(domains[v.kind[d]]) & ~(1 << ch.VECTOR)
            domains[v.size[d]] = 1 << v.universe[d].index(1)
    for var in v.staged.values():
        domains[var] = 1 << (ch.COPY if copied else ch.DIRECT)
    return domains


def tails(space: Space, domains: Any) -> float:
    return dict(Bounder(space).bound(domains).terms).get("tails", 0.0)


@pytest.mark.parametrize(("n", "rest"), [(256, 0), (257, 1), (266, 10)])
def test_elements_behind_the_last_vector_are_computed_one_by_one(n: int, rest: int) -> None:
    """Kind: widths that vectors do not divide, for the price of those that they do."""
    space = space_of("matmul", m=64, n=n, k=64)
    assert tails(space, vectors(space, "j", 16)) == pytest.approx(64 * 64 * rest * SLOWER)
    larger = tails(space, vectors(space, "j", 64))
    assert larger == pytest.approx(64 * 64 * (n % 64) * SLOWER)


def test_partial_tiles_may_be_whole_where_operands_are_packed() -> None:
    space = space_of("matmul", m=64, n=266, k=64)
    packed = tails(space, vectors(space, "j", 16, copied=True))
    assert packed == pytest.approx(64 * 64 * 6)
    # Sums along a loop are never padded.
    along = space_of("matmul_strided", m=64, n=64, k=266)
    (loop,) = (x.name for x in along.problem.tasks[0].loops if x.is_reduction)
    assert tails(along, vectors(along, loop, 16, copied=True)) > 64 * 64 * 9.9 * SLOWER


def test_tails_are_part_of_the_operations_and_are_explained() -> None:
    space = space_of("axpy", n=100_001)
    (loop,) = (x.name for x in space.problem.tasks[0].loops)
    even, cut = (
        dict(Bounder(space_of("axpy", n=n)).bound(vectors(space_of("axpy", n=n), loop, 16)).terms)
        for n in (100_000, 100_001)
    )
    assert "tails" not in even
    assert cut["operations"] - even["operations"] == pytest.approx(cut["tails"] + 1)
    assert any(
        line.startswith("tails: ")
        for line in explain(Bounder(space).bound(vectors(space, loop, 16)), space)
    )


@kernel
def squares(x: types.ndarray(), y: types.ndarray()):
    for j in range(y.shape[0]):
        y[j] = x[j] * x[j] * x[j] + 1.0


@kernel
def squares_but_the_last(x: types.ndarray(), y: types.ndarray()):
    for j in range(y.shape[0]):
        y[j] = x[j] * x[j] * x[j] + 1.0 if j < 96 else 0.0


@pytest.mark.parametrize(("fn", "has_tails"), [(squares, True), (squares_but_the_last, False)])
def test_what_a_condition_leaves_out_is_in_no_tail(fn: Any, has_tails: bool) -> None:
    """The only element behind the last vector may be the one that computes nothing."""
    arrays = [np.zeros(97, np.float32) for _ in range(2)]
    target = round_target(vector_bytes=64, f32_flops_per_ns=2.0)
    space = build_space(normalise(record_sequence(fn, arrays)), target)
    (loop,) = (x.name for x in space.problem.tasks[0].loops)
    assert (tails(space, vectors(space, loop, 16)) > 0) == has_tails


def test_open_sizes_count_their_least_partial_tile() -> None:
    space = space_of("axpy", n=96)
    (loop,) = (x.name for x in space.problem.tasks[0].loops)
    part = space.backbone.dim(0, loop, INNER)
    cut, domains = vectors(space, loop, 64), vectors(space, loop, 64)
    assert tails(space, cut) == pytest.approx(32 * SLOWER)
    domains[space.variables.size[part]] |= 1 << space.variables.universe[part].index(32)
    assert tails(space, domains) == 0


JOBS = (
    ("matmul", {"m": 9, "n": 22, "k": 11}),
    ("matmul_strided", {"m": 9, "n": 10, "k": 23}),
    ("bicgk", {"m": 21, "n": 26}),
    ("gesummv", {"m": 21, "n": 26}),
    ("waxpby", {"n": 203}),
    ("axpydot", {"n": 203}),
)


@pytest.mark.parametrize(("name", "sizes"), JOBS)
@pytest.mark.parametrize("cores", [1, 2])
def test_tails_take_no_longer_than_those_of_the_loop_ir(
    name: str, sizes: dict[str, int], cores: int
) -> None:
    space = space_of(name, cores, 16, **sizes)
    bounder, found = Bounder(space), 0.0
    for seed in range(12):
        at, before = root_of(space), 0.0
        rng = np.random.default_rng(seed)
        while not at.is_complete:
            var = int(rng.choice(at.open_choices()))
            children = [c for _, c in at.expand(var) if isinstance(c, Candidate)]
            if not children:
                break
            at = children[int(rng.integers(len(children)))]
            now = dict(bounder.bound(at).terms).get("tails", 0.0)
            assert now >= before * (1 - 1e-9)
            before = now
        if at.is_complete:
            counts = count_ports(at)
            assert before <= counts.added_ns * (1 + 1e-9)
            found = max(found, before)
    assert found > 0


def test_elements_behind_the_last_vector_are_loaded_one_by_one() -> None:
    """Kind: loads and stores of whole vectors for elements that no vector covers. Others may find them in registers."""
    whole, cut = (
        library_space("madd", round_target(loads_per_ns=1.0, stores_per_ns=1.0), m=128, n=n)
        for n in (256, 266)
    )
    ports = [
        dict(Bounder(x).bound(vectors(x, x.problem.tasks[0].loops[-1].name, 16)).terms)["ports"]
        for x in (whole, cut)
    ]
    assert ports[0] == pytest.approx(2 * 128 * 256 / 16)
    assert ports[1] == pytest.approx(2 * 128 * (256 / 16 + 10))
