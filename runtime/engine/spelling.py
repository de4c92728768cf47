"""A kernel as one text: equal texts, equal code. Where it stands in the user's file is no part of it, unless its code says so."""

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
    "kernels/language",
    "kernels/sparse",
    "kernels/tasks",
    "kernels/transforms",
    "runtime/cpu",
    "runtime/engine",
)


def spelled(ir: KernelIR, *, has_places: bool = True) -> str:
    """All that decides about the code of a kernel; without `has_places`, about what it computes, wherever it stands."""
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
    """The fields of a node; None for what is none."""
    if kind is Location:
        return ()
    if not hasattr(kind, "__dataclass_fields__"):
        return None
    return tuple(f.name for f in fields(kind))


@cache
def code_version() -> str:
    """Of all that makes code of a kernel: another version makes other code of the same one."""
    root = Path(__file__).parent.parent.parent
    digest = hashlib.blake2b(digest_size=8)
    for room in _ROOMS:
        for file in sorted((root / room).glob("*.[pc]*")):
            if file.is_file():
                found = file.stat()
                digest.update(f"{room}/{file.name} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()
