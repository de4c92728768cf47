"""Merged calls: one kernel that does what several calls do, one after the other.

Outermost loops that follow each other become one where no iteration of the later loop uses what another iteration of the earlier
one changes, so that values stay in registers and caches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..ir.kernel import (
    ArrayParam,
    Cast,
    Const,
    DType,
    Expr,
    For,
    KernelIR,
    Load,
    Local,
    LocalArray,
    LocalElement,
    LoopIndex,
    Param,
    SetElement,
    SetLocal,
    Stmt,
    Store,
    Update,
    UpdateLocal,
)
from ..ir.walk import children, nested_statements, rewrite, walk

MOST_STATEMENTS = 400  # of a merged kernel: about 2 s of a compiler
_OF_LOCALS = (Local, LocalElement, SetLocal, UpdateLocal, LocalArray, SetElement)


def merged(kernels: Sequence[KernelIR], arrays: Sequence[Sequence[int]]) -> KernelIR | None:
    """Returns a kernel that does what calls of `kernels` do in order; None if it is too large, or their floats differ in mode.

    `arrays`: for each array of each call its number; equal numbers are one array. The arrays of the kernel are in the order of
    these numbers, its scalars are those of the calls.
    """
    n_statements = sum(1 for ir in kernels for _ in nested_statements(ir.body))
    if n_statements > MOST_STATEMENTS or len({ir.fast_math for ir in kernels}) > 1:
        return None
    params: dict[int, ArrayParam] = {}
    scalars, body = list[Param](), list[Stmt]()
    independent, trusted, shared = list[str](), dict[str, None](), dict[str, int]()
    for k, (ir, numbers) in enumerate(zip(kernels, arrays, strict=True)):
        names = {p.name: f"a{n}" for p, n in zip(ir.arrays, numbers, strict=True)}
        for p, n in zip(ir.arrays, numbers, strict=True):
            params.setdefault(n, replace(p, name=f"a{n}"))
        renaming = _Renaming(names, f"_c{k}")
        scalars += [Param(renaming.own(p.name), p.dtype) for p in ir.scalars]
        body += rewrite(ir.body, renaming)
        independent += [renaming.own(x) for x in ir.independent]
        trusted |= dict.fromkeys(names[x] for x in ir.trusted)
        shared |= {names[x]: n for x, n in ir.shared}
    return KernelIR(
        "window",
        tuple(params[n] for n in sorted(params)),
        tuple(scalars),
        with_fused_loops(tuple(body)),
        kernels[0].where,
        kernels[0].fast_math,
        independent=tuple(independent),
        trusted=tuple(trusted),
        shared=tuple(shared.items()),
    )


class _Renaming:
    """New names of one call: of arrays those of the merged kernel, of all else with a suffix of the call."""

    def __init__(self, arrays: dict[str, str], suffix: str) -> None:
        self._arrays, self._suffix = arrays, suffix

    def own(self, name: str) -> str:
        return name + self._suffix

    def __call__(self, x: Any) -> Any:
        if isinstance(x, Load | Store | Update):
            x = replace(x, array=self._arrays[x.array])
            return (
                replace(x, result=self.own(x.result)) if isinstance(x, Update) and x.result else x
            )
        if isinstance(x, LoopIndex | For):
            return replace(x, loop=self.own(x.loop))
        if isinstance(x, (*_OF_LOCALS, Param)):
            return replace(x, name=self.own(x.name))
        return x


def with_fused_loops(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Returns the statements, with loops of equal constant extents that follow each other as one, where that changes no value.

    They share an array but no local, and write elements of their own iteration only. An array that one changes and the other uses
    is used at elements of the own iteration only. Innermost loops at the seam become one, too.
    """
    mentioned = [_locals(s) for s in body]
    n_mentioned = Counter(name for names in mentioned for name in names)
    found, is_closed = list[Stmt](), False
    for s, names in zip(body, mentioned, strict=True):
        was_closed, is_closed = is_closed, all(n_mentioned[name] == 1 for name in names)
        last = found[-1] if found else None
        if not (isinstance(s, For) and isinstance(last, For) and was_closed and is_closed):
            found.append(s)
        elif _may_be_one(last, s):
            found[-1] = _as_one(last, s)
        else:
            found.append(s)
    return tuple(found)


def _as_one(a: For, b: For) -> For:
    def of_a(x: Any) -> Any:
        return replace(x, loop=a.loop) if isinstance(x, LoopIndex) and x.loop == b.loop else x

    *before, last = a.body
    first, *behind = rewrite(b.body, of_a)
    if isinstance(last, For) and isinstance(first, For) and _are_apart(last, first):
        return replace(a, body=(*before, _as_one(last, first), *behind))
    return replace(a, body=(*a.body, first, *behind))


def _may_be_one(a: For, b: For) -> bool:
    """True if two outermost loops may be one: parallel iterations stay independent."""
    writes = [(loop, s) for loop in (a, b) for s in _writes(loop)]
    if not all(_axes_of(s.indices, loop.loop) for loop, s in writes):
        return False
    return bool(a.body and b.body and _uses(a).keys() & _uses(b).keys()) and _are_apart(a, b)


def _are_apart(a: For, b: For) -> bool:
    """True if two loops of equal constant extents meet only in elements of equal iterations."""
    if not isinstance(a.extent, Const) or a.extent != b.extent:
        return False
    changed = {s.array for loop in (a, b) for s in _writes(loop)}
    used_a, used_b = _uses(a), _uses(b)
    for array in used_a.keys() & used_b.keys() & changed:
        axes = [_axes_of(at, a.loop) for at in used_a[array]]
        axes += [_axes_of(at, b.loop) for at in used_b[array]]
        if not set.intersection(*axes):
            return False
    return True


def _axes_of(indices: tuple[Expr, ...], loop: str) -> set[int]:
    """The axes along which the index is that of the loop itself."""
    plain = (x.x if isinstance(x, Cast) and x.dtype is DType.i64 else x for x in indices)
    return {k for k, x in enumerate(plain) if isinstance(x, LoopIndex) and x.loop == loop}


def _writes(loop: For) -> list[Store | Update]:
    return [s for s in nested_statements(loop.body) if isinstance(s, Store | Update)]


def _uses(loop: For) -> dict[str, list[tuple[Expr, ...]]]:
    """The indices of all accesses of a loop, by array."""
    found: dict[str, list[tuple[Expr, ...]]] = {}
    for s in nested_statements(loop.body):
        if isinstance(s, Store | Update):
            found.setdefault(s.array, []).append(s.indices)
        for x in _parts(s):
            if isinstance(x, Load):
                found.setdefault(x.array, []).append(x.indices)
    return found


def _locals(s: Stmt) -> set[str]:
    """The locals that a statement sets or reads."""
    found = set[str]()
    for x in nested_statements((s,)):
        if isinstance(x, _OF_LOCALS):
            found.add(x.name)
        if isinstance(x, Update) and x.result:
            found.add(x.result)
        found |= {y.name for y in _parts(x) if isinstance(y, Local | LocalElement)}
    return found


def _parts(s: Stmt) -> Iterator[Expr]:
    return (x for e in children(s) for x in walk(e))
