"""Adjoints and duals of kernels, as instances and calls of their own.

Only arrays with a placed gradient or dual have derivatives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..fields.caller_location import fail
from ..fields.field import AbstractLeaf, DerivativeKind
from ..fields.field_view import FieldView
from ..fields.ndarray import gradient_of
from ..fields.program import current_program
from ..fields.tree import Structure
from ..ir import kernel
from ..ir.errors import ProgramRuntimeError
from ..ir.simplify import binary, compare, const, unary
from ..ir.structure import StructureTree
from ..ir.verify import check
from ..transforms.derivatives.access_rule import with_checks
from ..transforms.derivatives.adjoint import N_KEPT
from ..transforms.derivatives.in_place import adjoint_on_copies, dual_in_place
from ..transforms.derivatives.masks import guarded, mask_of, numbered
from ..transforms.derivatives.naming import Names
from .instance import Instance, KernelCall
from .stopping import plain

_KEPT = ("kept",)  # the key of a number among the derivatives of an instance


@dataclass(frozen=True)
class _Derived:
    """Adjoint or dual of an instance.

    `names`: array of the derivative, by array of the instance. `copies`: by array with the contents from before the call, the array
    that it is a copy of. `masks`: by array that marks active cells, the number of the loop that visits these only.
    """

    instance: Instance
    names: dict[str, str]
    copies: dict[str, str]
    masks: dict[str, int]


def derivative_call(
    call: KernelCall,
    kind: DerivativeKind,
    before: Mapping[str, Any] | None = None,
    masks: Mapping[int, Any] | None = None,
) -> KernelCall | None:
    """Returns the call of the adjoint or dual of a kernel call, with the same arguments; None if there is none.

    `before`: by array of `overwritten_arrays`, a copy from before the call. `masks`: by number of a loop over active cells,
    an array of `mask_call`, if other cells may be active now.
    """
    for _, name in call.instance.hidden.gradients:
        text = f"the kernel {call.instance.ir.name} uses {name}.grad: it has no derivative"
        raise ProgramRuntimeError(text, call.where)
    arguments = _gradients_of_arguments(call) if kind == "grad" else {}
    found = _derivative_of(call.instance, arguments, kind, tuple(masks or ()))
    if found is None:
        return None
    if before is None and found.copies:
        array = next(iter(found.copies.values()))
        fail(
            f"the kernel {call.instance.ir.name} overwrites elements of {array} that its adjoint reads: call it in a ks.ad.Tape,"
            " which keeps them, or store to another array"
        )
    arrays = {**call.arrays, **{found.names[n]: x for n, x in arguments.items()}}
    arrays |= {copy: (before or {})[n] for copy, n in found.copies.items()}
    arrays |= {mask: (masks or {})[k] for mask, k in found.masks.items()}
    arrays |= {name: source.storage for name, source in found.instance.fields}
    arrays |= dict(found.instance.views)
    return replace(call, instance=found.instance, arrays=arrays)


def overwritten_arrays(call: KernelCall) -> tuple[str, ...]:
    """Returns the arrays of which a call overwrites elements that its adjoint reads, so copies are needed.

    Raises KernelError.
    """
    found = _derivative_of(call.instance, _gradients_of_arguments(call), "grad")
    return () if found is None else tuple(found.copies.values())


def copy_call(call: KernelCall, name: str, to: Any, *, is_zero: bool = False) -> KernelCall:
    """Returns a kernel call that copies the array `name` of `call` to the array `to`.

    Of a sparse field active cells are copied, the rest becomes 0. `is_zero`: `to` contains zeros, so that nothing else is stored.
    """
    place = next((p for p in call.instance.ir.placed if p.array == name), None)
    if place is None:
        return _beside_call(call, name, "copy", _copying, {_BESIDE: to})
    making = functools.partial(
        _copying_cells, place=place, trees=call.instance.ir.trees, is_zero=is_zero
    )
    return _beside_call(call, name, f"copy of cells {is_zero}", making, {_BESIDE: to})


def restore_call(call: KernelCall, name: str, of: Any) -> KernelCall:
    """Returns a kernel call that copies the array `of` to the array `name` of `call`."""
    return _beside_call(call, name, "restore", _restoring, {_BESIDE: of})


def equality_call(
    call: KernelCall, name: str, other: Any, label: str, *, is_exact: bool
) -> KernelCall:
    """Returns a kernel call that asserts that the array `name` of `call` equals the array `other`.

    `label`: the name of the array in the message. Unless `is_exact`, floats may differ as sums in another order do.
    """
    making = functools.partial(_comparing, label=label, is_exact=is_exact)
    return _beside_call(call, name, f"equal {label} {is_exact}", making, {_BESIDE: other})


def count_call(
    call: KernelCall, loop: kernel.ForActive, structure: Structure, n_cells: Any
) -> KernelCall:
    """Returns a kernel call that adds the number of active cells of a loop of `call` to the one element of `n_cells`.

    `structure`: the tree of the loop.
    """

    def making(tree: StructureTree) -> kernel.KernelIR:
        number = kernel.ArrayParam("n_cells", kernel.DType.i32, (1,))
        first, one = const(0, kernel.DType.i64), const(1, kernel.DType.i32)
        body = (kernel.Update(number.name, (first,), "add", one, loop.where),)
        counted = replace(loop, body=body)
        return kernel.KernelIR("cells", (number,), (), (counted,), loop.where, trees=(tree,))

    key = ("cells", loop.tree, loop.node)
    return _on_cells(call, loop, structure, key, making, {"n_cells": n_cells})


def mask_call(
    call: KernelCall,
    loop: kernel.ForActive,
    structure: Structure,
    mask: Any,
    *,
    is_zero: bool,
) -> KernelCall:
    """Returns a kernel call that sets `mask` to 1 for each active cell of a loop of `call`, and to 0 elsewhere.

    `structure`: the tree of the loop. `mask` has the shape of the loop's node. `is_zero`: it contains zeros.
    """

    def making(tree: StructureTree) -> kernel.KernelIR:
        target = mask_of("mask", tree, loop)
        zero, one = const(0, target.dtype), const(1, target.dtype)
        own = tuple(kernel.LoopIndex(n) for n in loop.loops)
        marked = replace(loop, body=(kernel.Store(target.name, own, one, loop.where),))
        body: tuple[kernel.Stmt, ...] = (marked,)
        if not is_zero:
            cleared = _over(
                target, lambda at: kernel.Store(target.name, at, zero, loop.where), loop.where
            )
            body = (*cleared, marked)
        return kernel.KernelIR("mask", (target,), (), body, loop.where, trees=(tree,))

    key = ("mask", loop.tree, loop.node, is_zero)
    return _on_cells(call, loop, structure, key, making, {"mask": mask})


def _on_cells(
    call: KernelCall,
    loop: kernel.ForActive,
    structure: Structure,
    key: tuple[object, ...],
    making: Callable[[StructureTree], kernel.KernelIR],
    arrays: dict[str, Any],
) -> KernelCall:
    """Returns a call of the kernel that `making` makes for the tree of a loop of `call`; each instance makes it once."""
    instance = call.instance
    if key not in instance.derived:
        (tree,) = (t for t in instance.ir.trees if t.name == loop.tree)
        instance.derived[key] = Instance(
            making(tree), structures=((tree.name, structure),), is_derivative=True
        )
    return KernelCall(instance.derived[key], arrays, {}, call.where)


def adjoint_of(call: KernelCall) -> kernel.KernelIR | None:
    """Returns the adjoint of a call, None if it has none. Raises KernelError."""
    found = _derivative_of(call.instance, _gradients_of_arguments(call), "grad")
    return None if found is None else found.instance.ir


_BESIDE = "copy_beside"  # the array beside one of a call, in the kernels below
_NEAR = {4: 1e-3, 8: 1e-8}  # of sums in another order, relative to the greatest element; by bytes


def _beside_call(
    call: KernelCall,
    name: str,
    key: str,
    making: Callable[[kernel.ArrayParam, kernel.ArrayParam, kernel.Location], kernel.KernelIR],
    beside: Mapping[str, Any],
) -> KernelCall:
    """Returns a call of the kernel that `making` makes for the array `name` of `call` and another array of its shape.

    Each instance makes its kernel once.
    """
    instance = call.instance
    if (key, name) not in instance.derived:
        param = next(p for p in instance.ir.arrays if p.name == name)
        fields = tuple(x for x in instance.fields if x[0] == name)
        made = making(param, replace(param, name=_BESIDE), call.where)
        trees = {t.name for t in made.trees}
        instance.derived[key, name] = Instance(
            made,
            fields,
            views=tuple(x for x in instance.views if x[0] == name),
            structures=tuple(x for x in instance.structures if x[0] in trees),
            is_derivative=True,
        )
    kept: Instance = instance.derived[key, name]
    given = {name: call.arrays[name], **beside}
    return KernelCall(kept, {p.name: given[p.name] for p in kept.ir.arrays}, {}, call.where)


def _copying(
    source: kernel.ArrayParam, target: kernel.ArrayParam, where: kernel.Location
) -> kernel.KernelIR:
    """Returns the kernel that copies the array `source` to the array `target`."""

    def stored(at: tuple[kernel.Expr, ...]) -> kernel.Stmt:
        return kernel.Store(target.name, at, kernel.Load(source.name, at, source.dtype), where)

    return kernel.KernelIR("copy", (source, target), (), _over(source, stored, where), where)


def _copying_cells(
    source: kernel.ArrayParam,
    target: kernel.ArrayParam,
    where: kernel.Location,
    *,
    place: kernel.Placed,
    trees: tuple[StructureTree, ...],
    is_zero: bool,
) -> kernel.KernelIR:
    """Returns the kernel that copies a sparse field to a dense array; other elements become 0, unless all are."""
    (tree,) = (t for t in trees if t.name == place.tree)
    loops = tuple(f"c{k}" for k in range(len(tree.axes(place.node))))
    n_axes = len(source.shape) - len(loops)
    cell = tuple(kernel.LoopIndex(n) for n in loops)
    stored: list[kernel.Stmt] = []
    for component in np.ndindex(*source.shape[:n_axes]):
        first = [kernel.Const(int(k), kernel.DType.i64) for k in component]
        at: tuple[kernel.Expr, ...] = (*first, *cell)
        stored.append(
            kernel.Store(target.name, at, kernel.Load(source.name, at, source.dtype), where)
        )
    body: tuple[kernel.Stmt, ...] = (
        kernel.ForActive(tree.name, place.node, loops, tuple(stored), where),
    )
    if not is_zero:
        zero = const(0, target.dtype)
        body = (*_over(target, lambda at: kernel.Store(target.name, at, zero, where), where), *body)
    return kernel.KernelIR(
        "copy", (source, target), (), body, where, trees=(tree,), placed=(place,)
    )


def _restoring(
    target: kernel.ArrayParam, source: kernel.ArrayParam, where: kernel.Location
) -> kernel.KernelIR:
    return replace(_copying(source, target, where), name="restore")


def _comparing(
    array: kernel.ArrayParam,
    other: kernel.ArrayParam,
    where: kernel.Location,
    label: str,
    *,
    is_exact: bool,
) -> kernel.KernelIR:
    """Returns the kernel that asserts that two arrays are equal, or near each other. NaN is near every number."""
    text = (
        f"{label} differs when the calls of a tape run again from a snapshot: in the block of a tape with snapshots,"
        " change fields in kernels only"
    )

    def asserted(at: tuple[kernel.Expr, ...]) -> kernel.Stmt:
        a, b = (kernel.Load(p.name, at, array.dtype) for p in (array, other))
        is_near = compare("eq", a, b)
        if array.dtype.is_float:
            most = const(0.0, a.dtype) if is_exact else binary("mul", near, greatest)
            is_near = unary("not", compare("gt", unary("abs", binary("sub", a, b)), most))
        return kernel.Assert(is_near, text, (), where)

    greatest, near = (
        kernel.Local("greatest", array.dtype),
        const(_NEAR.get(array.dtype.size_bytes, 1e-2), array.dtype),
    )

    def grown(at: tuple[kernel.Expr, ...]) -> kernel.Stmt:
        size = unary("abs", kernel.Load(other.name, at, array.dtype))
        return kernel.UpdateLocal(greatest.name, "max", size, where)

    body = _over(array, asserted, where)
    if array.dtype.is_float and not is_exact:
        begun = kernel.SetLocal(greatest.name, const(0.0, array.dtype), where)
        body = (begun, *_over(array, grown, where), *body)
    return kernel.KernelIR("compare", (array, other), (), body, where)


def _over(
    param: kernel.ArrayParam,
    statement: Callable[[tuple[kernel.Expr, ...]], kernel.Stmt],
    where: kernel.Location,
) -> tuple[kernel.Stmt, ...]:
    """Returns loops over all elements of an array, around a statement about one element."""
    loops = [f"i{k}" for k in range(len(param.shape))]
    made = statement(tuple(kernel.LoopIndex(n) for n in loops))
    for loop, extent in reversed(list(zip(loops, param.shape, strict=True))):
        made = kernel.For(loop, kernel.Const(extent, kernel.DType.i64), (made,), where)
    return (made,)


def _gradients_of_arguments(call: KernelCall) -> dict[str, Any]:
    constants = call.instance.constants
    may = ((n, gradient_of(x)) for n, x in call.arrays.items() if n not in constants)
    return {n: gradient.array for n, gradient in may if gradient is not None}


def _derivative_of(
    instance: Instance,
    arguments: Mapping[str, Any],
    kind: DerivativeKind,
    masked: tuple[int, ...] = (),
) -> _Derived | None:
    """Returns the adjoint or dual of an instance, made at the first use; None if it would do nothing.

    `arguments`: gradients of array arguments, by parameter. `masked`: the numbers of loops with a mask.
    """
    fields = _placed_derivatives(instance, kind)
    known, key = instance.derived, (kind, n_kept(instance), *fields, *arguments, *masked)
    if key not in known:
        known[key] = _derived(instance, fields, tuple(arguments), kind, n_kept(instance), masked)
    found: _Derived | None = known[key]
    return found


def checked_call(
    call: KernelCall, flags: dict[int, NDArray[Any]], copied: Iterable[str]
) -> KernelCall:
    """Returns the call with checks of the access rule: no element may be stored to after it was read.

    `flags`: one mark for each element, set when it is read, by the `id` of the field; marks of more fields are added.
    `copied`: arrays that the call itself reads and then overwrites, of which the tape has copies.
    """
    instance = call.instance
    dense = [(n, x) for n, x in instance.fields if isinstance(x, AbstractLeaf)]
    checked = {n: x for n, x in dense if x.placed_derivative("grad") is not None}
    if instance.is_on_trees or not checked:
        return call
    copied = frozenset(copied)
    key = ("checked", copied, *checked)
    if key not in instance.derived:
        fresh = Names(instance.ir)
        names = {n: fresh.fresh(f"{n}_was_read") for n in checked}
        labels = {n: x.label for n, x in checked.items()}
        made = replace(instance, ir=with_checks(instance.ir, names, labels, copied))
        instance.derived[key] = made, names
    made, names = instance.derived[key]
    for x in checked.values():
        flags.setdefault(id(x), np.zeros(x.storage.shape, np.int32))
    marks = {names[n]: flags[id(x)] for n, x in checked.items()}
    return replace(call, instance=made, arrays={**call.arrays, **marks})


def _placed_derivatives(instance: Instance, kind: DerivativeKind) -> dict[str, AbstractLeaf]:
    """Returns the gradient or dual field of each field that the instance uses, by array, if it is placed."""
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
    """True if a derivative has the same shape and offset as its field, and below the same node if one is sparse.

    Only then can a kernel on the field take it.
    """
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
    n_most: int,
    masked: tuple[int, ...],
) -> _Derived | None:
    """Returns a new adjoint or dual of an instance; None if it would do nothing.

    `fields`: derivatives by array. `arguments`: names of array arguments with a gradient. `n_most`: as `n_kept`. `masked`: the
    numbers of loops with a mask.
    """
    if instance.differentiable is not None:
        instance = instance.differentiable()
    fresh = Names(instance.ir)
    names = {n: fresh.fresh(f"{n}_{kind}") for n in (*fields, *arguments)}
    if not names:
        return None
    copies: dict[str, str] = {}
    masks = {fresh.fresh("active_before"): k for k in masked}
    if kind == "grad":
        ir, copies = adjoint_on_copies(numbered(instance.ir, masked), names, n_most)
        ir = guarded(ir, masks)
    else:
        ir = dual_in_place(instance.ir, names)
    if not ir.body:
        return None
    ir = replace(ir, body=plain(ir.body))
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
    return _Derived(made, names, copies, masks)


def n_kept(instance: Instance) -> int:
    """Returns of how many iterations of a loop of unknown length the adjoint of an instance keeps the locals."""
    program = current_program()
    given = 0 if program is None else program.config.ad_stack_size
    return given or int(instance.derived.get(_KEPT, N_KEPT))


def set_kept(instance: Instance, n: int) -> None:
    """Makes `n_kept` of an instance be `n` where the user gives no number."""
    instance.derived[_KEPT] = n


def _view(x: AbstractLeaf) -> FieldView:
    assert x.cells is not None
    return FieldView(x.cells.structure.memory, x.cells.number)
