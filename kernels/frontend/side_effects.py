"""Side effects by syntax, before compilation: names and places that statements may change, also through calls."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..fields import methods
from ..fields.compound import StructType
from . import values
from .func import BoundFunc, Func
from .intrinsics import ATOMIC_CALLS, TemplateAnnotation
from .parse import ParsedFunction
from .scopes import Frame

_Seen = frozenset[tuple[int, str]]


@dataclass(frozen=True)
class FunctionScope:
    """Function with its names: `known(name)` returns the Python object of a local name, None if it has none."""

    parsed: ParsedFunction
    known: Callable[[str], Any]

    def object(self, node: ast.expr) -> Any:
        """Returns the Python object that a name or chain of attributes denotes, None if it is unknown.

        For a struct value it is the struct's type.
        """
        if isinstance(node, ast.Attribute):
            owner = self.object(node.value)
            if isinstance(owner, StructType):
                method = owner.methods.get(node.attr)
                return BoundFunc(method, owner) if isinstance(method, Func) else None
            return None if owner is None else getattr(owner, node.attr, None)
        if not isinstance(node, ast.Name):
            return None
        x = self.known(node.id)
        is_own = self.parsed.assigned[node.id] or node.id in _parameters(self.parsed)
        if x is None and is_own:
            return self._struct_of(node.id)
        return self.parsed.free(node.id)[1] if x is None else x

    def _struct_of(self, name: str) -> StructType | None:
        """Returns the struct type of a local name that is assigned `Type(...)`; None for other names."""
        for node in self.parsed.nodes:
            match node:
                case ast.Assign(targets=[ast.Name(id=target)], value=ast.Call(func=maker)) if (
                    target == name and not self.parsed.assigned[root_of(maker)]
                ):
                    kind = self.object(maker)
                    return kind if isinstance(kind, StructType) else None
        return None

    def called(self, call: ast.Call) -> tuple[Func, FunctionScope] | None:
        """Returns the `ks.func` that a call names, with its scope; None for other calls."""
        callee = self.object(call.func)
        if isinstance(callee, BoundFunc):
            own = callee.func.parameters[0][0]
            return callee.func, FunctionScope(
                callee.func.parsed, lambda name: callee.owner if name == own else None
            )
        return (
            (callee, FunctionScope(callee.parsed, _nothing)) if isinstance(callee, Func) else None
        )


def scope_of(frame: Frame) -> FunctionScope:
    """Returns the scope of a function that is being compiled, with the names it has now."""

    def known(name: str) -> Any:
        x = frame.find(name)
        return (
            x.python
            if isinstance(x, values.Static)
            else x.kind
            if isinstance(x, values.StructValue)
            else None
        )

    return FunctionScope(frame.parsed, known)


def calls_itself(func: Func, scope: FunctionScope) -> bool:
    """True if a function calls itself, also by functions that it calls. `scope` is its own."""
    seen, left = {id(func)}, [scope]
    while left:
        for call in _calls([(inside := left.pop()).parsed.tree]):
            found = inside.called(call)
            if found is not None and found[0] is func:
                return True
            if found is not None and id(found[0]) not in seen:
                seen.add(id(found[0]))
                left.append(found[1])
    return False


def names_changed(scope: FunctionScope, seen: _Seen = frozenset()) -> set[str]:
    """Returns the names that a function assigns or updates, in whole or in part, itself or through its calls.

    `seen`: (function, parameter) pairs that the recursion has visited.
    """
    assigned = {name for name, count in scope.parsed.assigned.items() if count}
    return assigned | scope.parsed.mutated | names_passed_to_change(scope, seen)


def names_passed_to_change(scope: FunctionScope, seen: _Seen = frozenset()) -> set[str]:
    """Returns the names that a function passes, in whole or in part, to functions that change them."""
    calls = scope.parsed.calls
    return {root_of(place) for call in calls for place in _given_to_change(scope, call, seen)}


def places_changed(scope: FunctionScope, nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """Yields the places in statements or expressions that these may change, such as `x[i]` in `x[i] = 1`."""
    for node in (n for top in nodes for n in ast.walk(top)):
        match node:
            case ast.Name(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
                yield node
            case ast.Attribute(ctx=ast.Store()):
                yield node
            case ast.Call():
                yield from _given_to_change(scope, node, frozenset())


def calls_store(scope: FunctionScope, nodes: Iterable[ast.AST], seen: _Seen = frozenset()) -> bool:
    """True if functions called in these statements or expressions may write elements of arrays.

    Unknown functions count as writing.
    """
    return any(_call_stores(scope, call, seen) for call in _calls(nodes))


def stores(scope: FunctionScope, seen: _Seen = frozenset()) -> bool:
    """True if a function may write elements of arrays, itself or through functions that it calls."""
    body = [scope.parsed.tree]
    return (
        any(isinstance(p, ast.Subscript | ast.Attribute) for p in places_changed(scope, body))
        or any(_fills(c) for c in _calls(body))
        or calls_store(scope, body, seen)
    )


def names_of(x: values.Value) -> set[str]:
    """Returns the names of the locals and arrays that a value consists of."""
    match x:
        case values.LocalVar(name=name):
            return {name}
        case values.LocalRef(name=name) | values.LocalItem(array=values.LocalRef(name=name)):
            return {name}
        case values.Element(array=param) | values.ArrayRef(param=param):
            return {param.name}
        case values.OneOf(options=options):
            return {o.name for o in options}
        case values.MatrixValue(items=items) | values.TupleValue(items=items):
            return {name for i in items for name in names_of(i)}
        case values.StructValue(members=members) | values.StructArray(members=members):
            return {name for _, m in members for name in names_of(m)}
    return set()


def root_of(place: ast.expr) -> str:
    """Returns the name that a place starts with, such as `x` for `x[i].pos`; "" if it starts with none."""
    while isinstance(place, ast.Subscript | ast.Attribute):
        place = place.value
    return place.id if isinstance(place, ast.Name) else ""


def is_chain(node: ast.expr) -> bool:
    """True if an expression is a name, or attributes of a name: evaluating it has no effect."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _nothing(_: str) -> None:
    return None


