"""Uniformity analysis: values that are the same in all lanes of a loop.

A value is *uniform* if all live lanes have the same, otherwise it *varies*. A local is uniform if each of its values is, and if it
is always set for all lanes that may read it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import kernel as ir
from ..ir.walk import children, local_changed, locals_read, nested_statements, walk

_Path = tuple[int, ...]  # of blocks, outermost first


@dataclass(frozen=True)
class _Touch:
    """A read or write of a local, at a path of blocks: the blocks around it."""

    path: _Path
    is_set: bool


@dataclass(frozen=True)
class _Change:
    """A statement that changes a local, at a path of blocks."""

    statement: ir.Stmt
    name: str
    path: _Path


class Uniformity:
    """Uniformity analysis of the `body` of loop `lane`, whose iterations are vector lanes.

    `sums`: locals set outside of the loop to which the lanes add. Precondition: the statements have identities (`uid`).
    """

    def __init__(self, lane: str, body: tuple[ir.Stmt, ...], sums: frozenset[str]) -> None:
        self.lane, self.sums = lane, sums
        self.varying: set[str] = set(sums)
        self._whole: set[int] = set()
        reader = _LocalReader()
        reader.block(body, ())
        owners = {name: _owner(touches) for name, touches in reader.touches.items()}
        before = -1
        while (
            len(self.varying) != before
        ):  # values vary in the order of the text: two passes mostly
            before = len(self.varying)
            masked = {block for block, e in reader.conditions.items() if self.varies(e)}
            self._whole.clear()
            for change in reader.changes:
                owner = owners[change.name]
                if owner is not None and masked.intersection(change.path).issubset(owner):
                    self._whole.add(change.statement.uid)
                    if not self._changes_vary(change.statement):
                        continue
                self.varying.add(change.name)

    def _changes_vary(self, s: ir.Stmt) -> bool:
        return isinstance(s, ir.Update) or any(map(self.varies, children(s)))

    def varies(self, e: ir.Expr) -> bool:
        """True if an expression may have different values in different lanes."""
        match e:
            case ir.LoopIndex(loop):
                return loop == self.lane
            case ir.Local(name):
                return name in self.varying
            case ir.LocalElement(name, index):
                return name in self.varying or self.varies(index)
        return any(map(self.varies, children(e)))

    def is_whole(self, s: ir.Stmt) -> bool:
        """True if statement `s` may change its local in all lanes without a mask.

        Nothing reads the values that it then leaves in lanes that are not live.
        """
        return s.uid in self._whole and local_changed(s) not in self.sums


def _owner(touches: list[_Touch]) -> _Path | None:
    """Returns the blocks around all accesses to a local, if the innermost of them sets the local first; else None."""
    owner = touches[0].path
    for t in touches[1:]:
        n = 0
        while n < min(len(owner), len(t.path)) and owner[n] == t.path[n]:
            n += 1
        owner = owner[:n]
    is_clean = not owner or (touches[0].is_set and touches[0].path == owner)
    return owner if is_clean else None


class _LocalReader:
    """Collector of the accesses to each local, in the order of the text, and of the condition of each block."""

    def __init__(self) -> None:
        self.touches: dict[str, list[_Touch]] = {}
        self.changes: list[_Change] = []
        self.conditions: dict[int, ir.Expr] = {}

    def block(self, body: tuple[ir.Stmt, ...], path: _Path) -> None:
        for s in body:
            for e in children(s):
                self.read(e, path)
            if name := local_changed(s):
                is_set = isinstance(s, ir.SetLocal | ir.LocalArray)
                self.touches.setdefault(name, []).append(_Touch(path, is_set))
                self.changes.append(_Change(s, name, path))
            match s:
                case ir.If(condition, then, orelse):
                    self.inside(then, path, condition)
                    self.inside(orelse, path, condition)
                case ir.While(condition, inner):
                    self.inside(inner, path, condition)
                    self.read(condition, path)  # again behind each pass
                case ir.For(extent=extent, body=inner):
                    self.inside(inner, path, extent)

    def read(self, e: ir.Expr, path: _Path) -> None:
        for name in locals_read(e):
            self.touches.setdefault(name, []).append(_Touch(path, False))

    def inside(self, body: tuple[ir.Stmt, ...], path: _Path, condition: ir.Expr) -> None:
        number = len(self.conditions) + 1
        self.conditions[number] = condition
        self.block(body, (*path, number))


def affine_locals(body: tuple[ir.Stmt, ...]) -> dict[str, ir.Expr]:
    """Returns locals that a body's top level sets exactly once, to functions of loop indices, with their values."""
    changed = [local_changed(s) for s in nested_statements(body)]
    return {
        s.name: s.value
        for s in body
        if isinstance(s, ir.SetLocal)
        and changed.count(s.name) == 1
        and all(isinstance(x, ir.LoopIndex | ir.Const | ir.Cast | ir.Binary) for x in walk(s.value))
        and all(x.dtype.is_index for x in walk(s.value))
    }


def looks_up(e: ir.Expr) -> bool:
    """True if an expression loads at indices that may be outside of the array in lanes that are not live."""
    return any(
        isinstance(x, ir.Load)
        or (isinstance(x, ir.LocalElement) and not isinstance(x.index, ir.Const))
        for x in walk(e)
    )
