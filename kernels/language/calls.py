"""Calls in expressions of a kernel: functions of the language, conversions, inlined functions."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..ir.kernel import BinaryOp, Const, DType, UnaryOp
from ..ir.simplify import binary, cast, unary
from .functions import operation_of
from .intrinsics import (
    ATOMIC_CALLS,
    MINMAX_CALLS,
    as_dtype,
    ndrange,
)
from .intrinsics import cast as cast_call
from .scopes import Pass
from .typing_rules import (
    ArrayRef,
    Static,
    TupleValue,
    Typed,
    Value,
    lift,
    settle,
    truth,
    unify,
)

if TYPE_CHECKING:
    from .expressions import Expressions

InlineCall = Callable[[object, list[Value], ast.Call], Value | None]


class Calls:
    """Compiles calls within a pass. `inline` is called for a call of a `ks.func`."""

    def __init__(self, state: Pass, expressions: Expressions, inline: InlineCall) -> None:
        self._state = state
        self._expr = expressions
        self._inline = inline

    def call(self, node: ast.Call) -> Value:
        inside = self._expr.static_argument(node)
        if inside is not None:
            return lift(self._expr.static(inside))
        callee = self._expr.callee(node)
        if node.keywords:
            self._state.fail(
                f"keyword arguments of `{ast.unparse(node.func)}` are not supported in a kernel: "
                f"pass them by position",
                node,
            )
        if callee in ATOMIC_CALLS or callee is ndrange or callee is range:
            place = (
                "as the range of a for loop"
                if callee in (ndrange, range)
                else "as a statement of its own"
            )
            self._state.fail(f"`{ast.unparse(node.func)}` can only stand {place}", node)
        if isinstance(callee, DType) or callee in (cast_call, float, int, bool):
            return self._conversion(callee, node)
        if callee is len:
            return self._length(node)
        operation = operation_of(callee)
        if operation is not None:
            return self._math(operation, callee, node)
        if callee in MINMAX_CALLS:
            return self._minmax(MINMAX_CALLS[callee], node)
        result = self._inline(callee, [self._expr.value(a) for a in node.args], node)
        if result is None:
            self._state.fail(
                f"`{ast.unparse(node.func)}` returns nothing, so it can only stand as a statement "
                f"of its own",
                node,
            )
        return result

    def _arguments(self, node: ast.Call, count: int) -> list[Typed]:
        if len(node.args) != count:
            self._state.fail(
                f"`{ast.unparse(node.func)}` takes {count} argument{'s' * (count > 1)} in a "
                f"kernel, not {len(node.args)}",
                node,
            )
        return [self._expr.typed(a) for a in node.args]

    def _conversion(self, callee: object, node: ast.Call) -> Typed:
        if callee is cast_call:
            if len(node.args) != 2:
                self._state.fail("ks.cast takes a value and a type", node)
            target = self._expr.value(node.args[1])
            try:
                dtype = as_dtype(target.python if isinstance(target, Static) else target)
            except TypeError:
                self._state.fail(
                    f"`{ast.unparse(node.args[1])}` is not an element type: use ks.f32, ks.f64, "
                    f"ks.i32 or ks.i64",
                    node,
                )
            return Typed(cast(self._expr.typed(node.args[0]).expr, dtype))
        (x,) = self._arguments(node, 1)
        if isinstance(callee, DType):
            return Typed(cast(x.expr, callee))
        if callee is bool:
            return Typed(truth(x))
        if callee is int:
            dtype = x.dtype if x.dtype.is_integer else DType.i64
        else:
            dtype = x.dtype if x.dtype.is_float else self._state.default_float
        return Typed(cast(x.expr, dtype), weak=x.weak)

    def _length(self, node: ast.Call) -> Value:
        x = self._expr.value(node.args[0]) if len(node.args) == 1 else None
        if isinstance(x, ArrayRef) and x.param.shape:
            return lift(x.param.shape[0])
        if isinstance(x, TupleValue):
            return lift(len(x.items))
        return self._state.fail("len takes one array or tuple in a kernel", node)

    def _math(self, op: UnaryOp, callee: object, node: ast.Call) -> Typed:
        (x,) = self._arguments(node, 1)
        if op == "abs" and not x.dtype.is_float:
            return Typed(
                unary("abs", cast(x.expr, DType.i64 if x.dtype is DType.bool_ else x.dtype)), x.weak
            )
        y = settle(x, self._state.default_float)
        y = y if y.dtype.is_float else cast(y, self._state.default_float)
        result = unary(op, y)
        if callee is math.floor:  # Python's own gives an int
            return Typed(cast(result, DType.i64))
        return Typed(result)

    def _minmax(self, op: BinaryOp | str, node: ast.Call) -> Typed:
        arguments = node.args
        values = [self._expr.value(a) for a in arguments]
        if len(values) == 1 and isinstance(values[0], TupleValue):
            values = list(values[0].items)
        if len(values) < 2 or not all(isinstance(v, Typed) for v in values):
            self._state.fail(
                f"`{ast.unparse(node)}`: {op} takes two or more numbers in a kernel", node
            )
        result = values[0]
        for x in values[1:]:
            assert isinstance(result, Typed)
            assert isinstance(x, Typed)
            a, b, is_weak = unify(result, x, self._state.default_float)
            result = Typed(
                binary("min" if op == "min" else "max", a, b),
                is_weak and isinstance(a, Const) and isinstance(b, Const),
            )
        assert isinstance(result, Typed)
        return result
