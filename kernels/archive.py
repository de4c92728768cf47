"""A recorded sequence as JSON values, and back: a run then needs the user's program no more.

Nodes are objects with their class under "is"; dtypes are names; infinities and NaN are texts.
Reading accepts exactly the classes and fields below and checks every kernel.
"""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from . import ir
from .check import IRError, check
from .ir import DType
from .sequence import Call, Recording

_CLASSES: dict[str, type[Any]] = {
    c.__name__: c
    for c in (
        *get_args(ir.Expr),
        *get_args(ir.Stmt),
        ir.ArrayParam,
        ir.KernelIR,
        ir.Location,
        Call,
        Recording,
    )
}


class ArchiveError(Exception):
    """JSON values that are no recorded sequence; one sentence."""


def to_values(recording: Recording) -> dict[str, Any]:
    """The recording as JSON values."""
    values: dict[str, Any] = _encode(recording)
    return values


def from_values(values: Any) -> Recording:
    """The recording that `to_values` gave these values for. Raises ArchiveError."""
    recording = _decode(values, Recording)
    assert isinstance(recording, Recording)
    known = {a.name for a in (*recording.arrays, *recording.temps)}
    for call in recording.calls:
        try:
            check(call.ir)
        except IRError as e:
            raise ArchiveError(f"the kernel {call.ir.name} is not well-formed: {e}") from e
        if not known.issuperset(call.arrays) or len(call.arrays) != len(call.ir.arrays):
            raise ArchiveError(f"the call of {call.ir.name} names arrays that do not exist")
        if len(call.scalars) != len(call.ir.scalars):
            raise ArchiveError(f"the call of {call.ir.name} has too many or too few scalars")
    return recording


def _encode(x: Any) -> Any:
    if isinstance(x, DType):
        return x.name
    if isinstance(x, tuple):
        return [_encode(e) for e in x]
    if is_dataclass(x) and not isinstance(x, type):
        return {"is": type(x).__name__} | {f.name: _encode(getattr(x, f.name)) for f in fields(x)}
    if isinstance(x, float) and not math.isfinite(x):
        return repr(x)
    return x


@cache
def _types(name: str) -> dict[str, Any]:
    return get_type_hints(_CLASSES[name])


def _decode(x: Any, wanted: Any) -> Any:
    """`x` as a value of type `wanted`: a class, a union, a tuple, a literal or a scalar type."""
    if get_origin(wanted) is tuple:
        if not isinstance(x, list):
            raise ArchiveError(f"a list is needed, not {x!r:.60}")
        return tuple(_decode(e, get_args(wanted)[0]) for e in x)
    if get_origin(wanted) is Literal:
        return _one_of(x, get_args(wanted))
    if wanted is DType:
        return DType[_one_of(x, tuple(DType.__members__))]
    options = get_args(wanted) if get_origin(wanted) in (Union, UnionType) else (wanted,)
    if isinstance(x, dict):
        return _decode_node(x, options)
    if float in options and x in ("inf", "-inf", "nan"):
        return float(x)
    if type(x) in options:
        return x
    names = ", ".join(getattr(o, "__name__", str(o)) for o in options)
    raise ArchiveError(f"{x!r:.60} is not one of {names}")


def _decode_node(x: dict[str, Any], options: tuple[Any, ...]) -> Any:
    kind = _CLASSES.get(str(x.get("is")))
    if kind is None or kind not in options:
        raise ArchiveError(f"a node {x.get('is')!r:.60} is not expected here")
    types = _types(kind.__name__)
    if set(x) != {"is", *types}:
        raise ArchiveError(f"a node {x['is']} has the fields {', '.join(map(str, x))}")
    return kind(**{name: _decode(x[name], t) for name, t in types.items()})


def _one_of(x: Any, options: tuple[Any, ...]) -> Any:
    if x not in options:
        raise ArchiveError(f"{x!r:.60} is not one of {', '.join(map(str, options))}")
    return x
