"""Forward mode: a dual kernel computes the kernel's values, and for each its derivative along a direction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

from ...ir import kernel
from ...ir.simplify import binary, cast, const, select
from ...ir.walk import with_blocks
from .activity import Activity, NeedsOldElementError, activity_of, depends_on
from .naming import Names
from .rules import operands_of, partials, times


def dual(ir: kernel.KernelIR, tangents: Mapping[str, str]) -> kernel.KernelIR:
    """Returns the dual (forward mode) of a kernel.

    `tangents`: for each array with a derivative the name of the derivative's array. Raises KernelError for a statement without a
    derivative.
    """
    activity = activity_of(ir, frozenset(tangents))
    body = _Dual(tangents, activity, Names(ir, tangents.values())).block(ir.body)
    arrays = tuple(replace(p, name=tangents[p.name]) for p in ir.arrays if p.name in tangents)
    placed = tuple(replace(p, array=tangents[p.array]) for p in ir.placed if p.array in tangents)
    return replace(
        ir,
        name=f"{ir.name}_dual",
        arrays=(*ir.arrays, *arrays),
        placed=(*ir.placed, *placed),
        body=body,
    )


class _Dual:
    """Writer of the dual statements of one kernel."""

    def __init__(self, tangents: Mapping[str, str], activity: Activity, names: Names) -> None:
        self._tangents, self._activity = tangents, activity
        self._names = {n: names.fresh(f"dot_{n}") for n in sorted(activity.active)}

    def block(self, body: tuple[kernel.Stmt, ...]) -> tuple[kernel.Stmt, ...]:
        """Returns the statements, each behind its dual statement, which reads the values from before."""
        made: list[kernel.Stmt] = []
        for s in body:
            made += self._before(s)
            made.append(with_blocks(s, self.block))
        return tuple(made)

    def _before(self, s: kernel.Stmt) -> list[kernel.Stmt]:
        match s:
            case kernel.SetLocal(name=name) if name in self._names:
                return [replace(s, name=self._names[name], value=self._tangent(s.value))]
            case kernel.UpdateLocal(name=name, op="add") if name in self._names:
                return [replace(s, name=self._names[name], value=self._tangent(s.value))]
            case kernel.UpdateLocal(name=name, op=op, value=value) if name in self._names:
                updated = kernel.Binary(op, kernel.Local(name, value.dtype), value, value.dtype)
                return [kernel.SetLocal(self._names[name], self._tangent(updated), s.where)]
            case kernel.LocalArray(name=name) if name in self._names:
                return [replace(s, name=self._names[name], value=self._tangent(s.value))]
            case kernel.SetElement(name=name) if name in self._names:
                return [replace(s, name=self._names[name], value=self._tangent(s.value))]
            case kernel.Store() if s.array in self._tangents:
                return [replace(s, array=self._tangents[s.array], value=self._tangent(s.value))]
            case kernel.Update() if s.array in self._tangents:
                return [self._update(s)]
        return []

    def _update(self, s: kernel.Update) -> kernel.Stmt:
        if s.op == "mul" and not depends_on(s.value, self._names, self._tangents):
            return replace(s, array=self._tangents[s.array], result="")
        if s.op != "add":
            raise NeedsOldElementError.of_update(s)
        if s.result in self._names:
            raise NeedsOldElementError.of_old_value(s)
        value = self._tangent(s.value)
        return replace(s, array=self._tangents[s.array], value=value, result="")

    def _tangent(self, e: kernel.Expr) -> kernel.Expr:
        """Returns the derivative of an expression along the direction that `tangents` give."""
        zero = const(0, e.dtype)
        if not depends_on(e, self._names, self._tangents):
            return zero
        match e:
            case kernel.Local():
                return kernel.Local(self._names[e.name], e.dtype)
            case kernel.LocalElement():
                return replace(e, name=self._names[e.name])
            case kernel.Load():
                return replace(e, array=self._tangents[e.array])
            case kernel.Cast():
                return cast(self._tangent(e.x), e.dtype)
            case kernel.Select():
                return select(e.condition, self._tangent(e.a), self._tangent(e.b))
            case kernel.Unary() | kernel.Binary():
                return self._of_operation(e)
        raise AssertionError(e)

    def _of_operation(self, e: kernel.Unary | kernel.Binary) -> kernel.Expr:
        terms = [
            times(self._tangent(x), factor)
            for x, factor in zip(operands_of(e), partials(e, e), strict=True)
            if factor is not None and depends_on(x, self._names, self._tangents)
        ]
        return reduce(lambda a, b: binary("add", a, b), terms)
