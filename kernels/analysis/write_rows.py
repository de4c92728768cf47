"""Rows of writes in vectorised loops: contiguous elements that one iteration stores or updates by statements near one another.

Iterations of the loop are lanes. Where no loop runs along the elements, a lane's row is one access instead of one a statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..ir import kernel as ir
from ..ir.affine import to_affine
from ..ir.kernel import DType
from ..ir.walk import (
    blocks,
    children,
    identified,
    local_changed,
    locals_read,
    mapped,
    nested_statements,
    walk,
)
from .neighbour_loads import row_length, split_constant

STORE = "store"  # beside the operators of updates
Write = ir.Store | ir.Update
Statements = tuple[ir.Stmt, ...]
_LINE_BYTES = 64

# Array, operator or STORE, type, indices but for the last one, and what that one is without its constant.
_Key = tuple[str, str, DType, tuple[ir.Expr, ...], ir.Expr | None]


@dataclass(frozen=True)
class WriteRow:
    """Stores or updates of contiguous elements, in the order of memory."""

    writes: tuple[Write, ...]


def operator_of(s: Write) -> str:
    """Returns the operator of an update, STORE for a store."""
    return s.op if isinstance(s, ir.Update) else STORE


def _longest(dtype: DType) -> int:
    """Greatest number of iterations of a loop along a row that is unrolled (a cache line of elements).

    0 without rows.
    """
    return _LINE_BYTES // dtype.size_bytes if row_length(dtype) > 1 else 0


def is_free(body: tuple[ir.Stmt, ...]) -> Callable[[Write], bool]:
    """Returns a predicate on stores and updates: True if one may be delayed to a later statement of `body`.

    It may if all writes to its array in `body` are updates by one operator, or all are stores. No statement that it is delayed
    behind may load from the array, and stores of one element keep their order (`write_rows`).
    """
    every = tuple(nested_statements(body))
    written = {s.array for s in every if isinstance(s, Write)}
    ways: dict[str, set[str]] = {}
    for s in every:
        if isinstance(s, Write):
            results = (s.result,) if isinstance(s, ir.Update) and s.result else ()
            ways.setdefault(s.array, set()).update((operator_of(s), *results))

    def may(s: Write) -> bool:
        read = {x.array for e in s.indices for x in _loads(e)}
        return len(ways[s.array]) == 1 and not read & written

    return may


def written_out(
    body: tuple[ir.Stmt, ...],
    may_row: Callable[[Write], bool],
    dtype_of: Callable[[str], DType],
) -> tuple[ir.Stmt, ...]:
    """Returns the statements with loops along a row (short loops over contiguous writes) unrolled."""
    found: list[ir.Stmt] = []
    for s in body:
        match s:
            case ir.For(loop, ir.Const(value=n), (ir.Update() | ir.Store() as u,)) if (
                1 < n <= _longest(dtype_of(u.array))
                and _is_along(u, loop)
                and may_row(_at(u, loop, 0))
            ):
                found += [_at(u, loop, k) for k in range(int(n))]
            case _:
                found.append(s)
    return tuple(found)


def _is_along(u: Write, loop: str) -> bool:
    """True if consecutive iterations of `loop` write consecutive elements."""

    def reads(e: ir.Expr) -> bool:
        return any(isinstance(x, ir.LoopIndex) and x.loop == loop for x in walk(e))

    if not u.indices:
        return False  # an array without axes has one element
    base, _ = split_constant(_at(u, loop, 0).indices[-1])
    ends = [split_constant(_at(u, loop, k).indices[-1]) for k in (0, 1)]
    return (
        not any(map(reads, u.indices[:-1]))
        and ends[0][0] == ends[1][0] == base
        and ends[1][1] == ends[0][1] + 1
    )


def _loads(e: ir.Expr) -> Iterator[ir.Load]:
    return (x for x in walk(e) if isinstance(x, ir.Load))


def _at(u: Write, loop: str, k: int) -> Write:
    """Returns `u` with the index of `loop` replaced by `k`."""

    def there(e: ir.Expr) -> ir.Expr:
        if isinstance(e, ir.LoopIndex) and e.loop == loop:
            return ir.Const(k, e.dtype)
        return mapped(e, there, lambda s: s)

    return mapped(u, there, lambda s: s)


def write_rows(
    body: Sequence[ir.Stmt],
    may_row: Callable[[Write], bool],
    dtype_of: Callable[[str], DType],
) -> dict[int, WriteRow]:
    """Returns the rows of writes in a block; keys are the positions in it of each row's statements.

    No statement is in two rows. Values are computed at each statement's own position; all elements are
    written at the last statement of the row. No statement in between may change an element's index, store to the array
    elsewhere, or load from it.
    """
    groups: dict[_Key, dict[int, int]] = {}
    for at, s in enumerate(body):
        if isinstance(s, Write) and s.indices and may_row(s):
            base, n = split_constant(s.indices[-1])
            key = (s.array, operator_of(s), dtype_of(s.array), s.indices[:-1], base)
            group = groups.setdefault(key, {})
            if n not in group:
                group[n] = at
    found: dict[int, WriteRow] = {}
    for key, group in groups.items():
        for run in (r for r in _runs(sorted(group), row_length(key[2])) if len(r) > 1):
            places = [group[n] for n in run]
            row = WriteRow(tuple(s for s in (body[at] for at in places) if isinstance(s, Write)))
            inside = range(min(places), max(places) + 1)
            between = tuple(body[at] for at in inside if at not in places)
            later = tuple(body[at] for at in inside[1:])
            if not _is_disturbed(row, between, later):
                found |= dict.fromkeys(places, row)
    return found


def _is_disturbed(row: WriteRow, between: Statements, later: Statements) -> bool:
    """True if a statement from the first to the last of a row changes an index of it, or accesses its array in another way.

    `between`: those without the row's own. `later`: those behind the first one. Nothing is delayed behind a load of the first.
    """
    first = row.writes[0]
    read = {name for e in first.indices for name in locals_read(e)}
    others = list(nested_statements(between))
    changed = {local_changed(s) for s in others}
    stores = any(isinstance(s, ir.Store) and s.array == first.array for s in others)
    every = (e for s in nested_statements(later) for e in children(s))
    loads = any(x.array == first.array for e in every for x in _loads(e))
    return bool(read & changed) or stores or loads


def _runs(numbers: Sequence[int], most: int) -> list[list[int]]:
    """Returns `numbers` split into runs of consecutive numbers, each of at most `most`."""
    found: list[list[int]] = []
    for n in numbers:
        if found and n == found[-1][-1] + 1 and len(found[-1]) < most:
            found[-1].append(n)
        else:
            found.append([n])
    return found


def has_store_rows(body: tuple[ir.Stmt, ...], lane: str, dtype_of: Callable[[str], DType]) -> bool:
    """True if lanes of loop `lane` have rows of stores at any depth of a body, and lie apart from one another."""
    body = identified(body)
    free = is_free(body)

    def may(s: Write) -> bool:
        if not (isinstance(s, ir.Store) and s.indices and free(s)):
            return False
        last = to_affine(s.indices[-1])
        return last is None or dict(last.terms).get(lane) != 1

    every = [body, *(b for s in nested_statements(body) for b in blocks(s))]
    return any(write_rows(written_out(b, may, dtype_of), may, dtype_of) for b in every)
