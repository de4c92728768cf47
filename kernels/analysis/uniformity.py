"""Uniformity analysis: values that are the same in all lanes of a loop, and integers that fit into 32 bits.

A value is *uniform* if all live lanes have the same, otherwise it *varies*. A local is uniform if each of its values is, and if it
is always set for all lanes that may read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..ir import kernel as ir
from ..ir.walk import children, local_changed, locals_read, nested_statements, walk

I32, I64 = ir.DType.i32, ir.DType.i64
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


# --- what fits into 32 bits


@dataclass(frozen=True)
class Ranges:
    """Value-range analysis of integer expressions: least and greatest values.

    `extents`: the extents of loops, as far as they are known. `locals`: the least and greatest values of locals.
    """

    extents: Mapping[str, int] = field(default_factory=dict)
    locals: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def of(self, e: ir.Expr) -> tuple[int, int] | None:
        """Returns the least and greatest value of an expression; None if they are unknown."""
        found = self._of(e)
        if found is None or not e.dtype.is_integer:
            return None
        least, most = e.dtype.range
        return found if least <= found[0] and found[1] <= most else None

    def _of(self, e: ir.Expr) -> tuple[int, int] | None:
        match e:
            case ir.Const(value, dtype) if dtype.is_integer:
                return int(value), int(value)
            case ir.LoopIndex(loop):
                n = self.extents.get(loop)
                return None if n is None else (0, max(0, n - 1))
            case ir.Cast(x) if x.dtype.is_integer:
                inner = self.of(x)
                return x.dtype.range if inner is None and x.dtype.size_bytes <= 4 else inner
            case ir.Local(name) if name in self.locals:
                return self.locals[name]
            case ir.Local(_, dtype) if dtype.is_integer and dtype.size_bytes <= 4:
                return dtype.range
            case ir.Unary("neg", x):
                inner = self.of(x)
                return None if inner is None else (-inner[1], -inner[0])
            case ir.Binary("add" | "sub" | "mul" as op, a, b):
                left, right = self.of(a), self.of(b)
                if left is None or right is None:
                    return None
                act = {
                    "add": lambda x, y: x + y,
                    "sub": lambda x, y: x - y,
                    "mul": lambda x, y: x * y,
                }
                ends = [act[op](x, y) for x in left for y in right]
                return min(ends), max(ends)
            case ir.Binary("floordiv" | "mod" as op, a, ir.Const(value=int(d))) if d > 0:
                inner = self.of(a)
                if inner is None:
                    return None
                return (inner[0] // d, inner[1] // d) if op == "floordiv" else (0, d - 1)
            case ir.Binary("shr", a, ir.Const(value=int(k))) if k >= 0:
                inner = self.of(a)
                return None if inner is None else (inner[0] >> k, inner[1] >> k)
            case ir.Binary("bit_and", _, ir.Const(value=int(bits))) if bits >= 0:
                return 0, bits
            case ir.Select(_, a, b):
                left, right = self.of(a), self.of(b)
                if left is None or right is None:
                    return None
                return min(left[0], right[0]), max(left[1], right[1])
            case ir.Binary("min" | "max", a, b):
                left, right = self.of(a), self.of(b)
                if left is None or right is None:
                    return None
                return min(left[0], right[0]), max(left[1], right[1])
        return None

    def narrowed(self, e: ir.Expr) -> ir.Expr | None:
        """Returns an i64 expression as an i32 expression of the same value.

        None if its value, or that of a subexpression, may not fit into 32 bits.
        """
        if e.dtype is I32:
            return e
        found = self.of(e)
        if e.dtype is not I64 or found is None or found[0] < -(2**31) or found[1] >= 2**31:
            return None
        match e:
            case ir.Const(value):
                return ir.Const(int(value), I32)
            case ir.LoopIndex():
                return replace(e, dtype=I32)
            case ir.Cast(x) if x.dtype is I32:
                return x
            case ir.Cast(x) if x.dtype.size_bytes < 4:
                return ir.Cast(x, I32)
            case ir.Unary("neg", x):
                inner = self.narrowed(x)
                return None if inner is None else ir.Unary("neg", inner, I32)
            case ir.Select(condition, a, b):
                left, right = self.narrowed(a), self.narrowed(b)
                return (
                    None
                    if left is None or right is None
                    else ir.Select(condition, left, right, I32)
                )
            case ir.Binary(op, a, b):
                left, right = self.narrowed(a), self.narrowed(b)
                return None if left is None or right is None else ir.Binary(op, left, right, I32)
        return None
