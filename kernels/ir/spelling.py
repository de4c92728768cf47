"""Canonical text of a kernel: equal texts give equal code.

The kernel's position in the user's file is included only if its code reports that position. Names of arrays are not needed
for its code, which gets arrays by position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from functools import cache
from typing import Any

from .kernel import ArrayParam, Assert, KernelIR, Load, Location, Store, Update

# Fields of nodes that name arrays.
_ARRAY_NAMES = frozenset(
    [
        (ArrayParam, "name"),
        *((kind, "array") for kind in (Load, Store, Update)),
        *((KernelIR, name) for name in ("trusted", "shared")),
    ]
)


def spelled(node: object, *, has_places: bool = True) -> str:
    """Returns a text of everything that determines the code of a kernel, or of a tuple of its parts.

    Without `has_places`, of everything that determines its results: positions in the file are left out.
    """
    out: list[str] = []
    _spell(node, out.append, has_places, {})
    return "".join(out)


def spelled_by_position(ir: KernelIR) -> str:
    """Returns a text of everything that determines a kernel's code, with the positions of arrays in place of their names.

    So calls of one kernel with other fields, such as the channels of a colour, have the same code.
    """
    out: list[str] = []
    _spell(ir, out.append, True, {p.name: k for k, p in enumerate(ir.arrays)})
    return "".join(out)


def _spell(x: Any, put: Any, has_places: bool, positions: Mapping[str, int]) -> None:
    """Puts the text of a node. `positions`: of arrays whose names are left out."""
    kind: Any = type(x)
    names = _names(kind)
    if names is not None:
        put(kind.__name__)
        put("(")
        for name in names:
            held = getattr(x, name)
            if positions and (kind, name) in _ARRAY_NAMES:
                held = _placed(held, positions)
            _spell(held, put, has_places, positions)
            put(",")
        if has_places and kind is Assert:
            put(repr(str(x.where)))  # its message begins with it
        put(")")
    elif kind is tuple:
        put("[")
        for part in x:
            _spell(part, put, has_places, positions)
            put(",")
        put("]")
    else:
        put(x.name if isinstance(x, Enum) else repr(x))


def _placed(names: Any, positions: Mapping[str, int]) -> Any:
    """Returns names of arrays as their positions: one name, or a tuple of names or of pairs that begin with a name."""
    if isinstance(names, str):
        return positions[names]
    return tuple(positions[x] if isinstance(x, str) else (positions[x[0]], *x[1:]) for x in names)


@cache
def _names(kind: Any) -> tuple[str, ...] | None:
    """Returns the names of a node's fields; None if `kind` is no class of nodes."""
    if kind is Location:
        return ()
    if not hasattr(kind, "__dataclass_fields__"):
        return None
    return tuple(f.name for f in fields(kind) if f.compare)
