"""Refusal of kernels that store to an element they have read, if the adjoint needs the read value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...ir import kernel, walk
from .activity import NeedsOldElementError

_MOST_NODES = 32  # of the value of a local that stands for it in an index
_LOOPS = kernel.For | kernel.ForActive | kernel.While
_Branches = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _Access:
    """Access of an array element. `branches`: the sides of the branches around it."""

    array: str
    indices: tuple[kernel.Expr, ...]
    is_write: bool
    branches: _Branches
    where: kernel.Location


def refuse_overwritten(ir: kernel.KernelIR, adjoint: tuple[kernel.Stmt, ...]) -> None:
    """Raises KernelError if the adjoint needs an element that the kernel surely overwrites after a read."""
    needed = {
        x.array
        for s in walk.nested_statements(adjoint)
        for e in walk.children(s)
        for x in walk.loads(e)
    }
    read: dict[tuple[str, tuple[kernel.Expr, ...]], list[_Access]] = {}
    for access in _Order().accesses(walk.identified(ir.body), {}):
        if access.array not in needed:
            continue
        key = access.array, access.indices
        if not access.is_write:
            read.setdefault(key, []).append(access)
        elif any(_may_precede(before, access) for before in read.get(key, ())):
            sentence = f"an element of {access.array} is overwritten after it was read: store to another array"
            raise NeedsOldElementError(sentence, access.where, access.array)


def _may_precede(first: _Access, second: _Access) -> bool:
    """True unless the two accesses are in different sides of one branch."""
    sides = dict(first.branches)
    return all(sides.get(branch, side) == side for branch, side in second.branches)


class _Order:
    """Order of the accesses of a kernel, with indices that are equal if they surely denote one element.

    In the indices, loops are named by their depth, and locals are replaced by their values. A local whose value depends on a branch
    or on the iteration has a new name behind each change.
    """

    def __init__(self) -> None:
        self._values: dict[str, kernel.Expr] = {}
        self._n_names = 0

    def accesses(
        self,
        body: tuple[kernel.Stmt, ...],
        loops: dict[str, kernel.LoopIndex],
        branches: _Branches = (),
    ) -> Iterator[_Access]:
        """Yields the accesses of statements in program order.

        Behind those of a loop come the stores that its next iteration surely makes.
        """
        for s in body:
            if isinstance(s, _LOOPS):
                self._forget(s)
            for e in walk.children(s):
                for x in walk.loads(e):
                    yield self._access(x, loops, branches, s.where)
            if isinstance(s, kernel.Store | kernel.Update):
                yield self._access(s, loops, branches, s.where)
            self._assign(s, loops)
            if walk.blocks(s):
                yield from self._nested(s, loops, branches)

    def _nested(
        self, s: kernel.Stmt, loops: dict[str, kernel.LoopIndex], branches: _Branches
    ) -> Iterator[_Access]:
        before = self._values
        for side, block in enumerate(walk.blocks(s)):
            self._values = dict(before)
            within = (*branches, (s.uid, side)) if isinstance(s, kernel.If) else branches
            yield from self.accesses(block, _inside(s, loops, ""), within)
            self._forget(s)
        if isinstance(s, _LOOPS) and _may_repeat(s):
            again = self.accesses(s.body, _inside(s, loops, "next"), branches)
            yield from (x for x in again if x.is_write and x.branches == branches)
            self._forget(s)

    def _access(
        self,
        x: kernel.Load | kernel.Store | kernel.Update,
        loops: dict[str, kernel.LoopIndex],
        branches: _Branches,
        where: kernel.Location,
    ) -> _Access:
        indices = tuple(self._renamed(i, loops) for i in x.indices)
        return _Access(x.array, indices, not isinstance(x, kernel.Load), branches, where)

    def _renamed(self, e: kernel.Expr, loops: dict[str, kernel.LoopIndex]) -> kernel.Expr:
        if isinstance(e, kernel.Local):
            return self._values.get(e.name, e)
        if isinstance(e, kernel.LoopIndex):
            return replace(loops.get(e.loop, e), dtype=e.dtype)
        e = walk.mapped(e, lambda x: self._renamed(x, loops), lambda s: s)
        if isinstance(e, kernel.LocalElement) and isinstance(
            now := self._values.get(e.name), kernel.Local
        ):
            return replace(e, name=now.name)
        return e

    def _assign(self, s: kernel.Stmt, loops: dict[str, kernel.LoopIndex]) -> None:
        """Records the value to which a statement sets a local."""
        if isinstance(s, kernel.SetLocal):
            value = self._renamed(s.value, loops)
            if value.dtype.is_index and walk.size(value) <= _MOST_NODES:
                self._values[s.name] = value
                return
        if walk.local_changed(s):
            self._forget(s)

    def _forget(self, s: kernel.Stmt) -> None:
        """Gives new names to the locals that a statement changes."""
        for name in {walk.local_changed(s) for s in walk.nested_statements((s,))} - {""}:
            self._n_names += 1
            self._values[name] = kernel.Local(f"{name} {self._n_names}", kernel.DType.i64)


def _inside(
    s: kernel.Stmt, loops: dict[str, kernel.LoopIndex], iteration: str
) -> dict[str, kernel.LoopIndex]:
    """Returns the names, by depth, of the loops around the statements nested in `s`."""
    names = (
        (s.loop,)
        if isinstance(s, kernel.For)
        else s.loops
        if isinstance(s, kernel.ForActive)
        else ()
    )
    return loops | {
        n: kernel.LoopIndex(f"{len(loops) + k}{iteration}") for k, n in enumerate(names)
    }


def _may_repeat(s: kernel.For | kernel.ForActive | kernel.While) -> bool:
    """True unless a loop surely has at most one iteration."""
    return not (
        isinstance(s, kernel.For) and isinstance(s.extent, kernel.Const) and s.extent.value < 2
    )
