"""Dependence tests beside enumeration: every pair of iterations of small loops."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from kernelscape.kernels.analysis.conflicts import meet_at
from kernelscape.kernels.ir.access import AccessSet, AxisMap, Guard
from kernelscape.kernels.ir.affine import Affine
from kernelscape.kernels.ir.domain import BOX, Loop

LOOPS = (Loop("i", 3, False), Loop("j", 4, False), Loop("k", 3, False))
COMMON = LOOPS[:2]

indices = st.lists(
    st.tuples(st.integers(-3, 3), *(st.integers(-2, 2) for _ in LOOPS)), min_size=1, max_size=2
)


def affine(const: int, factors: tuple[int, ...]) -> Affine:
    terms = ((x.name, f) for x, f in zip(LOOPS, factors, strict=True) if f)
    return Affine(const, tuple(sorted(terms)))


def access(index: list[tuple[int, ...]]) -> AccessSet:
    maps = tuple(AxisMap(affine(const, factors)) for const, *factors in index)
    return AccessSet(BOX, LOOPS, maps, Guard())


def value(index: list[tuple[int, ...]], at: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(c + sum(f * x for f, x in zip(fs, at, strict=True)) for c, *fs in index)


@settings(max_examples=300, deadline=None)
@given(indices, indices, st.integers(-3, 3), st.booleans(), st.integers(0, 1))
def test_accesses_that_meet_are_never_called_apart(a, b, moved, alike, level) -> None:
    if alike:  # as of stencils: the same functions of the loops but for a constant
        b = [(c + moved, *factors) for c, *factors in a]
    a, b = a[: len(b)], b[: len(a)]
    iterations = list(product(*(range(x.extent) for x in LOOPS)))
    do_meet = any(
        value(a, x) == value(b, y)
        for x, y in product(iterations, iterations)
        if x[:level] == y[:level] and x[level] < y[level]
    )
    assert meet_at(access(a), access(b), COMMON, level) or not do_meet


def test_an_axis_alone_keeps_rows_apart() -> None:
    rows = [access([(0, 1, 0, 0), (0, 0, 0, 1)]), access([(0, 1, 0, 0), (-1, 0, 0, 1)])]
    assert not meet_at(rows[0], rows[1], COMMON, 0)
    assert meet_at(rows[0], rows[1], COMMON, 1)
    next_row = access([(1, 1, 0, 0), (0, 0, 0, 1)])
    assert meet_at(next_row, rows[0], COMMON, 0)
    assert not meet_at(rows[0], next_row, COMMON, 0)
