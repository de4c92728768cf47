"""Overflow checks of debug mode. A report names operation, kernel, line and operands; the program continues.

Sums, differences, products and shifts to the left are checked, as in Taichi, atomic ones too. The condition is computed in addition
to the operation, whose wrapped result is unchanged. Conditionally evaluated operands (of `and`, sides of a ternary) are not
checked.
"""

from __future__ import annotations

import ast

from ..ir.affine import limits
from ..ir.kernel import Expr, If, Print
from ..ir.simplify import binary, compare, const, select
from .scopes import Pass

_WORDS = {
    "add": ("addition", "+"),
    "sub": ("subtraction", "-"),
    "mul": ("multiplication", "*"),
    "shl": ("shift left", "<<"),
}


def watch(state: Pass, op: str, a: Expr, b: Expr, node: ast.AST) -> None:
    """Emits the overflow check of `a op b` if debug mode checks the operation (`watches`)."""
    if not watches(state, op, a, b) or state.speculative_depth:
        return
    where = state.frame.parsed.where(node)
    name = state.frames[0].parsed.fn.__name__
    words, sign = _WORDS[op]
    told = f"{where}: {words} overflow in kernel {name}, `{ast.unparse(node)}`: "
    parts = (told, a, f" {sign} ", b, "\n")
    state.emit(If(_overflows(op, a, b), (Print(parts, where),), (), where))


def watches(state: Pass, op: str, a: Expr, b: Expr) -> bool:
    """True if debug mode checks `a op b`: integers of one type whose ranges do not exclude an overflow."""
    if not state.is_debug or op not in _WORDS or not a.dtype.is_integer or a.dtype is not b.dtype:
        return False
    left, right = limits(a, state.extents), limits(b, state.extents)
    if left is None or right is None or op == "shl":
        return True
    least, most = a.dtype.range
    match op:
        case "add":
            reached = [left[0] + right[0], left[1] + right[1]]
        case "sub":
            reached = [left[0] - right[1], left[1] - right[0]]
        case _:
            reached = [x * y for x in left for y in right]
    return min(reached) < least or max(reached) > most


def _overflows(op: str, a: Expr, b: Expr) -> Expr:
    """Returns the condition that the wrapped result of `a op b` differs from the exact one."""
    dtype = a.dtype
    zero = const(0, dtype)
    result = binary(op, a, b)  # type: ignore[arg-type]
    match op:
        case "add" if dtype.is_signed:
            signs = binary("bit_and", binary("bit_xor", a, result), binary("bit_xor", b, result))
            return compare("lt", signs, zero)
        case "add":
            return compare("lt", result, a)
        case "sub" if dtype.is_signed:
            signs = binary("bit_and", binary("bit_xor", a, b), binary("bit_xor", a, result))
            return compare("lt", signs, zero)
        case "sub":
            return compare("lt", a, b)
        case "shl":
            return compare("ne", binary("shr", result, b), a)
    # A product that did not wrap around, divided by a factor, is the other one.
    one, is_zero = const(1, dtype), compare("eq", a, zero)
    if not dtype.is_signed:
        divided = binary("raw_div", result, select(is_zero, one, a))
        return binary("and", compare("ne", a, zero), compare("ne", divided, b))
    # -1 times the least number has no quotient.
    minus = const(-1, dtype)
    is_plain = binary("and", compare("ne", a, zero), compare("ne", a, minus))
    divided = binary("raw_div", result, select(is_plain, a, one))
    of_least = binary(
        "and", compare("eq", a, minus), compare("eq", b, const(dtype.range[0], dtype))
    )
    return binary("or", binary("and", is_plain, compare("ne", divided, b)), of_least)
