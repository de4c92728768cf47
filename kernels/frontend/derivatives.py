"""Adjoints and duals of kernels, as instances and calls like all others.

Only arrays with a placed gradient or dual have derivatives.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..fields.caller_location import fail
from ..fields.field import AbstractLeaf, DerivativeKind
from ..fields.field_view import FieldView
from ..fields.ndarray import gradient_of
from ..fields.program import current_program
from ..ir.kernel import Location
from ..ir.verify import check
from ..transforms.derivatives.access_rule import with_checks
from ..transforms.derivatives.adjoint import N_KEPT, adjoint
from ..transforms.derivatives.dual import dual
from ..transforms.derivatives.naming import Names
from .dispatch import current
from .instance import Instance, KernelCall

Prepare = Callable[[Location, tuple[Any, ...], dict[str, Any]], KernelCall]


class AdjointKernel:
    """Adjoint of a kernel, `kernel.grad`: it is called like the kernel, and adds to the gradients of what the kernel reads."""

    def __init__(self, prepare: Prepare) -> None:
        self._prepare = prepare

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        frame = sys._getframe(1)
        where = Location(frame.f_code.co_filename, frame.f_lineno)
        call = derivative_call(self._prepare(where, args, kwargs), "grad")
        if call is not None:
            current().run(call)


def derivative_call(call: KernelCall, kind: DerivativeKind) -> KernelCall | None:
    """The call of the adjoint or dual of a call's kernel with the same arguments; None if nothing in it has a derivative."""
    given = call.arrays if kind == "grad" else {}
    may = ((n, gradient_of(x)) for n, x in given.items() if n not in call.instance.constants)
    arguments = {n: gradient.array for n, gradient in may if gradient is not None}
    fields = _placed_derivatives(call.instance, kind)
    known, key = call.instance.derived, (kind, *fields, *arguments)
    if key not in known:
        known[key] = _derived(call.instance, fields, tuple(arguments), kind)
    found: tuple[Instance, dict[str, str]] | None = known[key]
    if found is None:
        return None
    instance, names = found
    arrays = {**call.arrays, **{names[n]: x for n, x in arguments.items()}}
    arrays |= {name: source.storage for name, source in instance.fields} | dict(instance.views)
    return replace(call, instance=instance, arrays=arrays)


def checked_call(call: KernelCall, flags: dict[int, NDArray[Any]]) -> KernelCall:
    """The call with a check that it stores to no element that was read before.

    `flags` has a mark for each element that was read, by the identity of the field with a gradient; fields are added to it.
    """
    instance = call.instance
    dense = [(n, x) for n, x in instance.fields if isinstance(x, AbstractLeaf)]
    checked = {n: x for n, x in dense if x.placed_derivative("grad") is not None}
    if instance.is_on_trees or not checked:
        return call
    key = ("checked", *checked)
    if key not in instance.derived:
        fresh = Names(instance.ir)
        names = {n: fresh.fresh(f"{n}_was_read") for n in checked}
        labels = {n: x.label for n, x in checked.items()}
        made = replace(instance, ir=with_checks(instance.ir, names, labels))
        instance.derived[key] = made, names
    made, names = instance.derived[key]
    for x in checked.values():
        flags.setdefault(id(x), np.zeros(x.storage.shape, np.int32))
    marks = {names[n]: flags[id(x)] for n, x in checked.items()}
    return replace(call, instance=made, arrays={**call.arrays, **marks})


def _placed_derivatives(instance: Instance, kind: DerivativeKind) -> dict[str, AbstractLeaf]:
    """The gradients or duals of the fields that an instance uses, by the array of the field."""
    structures = {id(s.memory): s for _, s in instance.structures}
    leaves = {n: x for n, x in instance.fields if isinstance(x, AbstractLeaf)}
    leaves |= {n: structures[id(v.storage)].leaf(v.number) for n, v in instance.views}
    found = {n: x.placed_derivative(kind) for n, x in leaves.items()}
    for name, derivative in found.items():
        leaf = leaves[name]
        if derivative is not None and not _is_beside(derivative, leaf):
            fail(f"{derivative.label} is not placed like {leaf.label}: place both in one node")
    return {n: x for n, x in found.items() if x is not None}


def _is_beside(derivative: AbstractLeaf, leaf: AbstractLeaf) -> bool:
    """True if a derivative has the form that the kernel on its field takes."""
    a, b = derivative.place, leaf.place
    is_alike = (a.shape, a.offset) == (b.shape, b.offset)
    if a.snode.is_sparse or b.snode.is_sparse:
        return is_alike and a.snode.parent() is b.snode.parent()
    return is_alike


def _derived(
    instance: Instance,
    fields: Mapping[str, AbstractLeaf],
    arguments: tuple[str, ...],
    kind: DerivativeKind,
) -> tuple[Instance, dict[str, str]] | None:
    """The instance of the adjoint or dual, and the name of the derivative of each array; None if it does nothing."""
    fresh = Names(instance.ir)
    names = {n: fresh.fresh(f"{n}_{kind}") for n in (*fields, *arguments)}
    if not names:
        return None
    ir = adjoint(instance.ir, names, _n_kept()) if kind == "grad" else dual(instance.ir, names)
    if not ir.body:
        return None
    check(ir)
    used = {p.name for p in ir.arrays}
    leaves = [(n, x) for n, x in instance.fields if isinstance(x, AbstractLeaf)]
    leaves += [(names[n], x) for n, x in fields.items() if x.cells is None]
    views = [
        *instance.views,
        *((names[n], _view(x)) for n, x in fields.items() if x.cells is not None),
    ]
    made = replace(
        instance,
        ir=ir,
        fields=tuple(x for x in leaves if x[0] in used),
        views=tuple(x for x in views if x[0] in used),
        results=instance.results if kind == "dual" else None,
        is_derivative=True,
    )
    return made, names


def _n_kept() -> int:
    program = current_program()
    return (0 if program is None else program.config.ad_stack_size) or N_KEPT


def _view(x: AbstractLeaf) -> FieldView:
    assert x.cells is not None
    return FieldView(x.cells.structure.memory, x.cells.number)
