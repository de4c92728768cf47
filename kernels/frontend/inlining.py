"""Inlining of functions marked `@ks.func`: the body replaces each call."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir.kernel import DType, Load, Local, LocalElement, SetLocal, Stmt
from ..ir.simplify import const
from ..ir.walk import walk
from .control import surely_leaves
from .errors import KernelSyntaxError
from .func import BoundFunc, Func
from .intrinsics import TemplateAnnotation
from .protocol import Frontend
from .python_objects import lifted
from .recursion import Machine, Recursion
from .scopes import Frame, LoopVar, Pass
from .side_effects import (
    FunctionScope,
    calls_itself,
    names_changed,
    names_of,
    scope_of,
    stores,
)
from .values import LocalVar, MatrixValue, Static, Typed, Value, is_data, leaves, loaded

MAX_INLINE_DEPTH = 32
RunBody = Callable[[Sequence[ast.stmt]], object]
Given = tuple[Sequence[Value], Mapping[str, Value]]  # by position, by name


class Inliner:
    """Replaces calls of functions by their bodies. `run` compiles the statements of the function's body."""

    def __init__(self, state: Pass, frontend: Frontend, run: RunBody) -> None:
        self._state, self._expr, self._run = state, frontend, run

    def call(
        self,
        callee: Func | BoundFunc,
        node: ast.Call,
        is_statement: bool = False,
        owner: Value | None = None,
        given: Given | None = None,
    ) -> Value | None:
        """Emits the body of a called function and returns its result; None if it returns nothing.

        `owner`: the struct on which a method is called. `given`: arguments that are evaluated already; None evaluates those of
        `node`.
        """
        state = self._state
        func = callee.func if isinstance(callee, BoundFunc) else callee
        if isinstance(callee, BoundFunc):
            owner = lifted(state, callee.owner)
        form = self._form(func)
        func = form or func
        arguments = self._given(func, node, owner, given)
        around = self._recursion_around(func, arguments)
        if around is not None:
            return self._called_again(around, arguments, node)
        if len(state.frames) > MAX_INLINE_DEPTH:
            state.fail(
                f"{func.parsed.name} calls itself: mark it with @ks.real_func, which may", node
            )
        frame = Frame(func.parsed, called_at=state.frame.parsed.where(node))
        frame.is_form = form is not None or state.frame.is_form
        taken = frozenset(state.taken)
        self._bind(func, frame, node, owner, arguments)
        if func.is_real and calls_itself(func, scope_of(frame)):
            frame.recursion = self._begun(func, frame, node, arguments, taken)
        state.frames.append(frame)
        try:
            with state.collected() as body:
                self._run(func.parsed.tree.body)
        finally:
            state.frames.pop()
        if frame.left is not None:
            false = const(False, DType.bool_)
            frame.declared.append(
                SetLocal(frame.left.name, false, frame.parsed.where(frame.parsed.tree))
            )
        result, whole = frame.returned, (*frame.declared, *body)
        if frame.returns is not None:
            place, whole = frame.returns.in_locals(whole, state.default_float)
            result = loaded(place)
        if frame.recursion is not None:
            whole = self._as_loop(frame.recursion, whole, frame)
            result = None if frame.recursion.result is None else loaded(frame.recursion.result)
        for statement in whole:
            state.emit(statement)
        if result is not None and func.is_real and func.returns is None and state.rules.is_strict:
            state.fail(
                f"the real function {func.parsed.name} does not say what it returns: write the type behind its arguments",
                node,
                KernelSyntaxError,
            )
        is_number = isinstance(func.returns, DType) or func.returns in (int, float, bool)
        is_typed = is_number or func.is_real or not state.rules.is_strict
        if isinstance(result, MatrixValue) and is_number:
            items = [self._expr.converted(i, func.returns, node) for i in result.items]
            return MatrixValue(result.shape, tuple(items))  # type: ignore[arg-type]
        if result is not None and is_typed and func.returns is not None:
            result = self._expr.converted(result, func.returns, node)
        return result

    # --- functions that call themselves

    def _begun(
        self,
        func: Func,
        frame: Frame,
        node: ast.Call,
        arguments: dict[str, Value],
        taken: frozenset[str],
    ) -> Recursion:
        """The recursion of a function that is called from outside. Its arguments are in locals of its frame."""
        state, bound = self._state, frame.scopes[-1]
        copied = _copied(func, arguments)
        for name in copied:
            argument = bound[name]
            assert not isinstance(argument, LoopVar)
            if not all(isinstance(x, LocalVar) for x in leaves(argument)):
                frame.bind(name, self._expr.places.new_local(name, loaded(argument), node))
        result: Value | None = None
        if func.returns is not None:
            if not surely_leaves(func.parsed.tree.body):
                text = f"{func.parsed.name} calls itself, and may end without a return: end it with one"
                state.fail(text, node, KernelSyntaxError)
            zero = self._expr.zero(func.returns, node)
            result, declared = self._expr.places.declared("result", zero)
            taken |= {s.name for s in declared}
            for statement in declared:
                state.emit(statement)
        return Recursion(
            func,
            {n: x for n, x in arguments.items() if n not in copied},
            {n: frame.scopes[-1][n] for n in copied},  # type: ignore[misc]
            result,
            taken,
            state.fresh("calls"),
        )

    def _recursion_around(self, func: Func, arguments: dict[str, Value]) -> Recursion | None:
        """The recursion that a call belongs to: the function is being compiled, with the same templates."""
        for frame in self._state.frames:
            found = frame.recursion
            if found is not None and found.func is func:
                constants = found.constants.items()
                if all(_is_same(x, arguments[name]) for name, x in constants):
                    return found
        return None

    def _called_again(
        self, recursion: Recursion, arguments: dict[str, Value], node: ast.Call
    ) -> Value | None:
        """Emits a call of a function in its own body, as the mark of a jump, and returns its result."""
        state, places = self._state, self._expr.places
        annotations = {n: a for n, a, _ in recursion.func.parameters}
        kept: dict[str, Value] = {}
        for name in recursion.parameters:
            x = self._as_declared(loaded(arguments[name]), annotations[name], node)
            kept[name] = places.kept(x, node)
        with state.collected() as given:
            for name, place in recursion.parameters.items():
                places.assign(place, kept[name], node)
        where = state.frame.parsed.where(node)
        state.emit(SetLocal(recursion.marker, const(len(recursion.calls), DType.i32), where))
        recursion.calls = (*recursion.calls, tuple(given))
        if recursion.result is None:
            return None
        return places.new_local("returned", loaded(recursion.result), node)

    def _as_loop(
        self, recursion: Recursion, whole: tuple[Stmt, ...], frame: Frame
    ) -> tuple[Stmt, ...]:
        """The statements of a call, with jumps for the calls of the function by itself."""
        if not recursion.calls:
            return whole
        where = frame.parsed.where(frame.parsed.tree)
        parameters = [
            x.name
            for place in recursion.parameters.values()
            for x in leaves(place)
            if isinstance(x, LocalVar)
        ]
        unread = frozenset(f.name for f in self._state.flags if not f.is_read)
        recursion.outside |= unread  # flags that leave the kernel
        machine = Machine(self._state.fresh, recursion, where)
        return tuple(machine.statements(whole, parameters))

    def _form(self, func: Func) -> Func | None:
        """Returns the function that is differentiated in place of `func`; None if `func` itself is compiled."""
        state = self._state
        if func.differentiable is None or state.frame.is_form:
            return None
        state.has_forms = True
        return func.differentiable if state.is_differentiated else None

    def _given(
        self, func: Func, node: ast.Call, owner: Value | None, before: Given | None
    ) -> dict[str, Value]:
        """The argument of each parameter."""
        parameters = func.parameters if owner is None else func.parameters[1:]
        given = self._arguments(parameters, node, func.parsed.name, before)
        return given if owner is None else {func.parameters[0][0]: owner, **given}

    def _bind(
        self,
        func: Func,
        frame: Frame,
        node: ast.Call,
        owner: Value | None,
        given: dict[str, Value],
    ) -> None:
        """Binds each parameter of a function to its argument.

        The parameter is bound to a copy if the function could change the argument, or the parameter.
        """
        parameters = list(func.parameters)
        written: set[str] = set()  # locals and arrays that the function changes by its parameters
        scope = scope_of(frame)
        if owner is not None:
            own = parameters.pop(0)[0]
            frame.bind(own, owner)
        changed = names_changed(scope)
        if owner is not None and own in changed:
            written |= names_of(owner)
        for name, annotation, _ in parameters:
            if isinstance(annotation, TemplateAnnotation) and name in changed:
                written |= names_of(given[name])
        for name, annotation, _ in parameters:
            argument = given[name]
            if isinstance(annotation, TemplateAnnotation) or not is_data(argument):
                frame.bind(name, argument)
                continue
            x = self._as_declared(loaded(argument), annotation, node)
            if name in changed or not self._stands(x, scope, name, written):
                frame.bind(name, self._expr.places.new_local(name, x, node))
            else:
                frame.bind(name, x)

    def _as_declared(self, x: Value, annotation: Any, node: ast.Call) -> Value:
        """An argument in the type of its parameter."""
        if annotation in (inspect.Parameter.empty, None):
            return x
        return self._expr.converted(x, annotation, node)

    def _stands(self, x: Value, scope: FunctionScope, name: str, written: set[str]) -> bool:
        """True if a parameter can be an alias of its argument `x`, which is cheap and stays the same.

        `written`: locals and arrays that the function may change.
        """
        if self._expr.places.is_fixed(x):
            return True
        read = [e for n in leaves(x) if isinstance(n, Typed) for e in walk(n.expr)]
        arrays = {e.array for e in read if isinstance(e, Load)}
        arrays |= {e.name for e in read if isinstance(e, LocalElement)}
        if written & {*arrays, *(e.name for e in read if isinstance(e, Local))}:
            return False
        tree = scope.parsed.tree
        only_returns = isinstance(tree.body[-1], ast.Return) and len(tree.body) == 1
        if only_returns and scope.parsed.uses[name] == 1 and isinstance(x, Typed):
            return not arrays or not stores(scope)
        return (
            all(isinstance(n, Typed) and isinstance(n.expr, Local) for n in leaves(x))
            and self._state.rules.is_strict
        )

    def _arguments(
        self,
        parameters: Sequence[tuple[str, Any, Any]],
        node: ast.Call,
        function: str,
        before: Given | None,
    ) -> dict[str, Value]:
        """Returns the argument of each parameter by name: a place for a template, a value otherwise."""
        state = self._state
        templates = {n for n, a, _ in parameters if isinstance(a, TemplateAnnotation)}
        names = [n for n, _, _ in parameters]
        given: dict[str, Value] = {}
        if before is not None or any(isinstance(a, ast.Starred) for a in node.args):
            values = self._expr.values(node.args) if before is None else before[0]
            given.update(zip(names, values, strict=False))
            count = len(values)
        else:
            values = self._expr.values(
                [a for a, n in zip(node.args, names, strict=False) if n not in templates]
            )
            plain = iter(values)
            for a, n in zip(node.args, names, strict=False):
                given[n] = self._expr.place(a) if n in templates else next(plain)
            count = len(node.args)
        for k in node.keywords:
            if k.arg in names and k.arg not in given:
                if before is not None:
                    given[k.arg] = before[1][k.arg]
                elif k.arg in templates:
                    given[k.arg] = self._expr.place(k.value)
                else:
                    given[k.arg] = self._expr.value(k.value)
            else:
                count = len(names) + 1
        for n, _, default in parameters:
            if n not in given and default is not inspect.Parameter.empty:
                given[n] = lifted(state, default)
        if len(given) != len(names) or count > len(names):
            state.fail(
                f"{function} takes {len(names)} arguments, not {count}", node, KernelSyntaxError
            )
        return given


def _copied(func: Func, arguments: dict[str, Value]) -> list[str]:
    """The parameters that a call has in locals of its own: those of data that are no templates."""
    annotations = {n: a for n, a, _ in func.parameters}
    return [
        n
        for n, x in arguments.items()
        if is_data(x) and not isinstance(annotations[n], TemplateAnnotation)
    ]


def _is_same(a: Value, b: Value) -> bool:
    """True if two arguments are the same place, constant or object."""
    if not isinstance(a, Static) or not isinstance(b, Static):
        return a == b
    is_equal = isinstance(a.python, int | float | str) and a.python == b.python
    return a.python is b.python or (is_equal and type(a.python) is type(b.python))
