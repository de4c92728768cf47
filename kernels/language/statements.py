"""Statements of a kernel: Python syntax to IR."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..ir.kernel import Const, DType, Expr, For, If, LoopIndex, ReduceOp
from ..ir.simplify import binary, const, unary
from .assignments import Assignments
from .expressions import Expressions, construct_name
from .inlining import inline
from .intrinsics import ATOMIC_CALLS, ndrange
from .scopes import LoopVar, Pass
from .typing_rules import TupleValue, Typed, Value, lift

_NAMES: dict[type[ast.AST], tuple[str, str]] = {
    ast.While: ("a while loop", "use a for loop over range"),
    ast.Return: ("return", "write results into an array argument"),
    ast.Break: ("break", "run the whole range and use a condition"),
    ast.Continue: ("continue", "put the rest of the body under an if"),
    ast.Try: ("try", "remove it"),
    ast.With: ("with", "move it outside the kernel"),
    ast.Assert: ("assert", "move it outside the kernel"),
    ast.Raise: ("raise", "move it outside the kernel"),
    ast.Delete: ("del", "remove it"),
    ast.Global: ("global", "pass an array argument to write to"),
    ast.Nonlocal: ("nonlocal", "pass an array argument to write to"),
    ast.Import: ("import", "move it outside the kernel"),
    ast.ImportFrom: ("import", "move it outside the kernel"),
    ast.FunctionDef: ("a nested function", "define it outside with @ks.func"),
    ast.ClassDef: ("a class", "move it outside the kernel"),
    ast.Match: ("match", "use if and elif"),
}


class Statements:
    """Compiles the statements of the current frame of a pass into its current block."""

    def __init__(self, state: Pass) -> None:
        self._state = state
        self._expr = Expressions(state, self._inline)
        self._assignments = Assignments(state, self._expr)

    def run(self, statements: Sequence[ast.stmt]) -> None:
        for k, statement in enumerate(statements):
            if k == 0 and _is_docstring(statement):
                continue
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assignments.assign(target, value)
            case ast.AugAssign():
                self._assignments.augmented(node)
            case ast.AnnAssign():
                self._assignments.annotated(node)
            case ast.For():
                self._for(node)
            case ast.If():
                self._if(node)
            case ast.Expr():
                self._expression_statement(node)
            case ast.Pass():
                pass
            case ast.Return() if len(self._state.frames) > 1:
                self._return(node)
            case _:
                name, advice = _NAMES.get(
                    type(node),
                    (construct_name(node), "rewrite it with loops, conditions and assignments"),
                )
                self._state.fail(f"{name} is not supported in a kernel: {advice}", node)

    # --- loops and conditions

    def _for(self, node: ast.For) -> None:
        state = self._state
        if node.orelse:
            state.fail("for-else is not supported in a kernel: remove the else", node)
        inside = self._expr.static_argument(node.iter)
        if inside is not None:
            self._unrolled(node, inside)
            return
        callee = self._expr.callee(node.iter) if isinstance(node.iter, ast.Call) else None
        if not isinstance(node.iter, ast.Call) or (callee is not range and callee is not ndrange):
            state.fail(
                f"a for loop over `{ast.unparse(node.iter)}` is not supported in a kernel: use "
                f"range, ks.ndrange or ks.static",
                node,
            )
        if node.iter.keywords or not node.iter.args:
            state.fail("range and ks.ndrange take one or more bounds by position", node)
        if callee is range:
            if not isinstance(node.target, ast.Name):
                state.fail(
                    f"range gives one index, `{ast.unparse(node.target)}` is not one name", node
                )
            self._nest([node.target], [self._range_bounds(node.iter)], node)
            return
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        if len(targets) != len(node.iter.args):
            state.fail(
                f"ks.ndrange has {len(node.iter.args)} bounds for {len(targets)} names: give one "
                f"name per bound",
                node,
            )
        self._nest(targets, [self._pair(a) for a in node.iter.args], node)

    def _range_bounds(self, call: ast.Call) -> tuple[Expr, Expr, int]:
        bounds = [self._expr.index(a) for a in call.args]
        step = bounds[2] if len(bounds) > 2 else const(1, DType.i64)
        if not isinstance(step, Const) or not step.value:
            self._state.fail("the step of range must be a constant other than 0", call)
        start = bounds[0] if len(bounds) > 1 else const(0, DType.i64)
        return start, bounds[1] if len(bounds) > 1 else bounds[0], int(step.value)

    def _pair(self, node: ast.expr) -> tuple[Expr, Expr, int]:
        if isinstance(node, ast.Tuple):
            if len(node.elts) != 2:
                self._state.fail("a bound of ks.ndrange is an extent or a pair (low, high)", node)
            return self._expr.index(node.elts[0]), self._expr.index(node.elts[1]), 1
        return const(0, DType.i64), self._expr.index(node), 1

    def _nest(
        self, targets: Sequence[ast.expr], bounds: Sequence[tuple[Expr, Expr, int]], node: ast.For
    ) -> None:
        """One loop per target, all around the body; each starts at 0 and steps by 1."""
        state = self._state
        target, (start, stop, step) = targets[0], bounds[0]
        if not isinstance(target, ast.Name):
            state.fail(f"`{ast.unparse(target)}` cannot be a loop index: use a name", node)
        bound = state.frame.find(target.id)
        if bound is not None:
            what = (
                "the index of a loop around this one"
                if isinstance(bound, LoopVar)
                else "already a name of the kernel"
            )
            state.fail(f"the loop index `{target.id}` is {what}: use another name", node)
        extent = _extent(start, stop, step)
        loop = state.fresh(target.id)
        known = int(extent.value) if isinstance(extent, Const) else None
        state.extents[loop] = known
        index = binary("add", binary("mul", LoopIndex(loop), const(step, DType.i64)), start)
        with state.guarded(known is None or known == 0), state.block() as body:
            state.frame.bind(target.id, LoopVar(Typed(index)))
            if len(targets) > 1:
                self._nest(targets[1:], bounds[1:], node)
            else:
                self.run(node.body)
        state.emit(For(loop, extent, tuple(body), state.frame.parsed.where(node)))

    def _unrolled(self, node: ast.For, inside: ast.expr) -> None:
        state = self._state
        try:
            items = list(self._expr.static(inside))  # type: ignore[call-overload]
        except TypeError:
            state.fail(
                f"ks.static({ast.unparse(inside)}) is not a sequence that a loop can run over", node
            )
        for item in items:
            with state.frame.scope():
                self._bind_static(node.target, lift(item))
                self.run(node.body)

    def _bind_static(self, target: ast.expr, x: Value) -> None:
        state = self._state
        if isinstance(target, ast.Name):
            state.frame.bind(target.id, LoopVar(x) if isinstance(x, Typed) else x)
            return
        if (
            not isinstance(target, ast.Tuple)
            or not isinstance(x, TupleValue)
            or len(target.elts) != len(x.items)
        ):
            state.fail(
                f"`{ast.unparse(target)}` does not match the items of the static loop", target
            )
        for element, item in zip(target.elts, x.items, strict=True):
            self._bind_static(element, item)

    def _if(self, node: ast.If) -> None:
        state = self._state
        inside = self._expr.static_argument(node.test)
        if inside is not None:
            self.run(node.body if self._expr.static(inside) else node.orelse)
            return
        condition = self._expr.condition(node.test)
        if isinstance(condition, Const):
            with state.frame.scope():
                self.run(node.body if condition.value else node.orelse)
            return
        with state.guarded():
            with state.block() as then:
                self.run(node.body)
            with state.block() as orelse:
                self.run(node.orelse)
        if then or orelse:
            state.emit(If(condition, tuple(then), tuple(orelse), state.frame.parsed.where(node)))

    # --- calls

    def _expression_statement(self, node: ast.Expr) -> None:
        call = node.value
        if not isinstance(call, ast.Call):
            self._state.fail(
                f"`{ast.unparse(node)}` has no effect: assign its value, or remove it", node
            )
        callee = self._expr.callee(call)
        if callee in ATOMIC_CALLS:
            if len(call.args) != 2 or call.keywords:
                self._state.fail(f"`{ast.unparse(call.func)}` takes a place and a value", node)
            op: ReduceOp = ATOMIC_CALLS[callee]  # type: ignore[assignment]
            self._assignments.update(call.args[0], op, call.args[1], False, node)
            return
        self._inline(callee, [self._expr.value(a) for a in call.args], call, is_statement=True)

    def _inline(
        self,
        callee: object,
        arguments: list[Value],
        node: ast.Call,
        is_statement: bool = False,
    ) -> Value | None:
        return inline(self._state, self.run, callee, arguments, node, is_statement)

    def _return(self, node: ast.Return) -> None:
        frame = self._state.frame
        if frame.parsed.tree.body[-1] is not node:
            self._state.fail(
                f"return can only be the last statement of the function {frame.parsed.name}: use "
                f"a conditional expression",
                node,
            )
        if node.value is not None:
            frame.returned = self._expr.value(node.value)


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _extent(start: Expr, stop: Expr, step: int) -> Expr:
    zero = const(0, DType.i64)
    span = (
        binary("add", stop, unary("neg", start))
        if step > 0
        else binary("add", start, unary("neg", stop))
    )
    if abs(step) > 1:
        span = binary(
            "floordiv",
            binary("add", span, const(abs(step) - 1, DType.i64)),
            const(abs(step), DType.i64),
        )
    return binary("max", span, zero)
