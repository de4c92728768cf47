"""Kernels that can be traced ahead of their first call: tracing them runs no Python code of the program, and changes nothing.

The types of their arguments are known without a call, and values of templates from one that is to come (coming_calls.py). They
name only numbers, types, functions of the language, and fields whose trees
cannot change any more. Nothing of the trace is kept: the first call traces the kernel again, with the values that global names have
then.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping
from inspect import Parameter
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from ..fields.compound import MatrixType, StructType
from ..fields.field import AbstractField, AbstractLeaf
from ..fields.matrix import Matrix, Vector
from ..fields.struct_field import StructField
from ..fields.structs import Struct
from ..fields.tree import SNode
from ..ir.kernel import DType
from .func import Func
from .intrinsics import (
    NdarrayAnnotation,
    grouped,
    loop_config,
    ndrange,
    static,
    static_assert,
    static_print,
)
from .parse import ParsedFunction

_PACKAGE: Final = __name__.removesuffix(".kernels.frontend.ahead")
_UNKNOWN: Final = object()  # an object that only tracing finds: a value of the kernel, or nothing
_NUMBERS = (bool, int, float, complex, str)  # no types of the program made of them
_OF_NUMPY = (np.generic, np.dtype, DType)
_BUILTINS = (
    range,
    min,
    max,
    abs,
    int,
    float,
    bool,
    len,
    round,
    sum,
    pow,
    zip,
    enumerate,
    tuple,
    list,
)
_ARRAYS = (np.zeros, np.ones, np.empty, np.full)
_IN_STATIC = (*_BUILTINS, ndrange, grouped, static, Matrix, Vector)
_FACTS = frozenset(("shape", "n", "m", "dtype"))  # of fields, that Python may read at any time
_OF_FIELDS = _FACTS | frozenset(
    ("parent", "length", "append", "deactivate", "is_active", "fill", *"xyzw")
)
_DERIVATIVES = ("grad", "dual")
# Attributes of fields that make what is not there yet, or run kernels that wait.
_LAZY = frozenset(
    (
        *_DERIVATIVES,
        "array",
        "readable",
        "writable",
        "storage",
        "trailing",
        "cells",
        "snode",
        "structure",
    )
)
_AT_COMPILE_TIME = (static, static_assert, loop_config)  # whose arguments Python evaluates
_MOST_ITEMS = 1000  # of a list or tuple that a kernel names


def are_types_known(annotations: Iterable[Any]) -> bool:
    """True if arguments with these annotations, templates aside, have types that are known without a call."""
    return not any(
        a is Parameter.empty or isinstance(a, NdarrayAnnotation) or _has_methods(a)
        for a in annotations
    )


def is_plain_template(x: Any) -> bool:
    """True for template values that have no code of their own: numbers, and fields and nodes that change no more."""
    return type(x) in (bool, int, float) or (
        issubclass(type(x), AbstractField | SNode) and _is_ready(x)
    )


def is_free_of_effects(parsed: ParsedFunction, templates: Mapping[str, Any]) -> bool:
    """True if tracing a function runs no Python code of the program, and changes nothing of the program.

    `templates`: values of its template arguments. False where it is not known, also for a name that has no value yet.
    """
    try:
        _Body(parsed, set(), templates).check()
    except Exception:  # also of modules that load what is asked of them
        return False
    return True


class _EffectError(Exception):
    """Raised for a name whose use may run code of the program."""


class _Body:
    """The syntax of one function, with the objects of its free names. `seen`: functions that are checked, by identity.

    `templates`: arguments whose values are known.
    """

    def __init__(
        self, parsed: ParsedFunction, seen: set[int], templates: Mapping[str, Any]
    ) -> None:
        self._parsed, self._seen, self._templates = parsed, seen, templates
        arguments = parsed.tree.args
        self._arguments = {
            a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        }
        self._local = self._arguments | {
            n.id for n in parsed.nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        self._seen.add(id(parsed.fn))

    def check(self) -> None:
        """Raises _EffectError if tracing the function may have effects."""
        if any(isinstance(a, str) for a in self._parsed.fn.__annotations__.values()):
            raise _EffectError("annotations that are text are evaluated at the first call")
        for statement in self._parsed.tree.body:
            self._visit(statement, is_static=False)

    def _visit(self, node: ast.AST, *, is_static: bool) -> None:
        if isinstance(node, ast.Attribute | ast.Name):
            self._object(node, is_static=is_static)
            return
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            callee = self._object(node.func, is_static=is_static)
            if is_static and callee is len and isinstance(node.args[0], ast.Name):
                return  # of a list of fields, too
            is_static = is_static or any(callee is f for f in _AT_COMPILE_TIME)
            for argument in (*node.args, *node.keywords):
                self._visit(argument, is_static=is_static)
            return
        if is_static and isinstance(node, ast.Subscript):
            owner = node.value  # an argument may be a field, too
            if not isinstance(owner, ast.Name) or owner.id in self._arguments:
                raise _EffectError("an element of a field may be read at compile time")
        for part in ast.iter_child_nodes(node):
            self._visit(part, is_static=is_static)

    def _object(self, node: ast.expr, *, is_static: bool) -> Any:
        """Returns the object of a name or attribute; _UNKNOWN for a value that the kernel computes."""
        if isinstance(node, ast.Name):
            if node.id in self._templates:
                return self._checked(self._templates[node.id], is_static=is_static)
            if node.id in self._local:
                return _UNKNOWN
            found, x = self._parsed.free(node.id)
            if not found:
                raise _EffectError(f"`{node.id}` has no value yet")
            return self._checked(x, is_static=is_static)
        if not isinstance(node, ast.Attribute):
            self._visit(node, is_static=is_static)
            return _UNKNOWN
        is_fact = is_static and node.attr in _FACTS  # of a field, that is no constant by itself
        owner = self._object(node.value, is_static=is_static and not is_fact)
        if owner is _UNKNOWN:
            if node.attr in _LAZY or (is_static and not is_fact):
                raise _EffectError(f"`{node.attr}` of a value")
            return _UNKNOWN
        return self._checked(_member(owner, node.attr), is_static=is_static and not is_fact)

    def _checked(self, x: Any, *, is_static: bool) -> Any:
        """Returns the object `x`. Raises _EffectError if its use may run code of the program."""
        if x is _UNKNOWN or x is None or _is_number(x) or _is_module(x):
            return x
        if type(x) in (tuple, list) and len(x) <= _MOST_ITEMS:
            for item in x:
                self._checked(item, is_static=is_static)
            return x
        if (
            is_static
            and not any(x is y for y in _IN_STATIC)
            and not issubclass(type(x), MatrixType)
        ):
            raise _EffectError(f"{type(x).__name__} at compile time")
        if issubclass(type(x), AbstractField | SNode):
            if not _is_ready(x) or (issubclass(type(x), StructField) and _has_methods(x.kind)):
                raise _EffectError(f"{type(x).__name__} may still change, or has functions")
            return x
        if type(x) is Func:
            if id(x.fn) not in self._seen and not _is_ours(x.fn.__module__):
                _Body(x.parsed, self._seen, {}).check()
            return x
        if _is_of_language(x):
            return x
        raise _EffectError(f"{type(x).__name__} may run code of the program")


def _member(owner: Any, name: str) -> Any:
    """Returns an attribute of an object; _UNKNOWN for what only tracing finds."""
    if issubclass(type(owner), AbstractField | SNode):
        if issubclass(type(owner), StructField) and name in owner.members:
            return owner.members[name]
        if name in _DERIVATIVES and issubclass(type(owner), AbstractLeaf):
            found = owner.placed_derivative(name)
            if found is not None:
                return found
        if name not in _OF_FIELDS:
            raise _EffectError(f"`{name}` of {type(owner).__name__}")
        return _UNKNOWN
    if type(owner) is ModuleType and not _is_ours(owner.__name__):  # which may have a `__getattr__`
        return vars(owner).get(name, _UNKNOWN)
    return getattr(owner, name, _UNKNOWN)


def _has_methods(kind: Any) -> bool:
    """True for a type of structs with functions of the program."""
    if not isinstance(kind, StructType):
        return False
    return bool(kind.methods) or any(map(_has_methods, kind.members.values()))


def _is_module(x: Any) -> bool:
    return type(x) is ModuleType or (
        issubclass(type(x), ModuleType) and _is_ours(type(x).__module__)
    )


def _is_number(x: Any) -> bool:
    """True for numbers and their types. A proxy is not asked for its class, which may run code."""
    return type(x) in _NUMBERS or issubclass(type(x), _OF_NUMPY)


def _is_ready(x: AbstractField | SNode) -> bool:
    """True if a kernel may use a field, or a node of fields, and nothing of the program changes by that."""
    if isinstance(x, SNode):
        return x.is_unchanging
    leaves = x.leaves()
    return bool(leaves) and all(leaf.is_unchanging for leaf in leaves)


def _is_of_language(x: Any) -> bool:
    """True for types and functions of this package, of NumPy and of Python, whose use has no effects."""
    if any(x is y for y in (*_BUILTINS, *_ARRAYS)) or issubclass(type(x), np.ufunc):
        return True
    if issubclass(type(x), BuiltinFunctionType) and x.__module__ == math.__name__:
        return True
    if issubclass(type(x), type) and issubclass(x, np.generic):
        return True
    if issubclass(type(x), type | FunctionType | MethodType):
        return _is_ours(x.__module__ or "") and x is not static_print
    return issubclass(type(x), Matrix | Struct | MatrixType | StructType) and not _has_methods(x)


def _is_ours(module: str) -> bool:
    return module == _PACKAGE or module.startswith(f"{_PACKAGE}.")
