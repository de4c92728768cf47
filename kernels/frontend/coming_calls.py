"""Calls that a program is about to make, as guessed from the source of the functions that are running.

Statements from the current line on are followed, loops over known numbers and lists, and functions that they call. Names have the
values that they have now. No code of the program runs: of Python, only arithmetic of numbers, ranges, and elements of lists are
evaluated. A guess may be wrong; what is not known is left open.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import linecache
import operator
import sys
from collections import ChainMap
from collections.abc import Callable, Generator, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from .kernel import BoundKernel, Kernel
from .parse import closure_names
from .python_numbers import BINARY, UNARY

UNKNOWN: Final = object()  # the value of an expression that only a run of the program has
Names = MutableMapping[str, Any]
_PACKAGE: Final = __name__.removesuffix(".kernels.frontend.coming_calls")
_MODULE = "<module>"
_MOST_FRAMES = 6  # of functions that have called one another
_MOST_CALLS = 6  # of functions within one another, that are followed
_MOST_STATEMENTS = 5000
_MOST_ITEMS = 1000  # of a list that is copied
_FULL_ITERATIONS = 8  # of a loop; more of them only as long as they have calls that others had not
_MOST_ITERATIONS = 64
_TRUTHS = (bool, int, float, str, list, tuple, range)  # whose truth Python knows by itself
_MOST_BITS = 62
_REFERENCES = 3  # to what was read of a frame: of the frame, a name, an argument
_MOST_NUMBER = 1 << _MOST_BITS
# Powers are left out, and shifts by many bits: their numbers have no end.
_OPERATORS: Final[dict[Any, Callable[..., Any]]] = {  # by types of syntax
    **{kind: function for kind, function in BINARY.items() if kind is not ast.Pow},
    **UNARY,
    ast.LShift: lambda a, b: a << b if abs(b) < _MOST_BITS else UNKNOWN,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


@dataclass(frozen=True)
class ComingCall:
    """A call of a kernel with values of its arguments, each perhaps UNKNOWN."""

    kernel: Kernel
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[Any, ...]:
        """Key of the call: the kernel and the values, objects by their identity."""
        values = (*self.args, *self.kwargs.values())
        return (id(self.kernel), *((type(x), x if _is_number(x) else id(x)) for x in values))


def coming_calls(
    frame: FrameType | None, goes_on: Callable[[], bool] = lambda: True
) -> Iterator[ComingCall]:
    """Yields calls that the functions of `frame` may make from their current lines on, the innermost function first.

    Functions of this package are left out. Nothing more is read once `goes_on` is false.
    """
    followed, n_left = _Followed(goes_on), _MOST_FRAMES
    while frame is not None and n_left:
        if _is_ours(frame.f_globals.get("__name__")):
            frame = frame.f_back
            continue
        n_left -= 1
        code = frame.f_code
        body = _body(code)
        if body is not None:
            unset = dict.fromkeys(code.co_varnames, UNKNOWN)
            names = ChainMap({}, _locals_of(frame), unset, frame.f_globals, vars(builtins))
            yield from followed.after(body, frame.f_lineno, names)
        frame = frame.f_back


def _locals_of(frame: FrameType) -> dict[str, Any]:
    """Returns a copy of the local names of a frame. {} for a function that has asked for `locals()` itself.

    Before Python 3.13 a function's frame keeps what was read of it, and all of these objects with it: that is emptied at once,
    unless the function's own code holds it.
    """
    is_optimised = bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED)
    read = frame.f_locals
    if not is_optimised and type(read) is not dict:  # of a class, which may run code
        return {}
    found = dict(read)
    if sys.version_info < (3, 13) and is_optimised:
        if sys.getrefcount(read) > _REFERENCES:
            return {}
        read.clear()
    return found


Followed = Generator[ComingCall, None, ast.stmt | None]


class _Followed:
    """Statements that are followed, at most _MOST_STATEMENTS in all. Each different call is yielded once."""

    def __init__(self, goes_on: Callable[[], bool]) -> None:
        self._goes_on, self._n_left = goes_on, _MOST_STATEMENTS
        self._depth = 0
        self._seen = set[tuple[Any, ...]]()

    def after(self, body: Sequence[ast.stmt], line: int, names: Names) -> Iterator[ComingCall]:
        """Yields the calls of a function that stands at a line: of this statement, and of those behind it."""
        behind = [s for s in body if (s.end_lineno or s.lineno) >= line]
        if behind and behind[0].lineno <= line:
            for inner in _blocks(behind[0]):
                if inner[0].lineno <= line <= (inner[-1].end_lineno or 0):
                    yield from self.after(inner, line, names)
                    if not isinstance(behind[0], ast.For | ast.While):
                        behind = behind[1:]  # loops begin once more
                    break
        yield from self._block(behind, names)

    def _block(self, body: Sequence[ast.stmt], names: Names) -> Followed:
        """Returns the statement that surely leaves the block, `break` for example; None if its end is reached."""
        for statement in body:
            self._n_left -= 1
            if self._n_left < 0 or not self._goes_on():
                return statement
            left = yield from self._statement(statement, names)
            if left is not None:
                return left
        return None

    def _statement(self, s: ast.stmt, names: Names) -> Followed:
        if isinstance(s, ast.For):
            yield from self._calls(s.iter, names)
            return (yield from self._loop(s, value_of(s.iter, names), names))
        if isinstance(s, ast.While):
            yield from self._calls(s.test, names)
            if _truth(s.test, names) is not False:
                return (yield from self._loop(s, range(_FULL_ITERATIONS), names))
        elif isinstance(s, ast.If):
            yield from self._calls(s.test, names)
            truth = _truth(s.test, names)
            if truth is not None:
                return (yield from self._block(s.body if truth else s.orelse, names))
            yield from self._block(s.body, names)
            yield from self._block(s.orelse, names)
        elif isinstance(s, ast.With | ast.Try):
            for item in getattr(s, "items", ()):
                yield from self._calls(item.context_expr, names)
            yield from self._block(s.body, names)
            for later in ("orelse", "finalbody"):
                yield from self._block(getattr(s, later, ()), names)
        elif isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names[s.name] = UNKNOWN
        else:
            yield from self._calls(s, names)
            _assign(s, names)
            if isinstance(s, ast.Return | ast.Raise | ast.Break | ast.Continue):
                return s
        return None

    def _loop(self, s: ast.For | ast.While, items: Any, names: Names) -> Followed:
        known = type(items) in (range, list, tuple)
        for k, item in enumerate(items if known else (UNKNOWN,)):
            n_seen = len(self._seen)
            if isinstance(s, ast.For):
                _bind(s.target, item, names)
            left = yield from self._block(s.body, names)
            if isinstance(left, ast.Break):
                return None
            if left is not None and not isinstance(left, ast.Continue):
                return left if known else None
            is_new = len(self._seen) > n_seen
            if k + 1 >= (_MOST_ITERATIONS if is_new else _FULL_ITERATIONS):
                break
        return (yield from self._block(s.orelse, names))

    def _calls(self, node: ast.AST, names: Names) -> Iterator[ComingCall]:
        """Yields the calls of kernels within an expression, and of the functions that it calls, in Python's order."""
        if isinstance(
            node, ast.Lambda | ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp
        ):
            return
        for part in ast.iter_child_nodes(node):
            yield from self._calls(part, names)
        if not isinstance(node, ast.Call):
            return
        callee: Any = value_of(node.func, names)
        if any(isinstance(a, ast.Starred) for a in node.args) or any(
            k.arg is None for k in node.keywords
        ):
            return
        args = tuple(value_of(a, names) for a in node.args)
        kwargs = {k.arg: value_of(k.value, names) for k in node.keywords if k.arg is not None}
        if type(callee) is BoundKernel:
            args = (callee.owner, *args)
            callee = callee.kernel
        elif type(callee) is MethodType:
            args = (callee.__self__, *args)
            callee = callee.__func__
        if type(callee) is Kernel:
            call = ComingCall(callee, args, kwargs)
            if call.key not in self._seen:
                self._seen.add(call.key)
                yield call
        elif type(callee) is FunctionType and not _is_ours(callee.__module__):
            yield from self._function(callee, args, kwargs)

    def _function(
        self, fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[ComingCall]:
        body = _body(fn.__code__)
        given = _arguments(fn, args, kwargs)
        if body is None or given is None or self._depth >= _MOST_CALLS:
            return
        unset = dict.fromkeys(fn.__code__.co_varnames, UNKNOWN)
        names = ChainMap(given, unset, closure_names(fn), fn.__globals__, vars(builtins))
        self._depth += 1
        try:
            yield from self._block(body, names)
        finally:
            self._depth -= 1


def value_of(node: ast.AST, names: Names) -> Any:
    """Returns the value of an expression; UNKNOWN if it would need code of the program."""
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return names.get(node.id, UNKNOWN)
        case ast.Tuple() | ast.List():
            items = [value_of(x, names) for x in node.elts]
            if any(x is UNKNOWN for x in items):
                return UNKNOWN
            return tuple(items) if isinstance(node, ast.Tuple) else items
        case ast.Subscript():
            return _item(value_of(node.value, names), value_of(node.slice, names))
        case ast.Attribute():
            return _attribute(value_of(node.value, names), node.attr)
        case ast.UnaryOp():
            return _computed(node.op, value_of(node.operand, names))
        case ast.BinOp():
            return _computed(node.op, value_of(node.left, names), value_of(node.right, names))
        case ast.Compare(ops=[op], comparators=[right]):
            return _computed(op, value_of(node.left, names), value_of(right, names))
        case ast.IfExp():
            truth = _truth(node.test, names)
            return (
                UNKNOWN if truth is None else value_of(node.body if truth else node.orelse, names)
            )
        case ast.Call(func=ast.Name(), keywords=[]):
            args = [value_of(a, names) for a in node.args]
            return _sequence(value_of(node.func, names), args)
    return UNKNOWN


def _is_number(x: Any) -> bool:
    return type(x) in (bool, int, float)


def _truth(node: ast.AST, names: Names) -> bool | None:
    if isinstance(node, ast.BoolOp):
        parts = [_truth(x, names) for x in node.values]
        decisive = isinstance(node.op, ast.Or)
        if decisive in parts:
            return decisive
        return None if None in parts else not decisive
    found = value_of(node, names)
    return bool(found) if found is None or type(found) in _TRUTHS else None


def _computed(op: ast.AST, *operands: Any) -> Any:
    function = _OPERATORS.get(type(op))
    if function is None or not all(map(_is_number, operands)):
        return UNKNOWN
    try:
        found = function(*operands)
    except (ArithmeticError, TypeError, ValueError):
        return UNKNOWN
    return found if found is not UNKNOWN and -_MOST_NUMBER < found < _MOST_NUMBER else UNKNOWN


def _item(owner: Any, index: Any) -> Any:
    if type(owner) not in (list, tuple, range) or type(index) is not int:
        return UNKNOWN
    try:
        return owner[index]
    except IndexError:
        return UNKNOWN


def _sequence(function: Any, args: list[Any]) -> Any:
    """Returns what Python's `range`, `len`, `reversed` and `enumerate` give for numbers and lists."""
    if function is range and all(type(a) is int for a in args):
        try:
            return range(*args)
        except (TypeError, ValueError):
            return UNKNOWN
    if (
        len(args) != 1
        or type(args[0]) not in (list, tuple, range)
        or _n_items(args[0]) > _MOST_ITEMS
    ):
        return UNKNOWN
    if function is len:
        return len(args[0])
    if function is reversed:
        return args[0][::-1]
    return list(enumerate(args[0])) if function is enumerate else UNKNOWN


def _n_items(x: list[Any] | tuple[Any, ...] | range) -> int:
    try:
        return len(x)
    except OverflowError:  # of a long range
        return sys.maxsize


def _attribute(owner: Any, name: str) -> Any:
    """Returns an attribute of a module, or of an object as it stands there: nothing that a property would compute."""
    kind = type(owner)
    if kind is ModuleType:
        return vars(owner).get(name, UNKNOWN)
    getter: Any = kind.__getattribute__
    if owner is UNKNOWN or getter is not object.__getattribute__:
        return UNKNOWN
    found = next((vars(k)[name] for k in kind.__mro__ if name in vars(k)), UNKNOWN)
    if type(found) is Kernel:
        return BoundKernel(found, owner)
    if type(found) is FunctionType:
        return MethodType(found, owner)
    if found is not UNKNOWN and any("__get__" in vars(k) for k in type(found).__mro__):
        return UNKNOWN
    try:
        return object.__getattribute__(owner, "__dict__").get(name, found)
    except AttributeError:
        return found


def _assign(s: ast.stmt, names: Names) -> None:
    if isinstance(s, ast.Assign):
        for target in s.targets:
            if isinstance(target, ast.Tuple) and isinstance(s.value, ast.Tuple):
                _bind(target, tuple(value_of(x, names) for x in s.value.elts), names)
            else:
                _bind(target, value_of(s.value, names), names)
    elif isinstance(s, ast.AnnAssign) and s.value is not None:
        _bind(s.target, value_of(s.value, names), names)
    elif isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name):
        was = names.get(s.target.id, UNKNOWN)
        names[s.target.id] = _computed(s.op, was, value_of(s.value, names))


