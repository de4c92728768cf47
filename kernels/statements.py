"""Statements of a kernel: Python syntax to IR."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from .expressions import Expressions, construct_name, is_cheap_and_fixed
from .intrinsics import ATOMIC_CALLS, MINMAX_CALLS, as_dtype, ndrange
from .ir import (
    Const,
    DType,
    Expr,
    For,
    If,
    Load,
    Local,
    LoopIndex,
    ReduceOp,
    SetLocal,
    Store,
    Update,
    UpdateLocal,
)
from .parse import ParsedFunction, parse_function
from .scopes import Frame, LocalVar, LoopVar, Pass
from .simplify import binary, cast, const, unary, walk
from .typing_rules import ArrayRef, Static, TupleValue, Typed, Value, adopt, lift, promote, settle

_UPDATES: dict[type[ast.operator], ReduceOp] = {ast.Add: "add", ast.Sub: "add", ast.Mult: "mul"}
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
MAX_INLINE_DEPTH = 32


class Func:
    """A function marked `@ks.func`: its body takes the place of each call in a kernel. Called from
    Python it is itself.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        functools.update_wrapper(self, fn)

    @functools.cached_property
    def parsed(self) -> ParsedFunction:
        return parse_function(self.fn)

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args)


class Statements:
    """Compiles the statements of the current frame of a pass into its current block."""

    def __init__(self, state: Pass) -> None:
        self._state = state
        self._expr = Expressions(state, self._inline)

    def run(self, statements: Sequence[ast.stmt]) -> None:
        for k, statement in enumerate(statements):
            if k == 0 and _is_docstring(statement):
                continue
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(target, value)
            case ast.AugAssign():
                self._augmented(node)
            case ast.AnnAssign():
                self._annotated(node)
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

    # --- assignment

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        update = self._as_update(target, value)
        if update is not None:
            op, operand, is_negated = update
            if self._update(target, op, operand, is_negated, value, is_optional=True):
                return
        if isinstance(target, (ast.Tuple, ast.List)):
            self._assign_tuple(target, value)
        else:
            self._assign_value(target, self._expr.value(value), value)

    def _as_update(
        self, target: ast.expr, value: ast.expr
    ) -> tuple[ReduceOp, ast.expr, bool] | None:
        """`x = x + e`, `x = max(x, e)` and their like, as (operation, e, whether e is negated)."""
        if not isinstance(target, (ast.Name, ast.Subscript)):
            return None
        spelling = ast.unparse(target)
        match value:
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _UPDATES:
                if ast.unparse(left) == spelling:
                    return _UPDATES[type(op)], right, isinstance(op, ast.Sub)
                if ast.unparse(right) == spelling and not isinstance(op, ast.Sub):
                    return _UPDATES[type(op)], left, False
            case ast.Call(args=[first, *rest], keywords=[]) if (
                rest and ast.unparse(first) == spelling
            ):
                callee = self._expr.callee(value)
                if callee in MINMAX_CALLS:
                    operand = (
                        rest[0]
                        if len(rest) == 1
                        else ast.copy_location(ast.Call(value.func, rest, []), value)
                    )
                    return ("min" if MINMAX_CALLS[callee] == "min" else "max"), operand, False
        return None

    def _update(
        self,
        target: ast.expr,
        op: ReduceOp,
        operand: ast.expr,
        is_negated: bool,
        node: ast.AST,
        is_optional: bool = False,
    ) -> bool:
        """Emits `target op= operand`. With `is_optional` gives False where types or bindings ask
        for a plain assignment.
        """
        state = self._state
        where = state.frame.parsed.where(node)
        if isinstance(target, ast.Subscript):
            array, indices = self._expr.element(target)
            x = self._expr.typed(operand)
            dtype = array.param.dtype
            if is_optional and not x.weak and promote(dtype, x.dtype) is not dtype:
                return False
            if is_optional and x.weak and x.dtype.is_float and not dtype.is_float:
                return False
            state.emit(
                Update(
                    array.param.name, indices, op, _signed(adopt(x.expr, dtype), is_negated), where
                )
            )
            return True
        if not isinstance(target, ast.Name):
            state.fail(
                f"`{ast.unparse(target)}` cannot be updated: only locals and array elements can",
                node,
            )
        local = state.frame.find(target.id)
        if not isinstance(local, LocalVar):
            if is_optional:
                return False
            self._refuse_target(target, local)
        x = self._expr.typed(operand)
        state.note(local, x)
        if (
            is_optional
            and not local.weak
            and not x.weak
            and promote(local.dtype, x.dtype) is not local.dtype
        ):
            return False
        state.emit(
            UpdateLocal(local.name, op, _signed(adopt(x.expr, local.dtype), is_negated), where)
        )
        return True

    def _refuse_target(self, target: ast.Name, bound: object) -> NoReturn:
        name = target.id
        if isinstance(bound, LoopVar):
            self._state.fail(f"the loop index `{name}` is assigned to: use another name", target)
        if isinstance(bound, ArrayRef):
            self._state.fail(
                f"the array `{name}` is assigned as a whole: assign its elements in a loop", target
            )
        if bound is None:
            self._state.fail(f"the name `{name}` has no value here: assign it first", target)
        self._state.fail(
            f"the argument or constant `{name}` is assigned to: copy it into a local of another "
            f"name first",
            target,
        )

    def _augmented(self, node: ast.AugAssign) -> None:
        op = _UPDATES.get(type(node.op))
        if op is not None:
            self._update(node.target, op, node.value, isinstance(node.op, ast.Sub), node)
            return
        reading = ast.copy_location(_as_load(node.target), node)
        self._assign_value(
            node.target,
            self._expr.value(ast.copy_location(ast.BinOp(reading, node.op, node.value), node)),
            node,
        )

    def _annotated(self, node: ast.AnnAssign) -> None:
        if node.value is None:
            self._state.fail(
                f"`{ast.unparse(node)}` declares a name without a value: assign one", node
            )
        annotation = self._expr.value(node.annotation)
        try:
            dtype = as_dtype(annotation.python if isinstance(annotation, Static) else annotation)
        except TypeError:
            self._state.fail(
                f"the annotation `{ast.unparse(node.annotation)}` is not an element type", node
            )
        if (
            not isinstance(node.target, ast.Name)
            or self._state.frame.find(node.target.id) is not None
        ):
            self._state.fail(
                "an annotation can only stand at the first assignment of a local", node
            )
        value = cast(self._expr.typed(node.value).expr, dtype)
        self._new_local(node.target.id, Typed(value), node)

    def _assign_tuple(self, target: ast.Tuple | ast.List, value: ast.expr) -> None:
        x = self._expr.value(value)
        if not isinstance(x, TupleValue) or len(x.items) != len(target.elts):
            count = len(x.items) if isinstance(x, TupleValue) else 1
            self._state.fail(
                f"`{ast.unparse(target)}` has {len(target.elts)} names for {count} values", value
            )
        items = [self._kept(item, value) for item in x.items] if len(x.items) > 1 else list(x.items)
        for element, item in zip(target.elts, items, strict=True):
            self._assign_value(element, item, value)

    def _kept(self, x: Value, node: ast.AST) -> Value:
        """A value that later assignments of the same tuple cannot change."""
        if isinstance(x, Typed) and any(isinstance(e, (Load, Local)) for e in walk(x.expr)):
            return self._in_new_local("kept", x, node)
        return x

    def _in_new_local(self, name: str, x: Typed, node: ast.AST) -> Typed:
        state = self._state
        value = settle(x, state.default_float)
        fresh = state.fresh(name)
        state.emit(SetLocal(fresh, value, state.frame.parsed.where(node)))
        return Typed(Local(fresh, value.dtype), weak=x.weak and not state.is_final)

    def _assign_value(self, target: ast.expr, x: Value, node: ast.AST) -> None:
        state = self._state
        where = state.frame.parsed.where(target)
        if isinstance(target, (ast.Tuple, ast.List)):
            state.fail(f"`{ast.unparse(target)}`: nested tuples of targets are not supported", node)
        if isinstance(target, ast.Subscript):
            array, indices = self._expr.element(target)
            if not isinstance(x, Typed):
                state.fail(
                    f"`{ast.unparse(target)}` is assigned something that is not a number", node
                )
            state.emit(Store(array.param.name, indices, adopt(x.expr, array.param.dtype), where))
            return
        if not isinstance(target, ast.Name):
            state.fail(
                f"`{ast.unparse(target)}` cannot be assigned to in a kernel: only locals and "
                f"array elements can",
                node,
            )
        bound = state.frame.find(target.id)
        if isinstance(bound, LocalVar):
            if not isinstance(x, Typed):
                state.fail(f"`{target.id}` holds a number and is assigned something else", node)
            state.note(bound, x)
            state.emit(SetLocal(bound.name, adopt(x.expr, bound.dtype), where))
            return
        if bound is not None:
            self._refuse_target(target, bound)
        self._new_name(target.id, x, node)

    def _new_name(self, name: str, x: Value, node: ast.AST) -> None:
        """A first assignment. A name assigned once stands for its value where that costs and
        changes nothing.
        """
        state = self._state
        is_alias = state.frame.parsed.assigned[name] == 1
        if not isinstance(x, Typed):
            if not is_alias:
                state.fail(
                    f"`{name}` holds something that is not a number, so it can be assigned only "
                    f"once",
                    node,
                )
            state.frame.bind(name, x)
        elif is_alias and is_cheap_and_fixed(x.expr):
            state.frame.bind(name, x)
        else:
            self._new_local(name, x, node)

    def _new_local(self, name: str, x: Typed, node: ast.AST) -> None:
        state = self._state
        fresh = state.fresh(name)
        where = state.frame.parsed.where(node)
        if not x.weak:
            value, is_weak = x.expr, False
        else:
            state.open_locals.add(fresh)
            default = state.default_float if x.dtype.is_float else x.dtype
            found = state.hints.get(fresh)
            dtype = default if found is None or (x.dtype.is_float and not found.is_float) else found
            value, is_weak = adopt(x.expr, dtype), found is None and not state.is_final
        state.emit(SetLocal(fresh, value, where))
        state.frame.bind(name, LocalVar(fresh, value.dtype, is_weak))

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
            self._update(call.args[0], op, call.args[1], False, node)
            return
        self._inline(callee, [self._expr.value(a) for a in call.args], call, is_statement=True)

    def _inline(
        self, callee: object, arguments: list[Value], node: ast.Call, is_statement: bool = False
    ) -> Value | None:
        """The body of a `ks.func` in place of its call; its locals get names of their own."""
        state = self._state
        if not isinstance(callee, Func):
            advice = (
                "call it from a sequence"
                if type(callee).__name__ == "Kernel"
                else "decorate it with @ks.func"
            )
            state.fail(f"`{ast.unparse(node.func)}` cannot be called in a kernel: {advice}", node)
        parsed = callee.parsed
        parameters = [a.arg for a in parsed.tree.args.args]
        if len(arguments) != len(parameters):
            state.fail(
                f"{parsed.name} takes {len(parameters)} arguments, not {len(arguments)}", node
            )
        if len(state.frames) > MAX_INLINE_DEPTH:
            state.fail(f"{parsed.name} calls itself: recursion is not supported in a kernel", node)
        frame = Frame(parsed)
        for name, argument in zip(parameters, arguments, strict=True):
            uses = sum(isinstance(n, ast.Name) and n.id == name for n in ast.walk(parsed.tree))
            must_copy = parsed.assigned[name] > 0 or (
                uses > 1 and isinstance(argument, Typed) and not is_cheap_and_fixed(argument.expr)
            )
            if must_copy and isinstance(argument, Typed):
                value = settle(argument, state.default_float)
                fresh = state.fresh(name)
                state.emit(SetLocal(fresh, value, state.frame.parsed.where(node)))
                frame.bind(name, LocalVar(fresh, value.dtype, weak=False))
            else:
                frame.bind(name, argument)
        before = len(state.blocks[-1])
        state.frames.append(frame)
        self.run(parsed.tree.body)
        state.frames.pop()
        if not is_statement and any(_writes_memory(s) for s in state.blocks[-1][before:]):
            state.fail(
                f"{parsed.name} writes to an array, so it can only be called as a statement of "
                f"its own",
                node,
            )
        return frame.returned

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


def _signed(x: Expr, is_negated: bool) -> Expr:
    return unary("neg", x) if is_negated else x


def _as_load(target: ast.expr) -> ast.expr:
    copy = ast.parse(ast.unparse(target), mode="eval").body
    for n in ast.walk(copy):
        ast.copy_location(n, target)
    return copy


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


def _writes_memory(s: object) -> bool:
    match s:
        case Store() | Update():
            return True
        case For(body=body):
            return any(_writes_memory(x) for x in body)
        case If(then=then, orelse=orelse):
            return any(_writes_memory(x) for x in (*then, *orelse))
    return False
