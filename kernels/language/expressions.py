"""Expressions of a kernel: Python syntax to typed IR."""

from __future__ import annotations

import ast
import math

from ..ir.affine import limits, reach
from ..ir.kernel import BinaryOp, CompareOp, Const, DType, Expr, Load, Local
from ..ir.simplify import binary, cast, compare, const, select, unary
from .arithmetic import Arithmetic
from .calls import Calls, InlineCall
from .errors import LanguageError
from .intrinsics import static
from .parse import closure_names
from .scopes import LocalVar, LoopVar, Pass
from .typing_rules import (
    ArrayRef,
    Static,
    TupleValue,
    Typed,
    Value,
    lift,
    python_value,
    settle,
    truth,
    unify,
)

_BINARY: dict[type[ast.operator], BinaryOp] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
}
_COMPARE: dict[type[ast.cmpop], CompareOp] = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}
_NAMES: dict[type[ast.AST], str] = {
    ast.ListComp: "a list comprehension",
    ast.GeneratorExp: "a generator expression",
    ast.DictComp: "a dict comprehension",
    ast.SetComp: "a set comprehension",
    ast.Lambda: "a lambda",
    ast.JoinedStr: "an f-string",
    ast.Dict: "a dict",
    ast.Set: "a set",
    ast.NamedExpr: "an assignment expression (:=)",
    ast.Starred: "a starred expression",
    ast.Slice: "a slice",
    ast.Await: "await",
    ast.Yield: "yield",
    ast.YieldFrom: "yield from",
    ast.BitOr: "the operator |",
    ast.BitAnd: "the operator &",
    ast.BitXor: "the operator ^",
    ast.LShift: "the operator <<",
    ast.RShift: "the operator >>",
    ast.MatMult: "the operator @",
    ast.Invert: "the operator ~",
    ast.In: "the operator `in`",
    ast.NotIn: "the operator `not in`",
    ast.Is: "the operator `is`",
    ast.IsNot: "the operator `is not`",
}


def construct_name(node: ast.AST) -> str:
    return _NAMES.get(type(node), f"the construct {type(node).__name__}")


