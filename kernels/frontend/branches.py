"""Boolean operators, comparisons and ternaries.

Python may leave some operands of these expressions unevaluated.
"""

from __future__ import annotations

import ast

from ..ir.kernel import BinaryOp, Const, DType, Expr, If, Local, SetLocal, Stmt
from ..ir.simplify import binary, const, unary
from .errors import KernelSyntaxError, KernelTypeError
from .lvalues import what
from .operators import COMPARE
from .protocol import Frontend
from .scopes import Pass
from .typing_rules import python_value, truth
from .values import MatrixValue, Static, StructValue, TupleValue, Typed, Value, is_data, loaded


class Branches:
    """Compiles boolean operators, comparisons and ternaries of a pass to IR."""

    def __init__(self, state: Pass, frontend: Frontend) -> None:
        self._state = state
        self._expr = frontend

    def logical(self, node: ast.BoolOp) -> Value:
        """Returns the value of `a and b` or `a or b`.

        The right operand is evaluated only if the left one does not decide the result. If evaluating it has no visible effect, it
        is always evaluated.
        """
        op: BinaryOp = "and" if isinstance(node.op, ast.And) else "or"
        result: Value = self._expr.value(node.values[0])
        for operand in node.values[1:]:
            first = result
            left = self._expr.operators.each([result], node, lambda x: Typed(truth(x)))
            if isinstance(left, Typed) and isinstance(left.expr, Const):
                if bool(left.expr.value) != (op == "or"):
                    result = self._expr.value(operand)
                elif not self._is_number(first):
                    result = left
                continue
            right, statements = self._apart(operand)
            if statements and isinstance(left, Typed):
                result = self._decided(left, op == "and", right, statements, node)
            else:
                for s in statements:
                    self._state.emit(s)
                if self._is_number(first) and self._is_number(right):
                    a, b = (right, first) if op == "and" else (first, right)
                    result = self._expr.operators.selected(left, a, b, node)
                    continue
                result = self._expr.operators.each(
                    [left, right], node, lambda a, b: Typed(binary(op, truth(a), truth(b)))
                )
        if self._is_number(result):
            return result
        result = self._expr.operators.each([result], node, lambda x: Typed(truth(x)))
        return _literal(result)

    def _is_number(self, x: Value) -> bool:
        """True if `and` and `or` return one of their operands, as in Python: they do for integers in a program."""
        return self._state.rules.is_strict and isinstance(x, Typed) and x.dtype.is_integer

    def _decided(
        self, left: Typed, when: bool, right: Value, statements: list[Stmt], node: ast.expr
    ) -> Typed:
        """Returns `left and right` (`when`) or `left or right`, where `right` needs `statements` first.

        Emits a branch that runs the statements only if `left` does not decide the result.
        """
        state = self._state
        name = state.fresh("decided")
        where = state.frame.parsed.where(node)
        held = Local(name, DType.bool_)
        state.emit(SetLocal(name, left.expr, where))
        more = SetLocal(name, truth(self._expr.operators.number(right, node)), where)
        condition = held if when else unary("not", held)
        state.emit(If(condition, (*statements, more), (), where))
        return Typed(held)

    def compared(self, node: ast.Compare) -> Value:
        """Returns the truth value of a comparison: `a < b <= c`, `x in (1, 2)`, `a is b`."""
        result: Value = Typed(const(True, DType.bool_), weak=True)
        operands = self._expr.values([node.left, *node.comparators])
        one: Value
        for op_node, left, right in zip(node.ops, operands, operands[1:], strict=False):
            if isinstance(op_node, ast.In | ast.NotIn):
                one = self._contained(left, right, isinstance(op_node, ast.NotIn), node)
            elif isinstance(op_node, ast.Is | ast.IsNot):
                one = self._identical(left, right, isinstance(op_node, ast.IsNot), node)
            elif not is_data(left) or not is_data(right):
                one = self._python_compare(op_node, left, right, node)
            else:
                one = self._expr.operators.compare(COMPARE[type(op_node)], left, right, node)
            result = self._expr.operators.each(
                [result, one], node, lambda a, b: Typed(binary("and", truth(a), truth(b)))
            )
        return _literal(result)

    def _contained(self, x: Value, among: Value, is_negated: bool, node: ast.expr) -> Typed:
        """Returns the truth value of `x in (a, b, c)`, or of `x not in (a, b, c)` if `is_negated`."""
        items = among.items if isinstance(among, TupleValue | MatrixValue) else None
        if items is None:
            self._state.fail(
                f"`{ast.unparse(node)}`: `in` takes a tuple in a kernel", node, KernelSyntaxError
            )
        result: Expr = const(False, DType.bool_)
        for item in items:
            one = self._expr.operators.number(
                self._expr.operators.compare("eq", x, item, node), node
            )
            result = binary("or", result, one.expr)
        return Typed(unary("not", result) if is_negated else result)

    def _identical(self, a: Value, b: Value, is_negated: bool, node: ast.expr) -> Typed:
        """Returns the truth value of `a is b`, which is known when the kernel is compiled.

        One of them is None or another Python object. LanguageError for two numbers, vectors, arrays or fields.
        """
        if not any(isinstance(x, Static) for x in (a, b)):
            self._state.fail(
                f"`{ast.unparse(node)}` asks if {what(a)} and {what(b)} are one object: write ==, or ask in ks.static",
                node,
                KernelSyntaxError,
            )
        try:
            same = python_value(a) is python_value(b)
        except KeyError:
            same = False
        return Typed(const(same is not is_negated, DType.bool_), weak=True)

    def _python_compare(self, op: ast.cmpop, a: Value, b: Value, node: ast.expr) -> Typed:
        """Returns the truth value of a comparison of two Python objects, such as types and strings."""
        try:
            x, y = python_value(a), python_value(b)
            result = {ast.Eq: x == y, ast.NotEq: x != y}[type(op)]
        except KeyError:
            self._state.fail(
                f"`{ast.unparse(node)}` compares {what(a)} with {what(b)}: compare numbers",
                node,
                KernelTypeError,
            )
        return Typed(const(bool(result), DType.bool_), weak=True)

    def ternary(self, node: ast.IfExp) -> Value:
        """Returns the value of `a if test else b`."""
        inside = self._expr.static_argument(node.test)
        if inside is not None:
            return self._expr.value(node.body if self._expr.static(inside) else node.orelse)
        condition = self._expr.value(node.test)
        if isinstance(condition, MatrixValue) and self._state.rules.is_strict:
            self._state.fail(
                f"`{ast.unparse(node)}` has a vector for a condition: write ks.select({ast.unparse(node.test)}, ..., ...)",
                node,
                KernelSyntaxError,
            )
        if isinstance(condition, Typed) and isinstance(condition.expr, Const):
            return self._expr.value(node.body if condition.expr.value else node.orelse)
        a, then = self._apart(node.body)
        b, orelse = self._apart(node.orelse)
        if isinstance(condition, Typed) and (then or orelse):
            return self._chosen(condition, (a, then), (b, orelse), node)
        for s in (*then, *orelse):
            self._state.emit(s)
        if isinstance(a, StructValue) or isinstance(b, StructValue):
            return self._chosen(
                self._expr.operators.number(condition, node), (a, []), (b, []), node
            )
        return self._expr.operators.selected(condition, a, b, node)

    def _chosen(
        self,
        condition: Typed,
        a: tuple[Value, list[Stmt]],
        b: tuple[Value, list[Stmt]],
        node: ast.expr,
    ) -> Value:
        """Returns the value of a ternary as a local that both sides of an emitted branch assign.

        `a`, `b`: the value of each side, and the statements that compute it.
        """
        state, where = self._state, self._state.frame.parsed.where(node)
        test = truth(condition)
        place, declared = self._expr.places.declared(
            "chosen", self._expr.operators.alike(a[0], b[0], node)
        )
        for s in declared:
            state.emit(s)
        branches = []
        for x, before in (a, b):
            with state.collected() as statements:
                statements.extend(before)
                self._expr.places.assign(place, x, node)
            branches.append(tuple(statements))
        state.emit(If(test, branches[0], branches[1], where))
        return loaded(place)

    def _apart(self, node: ast.expr) -> tuple[Value, list[Stmt]]:
        """Returns the value of an operand that Python may skip, and the statements that compute parts of it.

        The caller emits the statements in a branch that runs where the operand is needed. An operand without statements is always
        evaluated. Names assigned in the operand are not visible after it.
        """
        state = self._state
        with state.collected() as statements, state.frame.scope():
            if self._expr.may_write(node) or (state.is_debug and _has_element(node)):
                state.frame.depth += 1
                with state.guarded():
                    x = self._expr.value(node)
                state.frame.depth -= 1
            else:
                with state.speculative():
                    x = self._expr.value(node)
        return x, statements


def _literal(x: Value) -> Value:
    """Returns a constant truth value as a literal, like `True` in the source; any other value unchanged."""
    match x:
        case Typed(expr=Const() as known):
            return Typed(known, weak=True)
    return x


def _has_element(node: ast.expr) -> bool:
    """True if an expression contains an index, such as `x[i]`.

    Debug mode checks an index where it is evaluated.
    """
    return any(isinstance(n, ast.Subscript) for n in ast.walk(node))
