"""Elements of arrays and fields: indices that the program writes become indices of the array in memory."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence
from dataclasses import replace

from ..fields.compound import MatrixType
from ..fields.field import AbstractLeaf
from ..fields.tree import SNode
from ..ir.affine import limits, reach
from ..ir.kernel import Assert, DType, Expr
from ..ir.simplify import binary, compare, const
from . import values
from .errors import KernelIndexError
from .quantised import packed_element
from .scopes import Pass


def element_of(
    state: Pass,
    base: values.ArrayRef | values.StructArray | values.LocalRef,
    indices: Sequence[Expr],
    node: ast.AST,
) -> values.Value:
    """Returns the place `base[indices]`: that of a number, or the places of a vector, matrix or struct."""
    if isinstance(base, values.StructArray):
        if len(indices) == len(base.shape) - 1 and list_node(base) is not None:
            return values.ListOf(base, tuple(indices))
        members = tuple((n, element_of(state, m, indices, node)) for n, m in base.members)
        if isinstance(base.kind, MatrixType):
            return values.MatrixValue(base.kind.shape, tuple(m for _, m in members))  # type: ignore[misc]
        return values.StructValue(members, base.kind)
    shape = base.shape
    is_short = len(indices) == len(shape) - 1
    if is_short and isinstance(base, values.ArrayRef) and list_node(base) is not None:
        return values.ListOf(base, tuple(indices))
    if len(indices) != len(shape):
        state.fail(
            f"{base.name} has {len(shape)} dimension{'s' * (len(shape) != 1)} but is indexed with {len(indices)}: "
            f"write {base.name}[{', '.join('ijklmnop'[: len(shape)])}], one index per dimension",
            node,
            KernelIndexError,
        )
    if isinstance(base, values.LocalRef):
        return _local_item(state, base, indices, node)
    if base.is_single:
        shape, indices = (1,), [const(0, DType.i64)]
    offset = base.offset or (0,) * len(shape)
    inside = [
        binary("add", i, const(-o, DType.i64)) if o else i
        for i, o in zip(indices, offset, strict=True)
    ]
    checked = tuple(
        checked_index(state, i, n, base, k, node)
        for k, (i, n) in enumerate(zip(inside, shape, strict=True))
    )
    nearest = tuple(_nearest(state, i, n, base) for i, n in zip(checked, shape, strict=True))
    if nearest != checked:
        _warn_of_reads(state, base, node)
    if base.packed is not None:
        return packed_element(state, base, checked, nearest)
    if not base.element:
        return component_of(base, checked, nearest, _constants(base.component))
    items = tuple(
        component_of(base, checked, nearest, _constants(component))
        for component in _components(base.element)
    )
    return values.MatrixValue(base.element, items, (base, checked, nearest))


def component_of(
    base: values.ArrayRef,
    at: tuple[Expr, ...],
    nearest: tuple[Expr, ...],
    component: Sequence[Expr],
) -> values.Element:
    """Returns the place of one number, `component`, of the element at the indices `at`.

    `nearest`: the indices at which the element is read, if `at` may lie outside of the array.
    """
    place = base.element_at(_with_component(base, at, component))
    if nearest == at:
        return place
    read = base.element_at(_with_component(base, nearest, component))
    return replace(place, nearest=read.indices)


def _constants(numbers: Sequence[int]) -> list[Expr]:
    return [const(k, DType.i64) for k in numbers]


def _reads_on(state: Pass, base: values.ArrayRef | values.LocalRef) -> bool:
    """True if a read outside of an array is no error: in a program, for dense arrays, unless in debug mode."""
    is_array = isinstance(base, values.ArrayRef) and base.param.name not in state.placed
    return is_array and state.rules.is_strict and not state.is_debug


def _nearest(state: Pass, i: Expr, extent: int, base: values.ArrayRef) -> Expr:
    """Returns the index at which an array is read: `i`, or `i` clamped to the array if `i` may lie outside.

    Only an unconditional read whose range is known is clamped, and only where a read outside is no error.
    """
    ends = reach(i, state.extents)
    is_inside = ends is None or (ends[0] >= 0 and ends[1] < extent)
    if is_inside or state.guard_depth or not extent or not _reads_on(state, base):
        return i
    return binary("min", binary("max", i, const(0, i.dtype)), const(extent - 1, i.dtype))


def _warn_of_reads(state: Pass, base: values.ArrayRef, node: ast.AST) -> None:
    is_read = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)
    if not state.is_final or not is_read or state.goes_on is not None:
        return
    where = state.frame.parsed.where(node)
    warnings.warn_explicit(
        f"`{ast.unparse(node)}` leaves the array {base.name}, so the nearest element is read: "
        "change the range of the loop; ks.init(debug=True) makes it an error",
        RuntimeWarning,
        where.file,
        where.line,
    )


def _local_item(
    state: Pass, base: values.LocalRef, indices: Sequence[Expr], node: ast.AST
) -> values.LocalItem:
    if base.is_shared and state.iteration is not None:
        state.fail(
            f"`{ast.unparse(node)}` uses a local array that was made before the loop, whose iterations would share it: "
            "make it in the loop",
            node,
        )
    at: Expr = const(0, DType.i64)
    for k, (i, n) in enumerate(zip(indices, base.shape, strict=True)):
        inside = checked_index(state, i, n, base, k, node)
        at = binary("add", binary("mul", at, const(n, DType.i64)), inside)
    return values.LocalItem(base, at)


def list_node(base: values.ArrayRef | values.StructArray) -> SNode | None:
    """Returns the dynamic node (node of lists) directly above a field; None for other arrays."""
    while isinstance(base, values.StructArray):
        base = base.members[0][1]
    if not isinstance(base.source, AbstractLeaf):
        return None
    node = base.source.parent()
    has_length = node is not None and node.has is not None and node.has.length
    return node if has_length else None


def _with_component(
    base: values.ArrayRef, indices: tuple[Expr, ...], component: Sequence[Expr]
) -> tuple[Expr, ...]:
    """Returns the indices of a component of an element, in the order of the array's axes in memory."""
    return (*indices, *component) if base.is_trailing else (*component, *indices)


