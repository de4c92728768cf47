"""Statements of a kernel: compiles Python syntax to IR statements."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from ..fields.compound import StructType, are_one_type
from ..ir.kernel import Assert, Const, DType, If, Part, Print, SetLocal, Stmt
from ..ir.simplify import const
from .assignments import Assignments
from .control import escapes, flags_after, none_of, surely_leaves
from .errors import KernelSyntaxError, KernelTypeError, LanguageError
from .expressions import Expressions, construct_name
from .inlining import Inliner
from .intrinsics import grouped, loop_config, static_assert, static_print
from .loops import Loops
from .lvalues import Places
from .printing import parts_of
from .recursion import Recursion
from .results import Returns
from .scopes import Binding, LoopVar, Pass
from .side_effects import is_chain
from .values import (
    ArrayRef,
    LocalVar,
    Static,
    StructValue,
    TupleValue,
    Value,
    is_data,
    loaded,
)

_NAMES: dict[type[ast.AST], tuple[str, str]] = {
    ast.Try: ("try", "remove it"),
    ast.With: ("with", "move it outside the kernel"),
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
    """Compiles the statements of the function being compiled into the current block."""

    def __init__(self, state: Pass, returns: Any = None) -> None:
        self._state = state
        self._returns = returns  # the type that the kernel says it returns
        places = Places(state)
        self._expr = Expressions(state, places, self._inline)
        self._inliner = Inliner(state, self._expr, self.run)
        self._assignments = Assignments(state, self._expr)
        self._loops = Loops(state, self._expr, self)

    def run(self, statements: Sequence[ast.stmt]) -> str | None:
        """Compiles statements. Returns the kind of jump that they always end with, None if there is none."""
        state = self._state
        for k, s in enumerate(statements):
            if k == 0 and _is_docstring(s):
                continue
            rest = statements[k + 1 :]
            if isinstance(s, ast.If) and rest and self.taken(s) is None:
                if surely_leaves(s.body):
                    return self._if(s, s.body, [*s.orelse, *rest])
                if surely_leaves(s.orelse):
                    return self._if(s, [*s.body, *rest], s.orelse)
            left = self._statement(s)
            if left is not None:
                return left
            if rest and (flags := flags_after(state, escapes([s], self.taken))):
                with state.collected() as then:
                    state.frame.depth += 1
                    with state.guarded():
                        self.run(rest)
                    state.frame.depth -= 1
                if then:
                    state.emit(If(none_of(flags), tuple(then), (), state.frame.parsed.where(s)))
                return None
        return None

    def taken(self, node: ast.If, unbound: frozenset[str] = frozenset()) -> list[ast.stmt] | None:
        """Returns the branch of an `if` that is decided at compile time; None for any other.

        The decision is unknown yet if the condition contains an index of an inner loop (`unbound`), or a name that has no value so
        far.
        """
        frame = self._state.frame
        names = [n for n in ast.walk(node.test) if isinstance(n, ast.Name)]
        bound_inside = {n.id for n in names if isinstance(n.ctx, ast.Store)}
        for name in {n.id for n in names} - bound_inside:
            is_local = frame.parsed.assigned[name] or name in frame.parsed.targets
            if name in unbound or (is_local and frame.find(name) is None):
                return None
        inside = self._expr.static_argument(node.test)
        if inside is None:
            return None
        try:
            return node.body if self._expr.static(inside) else node.orelse
        except LanguageError:  # what is known only at run time: refused where it is compiled
            return None

    def _statement(self, node: ast.stmt) -> str | None:
        match node:
            case ast.Assign(targets=targets, value=value):
                self._assignments.assign(targets, value)
            case ast.AugAssign():
                self._assignments.augmented(node)
            case ast.AnnAssign():
                self._assignments.annotated(node)
            case ast.For():
                return self._loops.run(node)
            case ast.While():
                self._loops.run_while(node)
            case ast.If():
                return self._if(node, node.body, node.orelse)
            case ast.Expr():
                self._expression_statement(node)
            case ast.Assert():
                self._assert(node)
            case ast.Pass():
                pass
            case ast.Break() | ast.Continue():
                return self._leave(node)
            case ast.Return():
                return self._return(node)
            case _:
                name, advice = _NAMES.get(
                    type(node),
                    (construct_name(node), "rewrite it with loops, conditions and assignments"),
                )
                self._state.fail(
                    f"{name} is not supported in a kernel: {advice}", node, KernelSyntaxError
                )
        return None

    # --- branches and jumps

    def _if(self, node: ast.If, body: Sequence[ast.stmt], other: Sequence[ast.stmt]) -> str | None:
        state, frame = self._state, self._state.frame
        inside = self._expr.static_argument(node.test)
        if inside is not None:
            return self.run(body if self._expr.static(inside) else other)
        condition = self._expr.condition(node.test)
        if isinstance(condition, Const):
            frame.in_branch += 1
            with frame.scope():
                left = self.run(body if condition.value else other)
            frame.in_branch -= 1
            return left
        frame.depth += 1
        branches: list[list[Stmt]] = []
        ends: list[str | None] = []
        scopes = []
        with state.guarded():
            for part in (body, other):
                with state.collected() as block:
                    frame.scopes.append({})
                    ends.append(self.run(part))
                    scopes.append(frame.scopes.pop())
                branches.append(block)
        frame.depth -= 1
        self._join(node, scopes, branches)
        if branches[0] or branches[1]:
            where = frame.parsed.where(node)
            state.emit(If(condition, tuple(branches[0]), tuple(branches[1]), where))
        return ends[0] if ends[0] == ends[1] else None

    def _join(
        self,
        node: ast.If,
        scopes: list[dict[str, Binding]],
        branches: list[list[Stmt]],
    ) -> None:
        """Merges the names assigned in the two branches of an `if`.

        A name that is first assigned in both branches has a value after the `if`. Names assigned in one branch end with it.
        """
        state, frame, places = self._state, self._state.frame, self._expr.places
        both = [
            n for n in scopes[0] if n in scopes[1] and _is_used_outside(frame.parsed.tree, node, n)
        ]
        frame.ended.update((scopes[0].keys() | scopes[1].keys()) - set(both))
        for name in both:
            values = [_loaded(scope[name]) for scope in scopes]
            if not all(_is_number_tree(v) for v in values):
                frame.ended.add(name)
                continue
            like = self._expr.operators.alike(values[0], values[1], node)
            place, declared = places.declared(name, like)
            for s in declared:
                state.emit(s)
            for value, block in zip(values, branches, strict=True):
                with state.collected() as more:
                    places.assign(place, value, node)
                block.extend(more)
            frame.bind(name, place)

    def _leave(self, node: ast.Break | ast.Continue) -> str:
        state, loops = self._state, self._state.frame.loops
        word = "break" if isinstance(node, ast.Break) else "continue"
        if not loops:
            state.fail(f"`{word}` is outside of a loop", node, KernelSyntaxError)
        jumps = loops[-1]
        if word == "break":
            if not jumps.can_break:
                state.fail(
                    "a parallel loop cannot be left by break: use a flag, or ks.loop_config(serialize=True) before it",
                    node,
                    KernelSyntaxError,
                )
            jumps.broken = jumps.broken or state.new_flag("broken")
            flag = jumps.broken
        else:
            jumps.continued = jumps.continued or state.new_flag("continued")
            flag = jumps.continued
        state.emit(SetLocal(flag.name, const(True, DType.bool_), state.frame.parsed.where(node)))
        return word

    def _return(self, node: ast.Return) -> str:
        state, frame = self._state, self._state.frame
        value = None if node.value is None else self._expr.value(node.value)
        if len(state.frames) == 1:
            self._return_from_kernel(value, node)
        elif frame.recursion is not None:
            self._return_from_recursion(frame.recursion, value, node)
        elif not frame.depth and frame.returns is None:
            frame.returned = value
            return "return"
        elif value is not None:
            self._give(loaded(value), node)
        if frame.depth:
            frame.left = frame.left or state.new_flag("left")
            state.emit(
                SetLocal(frame.left.name, const(True, DType.bool_), frame.parsed.where(node))
            )
        return "return"

    def _return_from_recursion(
        self, recursion: Recursion, value: Value | None, node: ast.Return
    ) -> None:
        if value is None or (isinstance(value, Static) and value.python is None):
            return
        if recursion.result is None:
            name = recursion.func.parsed.name
            self._state.fail(
                f"{name} calls itself and does not say what it returns: write the type behind its arguments, `-> ks.f32`",
                node,
                KernelSyntaxError,
            )
        given = self._declared(loaded(value), recursion.func.returns, node)
        self._expr.places.assign(recursion.result, given, node)

    def _return_from_kernel(self, value: Value | None, node: ast.Return) -> None:
        state = self._state
        if state.frame.loops and state.iteration is not None:
            state.fail(
                "a kernel cannot return from inside a parallel loop", node, KernelSyntaxError
            )
        if value is None or (isinstance(value, Static) and value.python is None):
            return
        if state.rules.is_strict and self._returns is None:
            state.fail(
                "the kernel returns a value and does not say of which type: write it behind its arguments, `-> ks.f32`",
                node,
                KernelSyntaxError,
            )
        self._give(self._declared(loaded(value), self._returns, node), node)

    def _give(self, x: Value, node: ast.Return) -> None:
        """Compiles a `return` of the value `x` in a function that may have further return statements."""
        frame, places = self._state.frame, self._expr.places
        if frame.returns is None and len(self._state.frames) == 1:
            frame.returns = Returns.of_kernel(x)
        elif frame.returns is None:
            place, declared = places.declared("result", x)
            frame.declared.extend(declared)
            frame.returns = Returns(place)
        where = frame.parsed.where(node)
        for place, number in places.pairs(frame.returns.place, x, node):
            assert isinstance(place, LocalVar)
            self._state.emit(frame.returns.give(place.name, number, where))

    def _declared(self, x: Value, kind: Any, node: ast.AST) -> Value:
        """Returns a value converted to the kernel's annotated result type: one type, or a tuple of types."""
        if isinstance(kind, tuple) and isinstance(x, TupleValue) and len(kind) == len(x.items):
            return TupleValue(
                tuple(self._declared(i, k, node) for i, k in zip(x.items, kind, strict=True))
            )
        converted = self._expr.converted(x, kind, node)
        given = x.kind if isinstance(x, StructValue) else None
        types = isinstance(given, StructType) and isinstance(kind, StructType)
        if types and self._state.rules.is_strict and not are_one_type(given, kind):
            self._state.fail(
                f"`{ast.unparse(node)}` gives {given} where {kind} is wanted: make one of this type",
                node,
                KernelTypeError,
            )
        return converted

    # --- expressions that stand alone

    def _expression_statement(self, node: ast.Expr) -> None:
        call = node.value
        if _is_docstring(node):
            return
        if not isinstance(call, ast.Call):
            if self._state.rules.is_strict:
                self._expr.value(call)
                return
            self._state.fail(
                f"`{ast.unparse(node)}` has no effect: assign its value, or remove it",
                node,
                KernelSyntaxError,
            )
        filled = self._filled(call)
        if filled is not None:
            self._fill(filled, call)
            return
        callee = self._expr.callee(call)
        if callee is print:
            self._print(call)
        elif callee in (static_print, static_assert):
            self._at_compile_time(callee, call)
        elif callee is loop_config:
            self._configure(call)
        else:
            self._expr.call_statement(call)

    def _filled(self, call: ast.Call) -> ArrayRef | None:
        """Returns the array of a call `array.fill(value)`; None for any other call."""
        if (
            not isinstance(call.func, ast.Attribute)
            or call.func.attr != "fill"
            or not is_chain(call.func)
        ):
            return None
        owner = self._expr.place(call.func.value)
        return owner if isinstance(owner, ArrayRef) else None

    def _fill(self, array: ArrayRef, call: ast.Call) -> None:
        """Compiles `array.fill(value)` to a loop that stores to all elements."""
        if len(call.args) != 1 or call.keywords:
            self._state.fail(
                f"`{ast.unparse(call)}`: fill takes one value", call, KernelSyntaxError
            )
        value = self._expr.value(call.args[0])
        if not is_data(value):
            self._state.fail(
                f"`{ast.unparse(call)}` fills an array with something that is not a number",
                call,
                KernelTypeError,
            )
        frame = self._state.frame
        with frame.scope():
            frame.bind(".array", array)
            frame.bind(".grouped", Static(grouped))
            frame.bind(".value", self._expr.places.kept(value, call))
            self._loops.run(ast.copy_location(_filling(), call))

    def _print(self, call: ast.Call) -> None:
        parts, formats = parts_of(self._expr, call)
        self._state.emit(Print(parts, self._state.frame.parsed.where(call), formats))

    def _at_compile_time(self, callee: object, call: ast.Call) -> None:
        values = [self._expr.static(a, KernelTypeError) for a in call.args]
        if callee is static_print:
            print(*values)
        elif not values or not values[0]:
            shown = ast.unparse(call.args[0]) if call.args else "nothing"
            text = f"`{shown}` is false when the kernel is compiled"
            self._state.fail(str(values[1]) if len(values) > 1 else text, call)

    def _configure(self, call: ast.Call) -> None:
        """Compiles `loop_config(...)`: `serialize` makes the next loop run in order.

        Block sizes are ignored, since search finds them.
        """
        for keyword in call.keywords:
            if keyword.arg == "serialize":
                self._state.is_serial = bool(self._expr.static(keyword.value))

    def _assert(self, node: ast.Assert) -> None:
        state = self._state
        if not state.is_debug:
            if self._expr.may_write(node.test):
                self._expr.value(node.test)
            return
        parts: tuple[Part, ...] = ()
        formats: tuple[str, ...] = ()
        message = ast.unparse(node.test)
        if isinstance(node.msg, ast.Constant):
            message = str(node.msg.value)
        elif node.msg is not None:
            parts, formats = parts_of(
                self._expr, ast.copy_location(ast.Call(node.test, [node.msg], []), node), end=""
            )
            message = ""
        condition = self._expr.condition(node.test)
        state.emit(Assert(condition, message, parts, state.frame.parsed.where(node), formats))

    def _inline(self, *args: object, **named: object) -> Value | None:
        return self._inliner.call(*args, **named)  # type: ignore[arg-type]


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_used_outside(tree: ast.FunctionDef, branch: ast.If, name: str) -> bool:
    """True if a function reads a name outside of the statement `branch`."""
    inside = {id(n) for n in ast.walk(branch)}
    return any(
        isinstance(n, ast.Name)
        and n.id == name
        and isinstance(n.ctx, ast.Load)
        and id(n) not in inside
        for n in ast.walk(tree)
    )


def _loaded(x: Binding) -> Value:
    return x.value if isinstance(x, LoopVar) else loaded(x)


def _is_number_tree(x: Value) -> bool:
    return is_data(x) and not isinstance(x, TupleValue)


def _filling() -> ast.For:
    """Returns the syntax of a loop that sets each element of the name `.array` to the name `.value`.

    Names that begin with a dot cannot be those of a program.
    """
    store, load = ast.Store(), ast.Load()
    element = ast.Subscript(ast.Name(".array", load), ast.Name(".cell", load), store)
    return ast.For(
        ast.Name(".cell", store),
        ast.Call(ast.Name(".grouped", load), [ast.Name(".array", load)], []),
        [ast.Assign([element], ast.Name(".value", load))],
        [],
    )
