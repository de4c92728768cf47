"""`@ks.func`: functions whose body takes the place of each call."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..ir.kernel import For, If, SetLocal, Store, Update
from ..ir.simplify import is_cheap_and_fixed
from .parse import ParsedFunction, parse_function
from .scopes import Frame, LocalVar, Pass
from .typing_rules import Typed, Value, settle

MAX_INLINE_DEPTH = 32
RunBody = Callable[[Sequence[ast.stmt]], None]


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


def inline(
    state: Pass,
    run: RunBody,
    callee: object,
    arguments: list[Value],
    node: ast.Call,
    is_statement: bool,
) -> Value | None:
    """The body of a `ks.func` in place of its call, and what it returns.

    Its locals get names of their own. `run` compiles statements in the current frame. LanguageError
    if `callee` is no Func, and if a call within an expression writes to an array.
    """
    if not isinstance(callee, Func):
        is_kernel = type(callee).__name__ == "Kernel"
        advice = "call it from a sequence" if is_kernel else "decorate it with @ks.func"
        state.fail(f"`{ast.unparse(node.func)}` cannot be called in a kernel: {advice}", node)
    parsed = callee.parsed
    if len(state.frames) > MAX_INLINE_DEPTH:
        state.fail(f"{parsed.name} calls itself: recursion is not supported in a kernel", node)
    frame = Frame(parsed)
    _bind_arguments(state, frame, arguments, node)
    before = len(state.blocks[-1])
    state.frames.append(frame)
    run(parsed.tree.body)
    state.frames.pop()
    if not is_statement and any(_writes_memory(s) for s in state.blocks[-1][before:]):
        state.fail(
            f"{parsed.name} writes to an array: it can only be called as a statement of its own",
            node,
        )
    return frame.returned


def _bind_arguments(state: Pass, frame: Frame, arguments: list[Value], node: ast.Call) -> None:
    """Parameters stand for their arguments, or for a copy where an argument would be evaluated
    twice or too late.
    """
    tree = frame.parsed.tree
    parameters = [a.arg for a in tree.args.args]
    if len(arguments) != len(parameters):
        state.fail(f"{tree.name} takes {len(parameters)} arguments, not {len(arguments)}", node)
    only_returns = isinstance(tree.body[-1], ast.Return) and len(tree.body) == 1
    for name, argument in zip(parameters, arguments, strict=True):
        uses = sum(isinstance(n, ast.Name) and n.id == name for n in ast.walk(tree))
        stands = not isinstance(argument, Typed) or (
            not frame.parsed.assigned[name]
            and (is_cheap_and_fixed(argument.expr) or (only_returns and uses == 1))
        )
        if stands or not isinstance(argument, Typed):
            frame.bind(name, argument)
        else:
            value = settle(argument, state.default_float)
            fresh = state.fresh(name)
            state.emit(SetLocal(fresh, value, state.frame.parsed.where(node)))
            frame.bind(name, LocalVar(fresh, value.dtype, weak=False))


def _writes_memory(s: object) -> bool:
    match s:
        case Store() | Update():
            return True
        case For(body=body):
            return any(_writes_memory(x) for x in body)
        case If(then=then, orelse=orelse):
            return any(_writes_memory(x) for x in (*then, *orelse))
    return False
