"""Sums by cell: a loop that updates fields of a tree adds to arrays over all cells of the domain, and then these to the fields.

Elements of such an array have the coordinates of cells for indices, so a box of cells is a box of the array, wherever leaves lie.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from ..ir import kernel as ir
from ..ir.logical import LogicalLoop
from ..ir.simplify import binary, compare, const
from ..ir.walk import nested_statements, neutral_of, with_blocks
from .cells import I64, number

_MOST_KEPT = 64  # loops: each has its own lowered kernel


@dataclass(frozen=True)
class _Sums:
    """Array of the sums for field `field` of the kernel: its parameter, and the number of its axes that are components."""

    field: str
    param: ir.ArrayParam
    n_components: int

    def instead_of(self, s: ir.Update) -> ir.Stmt:
        """Returns the update of the array in place of an update of the field. One outside of the domain has no effect."""
        own, n = replace(s, array=self.param.name), self.n_components
        ok: ir.Expr = const(True, ir.DType.bool_)
        for x, extent in zip(s.indices[n:], self.param.shape[n:], strict=True):
            ok = binary("and", ok, compare("ge", x, const(0, x.dtype)))
            ok = binary("and", ok, compare("lt", x, const(extent, x.dtype)))
        return own if ok == const(True, ir.DType.bool_) else ir.If(ok, (own,), (), s.where)

    def added(self, s: ir.Update, names: Collection[str]) -> ir.Stmt:
        """Returns the loops over cells, and their components inside, that add the array to the field. `s`: an update of the field.

        For min and max an element without an update keeps its value, even if it is a NaN.
        """
        shape, n, dtype = self.param.shape, self.n_components, self.param.dtype
        loops = [_free(f"cell{axis}", names) for axis in range(len(shape))]
        at = tuple(ir.LoopIndex(name, I64) for name in loops)
        total = ir.Load(self.param.name, at, dtype)
        made: ir.Stmt = ir.Update(self.field, at, s.op, total, s.where)
        if dtype.is_float and s.op in ("min", "max"):
            is_some = compare("ne", total, neutral_of(s.op, dtype))
            made = ir.If(is_some, (made,), (), s.where)
        for axis in (*reversed(range(n)), *reversed(range(n, len(shape)))):
            made = ir.For(loops[axis], number(shape[axis]), (made,), s.where)
        return made


def _free(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name = f"{name}x"
    return name


@lru_cache(maxsize=_MOST_KEPT)
def summed_by_cell(loop: LogicalLoop, names: tuple[tuple[str, str], ...]) -> LogicalLoop:
    """Returns the loop with arrays of sums for fields that it only updates.

    `names`: pairs of a field's array in the sequence, and the array of its sums.
    """
    call, new = loop.call, dict(names)
    kernel, ir_, s = call.kernel, call.kernel.ir, loop.statement
    known = {tree.name: tree for tree in ir_.trees}
    params = {p.name: p for p in ir_.arrays}
    taken = {*params, *(p.name for p in ir_.scalars)}
    sums, arrays = dict[str, _Sums](), dict(call.arrays)
    of_array: dict[str, _Sums] = {}
    for p in ir_.placed:
        array = call.sections.get((p.tree, f"field{kernel.fields[p.array]}"), "")
        if array not in new:
            continue
        own = params[p.array]
        name = _free(f"{p.array}_sums", taken)
        n = len(own.shape) - len(known[p.tree].axes(p.node))
        shape = (*own.shape[:n], *known[p.tree].shape(p.node))
        made = _Sums(p.array, ir.ArrayParam(name, own.dtype, shape), n)
        sums[p.array] = of_array.setdefault(array, made)
        arrays[sums[p.array].param.name] = new[array]
    loops = {x.loop for x in nested_statements(ir_.body) if isinstance(x, ir.For)}
    firsts: dict[str, ir.Update] = {}
    for x in nested_statements(s.body):
        if isinstance(x, ir.Update) and x.array in sums:
            firsts.setdefault(sums[x.array].field, x)
    added = tuple(sums[field].added(x, loops) for field, x in firsts.items())
    body = list(ir_.body)
    body[loop.top] = replace(s, body=(*_instead(s.body, sums), *added))
    every = (*ir_.arrays, *(x.param for x in of_array.values()))
    other = replace(kernel, ir=replace(ir_, arrays=every, body=tuple(body)))
    return LogicalLoop(replace(call, kernel=other, arrays=arrays), loop.top)


def _instead(body: tuple[ir.Stmt, ...], sums: Mapping[str, _Sums]) -> tuple[ir.Stmt, ...]:
    return tuple(
        sums[s.array].instead_of(s)
        if isinstance(s, ir.Update) and s.array in sums
        else with_blocks(s, lambda inner: _instead(inner, sums))
        for s in body
    )
