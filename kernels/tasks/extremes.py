"""Extremes with their positions: `if x > best: best, at = x, j` in a loop, as two reductions.

The first is the greatest value, the second the first or last iteration that has it: a minimum or maximum of numbers of iterations.
What else is set with the extreme follows from that number. NaN is greater than nothing, as in the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ..ir.domain import Loop
from ..ir.kernel import (
    Binary,
    Compare,
    CompareOp,
    Const,
    DType,
    Expr,
    For,
    If,
    Load,
    Local,
    LoopIndex,
    ReduceOp,
    Select,
    SetLocal,
    Stmt,
)
from ..ir.walk import (
    Renaming,
    children,
    coerced,
    loads,
    local_changed,
    locals_read,
    nested_statements,
    neutral_of,
    rewrite,
    with_blocks,
)
from .guards import conjunction, conjuncts

_TURNED: dict[CompareOp, CompareOp] = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


@dataclass(frozen=True)
class Extreme:
    """A branch that keeps the extreme of `value` in the local `best`, and sets `others` whenever it does.

    `beats` compares a value with the best one so far: of equal values the first is kept with gt and lt, the last with ge and le.
    """

    best: str
    value: Expr
    beats: CompareOp
    others: tuple[tuple[str, Expr], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (self.best, *(name for name, _ in self.others))

    @property
    def op(self) -> ReduceOp:
        return "max" if self.beats in ("gt", "ge") else "min"

    @property
    def is_first(self) -> bool:
        return self.beats in ("gt", "lt")

    @property
    def place_op(self) -> ReduceOp:
        """The reduction of the numbers of iterations."""
        return "min" if self.is_first else "max"


def extreme_of(s: Stmt) -> Extreme | None:
    """Returns the extreme that a branch keeps; None of other statements."""
    match s:
        case If(condition=Compare(op=op, a=a, b=b), orelse=()) if op in _TURNED:
            for beats, value, best in ((op, a, b), (_TURNED[op], b, a)):
                if isinstance(best, Local):
                    found = _kept(s.then, beats, value, best)
                    if found is not None:
                        return found
    return None


def _kept(then: tuple[Stmt, ...], beats: CompareOp, value: Expr, best: Local) -> Extreme | None:
    sets = {x.name: x.value for x in then if isinstance(x, SetLocal)}
    kept = sets.get(best.name)
    if len(sets) != len(then) or kept is None or _unclamped(kept) != _unclamped(value):
        return None
    if any(name in sets for e in sets.values() for name in locals_read(e)):
        return None
    others = tuple((name, e) for name, e in sets.items() if name != best.name)
    return Extreme(best.name, kept, beats, others)


def _unclamped(e: Expr) -> Expr:
    """Returns an expression without the clamps that loads have behind `and`, where they may be made for nothing."""

    def change(x: Any) -> Any:
        match x:
            case Binary("min", Binary("max", a, Const(value=0)), Const()) if x.dtype.is_index:
                return a
        return x

    return rewrite(
        e, lambda x: replace(x, indices=tuple(map(change, x.indices))) if isinstance(x, Load) else x
    )


def tested_apart(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Rewrites `if c and x > best:` as two branches, one inside the other, so that the inner one keeps an extreme."""
    return tuple(_apart(with_blocks(s, tested_apart)) for s in body)


def _apart(s: Stmt) -> Stmt:
    parts = conjuncts(s.condition) if isinstance(s, If) else ()
    for k, part in enumerate(parts if len(parts) > 1 else ()):
        assert isinstance(s, If)
        inner, others = replace(s, condition=part), conjunction((*parts[:k], *parts[k + 1 :]))
        if extreme_of(inner) is not None and others is not None:
            return replace(s, condition=others, then=(inner,))
    return s


def extremes_in(loop: For) -> list[Extreme]:
    """Returns the extremes that branches in a loop keep, of locals that nothing else in it names."""
    inside = list(nested_statements(loop.body))
    branches = [(s, e) for s in inside if (e := extreme_of(s)) is not None]
    found: list[Extreme] = []
    for s, e in branches:
        assert isinstance(s, If)
        own = {id(x) for x in (s, *s.then)}
        elsewhere: set[str] = set()
        for x in inside:
            if id(x) not in own:
                elsewhere |= {
                    local_changed(x),
                    *(n for part in children(x) for n in locals_read(part)),
                }
        if not elsewhere & set(e.names):
            found.append(e)
    return found


def is_exact(value: Expr) -> bool:
    """True if a value that is computed twice is equal: what floats say may be rounded in another way by other code."""
    return isinstance(value, Load) or value.dtype.is_integer


def counted(extreme: Extreme, value: Expr) -> Expr:
    """Returns the value in the reduction: nothing where it is no number."""
    if not value.dtype.is_float:
        return value
    nothing = neutral_of(extreme.op, value.dtype)
    return Select(Compare("eq", value, value), value, nothing, value.dtype)


def place_of(extreme: Extreme, value: Expr, greatest: Expr, over: Sequence[Loop]) -> Expr:
    """Returns the number of the iteration in the loops `over` where its value is the extreme, elsewhere nothing."""
    dtype = _type_of_numbers(over)
    number: Expr | None = None
    for loop, step in zip(over, _strides(over), strict=True):
        index: Expr = coerced(LoopIndex(loop.name), dtype)
        if step > 1:
            index = Binary("mul", index, Const(step, dtype), dtype)
        number = index if number is None else Binary("add", number, index, dtype)
    assert number is not None
    nothing = neutral_of(extreme.place_op, dtype)
    return Select(Compare("eq", value, greatest), number, nothing, dtype)


def is_better(extreme: Extreme, greatest: Expr, start: Expr, place: Expr | None) -> Expr:
    """Returns the condition that some iteration beats what the best was before the loop."""
    found: Expr = Compare(extreme.beats, greatest, start)
    if extreme.is_first or place is None:
        return found  # else nothing may be as good as a start that no value is below
    return Binary("and", found, Compare("ge", place, Const(0, place.dtype)), DType.bool_)


def at_place(e: Expr, place: Expr, over: Sequence[Loop]) -> Expr | None:
    """Returns an expression of loop indices in the iteration of this number; None if it depends on more."""
    if loads(e) or locals_read(e):
        return None
    known: dict[str, Expr] = {}
    for loop, step in zip(over, _strides(over), strict=True):
        index = place
        if step > 1:
            index = Binary("floordiv", index, Const(step, place.dtype), place.dtype)
        if loop is not over[0]:
            index = Binary("mod", index, Const(loop.extent, place.dtype), place.dtype)
        known[loop.name] = coerced(index, DType.i64)
    return Renaming(loops=known).apply(e)


def _strides(over: Sequence[Loop]) -> list[int]:
    return [prod(x.extent for x in over[k + 1 :]) for k in range(len(over))]


def _type_of_numbers(over: Sequence[Loop]) -> DType:
    """As narrow as fits: vectors hold as many numbers as values of 32 bits."""
    return DType.i32 if prod(x.extent for x in over) < 1 << 31 else DType.i64
