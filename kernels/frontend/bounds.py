"""Bounds of for loops: iteration counts, and copies of bounds in locals, made before the loop begins."""

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
    """Returns the number of iterations of `range(start, stop, step)`: never negative, and 0 for a step of 0."""
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
    """Returns the bounds of a loop nest; those that the body may change are replaced by locals set before the nest.

    Generated code evaluates starts and steps again in each iteration, and stops of inner loops at each entry of their loop. Python
    evaluates each bound once.
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
    """Returns the names of locals and arrays that the statements of a loop body may change, and a flag.

    The flag is True if some changed place cannot be resolved to a local or an array, so any array may change.
    """
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
    """Returns the array or locals before the first index of a place, such as `x` for `x[i].pos[1]`.

    None if the frontend cannot resolve it.
    """
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