def _parameters(parsed: ParsedFunction) -> set[str]:
    a = parsed.tree.args
    return {p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)}


def _calls(nodes: Iterable[ast.AST]) -> Iterator[ast.Call]:
    return (n for top in nodes for n in ast.walk(top) if isinstance(n, ast.Call))


def _fills(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "fill"


def _given_to_change(scope: FunctionScope, call: ast.Call, seen: _Seen) -> Iterator[ast.expr]:
    """Yields arguments that a call may change: templates, the owner of a method, an atomic update's place."""
    if isinstance(call.func, ast.Attribute) and _fills(call):
        yield call.func.value
        return
    found = scope.called(call)
    if found is None:
        callee = scope.object(call.func)
        if call.args and any(callee is c for c in ATOMIC_CALLS):
            yield call.args[0]
        return
    func, inner = found
    parameters = list(func.parameters)
    given: list[tuple[str, ast.expr]] = []
    if inner.known(parameters[0][0] if parameters else "") is not None:
        name, _, _ = parameters.pop(0)
        assert isinstance(call.func, ast.Attribute)
        given.append((name, call.func.value))
    templates = [(n, isinstance(a, TemplateAnnotation)) for n, a, _ in parameters]
    given += [(n, x) for (n, is_one), x in zip(templates, call.args, strict=False) if is_one]
    given += [
        (n, k.value) for k in call.keywords for n, is_one in templates if is_one and n == k.arg
    ]
    for name, argument in given:
        key = (id(func), name)
        if key not in seen and name in names_changed(inner, seen | {key}):
            yield argument


def _call_stores(scope: FunctionScope, call: ast.Call, seen: _Seen) -> bool:
    found = scope.called(call)
    if found is None:
        is_method = isinstance(call.func, ast.Attribute) and call.func.attr in methods.METHODS
        return scope.object(call.func) is None and not is_method
    func, inner = found
    key = (id(func), "")
    return key not in seen and stores(inner, seen | {key})
