"""Removal of statements whose values no store needs, and placement of the zeros with which sums begin."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...ir import kernel as ir
from ...ir.simplify import const
from ...ir.walk import blocks, children, local_changed, locals_read, with_blocks


def read_by(s: ir.Stmt) -> Iterable[str]:
    """Yields the locals in the operands of a statement, without those of nested statements."""
    for e in children(s):
        yield from locals_read(e)


def names_in(body: Iterable[ir.Stmt]) -> set[str]:
    """Returns the locals that statements read, set or update, at any depth."""
    found: set[str] = set()
    for s in body:
        found.update(read_by(s))
        if name := local_changed(s):
            found.add(name)
        for block in blocks(s):
            found |= names_in(block)
    return found


def _is_local(s: ir.Stmt) -> bool:
    """True if the only effect of the statement is to change a local."""
    return isinstance(s, ir.SetLocal | ir.UpdateLocal | ir.LocalArray | ir.SetElement)


def _mark(body: Sequence[ir.Stmt], live: set[str]) -> bool:
    """Adds to `live` the locals that live statements read; True if any statement is live.

    A statement is live if it changes a live local, contains a live statement, or has another effect.
    """
    is_any = False
    for s in reversed(body):
        if _is_local(s):
            is_live = local_changed(s) in live
        elif inner := blocks(s):
            found = [_mark(block, live) for block in reversed(inner)]  # of all of them
            is_live = any(found)
        else:
            is_live = True
        if is_live:
            live.update(read_by(s))
            is_any = True
    return is_any


def _kept(body: Sequence[ir.Stmt], live: set[str]) -> tuple[ir.Stmt, ...]:
    made: list[ir.Stmt] = []
    for s in body:
        if _is_local(s):
            if local_changed(s) in live:
                made.append(s)
        elif blocks(s):
            inner = with_blocks(s, lambda block: _kept(block, live))
            if any(blocks(inner)):
                made.append(inner)
        else:
            made.append(s)
    return tuple(made)


def pruned(body: Sequence[ir.Stmt]) -> tuple[ir.Stmt, ...]:
    """Returns the statements without those that only set locals which no other statement needs."""
    live: set[str] = set()
    n_known = -1
    while len(live) != n_known:
        n_known = len(live)
        _mark(body, live)
    return _kept(body, live)


def with_zeros(body: Sequence[ir.Stmt], sums: dict[str, ir.DType]) -> list[ir.Stmt]:
    """Returns the statements with each local of `sums` set to zero before its first use.

    If the first use adds a term, the term becomes the value instead.
    """
    left, made = dict(sums), list[ir.Stmt]()
    for s in body:
        first = [name for name in names_in((s,)) if name in left]
        for name in sorted(first):
            dtype = left.pop(name)
            if isinstance(s, ir.UpdateLocal) and s.name == name and name not in read_by(s):
                s = ir.SetLocal(name, s.value, s.where)
            else:
                made.append(ir.SetLocal(name, const(0, dtype), ir.NOWHERE))
        made.append(s)
    return made