def _bind(target: ast.expr, value: Any, names: Names) -> None:
    if isinstance(target, ast.Name):
        names[target.id] = value
    elif isinstance(target, ast.Tuple | ast.List):
        fits = type(value) in (tuple, list) and len(value) == len(target.elts)
        for k, part in enumerate(target.elts):
            _bind(part, value[k] if fits else UNKNOWN, names)
    elif isinstance(target, ast.Starred):
        _bind(target.value, UNKNOWN, names)


def _arguments(
    fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any] | None:
    """Returns the names of a function's parameters with their values; None if the call does not fit."""
    try:
        bound = inspect.signature(fn, follow_wrapped=False).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None
    bound.apply_defaults()
    return dict(bound.arguments)


def _blocks(s: ast.stmt) -> list[list[ast.stmt]]:
    """Returns the blocks of statements within a statement, except those of functions and classes."""
    if isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return []
    blocks = [getattr(s, name, []) for name in ("body", "orelse", "finalbody")]
    blocks += [handler.body for handler in getattr(s, "handlers", [])]
    return [block for block in blocks if block]


def _body(code: CodeType) -> list[ast.stmt] | None:
    """Returns the statements of a function or module; None if its source is not there."""
    bodies = _bodies(code.co_filename, tuple(linecache.getlines(code.co_filename)))
    return bodies.get((code.co_name, 0 if code.co_name == _MODULE else code.co_firstlineno))


@functools.lru_cache(maxsize=16)
def _bodies(file: str, lines: tuple[str, ...]) -> dict[tuple[str, int], list[ast.stmt]]:
    """Returns the statements of all functions of a file, by name and first line; those of the module at line 0."""
    try:
        module = ast.parse("".join(lines), file)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    found = {(_MODULE, 0): module.body}
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef):
            first = min((node.lineno, *(d.lineno for d in node.decorator_list)))
            found[node.name, first] = node.body
    return found


def _is_ours(module: Any) -> bool:
    return isinstance(module, str) and (module == _PACKAGE or module.startswith(f"{_PACKAGE}."))
