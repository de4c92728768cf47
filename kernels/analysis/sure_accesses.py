"""Must-access analysis: memory accesses that a task with a body makes whatever values its arrays have.

They are in loops of known extents, outside of branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..ir.access import Access
from ..ir.affine import to_affine
from ..ir.kernel import Expr, For, Load, SetLocal, Stmt, Store, Update
from ..ir.task import Task, extents
from ..ir.walk import Renaming, nested_statements
from .must_execute import BasicBlock, Needed, blocks_of, needed, set_in, surely


@dataclass(frozen=True)
class SureAccess:
    """Must-access of a body, with the extents of all loops that its index depends on, in the order of the text.

    An update of an element is two accesses, a read and a write.
    """

    access: Access
    loops: tuple[tuple[str, int], ...]
    writes: bool
    is_update: bool


@lru_cache(maxsize=64)  # asked for each array of a task
def sure_accesses(task: Task) -> tuple[SureAccess, ...]:
    """Returns the must-accesses of a task's body; () for a task without a body."""
    if task.body is None:
        return ()
    blocks = blocks_of(task.body.statements)
    names = plain_locals(task.body.statements)
    found: list[SureAccess] = []
    for n in needed(task.body.statements):
        loops = known_loops(task, blocks, n)
        if loops is None:
            continue
        every = tuple(sorted(loops.items()))
        for array, indices, writes in touched_at(n):
            axes = tuple(to_affine(names.apply(i)) for i in indices)
            terms = {name for axis in axes if axis is not None for name, _ in axis.terms}
            if terms <= loops.keys():
                update = isinstance(n.statement, Update) and n.statement.array == array
                found.append(SureAccess(Access(array, axes), every, writes, update))
    return tuple(found)


def touched_at(n: Needed) -> Sequence[tuple[str, tuple[Expr, ...], bool]]:
    """Returns the must-accesses of a needed statement: array, indices, and True if it writes. Reads come first."""
    loads = (x for e in n.expressions for x in surely(e) if isinstance(x, Load))
    found = [(x.array, x.indices, False) for x in loads]
    match n.statement:
        case Update(array=array, indices=indices):
            found += [(array, indices, False), (array, indices, True)]
        case Store(array=array, indices=indices):
            found.append((array, indices, True))
    return list(dict.fromkeys(found))


def known_loops(task: Task, blocks: Sequence[BasicBlock], n: Needed) -> dict[str, int] | None:
    """Returns the extents by name of the loops around a needed statement.

    None if the statement is in a branch, or in a loop whose length depends on values.
    """
    if n.late:
        return None
    loops = extents(task)
    block = blocks[n.block]
    while block.parent >= 0:
        if block.times is None or block.times == 0:
            return None
        loop = block.around[-1]
        assert isinstance(loop, For)
        loops[loop.loop] = block.times
        block = blocks[block.parent]
    return loops if all(loops.values()) else None


def plain_locals(body: tuple[Stmt, ...]) -> Renaming:
    """Returns a substitution for the locals that are set exactly once, to affine functions of loop indices."""
    changes = set_in(body)
    known: dict[str, Expr] = {}
    for s in nested_statements(body):
        if isinstance(s, SetLocal) and len(changes[s.name]) == 1:
            value = Renaming(locals=known).apply(s.value)
            if to_affine(value) is not None:
                known[s.name] = value
    return Renaming(locals=known)


def wholly_known(task: Task) -> frozenset[str]:
    """Returns arrays that a task only reads or only writes, by must-accesses with affine indices alone."""
    assert task.body is not None
    n_sites: dict[str, int] = {}
    both: dict[str, set[bool]] = {}
    for site in task.body.sites:
        n_sites[site.state.name] = n_sites.get(site.state.name, 0) + 1
        both.setdefault(site.state.name, set()).update({site.writes, not site.reads})
    sure: dict[str, int] = {}
    blocks, names = blocks_of(task.body.statements), plain_locals(task.body.statements)
    for n in needed(task.body.statements):
        loops = known_loops(task, blocks, n)
        for array, indices, _ in touched_at(n) if loops is not None else ():
            if all(to_affine(names.apply(i)) is not None for i in indices):
                sure[array] = sure.get(array, 0) + 1
    return frozenset(a for a, n in sure.items() if n >= n_sites[a] and len(both[a]) == 1)
