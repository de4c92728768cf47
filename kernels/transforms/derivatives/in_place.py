"""Derivatives of kernels that overwrite elements they have read: adjoints read copies made before the call.

If a loop stores to an array, each of its iterations must access elements of its own. These become locals of the iteration, which
begin with the copy, and are stored at its end. So updates by maximum, or whose old value is used, have a derivative, too.
The copy of a sparse field is a dense array, 0 where a cell was inactive.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...analysis.cell_changes import CellChanges
from ...ir import kernel
from ...ir.affine import reach
from ...ir.simplify import binary, cast, compare, const, select
from ...ir.structure import StructureTree
from ...ir.walk import (
    children,
    loads,
    mapped,
    nested_statements,
    walk,
    with_blocks,
    written_in,
)
from .activity import NeedsOldElementError
from .adjoint import N_KEPT, adjoint
from .dual import dual
from .kept import differs
from .naming import Names

_Indices = tuple[kernel.Expr, ...]
_Access = kernel.Load | kernel.Store | kernel.Update
_MOST_COPIED = 2**31 - 1  # elements of the dense copy of a sparse field: the greatest index of i32


def adjoint_on_copies(
    ir: kernel.KernelIR, gradients: Mapping[str, str], n_kept: int = N_KEPT
) -> tuple[kernel.KernelIR, dict[str, str]]:
    """Returns the adjoint of a kernel, and for each added array the array of which it is a copy.

    The copies are from before the call. Parameters and errors are those of `adjoint`; KernelError also if no copy of an array
    helps.
    """
    copies: dict[str, str] = {}
    while True:
        try:
            made = adjoint(ir, gradients, n_kept)
        except NeedsOldElementError as refused:
            copy = Names(ir, gradients.values()).fresh(f"{refused.array}_before")
            on_copy = (
                None if refused.array in copies.values() else _reading(ir, refused.array, copy)
            )
            if on_copy is None:
                raise
            ir, copies[copy] = on_copy, refused.array
            if refused.array in gradients:
                gradients = {**gradients, copy: gradients[refused.array]}
        else:
            used = {p.name for p in made.arrays}
            return made, {copy: array for copy, array in copies.items() if copy in used}


def dual_in_place(ir: kernel.KernelIR, tangents: Mapping[str, str]) -> kernel.KernelIR:
    """Returns the dual of a kernel, also if iterations update elements of their own otherwise than by sums.

    Raises KernelError as `dual` does.
    """
    while True:
        try:
            return dual(ir, tangents)
        except NeedsOldElementError as refused:
            in_locals = _on_locals(ir, refused.array)
            if in_locals is None:
                raise
            ir = in_locals


def _on_locals(ir: kernel.KernelIR, array: str) -> kernel.KernelIR | None:
    """Returns the kernel with elements of an array replaced by locals; None if iterations share elements."""
    if any(p.array == array for p in ir.placed):
        return None
    param = next(p for p in ir.arrays if p.name == array)
    names, body = Names(ir), list[kernel.Stmt]()
    for s in ir.body:
        is_sum = not any(_uses_old(x) for x in _accesses((s,), array))
        made = [s] if is_sum else _Replacement(param, array, names).statements(s)
        if made is None:
            return None
        body += made
    return replace(ir, body=tuple(body))


def _reading(ir: kernel.KernelIR, array: str, copy: str) -> kernel.KernelIR | None:
    """Returns the kernel with loads from `copy`, the copy of an array from before the call.

    The copy of a sparse field is dense: it has all elements of the node, and 0 where a cell is inactive. None if the kernel
    overwrites elements that other iterations read, or if a copy would have too many elements.
    """
    param = next(p for p in ir.arrays if p.name == array)
    on_tree = _OnTree.of(ir, array)
    if on_tree is not None and (not on_tree.is_fixed or math.prod(param.shape) > _MOST_COPIED):
        return None
    names, body, is_stored = Names(ir, (copy,)), list[kernel.Stmt](), False
    for k, s in enumerate(ir.body):
        is_written, is_last = array in written_in((s,)), array not in written_in(ir.body[k + 1 :])
        if not _needs(s, array) or (is_last and not is_written):
            body.append(s)
        elif is_stored:
            return None
        elif is_written:
            made = _Replacement(param, copy, names, on_tree).statements(s)
            if made is None:
                return None
            body += made
        else:
            body.append(_renamed(s, param, copy, is_sparse=on_tree is not None))
        is_stored = is_stored or is_written
    return replace(ir, arrays=(*ir.arrays, replace(param, name=copy)), body=tuple(body))


def _needs(s: kernel.Stmt, array: str) -> bool:
    """True if a statement uses elements of an array other than in sums that are added to them."""
    return any(isinstance(x, kernel.Load) or _uses_old(x) for x in _accesses((s,), array))


def _uses_old(x: _Access) -> bool:
    return isinstance(x, kernel.Update) and (x.op != "add" or bool(x.result))


def _accesses(body: tuple[kernel.Stmt, ...], array: str) -> Iterator[_Access]:
    for s in nested_statements(body):
        if isinstance(s, kernel.Store | kernel.Update) and s.array == array:
            yield s
        yield from (x for e in children(s) for x in loads(e) if x.array == array)


def _renamed(
    s: kernel.Stmt, param: kernel.ArrayParam, copy: str, *, is_sparse: bool
) -> kernel.Stmt:
    """Returns the statement with loads from `copy` in place of loads from the array `param`."""

    def on_expr(e: kernel.Expr) -> kernel.Expr:
        e = mapped(e, on_expr, lambda s: s)
        if not isinstance(e, kernel.Load) or e.array != param.name:
            return e
        made = replace(e, array=copy)
        return _inside_or_zero(made, param.shape) if is_sparse else made

    def on_stmt(s: kernel.Stmt) -> kernel.Stmt:
        return mapped(s, on_expr, on_stmt)

    return on_stmt(s)


def _inside_or_zero(load: kernel.Load, shape: tuple[int, ...]) -> kernel.Expr:
    """Returns the value of a load, 0 where an index is outside: elements outside of a sparse field are 0."""
    sides: list[kernel.Expr] = []
    at: list[kernel.Expr] = []
    for index, n in zip(load.indices, shape, strict=True):
        if isinstance(index, kernel.Const):
            if not 0 <= index.value < n:
                return const(0, load.dtype)
            at.append(index)
            continue
        first, last = const(0, index.dtype), const(n - 1, index.dtype)
        sides += [compare("ge", index, first), compare("le", index, last)]
        at.append(binary("min", binary("max", index, first), last))
    clamped = replace(load, indices=tuple(at))
    if not sides:
        return clamped
    return select(
        functools.reduce(functools.partial(binary, "and"), sides), clamped, const(0, load.dtype)
    )


@dataclass(frozen=True)
class _OnTree:
    """Facts on a kernel with a sparse field.

    `trees`: its trees by name, for the lengths of loops over cells. `is_fixed`: no cell is deactivated, and loops over active cells
    visit the same cells after the call.
    """

    trees: Mapping[str, StructureTree]
    is_fixed: bool

    @classmethod
    def of(cls, ir: kernel.KernelIR, array: str) -> _OnTree | None:
        """Returns the facts on the kernel of a sparse field, None for a dense one."""
        if not any(p.array == array for p in ir.placed):
            return None
        return cls({t.name: t for t in ir.trees}, _keeps_cells(ir))


def _keeps_cells(ir: kernel.KernelIR) -> bool:
    """True if a kernel deactivates no cell, and activates none of a tree over whose active cells it loops."""
    trees = {s.tree for s in nested_statements(ir.body) if isinstance(s, kernel.ForActive)}
    changes = CellChanges.of(ir)
    return not changes.deactivates and not any(s.tree in trees for _, s in changes.statements)


class _Replacement:
    """Scalar replacement: elements of an array become locals of the iteration that alone accesses them."""

    def __init__(
        self,
        param: kernel.ArrayParam,
        copy: str,
        names: Names,
        on_tree: _OnTree | None = None,
    ) -> None:
        self._param, self._copy, self._names, self._on_tree = param, copy, names, on_tree
        self._locals: dict[_Indices, kernel.Local] = {}

    def statements(self, s: kernel.Stmt) -> list[kernel.Stmt] | None:
        """Returns the statements that replace a top-level statement; None if iterations share elements."""
        found = list(dict.fromkeys(x.indices for x in _accesses((s,), self._param.name)))
        for axis in zip(*found, strict=True):
            if len(set(axis)) > 1 and not all(isinstance(e, kernel.Const) for e in axis):
                return None
        inside = [x for indices in found for e in indices for x in walk(e)]
        if not all(
            isinstance(x, kernel.LoopIndex | kernel.Const | kernel.Binary | kernel.Cast)
            for x in inside
        ):
            return None
        self._locals = {
            indices: kernel.Local(self._names.fresh(f"{self._param.name}_own"), self._param.dtype)
            for indices in found
        }
        wanted = {x.loop for x in inside if isinstance(x, kernel.LoopIndex)}
        if not isinstance(s, kernel.For | kernel.ForActive):
            return None if wanted else self._wrapped((s,), {})
        made = self._within(s, wanted, {}) if wanted else None
        return None if made is None else [made]

    def _within(
        self,
        s: kernel.For | kernel.ForActive,
        wanted: Collection[str],
        around: Mapping[str, int | None],
    ) -> kernel.Stmt | None:
        """Returns a loop with locals in the innermost of the loops on which the indices depend.

        None if iterations share elements. `wanted`: the loops in the indices. `around`: the extents of the loops around.
        """
        extents: dict[str, int | None]
        if isinstance(s, kernel.For):
            length = s.extent.value if isinstance(s.extent, kernel.Const) else None
            extents = {**around, s.loop: None if length is None else int(length)}
        else:
            extents = {**around, **self._cells(s)}
        if not all(any(differs(e, loop, ()) for e in self._first) for loop in extents):
            return None
        if set(wanted) <= set(extents):
            body = self._wrapped(s.body, extents)
            return None if body is None else replace(s, body=tuple(body))
        touching = [t for t in s.body if any(True for _ in _accesses((t,), self._param.name))]
        if len(touching) != 1 or not isinstance(touching[0], kernel.For):
            return None
        inner = self._within(touching[0], wanted, extents)
        if inner is None:
            return None
        return replace(s, body=tuple(inner if t is touching[0] else t for t in s.body))

    def _cells(self, s: kernel.ForActive) -> dict[str, int | None]:
        """Returns the extents of a loop over active cells; unknown ones if the array is dense."""
        if self._on_tree is None:
            return dict.fromkeys(s.loops)
        shape = self._on_tree.trees[s.tree].shape(s.node)
        return dict(zip(s.loops, shape, strict=True))

    @property
    def _first(self) -> _Indices:
        return next(iter(self._locals))

    def _wrapped(
        self, body: Sequence[kernel.Stmt], extents: Mapping[str, int | None]
    ) -> list[kernel.Stmt] | None:
        """Returns the statements of an iteration on locals: loads first, stores last.

        None if an index may be outside of the array. A store to an inactive cell has no effect, so stores at the end activate none.
        """
        sure = {
            s.indices
            for s in body
            if isinstance(s, kernel.Store | kernel.Update) and s.array == self._param.name
        }
        if self._on_tree is not None:  # stores outside of a node have no effect
            sure = set()
        for indices in self._locals:
            if indices not in sure and not self._is_inside(indices, extents):
                return None
        where, array = body[0].where, self._param.name
        begin: list[kernel.Stmt] = [
            kernel.SetLocal(x.name, kernel.Load(self._copy, indices, x.dtype), where)
            for indices, x in self._locals.items()
        ]
        written = {
            x.indices for x in _accesses(tuple(body), array) if not isinstance(x, kernel.Load)
        }
        end: list[kernel.Stmt] = [
            kernel.Store(array, indices, x, where)
            for indices, x in self._locals.items()
            if indices in written
        ]
        return [*begin, *(t for s in body for t in self._replaced(s)), *end]

    def _is_inside(self, indices: _Indices, extents: Mapping[str, int | None]) -> bool:
        """True if the indices are in the bounds of the array in all iterations."""
        ends = [reach(e, extents) for e in indices]
        return all(
            r is not None and r[0] >= 0 and r[1] < n
            for r, n in zip(ends, self._param.shape, strict=True)
        )

    def _replaced(self, s: kernel.Stmt) -> Iterator[kernel.Stmt]:
        if not isinstance(s, kernel.Store | kernel.Update) or s.array != self._param.name:
            yield self._on_stmt(s)
            return
        own = self._locals[s.indices]
        value = cast(self._on_expr(s.value), own.dtype)
        if isinstance(s, kernel.Store):
            yield kernel.SetLocal(own.name, value, s.where)
            return
        if s.result:
            yield kernel.SetLocal(s.result, own, s.where)
        yield kernel.UpdateLocal(own.name, s.op, value, s.where)

    def _on_stmt(self, s: kernel.Stmt) -> kernel.Stmt:
        s = with_blocks(s, lambda block: tuple(t for x in block for t in self._replaced(x)))
        return mapped(s, self._on_expr, lambda t: t)

    def _on_expr(self, e: kernel.Expr) -> kernel.Expr:
        if isinstance(e, kernel.Load) and e.array == self._param.name:
            return self._locals[e.indices]
        return mapped(e, self._on_expr, lambda s: s)
