"""Bounds of loops: iteration counts, and bounds saved in locals at loop entry."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..ir.kernel import Const, DType, Expr
from ..ir.simplify import binary, compare, const, select, unary
from ..ir.walk import loads, locals_read
from .errors import LanguageError
from .protocol import Frontend
from .scopes import Pass
from .side_effects import calls_store, is_chain, names_of, places_changed, scope_of
from .values import Method, Static, Typed, Value

Bounds = tuple[Expr, Expr, Expr]  # start, stop, step


def extent_of(start: Expr, stop: Expr, step: Expr) -> Expr:
    """The number of iterations of a loop: at least 0, and 0 for a step of 0."""
    zero = const(0, DType.i64)
    goes_up = compare("gt", step, zero)
    span = select(
        goes_up, binary("add", stop, unary("neg", start)), binary("add", start, unary("neg", stop))
    )
    width = unary("abs", step)
    if not (isinstance(width, Const) and width.value == 1):
        below = binary("add", width, const(-1, DType.i64))
        span = binary("floordiv", binary("add", span, below), width)
    return binary("max", span, zero)


def held_bounds(
    state: Pass, frontend: Frontend, bounds: Sequence[Bounds], names: list[str], node: ast.For
) -> list[Bounds]:
    """The bounds, saved in locals if the loops read them after the body may have changed them.

    Starts and steps are read at each index. Stops of inner loops are read at each entry of the loop.
    """
    later = [
        e for k, (start, stop, step) in enumerate(bounds) for e in (start, step, *[stop][: k > 0])
    ]
    if not any(loads(e) or locals_read(e) for e in later):
        return list(bounds)
    changed, all_arrays = _changed(state, frontend, node.body)
    all_arrays = all_arrays or (
        any(loads(e) for e in later) and calls_store(scope_of(state.frame), node.body)
    )

    def held(e: Expr, name: str) -> Expr:
        arrays = {x.array for x in loads(e)}
        if changed & {*arrays, *locals_read(e)} or (all_arrays and arrays):
            return frontend.places.in_local(name, Typed(e), node).expr
        return e

    return [
        (
            held(start, f"{name}_start"),
            held(stop, f"{name}_end") if k else stop,
            held(step, f"{name}_step"),
        )
        for k, ((start, stop, step), name) in enumerate(zip(bounds, names, strict=True))
    ]


def _changed(state: Pass, frontend: Frontend, body: Sequence[ast.stmt]) -> tuple[set[str], bool]:
    """The locals and arrays that statements may change, and True if a changed place is not resolved yet."""
    frame = state.frame
    names: set[str] = set()
    is_unknown = False
    for place in places_changed(scope_of(frame), body):
        if isinstance(place, ast.Name) and frame.find(place.id) is None:
            continue  # a name of the body
        x = _whole(state, frontend, place)
        is_unknown = is_unknown or x is None
        names |= names_of(x) if x is not None else set()
    return names, is_unknown


def _whole(state: Pass, frontend: Frontend, place: ast.expr) -> Value | None:
    """The array or the locals before the first index of a place. None where they cannot be resolved."""
    whole = base = place
    while isinstance(base, ast.Subscript | ast.Attribute):
        whole = base.value if isinstance(base, ast.Subscript) else whole
        base = base.value
    if not is_chain(whole):
        return None
    captured, taken = dict(state.captured), state.taken.copy()
    try:
        x = frontend.place(whole)
    except LanguageError:
        return None
    finally:  # fields are numbered in the order in which statements use them
        state.captured, state.taken = captured, taken
    return None if isinstance(x, Static | Method) else x
