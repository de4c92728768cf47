"""Reclaiming of pools as its parts: what is read of counters, the loop over returned slots, and what is stored in counters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from . import kernel as ir
from .walk import children, nested_statements, walk

Element = tuple[str, tuple[int | None, ...]]
"""An array, and the index of its element along each axis; None where the index is no constant."""


@dataclass(frozen=True)
class Settlement:
    """Reclaiming of one pool: `held` sets locals, `loop` goes over the returned slots, `stores` commit it in counters."""

    held: tuple[ir.SetLocal, ...]
    loop: ir.For
    stores: tuple[ir.Store, ...]


def settlements(statements: Sequence[ir.Stmt]) -> tuple[Settlement, ...]:
    """Returns the reclaimings that the statements consist of, in order; () if the loops must not run before all stores.

    A loop may run before the stores of its own and of earlier pools if it accesses no element that these store. Locals may be set
    again behind all loops if no loop of the same or of a later pool writes what they read.
    """
    found = []
    for part in _parts(statements):
        held = tuple(s for s in part if isinstance(s, ir.SetLocal))
        loops = [s for s in part if isinstance(s, ir.For)]
        stores = tuple(s for s in part if isinstance(s, ir.Store))
        if len(loops) != 1 or len(held) + len(stores) + 1 != len(part):
            return ()
        found.append(Settlement(held, loops[0], stores))
    return tuple(found) if all(_may_wait(found, k) for k in range(len(found))) else ()


def _parts(statements: Sequence[ir.Stmt]) -> Iterator[list[ir.Stmt]]:
    """Yields the statements in parts, each of which begins with its locals."""
    part: list[ir.Stmt] = []
    for is_held, some in groupby(statements, lambda s: isinstance(s, ir.SetLocal)):
        if is_held and part:
            yield part
            part = []
        part += some
    if part:
        yield part


def _may_wait(found: Sequence[Settlement], k: int) -> bool:
    """True if the stores of pool `k` may be made behind all loops."""
    x, loops = found[k], [y.loop for y in found[k:]]
    stored, held = set(_writes(x.stores)), set(_reads(x.held))
    behind = found[k + 1 :]
    touched = {*_writes(loops), *_reads(loops), *_reads(s for y in behind for s in y.held)}
    return not (_meet(stored, touched) or _meet(held, set(_writes(loops))))


def _writes(statements: Iterable[ir.Stmt]) -> Iterator[Element]:
    for s in nested_statements(tuple(statements)):
        if isinstance(s, ir.Store | ir.Update):
            yield _element(s.array, s.indices)


def _reads(statements: Iterable[ir.Stmt]) -> Iterator[Element]:
    for s in nested_statements(tuple(statements)):
        for e in (x for part in children(s) for x in walk(part)):
            if isinstance(e, ir.Load):
                yield _element(e.array, e.indices)


def _element(array: str, indices: Sequence[ir.Expr]) -> Element:
    return array, tuple(int(i.value) if isinstance(i, ir.Const) else None for i in indices)


def _meet(some: set[Element], others: set[Element]) -> bool:
    """True if an element of one set may be one of the other."""
    return any(
        x == y and all(i is None or j is None or i == j for i, j in zip(at, there, strict=True))
        for x, at in some
        for y, there in others
    )
