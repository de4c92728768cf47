"""Loop fusion inside of a body: loops over the same iterations become one.

Value numbering then finds values that their bodies share.
After Kennedy and McKinley (Maximizing Loop Parallelism and Improving Data Locality via Loop Fusion and Distribution, 1993).
Branches under one condition are joined, too, since loops may be inside of them. Values that are set between two such loops move in
front of the first one. Each iteration runs its statements in their order, so results are equal bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from ..analysis.accesses import sites_of, with_invariant_indices
from ..analysis.conflicts import elements, meet_in
from ..ir import kernel as ir
from ..ir import walk

Statements = tuple[ir.Stmt, ...]
# All that statements of these kinds do is seen in their locals and arrays. Others print, fail or may not end.
_KINDS = (
    ir.For
    | ir.If
    | ir.SetLocal
    | ir.UpdateLocal
    | ir.LocalArray
    | ir.SetElement
    | ir.Store
    | ir.Update
)


def loops_fused(body: Statements) -> Statements:
    """Returns a body with adjacent loops fused that load from a common array, if no dependence forbids it."""
    made: list[ir.Stmt] = []
    for s in body:
        k = _mate(made, s) if isinstance(s, ir.For | ir.If) else None
        if k is None:
            made.append(s)
        else:
            made[k:] = [*made[k + 1 :], _joined(made[k], s)]
    return tuple(made)


def _joined(first: ir.Stmt, second: ir.Stmt) -> ir.Stmt:
    if isinstance(first, ir.For) and isinstance(second, ir.For):
        return replace(first, body=loops_fused((*first.body, *_body_in(second, first))))
    assert isinstance(first, ir.If) and isinstance(second, ir.If)
    return replace(first, then=loops_fused((*first.then, *second.then)))


def _body_in(second: ir.For, first: ir.For) -> Statements:
    """Returns the body of loop `second` with the index of loop `first`."""
    renaming = walk.Renaming(loops={second.loop: ir.LoopIndex(first.loop)})
    return tuple(renaming.apply_stmt(x) for x in second.body)


def _mate(made: Sequence[ir.Stmt], s: ir.Stmt) -> int | None:
    """Returns the position in `made` of the loop or branch that may be joined with `s`; None without one."""
    for k in range(len(made) - 1, -1, -1):
        if not isinstance(made[k], ir.SetLocal):
            return k if _may_join(made[k], s, made[k + 1 :]) else None
    return None


def _may_join(first: ir.Stmt, second: ir.Stmt, between: Sequence[ir.Stmt]) -> bool:
    """True if two statements may become one, behind the assignments `between` them."""
    match first, second:
        case ir.For(extent=head), ir.For(extent=same) if head == same:
            is_loop = True
        case ir.If(condition=head, orelse=()), ir.If(condition=same, orelse=()) if head == same:
            is_loop = False
        case _:
            return False
    a, b = _NamesIn.of(first), _NamesIn.of(second)
    return (
        not _arrays_in(head) & a.written
        and (not is_loop or bool(a.loaded & b.loaded))
        and all(isinstance(x, _KINDS) for x in walk.nested_statements((first, second)))
        and not any(_conflict(a, _NamesIn.of(x)) for x in between)
        and not a.share_locals(b)
        and not (
            isinstance(first, ir.For)
            and isinstance(second, ir.For)
            and a.conflict_in_arrays(b)
            and _depend(first, second)
        )
    )


@dataclass(frozen=True)
class _NamesIn:
    """Names in a statement: locals that it changes and reads, and arrays that it writes and loads from."""

    changed: set[str]
    read: set[str]
    written: frozenset[str]
    loaded: set[str]

    @staticmethod
    def of(s: ir.Stmt) -> _NamesIn:
        inside = list(walk.nested_statements((s,)))
        expressions = [e for x in inside for e in walk.children(x)]
        return _NamesIn(
            {walk.local_changed(x) for x in inside} - {""},
            {name for e in expressions for name in walk.locals_read(e)},
            walk.written_in((s,)),
            {name for e in expressions for name in _arrays_in(e)},
        )

    def share_locals(self, other: _NamesIn) -> bool:
        """True if one of two statements changes a local that the other statement reads or changes."""
        either = other.changed | other.read
        return bool(self.changed & either or other.changed & self.read)

    def conflict_in_arrays(self, other: _NamesIn) -> bool:
        """True if one of two statements writes an array that the other statement writes or loads from."""
        either = other.written | other.loaded
        return bool(self.written & either or other.written & self.loaded)


def _conflict(first: _NamesIn, value: _NamesIn) -> bool:
    """True if the assignment of a value cannot move from behind a statement to the front of it.

    `first`: names in the statement. `value`: names in the assignment.
    """
    return first.share_locals(value) or bool(first.written & value.loaded)


def _depend(first: ir.For, second: ir.For) -> bool:
    """True if fusion of two loops would reverse a dependence between different iterations of them."""
    renamed = _body_in(second, first)
    whole = replace(first, body=(*first.body, *renamed))
    loops, statements = with_invariant_indices(whole, _NamesIn.of(whole).changed)
    n = len(first.body)
    return any(
        a.state == b.state
        and (a.writes or b.writes)
        and meet_in(elements(a, loops), elements(b, loops), loops)
        for a, b in product(sites_of(statements[:n], loops), sites_of(statements[n:], loops))
    )


def _arrays_in(e: ir.Expr) -> set[str]:
    return {x.array for x in walk.loads(e)}
