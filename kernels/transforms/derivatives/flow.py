"""Values of the forward sweep, and the flow of adjoints through expressions in the reverse sweep."""

from __future__ import annotations

from dataclasses import replace

from ...ir import kernel as ir
from ...ir.ops import OPS
from ...ir.simplify import binary, cast, const, select
from ...ir.walk import walk
from .activity import refusal
from .body import SweepBody, backwards, is_leaf
from .rules import RESULT, operands_of, partials, times, values_needed


def define(
    body: SweepBody, stem: str, value: ir.Expr, where: ir.Location, name: str = ""
) -> ir.Local:
    """Appends the assignment of a value to a new version of the local `name`, or to a temporary; returns it."""
    making = body.making
    is_active = body.is_active(value) and (not name or name in making.activity.useful)
    has_flow = is_active and body.has_reverse
    if has_flow:
        value = _prepared(body, value, where)
    version = ir.Local(body.version(stem, value.dtype, name), value.dtype)
    if is_active:
        making.active.add(version.name)
    body.forward.append(ir.SetLocal(version.name, value, where))
    if has_flow:
        body.then(flow(body, value, body.adjoint(version.name), where, version))
    return version


def leaf(body: SweepBody, e: ir.Expr, where: ir.Location) -> ir.Expr:
    """Returns an expression as a leaf: appends its assignment to a local, unless it takes no operation."""
    return e if is_leaf(e) else define(body, "t", e, where)


def inlined(body: SweepBody, e: ir.Expr, where: ir.Location) -> ir.Expr:
    """Returns an expression in which each value that its derivatives read is in a local, its own value included.

    The value of the expression itself may be such a value.
    """
    if not body.has_reverse or not body.is_active(e):
        return e
    if isinstance(e, ir.Unary | ir.Binary) and RESULT in _needed(body, e):
        return leaf(body, e, where)
    return _prepared(body, e, where)


def _needed(body: SweepBody, e: ir.Unary | ir.Binary) -> frozenset[int]:
    return values_needed(e.op, tuple(map(body.is_active, operands_of(e))))


def _prepared(body: SweepBody, e: ir.Expr, where: ir.Location) -> ir.Expr:
    """Returns an active expression in which each operand whose value its derivatives read is in a local."""
    match e:
        case ir.Cast():
            return replace(e, x=inlined(body, e.x, where))
        case ir.Select():
            a, b = (x if _is_singular(x) else inlined(body, x, where) for x in (e.a, e.b))
            return ir.Select(leaf(body, e.condition, where), a, b, e.dtype)
        case ir.Unary() | ir.Binary():
            needed = _needed(body, e)
            operands = [
                leaf(body, x, where) if k in needed else inlined(body, x, where)
                for k, x in enumerate(operands_of(e))
            ]
            if isinstance(e, ir.Unary):
                return replace(e, x=operands[0])
            return replace(e, a=operands[0], b=operands[1])
    return e


def flow(
    body: SweepBody, e: ir.Expr, g: ir.Expr, where: ir.Location, result: ir.Expr | None = None
) -> list[ir.Stmt]:
    """Returns statements that add the adjoint `g` of an expression to the adjoints of its operands.

    They do so for each local and load on which the expression depends. `result`: the value of the expression.
    """
    if not body.is_active(e):
        return []
    match e:
        case ir.Local():
            return [body.added(e.name, g, where)]
        case ir.LocalElement():
            adjoint = replace(e, name=body.adjoint(e.name).name)
            return [ir.SetElement(adjoint.name, e.index, binary("add", adjoint, g), where)]
        case ir.Load():
            return [ir.Update(body.making.gradients[e.array], e.indices, "add", g, where)]
        case ir.Cast():
            return flow(body, e.x, cast(g, e.x.dtype), where)
        case ir.Select():
            return _flow_to_sides(body, e, g, where)
        case ir.Unary() | ir.Binary():
            return _flow_to_operands(body, e, g, where, result)
    raise refusal(f"a value of the kind {type(e).__name__} has none", where)


def _held(body: SweepBody, g: ir.Expr, where: ir.Location) -> tuple[list[ir.Stmt], ir.Expr]:
    """Returns the assignment of a value to a local, for several readers, and the local.

    A leaf is returned as it is, without an assignment.
    """
    if is_leaf(g):
        return [], g
    name = body.version("g", g.dtype)
    return [ir.SetLocal(name, g, where)], ir.Local(name, g.dtype)


def _flow_to_operands(
    body: SweepBody, e: ir.Unary | ir.Binary, g: ir.Expr, where: ir.Location, result: ir.Expr | None
) -> list[ir.Stmt]:
    found = zip(operands_of(e), partials(e, e if result is None else result), strict=True)
    parts = [(x, factor) for x, factor in found if factor is not None and body.is_active(x)]
    held, g = _held(body, g, where) if len(parts) > 1 else ([], g)
    for x, factor in parts:
        held += flow(body, x, times(g, factor), where)
    return held


def _flow_to_sides(body: SweepBody, e: ir.Select, g: ir.Expr, where: ir.Location) -> list[ir.Stmt]:
    """Returns statements that add the adjoint `g` of a selection to the adjoint of the side that is taken.

    A side with a partial function is swept inside a branch: 0 times infinity is not 0.
    """
    held, g = _held(body, g, where)
    zero = const(0, g.dtype)
    for k, (side, chosen) in enumerate(((e.a, (g, zero)), (e.b, (zero, g)))):
        if not body.is_active(side):
            continue
        if not _is_singular(side):
            held += flow(body, side, select(e.condition, *chosen), where)
            continue
        with body.collected() as (forward, reverse):
            value = define(body, "t", side, where)
        block = (*forward, body.added(value.name, g, where), *backwards(reverse))
        held.append(
            ir.If(e.condition, (), block, where) if k else ir.If(e.condition, block, (), where)
        )
    return held


def _is_singular(e: ir.Expr) -> bool:
    """True if the derivative of a float expression may be infinite while its value is finite."""
    return any(
        isinstance(x, ir.Unary | ir.Binary) and x.dtype.is_float and OPS[x.op].is_partial
        for x in walk(e)
    )
