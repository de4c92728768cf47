"""Systems of bounded integer equations: what is decided, and how much is tried before giving up."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelscape.kernels.analysis.conflicts import is_injective
from kernelscape.kernels.ir import affine
from kernelscape.kernels.ir.access import AxisMap, Guard
from kernelscape.kernels.ir.affine import Affine, constant, feasible, limits
from kernelscape.kernels.ir.domain import Loop, Residue
from kernelscape.kernels.ir.kernel import Binary, Cast, Const, DType, Expr, Local


def test_little_is_tried_where_all_is_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """`a[i // 2] += ...` where i % 3 is 1, for i in a loop of unknown length: half a million divisions before."""
    n_divisions = 0
    plain = affine._quotient_range

    def counted(low: int, high: int, divisor: int) -> tuple[int, int]:
        nonlocal n_divisions
        n_divisions += 1
        return plain(low, high, divisor)

    monkeypatch.setattr(affine, "_quotient_range", counted)
    i = Affine(0, (("i", 1),))
    halves = (AxisMap(i, 2),)
    assert not is_injective(
        halves, Guard(residues=(Residue(i, 3, 1),)), [Loop("i", 1 << 40, False)], []
    )
    assert n_divisions < 20_000


def of(op: str, a: Expr, b: Expr | int) -> Expr:
    b = Const(b, a.dtype) if isinstance(b, int) else b
    return Binary(op, a, b, a.dtype)


K, U = Local("k", DType.i32), Local("u", DType.i32)  # k is from 0 to 9, u anything


@pytest.mark.parametrize(
    ("index", "found"),
    [
        (K, (0, 9)),
        (U, None),
        (Cast(of("add", K, 1), DType.i64), (1, 10)),
        (of("max", of("min", U, 7), 0), (0, 7)),
        (of("add", of("max", of("min", U, 7), 0), K), (0, 16)),
        (Cast(of("add", K, 250), DType.u8), None),  # it may wrap around
        (of("add", K, 2**31 - 5), None),
        (of("add", of("max", U, 0), 1), None),
        (of("floordiv", of("add", K, -5), 2), (-3, 2)),
    ],
)
def test_limits_of_locals(index: Expr, found: tuple[int, int] | None) -> None:
    """Limits follow from those of locals, unless a value may wrap around."""
    assert limits(index, {}, {"k": (0, 9)}) == found


@pytest.mark.parametrize(("const", "is_possible"), [(1000, True), (1001, False)])
def test_narrow_systems_are_decided(const: int, is_possible: bool) -> None:
    """6 x + 10 y = const."""
    equation = Affine(-const, (("x", 6), ("y", 10)))
    assert feasible([equation], {"x": (0, 300), "y": (0, 40)}) == is_possible
    assert not feasible([equation, constant(1)], {"x": (0, 300), "y": (0, 40)})


I, J = (Affine(0, ((name, 1),)) for name in "ij")


@pytest.mark.parametrize("n", [64, 1 << 18, 1 << 40])
@pytest.mark.parametrize(
    ("index", "guard", "is_proved"),
    [
        ([(I, 2)], [(I, 2, 0)], True),  # `if i % 2 == 0: coarse[i // 2] = fine[i]`
        ([(I, 2)], [(I, 2, 1)], True),
        ([(I, 4)], [(I, 4, 2)], True),
        ([(I, 2), (J, 2)], [(I, 2, 0), (J, 2, 0)], True),
        ([(I, 2)], [], False),
        ([(I, 4)], [(I, 2, 0)], False),
        ([(I, 2), (J, 2)], [(I, 2, 0)], False),
    ],
)
def test_every_second_element_is_apart_whatever_the_extent(index, guard, is_proved, n) -> None:
    """Kind: residues and divisions were followed by halving ranges, which gave up on long loops."""
    maps = tuple(AxisMap(i, divisor) for i, divisor in index)
    loops = [Loop(name, n, False) for name in "ij"[: len(index)]]
    found = Guard(residues=tuple(Residue(*x) for x in guard))
    assert is_injective(maps, found, loops, []) == is_proved


# A distance, indices and slack variables: names and bounds decide which variables go first.
NAMES = ("d:i", "a:i", "b:i", "#q")
coefficients = st.tuples(*(st.sampled_from((0, 0, 1, -1, 2, -2, 3, -6)) for _ in NAMES))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-6, 6), coefficients), min_size=1, max_size=4),
    st.tuples(*(st.tuples(st.integers(-4, 4), st.integers(0, 4)) for _ in NAMES)),
)
def test_a_system_with_a_solution_is_never_refuted(rows, ranges) -> None:
    bounds = {name: (a, a + n) for name, (a, n) in zip(NAMES, ranges, strict=True)}
    equations = [
        Affine(c, tuple(sorted((n, f) for n, f in zip(NAMES, row, strict=True) if f)))
        for c, row in rows
    ]
    points = product(*(range(low, high + 1) for low, high in bounds.values()))
    is_solved = any(
        all(c + sum(f * x for f, x in zip(row, at, strict=True)) == 0 for c, row in rows)
        for at in points
    )
    assert not (is_solved and affine._contradict(equations, bounds))
    assert feasible(equations, bounds) or not is_solved
