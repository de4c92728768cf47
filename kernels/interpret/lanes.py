"""Vectorisation analysis of the interpreter: loops that may run as NumPy lanes, all iterations at once.

A loop runs as lanes only if that is provably equivalent to one iteration after the other:

- every array written in it is accessed only at elements that belong to one iteration, or is only updated with one operation;
- in the first case one axis has the same index in all accesses: it changes with this loop and with no loop inside it;
- in the second case the array is never read;
- every local from outside it is only read, or only updated with one operation and not read;
- nothing is printed or asserted in it: that happens in order;
- loops inside it are equally long in all lanes, or contain the sums of products of a triangle. These run over a box with the other
  iterations masked out: BLAS takes far less for twice the terms.

A while loop in it runs until its condition is false in all lanes. The order of updates changes, which for floating-point sums and
products is a reassociation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ..ir import kernel as ir
from ..ir.walk import children, local_changed, nested_statements, walk
from .contraction import contraction


@dataclass(frozen=True)
class LanePlan:
    """Plan of one loop for the interpreter: as NumPy lanes, or one iteration after the other.

    `is_vector`: it may run as lanes. `inner_lanes`: the maximal number of lanes that loops inside it need for each of its
    iterations.
    """

    is_vector: bool
    inner_lanes: int


Plans = dict[int, LanePlan]  # by the identity of the loop


def plan_lanes(body: tuple[ir.Stmt, ...]) -> Plans:
    """Returns the plan of every loop in statements that have identities."""
    plans: Plans = {}
    _plan_block(body, frozenset(), plans, {})
    return plans


def _plan_block(
    body: Iterable[ir.Stmt], declared: frozenset[str], plans: Plans, longest: Mapping[str, int]
) -> int:
    """Adds the plan of every loop of a block to `plans`; returns the greatest number of lanes it needs.

    `declared`: the locals declared earlier. `longest`: the maximal iteration counts of the enclosing loops.
    """
    lanes = 1
    for statement in body:
        match statement:
            case ir.For():
                lanes = max(lanes, _plan_loop(statement, declared, plans, longest))
            case ir.If(then=then, orelse=orelse):
                lanes = max(
                    lanes, *(_plan_block(b, declared, plans, longest) for b in (then, orelse))
                )
            case ir.While(body=inner):
                lanes = max(lanes, _plan_block(inner, declared, plans, longest))
            case ir.SetLocal() | ir.LocalArray() | ir.Update():
                declared |= {local_changed(statement)}
    return lanes


def _plan_loop(
    loop: ir.For, declared: frozenset[str], plans: Plans, longest: Mapping[str, int]
) -> int:
    extent = _most(loop.extent, longest)
    inner = _plan_block(loop.body, declared, plans, {**longest, loop.loop: extent})
    is_vector = (
        not any(isinstance(s, ir.Print | ir.Assert) for s in nested_statements(loop.body))
        and _locals_allow(loop, declared)
        and _arrays_allow(loop)
        and _extents_allow(loop, plans)
    )
    plans[loop.uid] = LanePlan(is_vector, inner)
    if not is_vector:
        return inner
    if contraction(loop) is not None:
        return inner  # its terms are not made, or else a few iterations at a time
    return extent * inner


def _most(extent: ir.Expr, longest: Mapping[str, int]) -> int:
    """The maximal iteration count of a loop, at least 1; 1 if it is unknown.

    `longest`: the maximal iteration counts of the enclosing loops.
    """
    const, terms = linear(unclamped(extent)) or (1, {})
    if any(loop not in longest for loop in terms):
        return 1
    return max(1, const + sum(c * (longest[loop] - 1) for loop, c in terms.items() if c > 0))


def unclamped(extent: ir.Expr) -> ir.Expr:
    """The operand of an extent `max(.., 0)`: a loop with a negative extent does not run either.

    Any other extent is returned as it is.
    """
    match extent:
        case ir.Binary("max", a, ir.Const(value=0)) | ir.Binary("max", ir.Const(value=0), a):
            return a
    return extent


def _locals_allow(loop: ir.For, declared: frozenset[str]) -> bool:
    read: set[str] = set()
    operations: dict[str, set[str]] = {}
    for s in nested_statements(loop.body):
        changes = isinstance(s, ir.SetLocal | ir.LocalArray | ir.SetElement | ir.Update)
        if changes and local_changed(s) in declared - {""}:
            return False
        if isinstance(s, ir.UpdateLocal) and s.name in declared:
            operations.setdefault(s.name, set()).add(s.op)
        read.update(
            x.name
            for e in children(s)
            for x in walk(e)
            if isinstance(x, ir.Local | ir.LocalElement)
        )
    return all(name not in read and len(ops) == 1 for name, ops in operations.items())


def _arrays_allow(loop: ir.For) -> bool:
    accesses: dict[str, list[tuple[ir.Expr, ...]]] = {}
    updates: dict[str, set[str]] = {}  # operations; "=" for a store, "?" for a load
    for s in nested_statements(loop.body):
        for e in children(s):
            for x in walk(e):
                if isinstance(x, ir.Load):
                    accesses.setdefault(x.array, []).append(x.indices)
                    updates.setdefault(x.array, set()).add("?")
        if isinstance(s, (ir.Store, ir.Update)):
            accesses.setdefault(s.array, []).append(s.indices)
            kinds = updates.setdefault(s.array, set())
            kinds.add("=" if isinstance(s, ir.Store) else s.op)
            if isinstance(s, ir.Update) and s.result:
                kinds.add("?")
    inside = {s.loop for s in nested_statements(loop.body) if isinstance(s, ir.For)}
    for array, kinds in updates.items():
        only_updated = len(kinds) == 1 and not kinds & {"=", "?"}
        if kinds == {"?"} or only_updated:
            continue
        if not _is_private(accesses[array], loop.loop, inside):
            return False
    return True


def _is_private(accesses: list[tuple[ir.Expr, ...]], loop: str, inside: set[str]) -> bool:
    for axis in range(len(accesses[0])):
        form = linear(accesses[0][axis])
        if form is None or loop not in form[1] or inside & form[1].keys():
            continue
        if all(linear(indices[axis]) == form for indices in accesses[1:]):
            return True
    return False


def linear(x: ir.Expr) -> tuple[int, dict[str, int]] | None:
    """`(constant, {loop: coefficient})` of an integer expression linear in loop indices; None for any other.

    It is independent of `to_affine`, which code generation uses, so that the reference does not share its errors.
    """
    match x:
        case ir.Const(value=int(value)):
            return value, {}
        case ir.LoopIndex(loop=loop):
            return 0, {loop: 1}
        case ir.Cast(x=y, dtype=dtype) if dtype.is_index and y.dtype.is_integer:
            return linear(y)
        case ir.Unary(op="neg", x=y):
            return _combined((0, {}), linear(y), -1)
        case ir.Binary(op="add", a=a, b=b):
            return _combined(linear(a), linear(b), 1)
        case ir.Binary(op="sub", a=a, b=b):
            return _combined(linear(a), linear(b), -1)
        case ir.Binary(op="mul", a=a, b=b):
            left, right = linear(a), linear(b)
            if left is None or right is None:
                return None
            if not left[1]:
                return _combined((0, {}), right, left[0])
            return _combined((0, {}), left, right[0]) if not right[1] else None
    return None


def _combined(
    a: tuple[int, dict[str, int]] | None, b: tuple[int, dict[str, int]] | None, factor: int
) -> tuple[int, dict[str, int]] | None:
    if a is None or b is None:
        return None
    terms = dict(a[1])
    for loop, coefficient in b[1].items():
        terms[loop] = terms.get(loop, 0) + factor * coefficient
    return a[0] + factor * b[0], {loop: c for loop, c in terms.items() if c}


def _extents_allow(loop: ir.For, plans: Plans) -> bool:
    """True if the loops inside of `loop` run equally long in all lanes, or may run over a box with a mask."""
    for s in nested_statements(loop.body):
        if not isinstance(s, ir.For):
            continue
        parts = list(walk(s.extent))
        if any(isinstance(x, ir.Load | ir.Local | ir.LocalElement) for x in parts):
            return False
        differs = any(isinstance(x, ir.LoopIndex) and x.loop == loop.loop for x in parts)
        if differs and not _may_differ(s, plans):
            return False
    return True


def _may_differ(loop: ir.For, plans: Plans) -> bool:
    """True if a loop may have different lengths in different lanes, as over part of a triangle.

    Its extent is linear, and it contains a sum of products. Twice the terms then cost less than many short iterations.
    """
    inside = (s for s in nested_statements(loop.body) if isinstance(s, ir.For))
    return (
        plans[loop.uid].is_vector
        and linear(unclamped(loop.extent)) is not None
        and any(contraction(s) is not None for s in inside)
    )


def together(extent: ir.Expr, lanes: Collection[str]) -> tuple[str, ...]:
    """The lane loops whose index shortens a loop one for one; () if the extent depends on lanes in another way.

    Over the sum of its own index and theirs, the loop ends at the same value in all lanes.
    """
    form = linear(unclamped(extent))
    terms = {} if form is None else {x: c for x, c in form[1].items() if x in lanes}
    return tuple(terms) if all(c == -1 for c in terms.values()) else ()
