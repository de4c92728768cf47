"""Questions about generated code, asked of its syntax before it is printed (codegen/text/csyntax.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import is_
from typing import Any

from ..codegen.lower import lower
from ..codegen.passes.pipeline import CPU
from ..codegen.plan.candidates import plan_of
from ..codegen.text import csyntax as c
from ..codegen.text.addresses import share_addresses
from ..codegen.write.program_text import LoweredProgram
from ..space.candidate import Candidate


def program_of(candidate: Candidate) -> LoweredProgram:
    """The program of a complete candidate, as passes leave it."""
    return lower(plan_of(candidate))


def apart_program_of(candidate: Candidate) -> LoweredProgram:
    """The same with every element reached for itself, in which each access can be seen."""
    return lower(plan_of(candidate), passes=CPU.without(share_addresses))


def nodes(x: Any) -> Iterator[Any]:
    """A program, a function, statements or an expression with all that they hold, in the order of the text."""
    match x:
        case LoweredProgram():
            yield from nodes(x.functions)
        case c.Function():
            yield from nodes((x.body, x.after))
        case tuple():
            for part in x:
                yield from nodes(part)
        case None | int() | str():
            return
        case _:
            yield x
            yield from nodes(c.parts(x))


def rewritten(x: Any, change: Callable[[Any], Any]) -> Any:
    """The same with each node replaced by what `change` makes of it, its parts first. Where that is None a statement is left out.

    For errors that tests plant.
    """
    match x:
        case LoweredProgram():
            return replace(x, functions=rewritten(x.functions, change))
        case c.Function():
            body, after = rewritten((x.body, x.after), change)
            return replace(x, body=body, after=after)
        case tuple():
            made = tuple(y for part in x if (y := rewritten(part, change)) is not None)
            return x if len(made) == len(x) and all(map(is_, made, x)) else made
        case None | int() | str():
            return x
    inside = {name: rewritten(getattr(x, name), change) for name in c.PARTS.get(type(x), ())}
    is_same = all(y is getattr(x, name) for name, y in inside.items())
    return change(x if is_same else replace(x, **inside))


def without(x: Any, gone: Callable[[Any], bool]) -> Any:
    """The same without the statements of which this is so."""
    return rewritten(x, lambda n: None if gone(n) else n)


def calls(x: Any, prefix: str) -> list[c.Call]:
    """Calls of the functions whose names begin so."""
    return [n for n in nodes(x) if isinstance(n, c.Call) and n.function.startswith(prefix)]


def loops(x: Any) -> list[c.For]:
    """All loops, outer ones first."""
    return [n for n in nodes(x) if isinstance(n, c.For)]


def innermost(x: Any) -> list[c.For]:
    """Loops without another in them."""
    return [loop for loop in loops(x) if not loops(loop.body)]


def prefetches(x: Any, cache: int | None = None) -> list[c.CExpr]:
    """Places that are prefetched. `cache`: the locality that the prefetch names, 0 for one that drives out nothing."""
    return [
        n.args[0] for n in calls(x, c.PREFETCH) if cache is None or n.args[2] == c.number(cache)
    ]


def array_of(place: c.CExpr) -> str:
    """The array in which a place, or the address of one, is."""
    match place:
        case c.Un("&", inner):
            return array_of(inner)
        case c.Index(c.Id(name), _):
            return name
    raise AssertionError(f"no element of an array: {place}")


def sums(x: Any, prefix: str) -> list[c.Assign]:
    """Additions to variables whose names begin with `prefix`."""
    return [
        n
        for n in nodes(x)
        if isinstance(n, c.Assign)
        and n.op == "+"
        and isinstance(n.target, c.Id)
        and n.target.name.startswith(prefix)
    ]


def is_before(x: Any, first: Any, second: Any) -> bool:
    """True if one node stands before another in the text."""
    order = [id(n) for n in nodes(x)]
    return order.index(id(first)) < order.index(id(second))


def declared(x: Any, *names: str) -> list[c.Declare]:
    """The declarations of variables, of those with these names."""
    return [n for n in nodes(x) if isinstance(n, c.Declare) and (not names or n.name in names)]


def names_in(x: Any) -> set[str]:
    """All identifiers."""
    return {n.name for n in nodes(x) if isinstance(n, c.Id)}


def value(x: c.CExpr, names: Mapping[str, int]) -> int:
    """An expression of numbers that are not negative, computed."""
    match x:
        case c.Num(text):
            return int(text)
        case c.Id(name):
            return names[name]
        case c.Cond(condition, a, b):
            return value(a if value(condition, names) else b, names)
        case c.CastTo(_, inside):
            return value(inside, names)
        case c.Bin(op, a, b):
            left, right = value(a, names), value(b, names)
            return {
                "+": left + right,
                "-": left - right,
                "*": left * right,
                "/": left // max(right, 1),
                "%": left % max(right, 1),
                "<": int(left < right),
            }[op]
    raise AssertionError(f"no number: {x}")
