"""Register stages: loops whose iterations load, while they compute, the elements in shared memory that the next one uses."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from ..text import csyntax as c
from ..text.free_variables import identifiers

# Elements of every other step are then in the same registers, and none is moved.
STEPS_WRITTEN_OUT = 2


def with_loads_ahead(
    loop: c.For, arrays: Collection[str], fresh: Callable[[str], str]
) -> tuple[c.CStmt, ...]:
    """Returns the loop with the loads from `arrays` a step ahead, behind the loads of the first step.

    The last step is behind the loop, and loads nothing. Loads stay where they are if a body has
    tests or loops in it, as bodies of partial register tiles have. `fresh`: makes C identifiers.
    """
    if not all(isinstance(s, c.Declare | c.Assign) for s in loop.body):
        return (loop,)
    declared = [s for s in loop.body if isinstance(s, c.Declare)]
    own = {s.name for s in declared}
    ahead = [s for s in declared if _is_load(s.init, arrays) and own.isdisjoint(_names(s))]
    if not ahead:
        return (loop,)
    assert isinstance(loop.step, int)
    following = c.linear(((c.Id(loop.var), 1),), loop.step)
    last = c.Bin("-", loop.hi, c.number(loop.step))
    names = {s.name: fresh(f"{s.name.rstrip('_')}_next") for s in ahead}
    first = (replace(_at(s, loop.var, loop.lo), constant=False) for s in ahead)
    loads = (replace(_at(s, loop.var, following), name=names[s.name]) for s in ahead)
    rest = tuple(s for s in loop.body if s not in ahead)
    moves = (c.Assign(c.Id(name), c.Id(later)) for name, later in names.items())
    steps = replace(loop, hi=last, body=(*loads, *rest, *moves), copies=STEPS_WRITTEN_OUT)
    return (*first, steps, c.Scope(_at(rest, loop.var, last)))


def _names(s: c.Declare) -> set[str]:
    """Returns the identifiers of a variable's value."""
    return identifiers((s.init,) if s.init is not None else ())[0]


def _is_load(x: c.CExpr | None, arrays: Collection[str]) -> bool:
    """True for a load of an element or a vector of one of these arrays."""
    match x:
        case c.Index(c.Id(name), _) | c.Call(_, (c.Un("&", c.Index(c.Id(name), _)),)):
            return name in arrays
    return False


def _at(x: Any, name: str, value: c.CExpr) -> Any:
    """Returns an expression with variable `name` replaced by a value."""
    if x == c.Id(name):
        return value
    if isinstance(x, tuple):
        return tuple(_at(part, name, value) for part in x)
    inside = {field: _at(getattr(x, field), name, value) for field in c.PARTS.get(type(x), ())}
    return replace(x, **inside) if inside else x
