"""Arithmetic between typed values of a kernel, with Python's meaning of each operator."""

from __future__ import annotations

import ast
from collections.abc import Callable

from ..ir.kernel import BinaryOp, Const, DType, Expr
from ..ir.simplify import binary, cast, const, unary
from .scopes import Pass
from .typing_rules import Typed, settle, unify

_PYTHON: dict[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
}
MAX_POWER = 16  # x ** n is written out as products up to here


class Arithmetic:
    """Operators of a pass: literals fold as in Python, other operands meet in their common type."""

    def __init__(self, state: Pass) -> None:
        self._state = state

    def arithmetic(self, op: BinaryOp, a: Typed, b: Typed, node: ast.AST) -> Typed:
        """`a op b` with Python's meaning: `/` gives a float, `//` and `%` round towards minus
        infinity.
        """
        if a.weak and b.weak and isinstance(a.expr, Const) and isinstance(b.expr, Const):
            return self._folded(op, a.expr, b.expr, node)
        default_float = self._state.default_float
        x, y, _ = unify(a, b, default_float)
        if op == "div" and not x.dtype.is_float:
            x, y = cast(x, default_float), cast(y, default_float)
        elif x.dtype is DType.bool_:
            x, y = cast(x, DType.i64), cast(y, DType.i64)
        elif a.weak and b.weak and x.dtype.is_float:
            x, y = cast(x, default_float), cast(y, default_float)
        if op in ("floordiv", "mod") and x.dtype.is_float:
            rounded = unary("floor", binary("div", x, y))
            return Typed(
                rounded if op == "floordiv" else binary("sub", x, binary("mul", rounded, y))
            )
        if op in ("floordiv", "mod") and isinstance(y, Const) and not y.value:
            self._state.fail("an integer is divided by zero", node)
        return Typed(binary(op, x, y))

    def _folded(self, op: str, a: Const, b: Const, node: ast.AST) -> Typed:
        try:
            return Typed(self._literal(_PYTHON[op](a.value, b.value)), weak=True)
        except (ZeroDivisionError, OverflowError) as error:
            return self._state.fail(f"a constant expression cannot be evaluated: {error}", node)

    @staticmethod
    def _literal(value: float) -> Const:
        return const(value, DType.f64 if isinstance(value, float) else DType.i64)

    def power(self, a: Typed, b: Typed, node: ast.BinOp) -> Typed:
        if (
            not isinstance(b.expr, Const)
            or abs(b.expr.value) > MAX_POWER
            or b.expr.value * 2 != int(b.expr.value * 2)
        ):
            self._state.fail(
                f"`{ast.unparse(node)}`: an exponent must be a constant whole number up to "
                f"{MAX_POWER} or 0.5: "
                "use ks.exp(y * ks.log(x)) for others",
                node,
            )
        exponent = b.expr.value
        if a.weak and isinstance(a.expr, Const):
            try:
                power = a.expr.value**exponent
            except ZeroDivisionError as error:
                self._state.fail(f"a constant expression cannot be evaluated: {error}", node)
            return Typed(self._literal(power), weak=True)
        default_float = self._state.default_float
        x = settle(a, default_float)
        if exponent < 0 or exponent != int(exponent):
            x = x if x.dtype.is_float else cast(x, default_float)
        whole = int(abs(exponent))
        result = _product(x, whole)
        if whole != abs(exponent):
            result = binary("mul", result, unary("sqrt", x))
        return Typed(binary("div", const(1, x.dtype), result) if exponent < 0 else result)


def _product(x: Expr, exponent: int) -> Expr:
    """x to a whole power by repeated squaring."""
    if exponent == 0:
        return const(1, x.dtype)
    if exponent == 1:
        return x
    half = _product(x, exponent // 2)
    square = binary("mul", half, half)
    return binary("mul", square, x) if exponent % 2 else square
