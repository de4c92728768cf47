"""Assignments in a kernel: plain, augmented, to tuples; which of them are updates."""

from __future__ import annotations

import ast
from typing import NoReturn

from ..ir.kernel import Expr, Load, Local, ReduceOp, SetLocal, Store, Update, UpdateLocal
from ..ir.simplify import cast, is_cheap_and_fixed, unary
from ..ir.walk import walk
from .expressions import Expressions
from .intrinsics import MINMAX_CALLS, as_dtype
from .scopes import LocalVar, LoopVar, Pass
from .typing_rules import ArrayRef, Static, TupleValue, Typed, Value, adopt, promote, settle

_UPDATES: dict[type[ast.operator], ReduceOp] = {ast.Add: "add", ast.Sub: "add", ast.Mult: "mul"}


class Assignments:
    """Compiles assignments of a pass into its current block."""

    def __init__(self, state: Pass, expressions: Expressions) -> None:
        self._state = state
        self._expr = expressions

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        update = self._as_update(target, value)
        if update is not None:
            op, operand, is_negated = update
            if self.update(target, op, operand, is_negated, value, is_optional=True):
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

    def update(
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

    def augmented(self, node: ast.AugAssign) -> None:
        op = _UPDATES.get(type(node.op))
        if op is not None:
            self.update(node.target, op, node.value, isinstance(node.op, ast.Sub), node)
            return
        reading = ast.copy_location(_as_load(node.target), node)
        self._assign_value(
            node.target,
            self._expr.value(ast.copy_location(ast.BinOp(reading, node.op, node.value), node)),
            node,
        )

    def annotated(self, node: ast.AnnAssign) -> None:
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


def _signed(x: Expr, is_negated: bool) -> Expr:
    return unary("neg", x) if is_negated else x


def _as_load(target: ast.expr) -> ast.expr:
    copy = ast.parse(ast.unparse(target), mode="eval").body
    for n in ast.walk(copy):
        ast.copy_location(n, target)
    return copy
