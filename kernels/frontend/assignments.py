"""Assignments in a kernel: plain, augmented and tuple assignments, and the detection of updates."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from ..ir.kernel import ReduceOp
from ..ir.ops import is_reduction
from . import values
from .complex_numbers import is_complex
from .errors import KernelIndexError, KernelNameError, KernelSyntaxError, KernelTypeError
from .expressions import Expressions
from .intrinsics import MINMAX_CALLS
from .lvalues import what
from .operators import BINARY
from .scopes import LoopVar, Pass
from .side_effects import (
    calls_store,
    names_passed_to_change,
    places_changed,
    root_of,
    scope_of,
)
from .triplets import append
from .typing_rules import promote

_UPDATES: dict[type[ast.operator], ReduceOp] = {ast.Add: "add", ast.Sub: "add", ast.Mult: "mul"}


@dataclass(frozen=True)
class _Update:
    """Update `x op= operand` of a target x; with `is_negated` the operand is negated first."""

    op: ReduceOp
    operand: ast.expr
    is_negated: bool = False


class Assignments:
    """Compiles the assignment statements of a kernel: emits IR statements into the current block of the pass."""

    def __init__(self, state: Pass, expressions: Expressions) -> None:
        self._state = state
        self._expr = expressions
        self._places = expressions.places

    def assign(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        """Compiles `a = value`, or `a = b = value`, whose value is computed once."""
        if len(targets) > 1:
            shared = self._expr.value(value)
            shared = self._places.kept(shared, value) if values.is_data(shared) else shared
            for target in targets:
                self._assign_to(target, shared, value)
            return
        (target,) = targets
        update = self._as_update(target, value)
        x = None
        if update is not None:
            is_done, x = self._update_in_place(target, update, value)
            if is_done:
                return
        self._assign_to(target, self._expr.value(value) if x is None else x, value)

    def _assign_to(self, target: ast.expr, x: values.Value, node: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            self._assign_tuple(target, x, node)
        else:
            self._assign_value(target, x, node)

    def _as_update(self, target: ast.expr, value: ast.expr) -> _Update | None:
        """Returns the update that a statement like `x = x + e` or `x = max(x, e)` amounts to, else None.

        In a program (after `ks.init`) only an update in the source, `x += e`, updates an array element, since updates are atomic.
        If computing `e` changes `x`, there is no update: Python reads the `x` on the left before it computes `e`.
        """
        is_element = isinstance(target, ast.Subscript) and not self._state.rules.is_strict
        if not isinstance(target, ast.Name) and not is_element:
            return None
        spelling = ast.unparse(target)
        found: _Update | None = None
        match value:
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _UPDATES:
                if ast.unparse(left) == spelling:
                    found = _Update(_UPDATES[type(op)], right, isinstance(op, ast.Sub))
                elif ast.unparse(right) == spelling and not isinstance(op, ast.Sub):
                    found = _Update(_UPDATES[type(op)], left)
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
                    found = _Update("min" if MINMAX_CALLS[callee] == "min" else "max", operand)
        return found if found and not self._writes(found.operand, target) else None

    def _writes(self, operand: ast.expr, target: ast.expr) -> bool:
        """True if evaluating `operand` may change `target` or an index in `target`."""
        if not any(
            isinstance(n, ast.Call | ast.NamedExpr) for n in (*ast.walk(operand), *ast.walk(target))
        ):
            return False
        scope = scope_of(self._state.frame)
        if root_of(target) in {root_of(p) for p in places_changed(scope, [operand])}:
            return True
        return isinstance(target, ast.Subscript) and (
            calls_store(scope, [operand]) or self._expr.may_write(target.slice)
        )

    def _update_in_place(
        self, target: ast.expr, update: _Update, node: ast.expr
    ) -> tuple[bool, values.Value | None]:
        """Emits `target op= operand` and returns True; False if only a plain assignment `target = ...` is possible.

        A plain assignment is needed if the update would change the target's type, or if the target is not one local or one element.
        The second result is then the value to assign, if statements to compute the operand were emitted already; None otherwise.
        """
        place: object
        if isinstance(target, ast.Name):
            place = self._state.frame.find(target.id)
        else:
            place = self._expr.place(target)
        if not isinstance(place, values.LocalVar | values.Element):
            return False, None
        with self._state.collected() as statements:
            x = self._expr.value(update.operand)
        for s in statements:
            self._state.emit(s)
        if isinstance(x, values.Typed) and self._fits(place, x, update.op):
            self._places.update(place, update.op, x, update.is_negated, node)
            return True, None
        return False, self._combined(values.loaded(place), x, update, node) if statements else None

    def _fits(self, place: values.LocalVar | values.Element, x: values.Typed, op: str) -> bool:
        """True if `place op= x` leaves the type of `place` unchanged."""
        old, is_choice = values.loaded(place), op in ("min", "max")
        differ = self._expr.operators.differ_in_sign
        if is_choice and isinstance(old, values.Typed) and differ(old, x):
            return False
        if isinstance(place, values.LocalVar):
            self._state.note(place, x)
            return place.weak or x.weak or promote(place.dtype, x.dtype) is place.dtype
        if not x.weak:
            # What an unsigned element is left with is the same, whether a signed integer is added to it or to a wider number.
            is_modular = not is_choice and place.dtype.size_bytes >= 4
            return promote(place.dtype, x.dtype, is_modular) is place.dtype
        return not x.dtype.is_float or place.dtype.is_float

    def _combined(
        self, old: values.Value, x: values.Value, update: _Update, node: ast.expr
    ) -> values.Value:
        """Returns `op` of the target's old value and the operand, in the order of the source."""
        if not isinstance(node, ast.BinOp):
            return self._expr.operators.least(update.op, [old, x], node)
        pair = (x, old) if update.operand is node.left else (old, x)
        return self._expr.operators.binary(BINARY[type(node.op)], *pair, node)

    def _appended(self, node: ast.AugAssign) -> bool:
        """Emits the append that `A[i, j] += v` is for a builder of a sparse matrix; False where `A` is none."""
        target = node.target
        if not isinstance(target, ast.Subscript) or not isinstance(node.op, ast.Add | ast.Sub):
            return False
        base = self._expr.place(target.value) if isinstance(target.value, ast.Name) else None
        if not isinstance(base, values.Triplets):
            return False
        parts = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
        found = [n for x in self._expr.values(parts) for n in values.leaves(x)]
        if len(found) != 2:
            self._state.fail(
                f"`{ast.unparse(target)}` has {len(found)} indices: an entry of a matrix has a row and a column",
                node,
                KernelIndexError,
            )
        at = [self._expr.as_index(self._expr.operators.number(n, target), target) for n in found]
        value = self._expr.operators.number(self._expr.value(node.value), node)
        append(self._state, base, at, value, node, is_negated=isinstance(node.op, ast.Sub))
        return True

    def augmented(self, node: ast.AugAssign) -> None:
        if self._appended(node):
            return
        name = BINARY[type(node.op)]
        op = _UPDATES.get(type(node.op), name)
        place = self._expr.place(node.target)
        if isinstance(node.target, ast.Name):
            bound = self._state.frame.find(node.target.id)
            if (
                not values.is_data(place)
                or isinstance(bound, LoopVar | values.Typed)
                or bound is None
            ):
                self._refuse_target(node.target, bound)
        x: values.Value | None = None
        if is_reduction(op) and (op == "add" or not is_complex(place)):
            x = self._expr.value(node.value)
            if op != "mul" or not self._widens(place, x):
                self._places.update(place, op, x, isinstance(node.op, ast.Sub), node)
                return
        old = values.loaded(place)
        x = self._expr.value(node.value) if x is None else x
        self._places.assign(place, self._expr.operators.binary(name, old, x, node), node)

    def _widens(self, place: values.Value, x: values.Value) -> bool:
        """True if `place *= x` in a program is computed in a wider type than that of `place`, and then converted.

        For `place += x` the operand `x` is converted to the type of `place` before the addition.
        """
        number = next(values.leaves(values.loaded(x)), None)
        return (
            self._state.rules.is_strict
            and isinstance(number, values.Typed)
            and any(
                promote(p.dtype, number.dtype, is_strict=True) is not p.dtype
                for p in values.leaves(place)
            )
        )

    def annotated(self, node: ast.AnnAssign) -> None:
        if node.value is None:
            self._state.fail(
                f"`{ast.unparse(node)}` declares a name without a value: assign one",
                node,
                KernelSyntaxError,
            )
        kind = self._expr.value(node.annotation)
        if (
            not isinstance(node.target, ast.Name)
            or self._state.frame.find(node.target.id) is not None
        ):
            self._state.fail(
                "an annotation can only stand at the first assignment of a local",
                node,
                KernelSyntaxError,
            )
        x = self._expr.converted(self._expr.value(node.value), kind, node)
        self._state.frame.bind(node.target.id, self._places.new_local(node.target.id, x, node))

    def _assign_tuple(self, target: ast.Tuple | ast.List, x: values.Value, node: ast.AST) -> None:
        taken: list[values.Value] = []
        if isinstance(x, values.TupleValue | values.MatrixValue):
            taken = self._expr.taken_apart(x)
        if len(taken) != len(target.elts):
            self._state.fail(
                f"`{ast.unparse(target)}` has {len(target.elts)} names for {len(taken) or 1} values",
                node,
                KernelSyntaxError,
            )
        items = [self._places.kept(item, node) if values.is_data(item) else item for item in taken]
        for element, item in zip(target.elts, items if len(items) > 1 else taken, strict=True):
            if isinstance(element, ast.Tuple | ast.List):
                self._assign_tuple(element, item, node)
            else:
                self._assign_value(element, item, node)

    def _assign_value(self, target: ast.expr, x: values.Value, node: ast.AST) -> None:
        state = self._state
        if isinstance(target, ast.Subscript | ast.Attribute):
            place = self._expr.place(target)
            if not values.is_data(place):
                state.fail(
                    f"`{ast.unparse(target)}` cannot be assigned to in a kernel: only locals and "
                    f"array elements can",
                    node,
                )
            if not values.is_data(x):
                state.fail(
                    f"`{ast.unparse(target)}` is assigned something that is not a number",
                    node,
                    KernelTypeError,
                )
            self._places.assign(place, x, node if isinstance(node, ast.stmt) else target)
            return
        if not isinstance(target, ast.Name):
            state.fail(
                f"`{ast.unparse(target)}` cannot be assigned to in a kernel: only locals and "
                f"array elements can",
                node,
            )
        bound = state.frame.find(target.id)
        if isinstance(
            bound,
            values.LocalVar
            | values.MatrixValue
            | values.StructValue
            | values.OneOf
            | values.Element
            | values.TupleValue,
        ):
            if not values.is_data(x):
                state.fail(
                    f"`{target.id}` holds a number and is assigned something else",
                    node,
                    KernelTypeError,
                )
            if values.is_data(bound):
                self._places.assign(bound, x, node)
                return
        if bound is not None:
            self._refuse_target(target, bound)
        self._new_name(target.id, x, node)

    def _refuse_target(self, target: ast.Name, bound: object) -> NoReturn:
        name = target.id
        if isinstance(bound, LoopVar):
            self._state.fail(
                f"the loop index `{name}` is assigned to: use another name",
                target,
                KernelSyntaxError,
            )
        if isinstance(bound, values.ArrayRef | values.LocalRef):
            self._state.fail(
                f"the array `{name}` is assigned as a whole: assign its elements in a loop",
                target,
                KernelSyntaxError,
            )
        if bound is None:
            self._state.fail(
                f"the name `{name}` has no value here: assign it first", target, KernelNameError
            )
        self._state.fail(
            f"the argument or constant `{name}` is assigned to: copy it into a local of another "
            f"name first",
            target,
            KernelSyntaxError,
        )

    def _new_name(self, name: str, x: values.Value, node: ast.AST) -> None:
        """Compiles the first assignment to a name, which becomes an alias of the value if that is possible.

        An alias needs a name without a second assignment, and a value that never changes and costs nothing to read.
        """
        frame = self._state.frame
        # A local array is bound to its block: where it is assigned again, its name has another value or has ended.
        is_once = frame.parsed.assigned[name] == 1 or isinstance(x, values.LocalRef)
        if is_once and (not values.is_data(x) or self._places.is_fixed(x)):
            frame.bind(name, x)
            if not values.is_data(x) or not self._changes(name):
                return
        if values.is_data(x):
            frame.bind(name, self._places.new_local(name, x, node))
        else:
            self._state.fail(f"`{name}` holds {what(x)}, so it can be assigned only once", node)

    def _changes(self, name: str) -> bool:
        """True if the function assigns to a part of the named value, or passes it to a function that changes it."""
        frame = self._state.frame
        return name in frame.parsed.mutated or name in names_passed_to_change(scope_of(frame))
