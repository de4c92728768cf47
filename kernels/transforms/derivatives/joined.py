"""Several updates of one element in a block as one: an adjoint adds to the gradient of a gathered value for each of its uses.

Each corner of an element of a mesh has one atomic update for all terms then. No compiler may do it: other corners might be the same
node. The order of the terms is free. Consecutive updates become one by the sum of their values; others by a local, unless their
indices are affine: those are left to `gathered`, which makes sums of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...ir import kernel as ir
from ...ir.simplify import binary
from ...ir.walk import (
    children,
    loads,
    local_changed,
    locals_read,
    nested_statements,
    with_blocks,
    written_in,
)

Block = tuple[ir.Stmt, ...]
_STOPS = (
    ir.Assert,
    ir.While,
    ir.Print,
)  # statements that may end the call, or show what came before


def joined(body: Block) -> Block:
    """Returns statements in which no two of consecutive updates add to one element; sums are reordered."""
    made = list[ir.Stmt]()
    row: dict[tuple[str, tuple[ir.Expr, ...]], int] = {}  # places of the updates of this row
    for s in body:
        s = with_blocks(s, joined)
        if not isinstance(s, ir.Update) or s.op != "add" or s.result:
            row = {}
        elif _reads_any(s, {array for array, _ in row}):
            row = {(s.array, s.indices): len(made)}
        else:
            at = row.setdefault((s.array, s.indices), len(made))
            if at < len(made):
                first = made[at]
                assert isinstance(first, ir.Update)
                made[at] = replace(first, value=binary("add", first.value, s.value))
                continue
        made.append(s)
    return tuple(made)


def _reads_any(s: ir.Update, arrays: set[str]) -> bool:
    return any(x.array in arrays for e in children(s) for x in loads(e))


def combined(body: Block, dtypes: Mapping[str, ir.DType], fresh: Callable[[str], str]) -> Block:
    """Returns the statements with one update for all additions to an element in a block, at the place of the last.

    `dtypes`: of arrays. `fresh`: generator of unused names for locals, by a stem.
    Precondition: floats may be reassociated.
    """
    inner = tuple(with_blocks(s, lambda block: combined(block, dtypes, fresh)) for s in body)
    made: list[ir.Stmt | None] = list(inner)
    behind: dict[int, ir.Update] = {}
    for group in _groups(inner, dtypes):
        first, last = group.places[0], group.places[-1]
        total = ir.Local(fresh(f"{group.update.array}_total"), dtypes[group.update.array])
        for k in group.places:
            s = inner[k]
            assert isinstance(s, ir.Update)
            made[k] = ir.UpdateLocal(total.name, s.op, s.value, s.where)
            if k == first:
                made[k] = ir.SetLocal(total.name, s.value, s.where)
        behind[last] = replace(group.update, value=total)
    return tuple(x for k, s in enumerate(made) for x in (s, behind.get(k)) if x is not None)


@dataclass(frozen=True)
class _Group:
    """Additions to one element. `update`: the first. `places`: of all, in their block."""

    update: ir.Update
    places: list[int] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, tuple[ir.Expr, ...]]:
        return self.update.array, self.update.indices

    def ends_at(self, s: ir.Stmt) -> bool:
        """True if no addition may be moved behind statement `s`, or its element may be another one there."""
        array, every = self.update.array, list(nested_statements((s,)))
        names = {name for i in self.update.indices for name in locals_read(i)}
        sources = {x.array for i in self.update.indices for x in loads(i)}
        read = {x.array for y in every for e in children(y) for x in loads(e)}
        return (
            array in read
            or not sources.isdisjoint(written_in((s,)))
            or not names.isdisjoint(map(local_changed, every))
            or any(isinstance(y, _STOPS) for y in every)
            or any(_is_other_write(y, array) for y in every)
        )


def _is_other_write(s: ir.Stmt, array: str) -> bool:
    """True if a statement writes an array otherwise than by an addition whose old value nobody takes."""
    if isinstance(s, ir.Update):
        return s.array == array and (s.op != "add" or bool(s.result))
    return isinstance(s, ir.Store) and s.array == array


def _groups(body: Sequence[ir.Stmt], dtypes: Mapping[str, ir.DType]) -> Iterator[_Group]:
    """Yields the groups of at least two additions that can be one."""
    found: dict[tuple[str, tuple[ir.Expr, ...]], _Group] = {}
    for k, s in enumerate(body):
        for group in [x for x in found.values() if x.ends_at(s)]:
            del found[group.key]
            yield from (group,) if len(group.places) > 1 else ()
        if isinstance(s, ir.Update) and _may_combine(s, dtypes):
            found.setdefault((s.array, s.indices), _Group(s)).places.append(k)
    yield from (x for x in found.values() if len(x.places) > 1)


def _may_combine(s: ir.Update, dtypes: Mapping[str, ir.DType]) -> bool:
    depends = any(locals_read(i) or any(loads(i)) for i in s.indices)
    return depends and s.op == "add" and not s.result and s.value.dtype is dtypes.get(s.array)
