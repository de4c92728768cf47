"""Dead-store elimination: removes stores always overwritten before a load, and locals that are never read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..ir import walk
from ..ir.kernel import Append, Assert, For, If, Load, Stmt, Store, Update

Statements = tuple[Stmt, ...]


Index = tuple[int, ...]


def without_dead_stores(
    body: Statements,
    stored_at: Mapping[int, Index],
    places: Mapping[int, tuple[Load, Index]],
    differ: Callable[[Sequence[int], Sequence[int]], bool],
) -> Statements:
    """Returns the statements without dead stores.

    A store is dead if a later store of the same block surely overwrites the element, and no load in between may read it.

    `stored_at` and `places`: the indices of stores and of loads, by identity, in value numbers. `differ`: True if two indices
    surely denote different elements.
    """
    kept: list[Stmt] = []
    over: set[tuple[str, Index]] = set()
    for s in reversed(body):
        found = stored_at.get(s.uid) if isinstance(s, Store) else None
        if isinstance(s, Store) and found is not None:
            if (s.array, found) in over:
                continue
            over.add((s.array, found))
        if isinstance(s, Assert):
            over = set()
        for t in walk.nested_statements((s,)):
            for x in (x for e in walk.children(t) for x in walk.loads(e)):
                at = places[id(x)][1] if id(x) in places else None
                over = {
                    (array, index)
                    for array, index in over
                    if array != x.array or (at is not None and differ(index, at))
                }
        if not isinstance(s, Store):
            written = walk.written_in((s,))
            over = {x for x in over if x[0] not in written}
        inner = walk.with_blocks(
            s, lambda block: without_dead_stores(block, stored_at, places, differ)
        )
        kept.append(inner if walk.blocks(s) else s)
    return tuple(reversed(kept))


def without_unread(body: Statements, *, has_loads: bool = True) -> Statements:
    """Returns the statements without assignments to locals that are never read; results of updates are dropped, not the updates.

    Branches and loops that then have no effect are removed, too. `has_loads`: also what loads elements; their indices are then
    checked no more.
    """
    while True:
        every = list(walk.nested_statements(body))
        read = {n for s in every for e in walk.children(s) for n in walk.locals_read(e)}
        if not has_loads:
            read |= {
                walk.local_changed(s) for s in every if not isinstance(s, Update) and _loads(s)
            }
        made = _kept(body, read, has_loads)
        if made == body:
            return body
        body = made


def _kept(body: Statements, read: set[str], has_loads: bool) -> Statements:
    made = []
    for s in body:
        name = walk.local_changed(s)
        if name and name not in read and isinstance(s, Update):
            s = replace(s, result="")
        elif name and name not in read and not isinstance(s, Append):
            continue
        s = walk.with_blocks(s, lambda block: _kept(block, read, has_loads))
        is_empty = isinstance(s, If | For) and not any(walk.blocks(s))
        if is_empty and (has_loads or not _loads(s)):
            continue
        made.append(s)
    return tuple(made)


def _loads(s: Stmt) -> bool:
    """True if an operand of the statement loads an element."""
    return any(map(walk.loads, walk.children(s)))
