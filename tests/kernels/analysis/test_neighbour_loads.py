"""Which loads of a block are near one another."""

from __future__ import annotations

import pytest
from kernelscape.kernels.analysis.neighbour_loads import has_near_loads, near_loads
from kernelscape.kernels.ir import kernel as ir

I, F = ir.DType.i32, ir.DType.f32
SHAPE = (10, 5, 3)


def more(e: ir.Expr, n: int) -> ir.Expr:
    return ir.Binary("add", e, ir.Const(n, e.dtype), e.dtype)


def q(*indices: ir.Expr) -> ir.Load:
    return ir.Load("q", indices, F)


def put(name: str, e: ir.Expr) -> ir.SetLocal:
    return ir.SetLocal(name, e, ir.NOWHERE)


B, C = ir.Local("b", I), ir.Local("c", I)
ZERO, ONE, TWO = (ir.Const(k, I) for k in range(3))


def found(*body: ir.Stmt) -> list[list[tuple[int, int, int]]]:
    """Of each statement: where the elements are that are loaded with its own, how many, and which of them its own is."""
    every = near_loads(body, lambda _: SHAPE, lambda _: True, lambda _: 4)
    return [[(n.start, n.length, k) for n, k in x.values()] for x in every]


def test_neighbours_along_any_axis_are_loaded_at_once() -> None:
    """Rows of three elements follow one another: the last of one and the first of the next are side by side."""
    body = [put(f"x{k}", q(B, more(C, k // 3), ir.Const(k % 3, I))) for k in range(6)]
    assert found(*body) == [[(0, 4, k)] for k in range(4)] + [[(4, 2, k)] for k in range(2)]


def test_none_is_left_alone() -> None:
    body = [put(f"x{k}", q(B, C, ir.Const(k, I))) for k in (2, 0, 1)]
    body += [put(f"y{k}", q(B, more(C, 1), ir.Const(k, I))) for k in range(2)]
    assert [x[0] for x in found(*body)] == [(0, 3, 2), (0, 3, 0), (0, 3, 1), (3, 2, 0), (3, 2, 1)]


def test_locals_are_seen_through() -> None:
    wide, first = ir.Local("w", ir.DType.i64), ir.Local("v", ir.DType.i64)
    body = (
        put("v", ir.Cast(C, ir.DType.i64)),
        put("x", q(B, ONE, first)),
        put("w", ir.Cast(more(C, 1), ir.DType.i64)),
        put("y", q(B, ONE, wide)),
    )
    assert found(*body) == [[], [(0, 2, 0)], [], [(0, 2, 1)]]


def test_places_are_those_of_a_load_that_is_one_of_several() -> None:
    """Another one before them may be far from all, at a time when its local had another value."""
    body = [put("x", q(B, C, ZERO)), put("v", more(C, 3)), put("c", ir.Local("v", I))]
    body += [put(f"y{k}", q(B, C, ir.Const(k, I))) for k in range(2)]
    every = near_loads(body, lambda _: SHAPE, lambda _: True, lambda _: 4)
    assert [len(x) for x in every] == [0, 0, 0, 1, 1]
    ((load, (near, k)),) = every[3].items()
    assert (near.group.load, near.group.before, near.start, k) == (load, 0, 0, 0)


@pytest.mark.parametrize(
    "between",
    [
        ir.Store("q", (ZERO, ZERO, ZERO), ir.Const(1.0, F), ir.NOWHERE),
        put("c", ZERO),
        ir.If(ir.Local("m", ir.DType.bool_), (put("c", ZERO),), (), ir.NOWHERE),
        ir.If(
            ir.Local("m", ir.DType.bool_),
            (ir.Store("q", (B, C, ZERO), ir.Const(1.0, F), ir.NOWHERE),),
            (),
            ir.NOWHERE,
        ),
    ],
)
def test_what_may_change_between_is_loaded_again(between: ir.Stmt) -> None:
    body = (put("x", q(B, C, ZERO)), between, put("y", q(B, C, ONE)))
    assert not any(found(*body))


def test_arrays_of_one_shape_have_one_place_as_long_as_indices_are_equal() -> None:
    def pair(name: str) -> list[ir.Stmt]:
        return [put(f"{name}{k}", ir.Load(name, (B, C, ir.Const(k, I)), F)) for k in range(2)]

    body = [*pair("q"), *pair("r"), *pair("other"), put("c", ZERO), *pair("r")]
    shapes = {"q": SHAPE, "r": SHAPE, "other": (10, 5, 4)}
    every = near_loads(body, shapes.__getitem__, lambda _: True, lambda _: 4)
    groups = [n.group for x in every for n, _ in x.values()][::2]
    assert [g.number for g in groups] == [0, 1, 2, 3]
    assert len({g.place for g in groups}) == 3
    assert groups[0].place == groups[1].place


def test_loads_with_gaps_between_neighbours_are_near_one_another() -> None:
    """Neighbours in a loop are side by side in the second body, and gathered by nobody."""
    i = ir.LoopIndex("i", ir.DType.i64)
    strided, along = [
        tuple(put(f"x{k}", q(*at(ir.Const(k, ir.DType.i64)))) for k in range(2))
        for at in (lambda k: (ZERO, i, k), lambda k: (ZERO, ONE, more(i, int(k.value))))
    ]
    assert [has_near_loads(body, lambda _: SHAPE, lambda _: 4) for body in (strided, along)] == [
        True,
        False,
    ]


def test_what_may_not_be_evaluated_brings_nothing_together() -> None:
    second = ir.Binary(
        "and", ir.Local("m", ir.DType.bool_), ir.Cast(q(B, C, ONE), ir.DType.bool_), ir.DType.bool_
    )
    assert not any(found(put("x", q(B, C, ZERO)), put("y", second)))
    inside = ir.If(ir.Local("m", ir.DType.bool_), (put("y", q(B, C, ONE)),), (), ir.NOWHERE)
    assert not any(found(put("x", q(B, C, ZERO)), inside))


def test_small_integers_wrap_around() -> None:
    u = ir.Local("u", ir.DType.u8)
    body = (put("x", q(B, C, ir.Cast(more(u, 1), I))), put("y", q(B, C, ir.Cast(more(u, 2), I))))
    assert not any(found(*body))
