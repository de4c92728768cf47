"""Canonical text of a kernel: equal texts give equal code.

The kernel's position in the user's file is included only if its code reports that position. Names of arrays are not needed
for its code, which gets arrays by position. Its meaning needs no names at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import cache
from typing import Any

from .kernel import (
    Append,
    ArrayParam,
    Assert,
    For,
    ForActive,
    KernelIR,
    Load,
    Local,
    LocalArray,
    LocalElement,
    Location,
    LoopIndex,
    Param,
    Placed,
    SetElement,
    SetLocal,
    Store,
    Update,
    UpdateLocal,
)
from .structure import StructureTree

# Fields of nodes that name arrays, each with the kind of its names.
_ARRAY_NAMES: dict[tuple[type, str], str] = dict.fromkeys(
    [
        (ArrayParam, "name"),
        *((kind, "array") for kind in (Load, Store, Update, Placed)),
        *((KernelIR, name) for name in ("trusted", "shared")),
    ],
    "array",
)
_LOCALS = (Local, LocalElement, SetLocal, UpdateLocal, LocalArray, SetElement)
# Fields of nodes that are names; those of trees are in each node that is about a tree.
_NAMES = (
    _ARRAY_NAMES
    | {(kind, "name"): "local" for kind in _LOCALS}
    | {(kind, "result"): "local" for kind in (Update, Append)}
    | {(kind, "loop"): "loop" for kind in (For, LoopIndex)}
    | {(ForActive, "loops"): "loop", (KernelIR, "independent"): "loop"}
    | {(Param, "name"): "scalar", (StructureTree, "name"): "tree", (KernelIR, "name"): "kernel"}
)


def spelled(node: object, *, has_places: bool = True) -> str:
    """Returns a text of everything that determines the code of a kernel, or of a tuple of its parts.

    Without `has_places`, of everything that determines its results: positions in the file are left out.
    """
    return _spelled(node, has_places, _Numbers({}))


def spelled_by_position(ir: KernelIR) -> str:
    """Returns a text of everything that determines a kernel's code, with the positions of arrays in place of their names.

    So calls of one kernel with other fields, such as the channels of a colour, have the same code.
    """
    return _spelled(ir, True, _Numbers(_ARRAY_NAMES))


def spelled_without_names(node: object) -> str:
    """Returns a text of everything that determines the results of a kernel, or of a tuple of its parts.

    It has numbers in place of all names, so that kernels of several programs have one text.
    """
    return _spelled(node, False, _Numbers(_NAMES, has_trees=True))


@dataclass
class _Numbers:
    """Numbers in place of names, in the order in which they come: arrays, which stand first, have their positions.

    `fields`: fields of nodes, with the kind of their names. `has_trees`: names of trees have numbers, too.
    """

    fields: Mapping[tuple[type, str], str]
    has_trees: bool = False
    _known: dict[tuple[str, str], int] = field(default_factory=dict)
    _next: dict[str, int] = field(default_factory=dict)

    def kind(self, node: type, name: str) -> str:
        """Returns the kind of names that a field of a node has; "" if it keeps its value."""
        if self.has_trees and name == "tree":
            return "tree"
        return self.fields.get((node, name), "") if self.fields else ""

    def of(self, kind: str, names: Any) -> Any:
        """Returns the numbers of names: one name, or a tuple of names or of pairs that begin with a name."""
        if not isinstance(names, str):
            return tuple(
                self.of(kind, x) if isinstance(x, str) else (self.of(kind, x[0]), *x[1:])
                for x in names
            )
        if not names:  # none
            return names
        found = self._known.get((kind, names))
        if found is None:
            found = self._next[kind] = self._next.get(kind, -1) + 1
            self._known[kind, names] = found
        return found


def _spelled(node: object, has_places: bool, numbers: _Numbers) -> str:
    out: list[str] = []
    _spell(node, out.append, has_places, numbers)
    return "".join(out)


def _spell(x: Any, put: Any, has_places: bool, numbers: _Numbers) -> None:
    """Puts the text of a node. `numbers`: of names that are left out."""
    node: Any = type(x)
    names = _names(node)
    if names is not None:
        put(node.__name__)
        put("(")
        for name in names:
            held, kind = getattr(x, name), numbers.kind(node, name)
            _spell(numbers.of(kind, held) if kind else held, put, has_places, numbers)
            put(",")
        if has_places and node is Assert:
            put(repr(str(x.where)))  # its message begins with it
        put(")")
    elif node is tuple:
        put("[")
        for part in x:
            _spell(part, put, has_places, numbers)
            put(",")
        put("]")
    else:
        put(x.name if isinstance(x, Enum) else repr(x))


@cache
def _names(kind: Any) -> tuple[str, ...] | None:
    """Returns the names of a node's fields; None if `kind` is no class of nodes."""
    if kind is Location:
        return ()
    if not hasattr(kind, "__dataclass_fields__"):
        return None
    return tuple(f.name for f in fields(kind) if f.compare)