def _components(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    if len(shape) == 1:
        return [(k,) for k in range(shape[0])]
    return [(k, m) for k in range(shape[0]) for m in range(shape[1])]


def checked_index(
    state: Pass,
    i: Expr,
    extent: int,
    base: values.ArrayRef | values.LocalRef,
    axis: int,
    node: ast.AST,
) -> Expr:
    """Returns the index `i` of one axis after a check against the axis' extent.

    An index that is surely out of range is an error, except in fields, since their programs may rely on an earlier branch. The
    index is clamped if it is evaluated speculatively, or if the array `clamps`.
    """
    inside = limits(i, state.extents)
    if inside is not None and inside[0] >= 0 and inside[1] < extent:
        return i
    clamps = isinstance(base, values.ArrayRef) and base.clamps
    exact = reach(i, state.extents)
    is_certain = state.speculative_depth == 0 and state.guard_depth == 0
    is_error = not clamps and not _reads_on(state, base)
    if exact is not None and is_certain and base.source is None and is_error:
        wrong = exact[0] if exact[0] < 0 else exact[1]
        state.fail(
            f"index {axis} of {base.name} in `{ast.unparse(node)}` reaches {wrong}, "
            f"outside 0..{extent - 1}: "
            "change the range of the loop, or clamp the index with min and max",
            node,
            KernelIndexError,
        )
    if (state.speculative_depth or clamps) and extent > 0:
        if inside is None or inside[0] < 0:
            i = binary("max", i, const(0, DType.i64))
        if inside is None or inside[1] >= extent:
            i = binary("min", i, const(extent - 1, DType.i64))
    elif state.is_debug:
        _assert_inside(state, i, extent, base, axis, node)
    return i


def _assert_inside(
    state: Pass,
    i: Expr,
    extent: int,
    base: values.ArrayRef | values.LocalRef,
    axis: int,
    node: ast.AST,
) -> None:
    """Emits the assertion of debug mode that the index `i` of axis `axis` lies from 0 to `extent - 1`."""
    low = compare("ge", i, const(0, i.dtype))
    high = compare("lt", i, const(extent, i.dtype))
    name = state.frames[0].parsed.fn.__name__
    told = f"kernel {name}: index {axis} of {base.name} in `{ast.unparse(node)}` must be from 0 to {extent - 1} and is "
    state.emit(Assert(binary("and", low, high), "", (told, i), state.frame.parsed.where(node)))
