"""Locals of 64 bits that need 32: their values fit, or nothing but their last 32 bits is used, as in indices of arrays.

Vectors of 64-bit numbers have half the lanes. Elements of arrays are numbered with fewer than 32 bits where loops run in lanes
(kernels/analysis/vectorisable.py), so an index may be computed modulo 2^32.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..analysis.value_ranges import I32, I64, Ranges
from ..ir import kernel as ir
from ..ir.intervals import Range
from ..ir.walk import children, local_changed, nested_statements, rewrite

_MODULAR = (
    "add",
    "sub",
    "mul",
)  # of which the last bits of a result depend on the last bits of operands


def with_narrow_locals(
    body: tuple[ir.Stmt, ...], extents: Mapping[str, int], may: Collection[str]
) -> tuple[ir.Stmt, ...]:
    """Returns the statements with locals of `may` in 32 bits instead of 64, where that changes no result.

    `extents`: the extents of loops, as far as they are known.
    """
    wide = {s.name: s for s in _set_once(body) if s.value.dtype is I64 and s.name in may}
    if not wide:
        return body
    ranges = Ranges(extents, ranges_of_locals(body, extents))
    fitting = {name for name, s in wide.items() if ranges.fits(s.value)}
    narrow = fitting | _used_modulo(body, wide.keys() - fitting)

    def change(x: Any) -> Any:
        match x:
            case ir.Local(name, dtype) if dtype is I64 and name in narrow:
                return ir.Cast(ir.Local(name, I32), I64)
            case ir.SetLocal(name) if name in narrow:
                return replace(x, value=ir.Cast(x.value, I32))
        return x

    return rewrite(body, change)


def ranges_of_locals(body: tuple[ir.Stmt, ...], extents: Mapping[str, int]) -> dict[str, Range]:
    """Returns the least and greatest values of integer locals that are set once; locals begin as 0."""
    found: dict[str, Range] = {}
    for s in _set_once(body):
        if s.value.dtype.is_integer:
            least, most = Ranges(extents, found).of(s.value)
            found[s.name] = min(0, least), max(0, most)
    return found


def _set_once(body: tuple[ir.Stmt, ...]) -> Iterator[ir.SetLocal]:
    every = list(nested_statements(body))
    changed = Counter(map(local_changed, every))
    return (s for s in every if isinstance(s, ir.SetLocal) and changed[s.name] == 1)


def _used_modulo(body: tuple[ir.Stmt, ...], names: Collection[str]) -> set[str]:
    """Returns the locals of which nothing but the last 32 bits is used."""
    found = set(names)
    n_before = -1
    while len(found) != n_before:
        n_before = len(found)
        for s in nested_statements(body):
            is_index = isinstance(s, ir.Store | ir.Update)
            indices = s.indices if isinstance(s, ir.Store | ir.Update) else ()
            for e in children(s):
                is_modular = isinstance(s, ir.SetLocal) and s.name in found
                is_modular = is_modular or (is_index and any(e is i for i in indices))
                found -= set(_used_whole(e, is_modular=is_modular))
    return found


def _used_whole(e: ir.Expr, *, is_modular: bool) -> Iterator[str]:
    """Yields the 64-bit locals of which all bits matter in an expression.

    `is_modular`: of the expression itself only the last 32 bits matter.
    """
    match e:
        case ir.Local(name):
            if not is_modular:
                yield name
            return
        case ir.Load(indices=indices):
            for i in indices:
                yield from _used_whole(i, is_modular=True)
            return
        case ir.Select(condition, a, b):
            yield from _used_whole(condition, is_modular=False)
            for x in (a, b):
                yield from _used_whole(x, is_modular=is_modular)
            return
        case ir.Binary(op, dtype=dtype) if op in _MODULAR and dtype in (I32, I64):
            inside = is_modular
        case ir.Cast(x, dtype) if x.dtype in (I32, I64) and dtype in (I32, I64):
            inside = is_modular or dtype is I32
        case _:
            inside = False
    for x in children(e):
        yield from _used_whole(x, is_modular=inside)
