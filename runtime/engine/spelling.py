"""Canonical text of a kernel: equal texts give equal code.

The kernel's position in the user's file is included only if its code reports that position.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from ...kernels.ir.kernel import Assert, KernelIR, Location

_ROOMS = (
    "codegen",
    "codegen/bodies",
    "codegen/loops",
    "codegen/passes",
    "codegen/plan",
    "codegen/text",
    "codegen/write",
    "kernels/analysis",
    "kernels/fields",
    "kernels/ir",
    "kernels/frontend",
    "kernels/sparse",
    "kernels/tasks",
    "kernels/transforms",
    "runtime/cpu",
    "runtime/engine",
    "space",
    "space/backbone",
    "space/families",
    "space/targets",
)


def spelled(ir: KernelIR, *, has_places: bool = True) -> str:
    """Returns a text of everything that determines a kernel's code.

    Without `has_places`, of everything that determines its results: positions in the file are left out.
    """
    out: list[str] = []
    _spell(ir, out.append, has_places)
    return "".join(out)


def _spell(x: Any, put: Any, has_places: bool) -> None:
    kind: Any = type(x)
    names = _names(kind)
    if names is not None:
        put(kind.__name__)
        put("(")
        for name in names:
            _spell(getattr(x, name), put, has_places)
            put(",")
        if has_places and kind is Assert:
            put(repr(str(x.where)))  # its message begins with it
        put(")")
    elif kind is tuple:
        put("[")
        for part in x:
            _spell(part, put, has_places)
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


@cache
def code_version() -> str:
    """Returns a digest of all source files of the code generator, since each version may generate other code."""
    root = Path(__file__).parent.parent.parent
    digest = hashlib.blake2b(digest_size=8)
    for room in _ROOMS:
        for file in sorted((root / room).glob("*.[pc]*")):
            if file.is_file():
                found = file.stat()
                digest.update(f"{room}/{file.name} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()
