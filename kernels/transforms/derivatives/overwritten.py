"""Refusal of kernels that store to an element after they have read it, where the adjoint needs the value that was read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...ir.kernel import (
    Expr,
    For,
    ForActive,
    If,
    KernelIR,
    Location,
    LoopIndex,
    Stmt,
    Store,
    Update,
)
from ...ir.walk import Renaming, blocks, children, identified, loads, nested_statements
from .activity import refusal


@dataclass(frozen=True)
class _Access:
    """Access of an element. `branches`: the sides of the branches around it."""

    array: str
    indices: tuple[Expr, ...]
    is_write: bool
    branches: tuple[tuple[int, int], ...]
    where: Location


def refuse_overwritten(ir: KernelIR, adjoint: tuple[Stmt, ...]) -> None:
    """Raises KernelError if the adjoint reads an array of which the kernel surely overwrites an element that it has read."""
    needed = {x.array for s in nested_statements(adjoint) for e in children(s) for x in loads(e)}
    read: dict[tuple[str, tuple[Expr, ...]], list[_Access]] = {}
    for access in _accesses(identified(ir.body), {}, ()):
        if access.array not in needed:
            continue
        key = access.array, access.indices
        if not access.is_write:
            read.setdefault(key, []).append(access)
        elif any(_may_precede(before, access) for before in read.get(key, ())):
            raise refusal(
                f"an element of {access.array} is overwritten after it was read: store to another array",
                access.where,
            )


def _may_precede(first: _Access, second: _Access) -> bool:
    """True unless the accesses stand in different sides of one branch."""
    sides = dict(first.branches)
    return all(sides.get(branch, side) == side for branch, side in second.branches)


def _accesses(
    body: tuple[Stmt, ...], loops: dict[str, Expr], branches: tuple[tuple[int, int], ...]
) -> Iterator[_Access]:
    """Yields the accesses in program order; loops have the number of their depth as name."""
    for s in body:
        rename = Renaming(loops=loops).apply
        for e in children(s):
            for x in loads(e):
                yield _Access(x.array, tuple(map(rename, x.indices)), False, branches, s.where)
        if isinstance(s, Store | Update):
            yield _Access(s.array, tuple(map(rename, s.indices)), True, branches, s.where)
        inner = dict(loops)
        for name in (
            (s.loop,) if isinstance(s, For) else s.loops if isinstance(s, ForActive) else ()
        ):
            inner[name] = LoopIndex(str(len(inner)))
        for side, block in enumerate(blocks(s)):
            within = (*branches, (s.uid, side)) if isinstance(s, If) else branches
            yield from _accesses(block, inner, within)