class Expressions:
    """Compiles expressions within a pass. `inline` is called for a call of a `ks.func`."""

    def __init__(self, state: Pass, inline: InlineCall) -> None:
        self._state = state
        self._arithmetic = Arithmetic(state)
        self._calls = Calls(state, self, inline)

    # --- entry points

    def value(self, node: ast.expr) -> Value:
        """What an expression stands for: a number, an array, a tuple or a Python object."""
        match node:
            case ast.Constant(value=constant):
                if isinstance(constant, (bool, int, float)):
                    return lift(constant)
                return Static(constant)
            case ast.Name():
                return self._name(node)
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                return TupleValue(tuple(self.value(e) for e in elts))
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.UnaryOp():
                return self._unary(node)
            case ast.BinOp():
                return self._binop(node)
            case ast.BoolOp():
                return self._boolop(node)
            case ast.Compare():
                return self._compare(node)
            case ast.IfExp():
                return self._ifexp(node)
            case ast.Call():
                return self._calls.call(node)
        return self._state.fail(
            f"{construct_name(node)} is not supported in a kernel: use loops, conditions and "
            f"arithmetic on numbers",
            node,
        )

    def typed(self, node: ast.expr) -> Typed:
        """The expression as a number."""
        x = self.value(node)
        if isinstance(x, Typed):
            return x
        what = {ArrayRef: "an array", TupleValue: "a tuple"}.get(type(x), "a Python object")
        return self._state.fail(
            f"`{ast.unparse(node)}` is {what} where a number is needed: index it, or pass a number",
            node,
        )

    def number(self, node: ast.expr) -> Expr:
        return settle(self.typed(node), self._state.default_float)

    def condition(self, node: ast.expr) -> Expr:
        return truth(self.typed(node))

    def index(self, node: ast.expr) -> Expr:
        """An integer expression of type i64."""
        x = self.typed(node)
        if not x.dtype.is_integer:
            self._state.fail(
                f"`{ast.unparse(node)}` is {x.dtype.name.rstrip('_')} where an integer is needed: "
                f"convert it with int(...)",
                node,
            )
        return cast(x.expr, DType.i64)

    def element(self, node: ast.Subscript) -> tuple[ArrayRef, tuple[Expr, ...]]:
        """The array and the indices of `a[i, j]`, checked against its shape."""
        base = self.value(node.value)
        if not isinstance(base, ArrayRef):
            self._state.fail(
                f"`{ast.unparse(node.value)}` is not an array, its elements cannot be assigned",
                node,
            )
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        shape = base.param.shape
        if any(isinstance(p, ast.Slice) for p in parts):
            self._state.fail(
                f"a slice of {base.param.name} is not supported in a kernel: write a loop over "
                f"its elements",
                node,
            )
        if len(parts) != len(shape):
            self._state.fail(
                f"{base.param.name} has {len(shape)} dimensions but is indexed with {len(parts)}: "
                f"give one index per dimension",
                node,
            )
        indices = (self.index(p) for p in parts)
        return base, tuple(
            self._checked(i, n, base, k, node)
            for k, (i, n) in enumerate(zip(indices, shape, strict=True))
        )

    def static(self, node: ast.expr) -> object:
        """The Python value of the argument of `ks.static(...)`, evaluated as Python now."""
        names: dict[str, object] = {}
        for name in {
            n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
        }:
            bound = self._state.frame.find(name)
            if bound is None:
                continue
            try:
                names[name] = python_value(
                    bound.value if isinstance(bound, LoopVar) else self._plain(bound)
                )
            except KeyError:
                self._state.fail(
                    f"ks.static needs `{name}` when the kernel is compiled, but it is known only "
                    f"at run time",
                    node,
                )
        fn = self._state.frame.parsed.fn
        try:
            code = compile(ast.Expression(node), self._state.frame.parsed.file, "eval")
            return eval(code, {**fn.__globals__, **closure_names(fn), **names})
        except LanguageError:
            raise
        except Exception as error:
            return self._state.fail(
                f"ks.static({ast.unparse(node)}) cannot be evaluated: {error}", node
            )

    def static_argument(self, node: ast.expr) -> ast.expr | None:
        """The inside of `ks.static(...)`, or None if the node is anything else."""
        if isinstance(node, ast.Call) and len(node.args) == 1 and self.callee(node) is static:
            return node.args[0]
        return None

    def callee(self, node: ast.Call) -> object:
        """The Python object that is called; None if it has no name the frontend can resolve."""
        if not isinstance(node.func, (ast.Name, ast.Attribute)):
            return None
        x = self.value(node.func)
        return x.python if isinstance(x, Static) else None

    # --- names and attributes

    def _plain(self, bound: LocalVar | Value) -> Value:
        if isinstance(bound, LocalVar):
            return Typed(Local(bound.name, bound.dtype), weak=bound.weak)
        return bound

    def _name(self, node: ast.Name) -> Value:
        frame = self._state.frame
        bound = frame.find(node.id)
        if isinstance(bound, LoopVar):
            return bound.value
        if bound is not None:
            return self._plain(bound)
        if node.id in frame.ended:
            self._state.fail(
                f"the name `{node.id}` ends with the block it is first assigned in: give it a "
                f"value before that block",
                node,
            )
        found, obj = frame.parsed.free(node.id)
        if not found or frame.parsed.assigned[node.id]:
            self._state.fail(
                f"the name `{node.id}` has no value here: assign it first, or define it outside "
                f"the kernel",
                node,
            )
        return lift(obj)

    def _attribute(self, node: ast.Attribute) -> Value:
        base = self.value(node.value)
        if isinstance(base, ArrayRef):
            return self._array_attribute(base, node)
        if not isinstance(base, Static):
            self._state.fail(
                f"`.{node.attr}` is not supported on `{ast.unparse(node.value)}` in a kernel: "
                f"only arrays have .shape",
                node,
            )
        try:
            return lift(getattr(base.python, node.attr))
        except AttributeError:
            return self._state.fail(
                f"`{ast.unparse(node.value)}` has no attribute `{node.attr}`", node
            )

    def _array_attribute(self, base: ArrayRef, node: ast.Attribute) -> Value:
        match node.attr:
            case "shape":
                return lift(base.param.shape)
            case "ndim":
                return lift(len(base.param.shape))
            case "size":
                return lift(math.prod(base.param.shape))
            case "dtype":
                return Static(base.param.dtype)
        return self._state.fail(
            f"the array attribute `.{node.attr}` is not supported in a kernel: arrays have "
            f".shape, .ndim, .size and .dtype",
            node,
        )

    # --- elements

    def _subscript(self, node: ast.Subscript) -> Value:
        base = self.value(node.value)
        if isinstance(base, ArrayRef):
            array, indices = self.element(node)
            return Typed(Load(array.param.name, indices, array.param.dtype))
        try:
            key = python_value(self.value(node.slice))
        except KeyError:
            self._state.fail(
                f"`{ast.unparse(node.value)}` is a Python object, its index must be a "
                f"compile-time constant: "
                "loop over it with ks.static, or pass an array",
                node,
            )
        try:
            if isinstance(base, TupleValue):
                return base.items[key]  # type: ignore[call-overload,no-any-return]
            if isinstance(base, Static):
                return lift(base.python[key])  # type: ignore[index]
        except (LookupError, TypeError) as error:
            self._state.fail(f"`{ast.unparse(node)}` cannot be evaluated: {error}", node)
        return self._state.fail(
            f"`{ast.unparse(node.value)}` is a number and cannot be indexed", node
        )

    def _checked(
        self, i: Expr, extent: int, base: ArrayRef, axis: int, node: ast.Subscript
    ) -> Expr:
        state = self._state
        inside = limits(i, state.extents)
        if inside is not None and inside[0] >= 0 and inside[1] < extent:
            return i
        exact = reach(i, state.extents)
        is_certain = state.speculative_depth == 0 and state.guard_depth == 0
        if exact is not None and is_certain:
            wrong = exact[0] if exact[0] < 0 else exact[1]
            state.fail(
                f"index {axis} of {base.param.name} in `{ast.unparse(node)}` reaches {wrong}, "
                f"outside 0..{extent - 1}: "
                "change the range of the loop, or clamp the index with min and max",
                node,
            )
        if state.speculative_depth and extent > 0:
            if inside is None or inside[0] < 0:
                i = binary("max", i, const(0, DType.i64))
            if inside is None or inside[1] >= extent:
                i = binary("min", i, const(extent - 1, DType.i64))
        return i

    # --- operators

    def _unary(self, node: ast.UnaryOp) -> Typed:
        x = self.typed(node.operand)
        match node.op:
            case ast.USub():
                x = x if x.dtype is not DType.bool_ else Typed(cast(x.expr, DType.i64), x.weak)
                if x.weak and isinstance(x.expr, Const):
                    return Typed(const(-x.expr.value, x.dtype), weak=True)
                return Typed(unary("neg", settle(x, self._state.default_float)))
            case ast.UAdd():
                return x
            case ast.Not():
                return Typed(unary("not", truth(x)), x.weak)
        return self._state.fail(f"{construct_name(node.op)} is not supported in a kernel", node)

    def _binop(self, node: ast.BinOp) -> Typed:
        a, b = self.typed(node.left), self.typed(node.right)
        if isinstance(node.op, ast.Pow):
            return self._arithmetic.power(a, b, node)
        op = _BINARY.get(type(node.op))
        if op is None:
            self._state.fail(
                f"{construct_name(node.op)} is not supported in a kernel: use + - * / // % and **",
                node,
            )
        return self._arithmetic.arithmetic(op, a, b, node)

    def _boolop(self, node: ast.BoolOp) -> Typed:
        op: BinaryOp = "and" if isinstance(node.op, ast.And) else "or"
        result = self.condition(node.values[0])
        for operand in node.values[1:]:
            with self._state.speculative():
                result = binary(op, result, self.condition(operand))
        return Typed(result, weak=isinstance(result, Const))

    def _compare(self, node: ast.Compare) -> Typed:
        result: Expr = const(True, DType.bool_)
        left = self.typed(node.left)
        for op_node, right_node in zip(node.ops, node.comparators, strict=True):
            op = _COMPARE.get(type(op_node))
            if op is None:
                self._state.fail(
                    f"{construct_name(op_node)} is not supported in a kernel: compare with < <= > "
                    f">= == !=",
                    node,
                )
            right = self.typed(right_node)
            a, b, is_weak = unify(left, right, self._state.default_float)
            if is_weak and a.dtype.is_float:
                a, b = cast(a, self._state.default_float), cast(b, self._state.default_float)
            result = binary("and", result, compare(op, a, b))
            left = right
        return Typed(result, weak=isinstance(result, Const))

    def _ifexp(self, node: ast.IfExp) -> Value:
        inside = self.static_argument(node.test)
        if inside is not None:
            return self.value(node.body if self.static(inside) else node.orelse)
        condition = self.condition(node.test)
        if isinstance(condition, Const):
            return self.value(node.body if condition.value else node.orelse)
        with self._state.speculative():
            a, b, is_weak = unify(
                self.typed(node.body), self.typed(node.orelse), self._state.default_float
            )
        return Typed(select(condition, a, b), is_weak)
