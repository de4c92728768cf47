"""Compile-time constants in a kernel, evaluated by Python: literals, globals, attributes, combinations of them."""

from __future__ import annotations

import ast

import numpy as np

from ..ir.kernel import DType
from .protocol import Frontend
from .scopes import Pass
from .values import Static

_MADE = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Subscript)
_PLAIN = (int, float, complex, str, np.generic, DType)


def constant(state: Pass, frontend: Frontend, node: ast.expr) -> object:
    """Returns the Python value of a constant expression: a number, a text, a type, or a tuple or list of these.

    KeyError if the expression has another value, or a value known only at run time.
    """
    x = _object(state, frontend, node)
    if not _is_plain(x):
        raise KeyError(ast.unparse(node))
    return x


def _object(state: Pass, frontend: Frontend, node: ast.expr) -> object:
    inside = frontend.static_argument(node)
    if inside is not None:
        return frontend.static(inside)
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _named(state, name)
        case ast.Attribute(value=owner, attr=attr):
            base = _object(state, frontend, owner)
            if hasattr(base, attr):
                return getattr(base, attr)
        case ast.Tuple(elts=items):
            return tuple(constant(state, frontend, i) for i in items)
        case ast.List(elts=items):
            return [constant(state, frontend, i) for i in items]
        case _ if isinstance(node, _MADE):
            for part in ast.iter_child_nodes(node):
                if isinstance(part, ast.expr):
                    constant(state, frontend, part)
            return frontend.static(node)
    raise KeyError(ast.unparse(node))


def _named(state: Pass, name: str) -> object:
    """Returns the Python object of a name that the kernel does not assign.

    KeyError for locals and unknown names.
    """
    bound = state.frame.find(name)
    if isinstance(bound, Static):
        return bound.python
    found, x = state.frame.parsed.free(name)
    if bound is not None or not found or state.frame.parsed.assigned[name]:
        raise KeyError(name)
    return x


def _is_plain(x: object) -> bool:
    if isinstance(x, tuple | list):
        return all(map(_is_plain, x))
    return x is None or isinstance(x, _PLAIN)
