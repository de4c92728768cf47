"""Loop fusion inside of a body: loops over the same iterations become one, so that value numbering finds what their bodies share.

After Kennedy and McKinley (Maximizing Loop Parallelism and Improving Data Locality via Loop Fusion and Distribution, 1993).
Branches under one condition are joined, too, since loops may be inside of them. Values that are set between two such loops move in
front of the first one. Each iteration runs its statements in their order, so results are equal bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from ..analysis.accesses import sites_of, with_invariant_indices
from ..analysis.conflicts import elements, meet_in
from ..ir.kernel import (
    Expr,
    For,
    If,
    LocalArray,
    LoopIndex,
    SetElement,
    SetLocal,
    Stmt,
    Store,
    Update,
    UpdateLocal,
)
from ..ir.walk import (
    Renaming,
    children,
    loads,
    local_changed,
    locals_read,
    nested_statements,
    written_in,
)

Statements = tuple[Stmt, ...]
# All that statements of these kinds do is seen in their locals and arrays. Others print, fail or may not end.
_KINDS = For | If | SetLocal | UpdateLocal | LocalArray | SetElement | Store | Update


def loops_fused(body: Statements) -> Statements:
    """Returns a body with adjacent loops fused if they load from an array in common and no dependence forbids it."""
    made: list[Stmt] = []
    for s in body:
        k = _mate(made, s) if isinstance(s, For | If) else None
        if k is None:
            made.append(s)
        else:
            made[k:] = [*made[k + 1 :], _joined(made[k], s)]
    return tuple(made)


def _joined(first: Stmt, second: Stmt) -> Stmt:
    if isinstance(first, For) and isinstance(second, For):
        return replace(first, body=loops_fused((*first.body, *_body_in(second, first))))
    assert isinstance(first, If) and isinstance(second, If)
    return replace(first, then=loops_fused((*first.then, *second.then)))


def _body_in(second: For, first: For) -> Statements:
    """Returns the body of the second loop with the index of the first one."""
    renaming = Renaming(loops={second.loop: LoopIndex(first.loop)})
    return tuple(renaming.apply_stmt(x) for x in second.body)


def _mate(made: Sequence[Stmt], s: Stmt) -> int | None:
    """Returns the position of the loop or branch before `s` that it may be joined with, None without one."""
    for k in range(len(made) - 1, -1, -1):
        if not isinstance(made[k], SetLocal):
            return k if _may_join(made[k], s, made[k + 1 :]) else None
    return None


def _may_join(first: Stmt, second: Stmt, between: Sequence[Stmt]) -> bool:
    """True if two statements may be one, behind the values that are set `between` them."""
    match first, second:
        case For(), For():
            shares = _loaded((first,)) & _loaded((second,))
            may_join = bool(shares) and _is_same(first.extent, second.extent, first)
        case If(orelse=()), If(orelse=()):
            may_join = _is_same(first.condition, second.condition, first)
        case _:
            return False
    return (
        may_join
        and all(isinstance(x, _KINDS) for x in nested_statements((first, second)))
        and all(_may_swap(first, x) for x in between)
        and not _share_locals(first, second)
        and not (isinstance(first, For) and isinstance(second, For) and _depend(first, second))
    )


def _is_same(a: Expr, b: Expr, first: Stmt) -> bool:
    """True if the second of two expressions has the value of the first one behind a statement that changes no local in them."""
    return a == b and not _arrays_in(a) & written_in((first,))


def _may_swap(first: Stmt, value: Stmt) -> bool:
    """True if a value may be set before a statement that is in front of it."""
    return not _share_locals(first, value) and not written_in((first,)) & _loaded((value,))


def _share_locals(a: Stmt, b: Stmt) -> bool:
    """True if one statement changes a local that the other one reads or changes."""
    changed_a, changed_b = _changed((a,)), _changed((b,))
    return bool(changed_a & (changed_b | _read((b,))) or changed_b & _read((a,)))


def _depend(first: For, second: For) -> bool:
    """True if fusion would reverse a dependence: an iteration of the second loop may conflict with another one of the first."""
    renamed = _body_in(second, first)
    body = (*first.body, *renamed)
    loops, statements = with_invariant_indices(replace(first, body=body), _changed(body))
    n = len(first.body)
    return any(
        a.state == b.state
        and (a.writes or b.writes)
        and meet_in(elements(a, loops), elements(b, loops), loops)
        for a, b in product(sites_of(statements[:n], loops), sites_of(statements[n:], loops))
    )


def _changed(body: Statements) -> set[str]:
    return {local_changed(s) for s in nested_statements(body)} - {""}


def _read(body: Statements) -> set[str]:
    return {name for s in nested_statements(body) for e in children(s) for name in locals_read(e)}


def _loaded(body: Statements) -> set[str]:
    return {name for s in nested_statements(body) for e in children(s) for name in _arrays_in(e)}


def _arrays_in(e: Expr) -> set[str]:
    return {x.array for x in loads(e)}
