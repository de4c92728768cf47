"""Boolean reductions: loops that set a flag if any element, or only if all elements, satisfy a condition.

They are reduced as the numbers 0 and 1.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.kernel import Binary, BinaryOp, Const, DType, Expr, If, Local, ReduceOp, SetLocal, Stmt
from ..ir.walk import children, local_changed, locals_read, nested_statements, with_blocks
from .guards import negated

_NUMBERS: dict[str, ReduceOp] = {"or": "max", "and": "min"}
_TRUTHS: dict[str, BinaryOp] = {number: truth for truth, number in _NUMBERS.items()}  # type: ignore[misc]


def joined_flags(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Returns statements in which branches that set a flag are assignments.

    `if c: found = True` becomes `found = found or c`, and `if c: every = False` becomes `every = every and not c`.
    """
    made: list[Stmt] = []
    for s in body:
        flags = _flags(s) if isinstance(s, If) else []
        if not isinstance(s, If) or not flags:
            made.append(with_blocks(s, joined_flags))
            continue
        made += [_joined(flag, s) for flag in flags]
        then = tuple(x for x in s.then if all(x is not flag for flag in flags))
        made += [with_blocks(replace(s, then=then), joined_flags)] if then else []
    return tuple(made)


def _flags(s: If) -> list[SetLocal]:
    """Returns the assignments in a branch of boolean constants to locals that it names nowhere else.

    [] for a branch with an else.
    """
    if s.orelse:
        return []
    named: list[str] = [*locals_read(s.condition)]
    for x in nested_statements(s.then):
        named += [local_changed(x), *(n for e in children(x) for n in locals_read(e))]
    found = [x for x in s.then if isinstance(x, SetLocal) and x.value.dtype is DType.bool_]
    return [x for x in found if isinstance(x.value, Const) and named.count(x.name) == 1]


def _joined(flag: SetLocal, s: If) -> SetLocal:
    assert isinstance(flag.value, Const)
    own = Local(flag.name, DType.bool_)
    if flag.value.value:
        return replace(flag, value=Binary("or", own, s.condition, DType.bool_))
    return replace(flag, value=Binary("and", own, negated(s.condition), DType.bool_))


def as_number(e: Binary) -> Binary:
    """Returns `a or b` and `a and b` as reductions of numbers (max, min); any other expression unchanged."""
    return replace(e, op=_NUMBERS[e.op]) if e.op in _NUMBERS else e


def both(op: ReduceOp, a: Expr, b: Expr) -> Expr:
    """Returns the expression `a op b`, of numbers or of booleans."""
    return Binary(_TRUTHS[op] if a.dtype is DType.bool_ else op, a, b, a.dtype)


def where(op: ReduceOp, condition: Expr, value: Expr) -> Expr:
    """Returns `value` selected by a condition, else the neutral element of `op`; both are booleans."""
    if op == "max":
        return Binary("and", condition, value, DType.bool_)
    return Binary("or", negated(condition), value, DType.bool_)
