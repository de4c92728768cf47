"""Extremes with their positions: `if x > best: best, at = x, j` in a loop, as two reductions.

The first is the greatest (or least) value. The second is the first or last iteration that has it: a minimum or maximum of numbers
of iterations. Other locals that the branch sets follow from that number, or are a third reduction: over all iterations, of the
local's value in that one. NaN is greater than nothing, as in the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ..ir import kernel as ir
from ..ir import walk
from ..ir.domain import Loop
from .guards import conjunction, conjuncts

Shapes = Mapping[str, tuple[int, ...]]
_TURNED: dict[ir.CompareOp, ir.CompareOp] = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


@dataclass(frozen=True)
class Extreme:
    """Branch that keeps the greatest or least `value` of a loop in local `best`, and sets `others` with it.

    `beats` compares a value with the best one so far: of equal values the first is kept with gt and lt, the last with ge and le.
    """

    best: str
    value: ir.Expr
    beats: ir.CompareOp
    others: tuple[tuple[str, ir.Expr], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (self.best, *(name for name, _ in self.others))

    @property
    def op(self) -> ir.ReduceOp:
        return "max" if self.beats in ("gt", "ge") else "min"

    @property
    def is_first(self) -> bool:
        return self.beats in ("gt", "lt")

    @property
    def place_op(self) -> ir.ReduceOp:
        """The reduction that gives the number of the iteration: "min" for the first one, "max" for the last."""
        return "min" if self.is_first else "max"


def extreme_of(s: ir.Stmt, shapes: Shapes) -> Extreme | None:
    """Returns the extreme that a branch keeps; None for other statements. `shapes` are those of arrays."""
    match s:
        case ir.If(condition=ir.Compare(op=op, a=a, b=b), orelse=()) if op in _TURNED:
            for beats, value, best in ((op, a, b), (_TURNED[op], b, a)):
                if isinstance(best, ir.Local):
                    found = _kept(s.then, beats, value, best, shapes)
                    if found is not None:
                        return found
    return None


def _kept(
    then: tuple[ir.Stmt, ...], beats: ir.CompareOp, value: ir.Expr, best: ir.Local, shapes: Shapes
) -> Extreme | None:
    sets = {x.name: x.value for x in then if isinstance(x, ir.SetLocal)}
    kept = sets.get(best.name)
    if len(sets) != len(then) or kept not in (value, _unclamped(value, shapes)):
        return None
    if any(name in sets for e in sets.values() for name in walk.locals_read(e)):
        return None
    others = tuple((name, e) for name, e in sets.items() if name != best.name)
    return Extreme(best.name, kept, beats, others)


def _unclamped(e: ir.Expr, shapes: Shapes) -> ir.Expr:
    """Returns an expression without the clamps that loads have behind `and`, where they may run in vain.

    They clamp indices to the array, so they do not change a load whose index is in bounds.
    """

    def index(x: ir.Expr, extent: int) -> ir.Expr:
        match x:
            case ir.Binary("min", ir.Binary("max", a, ir.Const(value=0)), ir.Const(value=last)) if (
                x.dtype.is_index and last == extent - 1
            ):
                return a
        return x

    def load(x: ir.Expr) -> ir.Expr:
        shape = shapes.get(x.array, ()) if isinstance(x, ir.Load) else ()
        if not isinstance(x, ir.Load) or len(shape) != len(x.indices):
            return x
        return replace(x, indices=tuple(map(index, x.indices, shape)))

    return walk.rewrite(e, load)


def tested_apart(body: tuple[ir.Stmt, ...], shapes: Shapes) -> tuple[ir.Stmt, ...]:
    """Returns statements in which `if c and x > best:` is two nested branches; the inner one keeps an extreme."""
    return tuple(
        _apart(walk.with_blocks(s, lambda b: tested_apart(b, shapes)), shapes) for s in body
    )


def _apart(s: ir.Stmt, shapes: Shapes) -> ir.Stmt:
    parts = conjuncts(s.condition) if isinstance(s, ir.If) else ()
    for k, part in enumerate(parts if len(parts) > 1 else ()):
        assert isinstance(s, ir.If)
        inner, others = replace(s, condition=part), conjunction((*parts[:k], *parts[k + 1 :]))
        if extreme_of(inner, shapes) is not None and others is not None:
            return replace(s, condition=others, then=(inner,))
    return s


def extremes_in(loop: ir.For, shapes: Shapes) -> list[Extreme]:
    """Returns the extremes kept by branches in a loop, if no other statement in it uses their locals."""
    inside = list(walk.nested_statements(loop.body))
    branches = [(s, e) for s in inside if (e := extreme_of(s, shapes)) is not None]
    found: list[Extreme] = []
    for s, e in branches:
        assert isinstance(s, ir.If)
        own = {id(x) for x in (s, *s.then)}
        elsewhere: set[str] = set()
        for x in inside:
            if id(x) not in own:
                elsewhere |= {
                    walk.local_changed(x),
                    *(n for part in walk.children(x) for n in walk.locals_read(part)),
                }
        if not elsewhere & set(e.names):
            found.append(e)
    return found


def is_exact(value: ir.Expr) -> bool:
    """True if a value is equal whenever it is computed again.

    Floats that are computed may be rounded differently by other code.
    """
    return isinstance(value, ir.Load) or value.dtype.is_integer


def counted(extreme: Extreme, value: ir.Expr) -> ir.Expr:
    """Returns the value as a term of the reduction: the neutral element if it is NaN."""
    if not value.dtype.is_float:
        return value
    nothing = walk.neutral_of(extreme.op, value.dtype)
    return ir.Select(ir.Compare("eq", value, value), value, nothing, value.dtype)


def place_of(extreme: Extreme, value: ir.Expr, greatest: ir.Expr, over: Sequence[Loop]) -> ir.Expr:
    """Returns the number of the iteration in the loops `over` if its value is the extreme.

    Else it is the neutral element of the reduction of numbers.
    """
    number = _number_of(over)
    nothing = walk.neutral_of(extreme.place_op, number.dtype)
    return ir.Select(ir.Compare("eq", value, greatest), number, nothing, number.dtype)


def has_payload(value: ir.Expr, fast_math: bool) -> bool:
    """True if `only_at` serves for the value of a local that an extreme sets: its product is computed in any order."""
    dtype = value.dtype
    return dtype.size_bytes >= 4 and (dtype.is_integer or (dtype.is_float and fast_math))


def only_at(value: ir.Expr, place: ir.Expr, over: Sequence[Loop]) -> ir.Expr:
    """Returns the value in iteration number `place` of the loops `over`, and 1 in all others.

    Their product is exactly that value, of -0.0, NaN and infinities too.
    """
    here = ir.Compare("eq", _number_of(over), place)
    return ir.Select(here, value, walk.neutral_of("mul", value.dtype), value.dtype)


def is_better(
    extreme: Extreme, greatest: ir.Expr, start: ir.Expr, place: ir.Expr | None
) -> ir.Expr:
    """Returns the condition that some iteration beats `start`, the value of the best before the loop.

    `greatest`: the extreme of the loop. `place`: the number of its iteration.
    """
    found: ir.Expr = ir.Compare(extreme.beats, greatest, start)
    if extreme.is_first or place is None:
        return found  # else nothing may be as good as a start that no value is below
    return ir.Binary(
        "and", found, ir.Compare("ge", place, ir.Const(0, place.dtype)), ir.DType.bool_
    )


def at_place(e: ir.Expr, place: ir.Expr, over: Sequence[Loop]) -> ir.Expr | None:
    """Returns an expression of loop indices at iteration number `place`; None if it depends on anything else."""
    if walk.loads(e) or walk.locals_read(e):
        return None
    known: dict[str, ir.Expr] = {}
    for loop, step in zip(over, _strides(over), strict=True):
        index = place
        if step > 1:
            index = ir.Binary("floordiv", index, ir.Const(step, place.dtype), place.dtype)
        if loop is not over[0]:
            index = ir.Binary("mod", index, ir.Const(loop.extent, place.dtype), place.dtype)
        known[loop.name] = walk.coerced(index, ir.DType.i64)
    return walk.Renaming(loops=known).apply(e)


def _number_of(over: Sequence[Loop]) -> ir.Expr:
    """Returns the number of the current iteration in the loops `over`."""
    dtype = _type_of_numbers(over)
    number: ir.Expr | None = None
    for loop, step in zip(over, _strides(over), strict=True):
        index: ir.Expr = walk.coerced(ir.LoopIndex(loop.name), dtype)
        if step > 1:
            index = ir.Binary("mul", index, ir.Const(step, dtype), dtype)
        number = index if number is None else ir.Binary("add", number, index, dtype)
    assert number is not None
    return number


def _strides(over: Sequence[Loop]) -> list[int]:
    return [prod(x.extent for x in over[k + 1 :]) for k in range(len(over))]


def _type_of_numbers(over: Sequence[Loop]) -> ir.DType:
    """Returns the integer type for numbers of iterations: i32 if they fit.

    Vectors then hold as many of them as of f32.
    """
    return ir.DType.i32 if prod(x.extent for x in over) < 1 << 31 else ir.DType.i64
