"""Constant evaluation by Python: literals, names outside the kernel, arithmetic on these, and Python's functions.

Python evaluates them in its own precision. The result has the type of a literal: `ks.u64(2**64 - 1)`, `dt * 2 / 3`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from .scopes import Frame
from .values import Static

BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
_CALLED = (float, int, abs, round, min, max)


def python_number(frame: Frame, node: ast.expr) -> int | float | None:
    """Returns the number that Python computes for an expression; None if it is no number, or no constant."""
    try:
        found = _evaluated(frame, node)
    except (ArithmeticError, TypeError, ValueError):  # refused where it is compiled
        return None
    return found if type(found) in (int, float) else None


def _evaluated(frame: Frame, node: ast.expr) -> Any:
    """Returns the Python object of a constant expression; None if it is unknown at compile time."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=op, operand=operand) if type(op) in UNARY:
            x = python_number(frame, operand)
            return None if x is None else UNARY[type(op)](x)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
            a, b = python_number(frame, left), python_number(frame, right)
            return None if a is None or b is None else BINARY[type(op)](a, b)
        case ast.Name(id=name):
            bound = frame.find(name)
            if bound is not None:
                return bound.python if isinstance(bound, Static) else None
            if frame.parsed.assigned[name] or name in frame.ended:
                return None
            return frame.parsed.free(name)[1]
        case ast.Call(func=func, args=args, keywords=[]) if isinstance(
            func, ast.Name | ast.Attribute
        ):
            called = _evaluated(frame, func)
            is_known = any(called is f for f in _CALLED)
            if not is_known and getattr(called, "__module__", "") != "math":
                return None
            numbers = [python_number(frame, a) for a in args]
            return None if None in numbers else called(*numbers)
        case ast.Attribute(value=value, attr=attr):
            return getattr(_evaluated(frame, value), attr, None)
    return None
