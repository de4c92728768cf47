"""Scalar replacement of accumulators (Carr and Kennedy 1994): a loop adds to a local instead of an element.

The local is added to the element once, behind the loop. So a sum does not depend on memory latency, and compilers vectorise it.
Threads synchronise once per loop instead of in one atomic operation per update.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from ..ir import kernel as ir
from ..ir.walk import (
    children,
    loads,
    local_changed,
    locals_read,
    nested_statements,
    neutral_of,
    walk,
    with_blocks,
    written_in,
)
from .distribute import REDUCED, constant_extent


def summed(
    body: tuple[ir.Stmt, ...], arrays: Mapping[str, ir.ArrayParam], fast_math: bool
) -> tuple[ir.Stmt, ...]:
    """Returns `body` with accumulators in locals, each added behind the outermost loop that allows it.

    Floats are reassociated, so their sums need `fast_math`.
    """
    names = _free_names(body)

    def inside(block: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
        made: list[ir.Stmt] = []
        for s in block:
            if not isinstance(s, ir.For):
                made.append(with_blocks(s, inside))
                continue
            loop, behind = s, list[ir.Stmt]()
            for u in _sums(s, arrays, fast_math):
                dtype = arrays[u.array].dtype
                acc = ir.Local(next(names[u.array]), dtype)
                neutral = neutral_of(u.op, dtype)
                made.append(ir.SetLocal(acc.name, neutral, u.where))
                behind.append(_added(u, acc, neutral, s))
                loop = _into(loop, u, acc.name)
            made += [with_blocks(loop, inside), *behind]
        return tuple(made)

    return inside(body)


def _sums(s: ir.For, arrays: Mapping[str, ir.ArrayParam], fast_math: bool) -> list[ir.Update]:
    """Returns the updates of a loop that can use a local as accumulator, one per array.

    All accesses of the loop to the array are this update of one element.
    """
    every = list(nested_statements(s.body))
    if any(isinstance(x, ir.Print) for x in every):
        return []
    updates: dict[str, list[ir.Update]] = {}
    for x in every:
        if isinstance(x, ir.Update):
            updates.setdefault(x.array, []).append(x)
    stored = {x.array for x in every if isinstance(x, ir.Store)}
    parts = [e for x in every for e in children(x)]
    read = {x.array for e in parts for x in loads(e)}
    changed = {local_changed(x) for x in every} - {""}
    inner = {s.loop, *(x.loop for x in every if isinstance(x, ir.For))}
    written = written_in(s.body)
    found = []
    for array, same in updates.items():
        u, param = same[0], arrays.get(array)
        if param is None or array in stored | read or u.op not in REDUCED:
            continue
        is_one = all((x.indices, x.op, x.result) == (u.indices, u.op, "") for x in same)
        has_type = all(x.value.dtype == param.dtype for x in same)
        may_reorder = fast_math or param.dtype.is_integer
        if is_one and has_type and may_reorder and _is_fixed(u.indices, inner, changed, written):
            found.append(u)
    return found


def _is_fixed(
    indices: Iterable[ir.Expr], inner: set[str], changed: set[str], written: Set[str]
) -> bool:
    """True if indices are invariant in a loop.

    `inner`: its loops. `changed`: the locals that it changes. `written`: the arrays that it writes.
    """
    every = [x for e in indices for x in walk(e)]
    return not (
        any(isinstance(x, ir.LoopIndex) and x.loop in inner for x in every)
        or any(changed.intersection(locals_read(e)) for e in indices)
        or any(x.array in written for e in indices for x in loads(e))
    )


def _added(u: ir.Update, acc: ir.Local, neutral: ir.Const, loop: ir.For) -> ir.Stmt:
    """Returns the statement that adds an accumulator to its element.

    It is in a branch if possibly no update ran: the element need not exist then.
    """
    added = ir.Update(u.array, u.indices, u.op, acc, u.where)
    if _always(loop, u):
        return added
    return ir.If(ir.Compare("ne", acc, neutral, ir.DType.bool_), (added,), (), u.where)


def _always(s: ir.Stmt, u: ir.Update) -> bool:
    """True if statement `s` executes the update at least once whenever it runs."""
    if isinstance(s, ir.For) and (constant_extent(s.extent) or 0) > 0:
        return any(
            (isinstance(x, ir.Update) and x.array == u.array) or _always(x, u) for x in s.body
        )
    return False


def _into(s: ir.For, u: ir.Update, name: str) -> ir.For:
    """Returns the loop with the update of an element replaced by an update of the local `name`."""

    def inside(block: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
        return tuple(
            ir.UpdateLocal(name, x.op, x.value, x.where)
            if isinstance(x, ir.Update) and x.array == u.array
            else with_blocks(x, inside)
            for x in block
        )

    made = with_blocks(s, inside)
    assert isinstance(made, ir.For)
    return made


class _Names(dict[str, Iterator[str]]):
    """Free names for the accumulators of each array."""

    def __init__(self, taken: set[str]) -> None:
        super().__init__()
        self._taken = taken

    def __missing__(self, array: str) -> Iterator[str]:
        self[array] = self._names(array)
        return self[array]

    def _names(self, array: str) -> Iterator[str]:
        n, base = 0, f"{array}_sum"
        while True:
            n += 1
            name = base if n == 1 else f"{base}{n}"
            if name not in self._taken:
                yield name


def _free_names(body: tuple[ir.Stmt, ...]) -> _Names:
    return _Names({local_changed(s) for s in nested_statements(body)})
