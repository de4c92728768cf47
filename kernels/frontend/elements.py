"""Elements of arrays and fields: translates the program's indices to indices of memory."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..fields.field import AbstractLeaf
from ..fields.tree import SNode
from ..ir.affine import limits, reach
from ..ir.kernel import Assert, DType, Expr
from ..ir.simplify import binary, compare, const
from .errors import KernelIndexError
from .scopes import Pass
from .values import (
    ArrayRef,
    ListOf,
    LocalItem,
    LocalRef,
    MatrixValue,
    StructArray,
    StructValue,
    Value,
)


def element_of(
    state: Pass, base: ArrayRef | StructArray | LocalRef, indices: Sequence[Expr], node: ast.AST
) -> Value:
    """The place of `base[indices]`, or the tree of its places."""
    if isinstance(base, StructArray):
        if len(indices) == len(base.shape) - 1 and list_node(base) is not None:
            return ListOf(base, tuple(indices))
        members = tuple((n, element_of(state, m, indices, node)) for n, m in base.members)
        return StructValue(members, base.kind)
    shape = base.shape
    is_short = len(indices) == len(shape) - 1
    if is_short and isinstance(base, ArrayRef) and list_node(base) is not None:
        return ListOf(base, tuple(indices))
    if len(indices) != len(shape):
        state.fail(
            f"{base.name} has {len(shape)} dimensions but is indexed with {len(indices)}: "
            f"give one index per dimension",
            node,
            KernelIndexError,
        )
    if isinstance(base, LocalRef):
        return _local_item(state, base, indices, node)
    if base.is_single:
        shape, indices = (1,), [const(0, DType.i64)]
    offset = base.offset or (0,) * len(shape)
    inside = [
        binary("add", i, const(-o, DType.i64)) if o else i
        for i, o in zip(indices, offset, strict=True)
    ]
    checked = tuple(
        _checked(state, i, n, base, k, node)
        for k, (i, n) in enumerate(zip(inside, shape, strict=True))
    )
    if not base.element:
        component = [const(k, DType.i64) for k in base.component]
        return base.element_at(with_component(base, checked, component))
    items = tuple(
        base.element_at(with_component(base, checked, [const(k, DType.i64) for k in component]))
        for component in _components(base.element)
    )
    return MatrixValue(base.element, items, (base, checked))


def _local_item(state: Pass, base: LocalRef, indices: Sequence[Expr], node: ast.AST) -> LocalItem:
    if base.is_shared and state.iteration is not None:
        state.fail(
            f"`{ast.unparse(node)}` uses a local array that was made before the loop, whose iterations would share it: "
            "make it in the loop",
            node,
        )
    at: Expr = const(0, DType.i64)
    for k, (i, n) in enumerate(zip(indices, base.shape, strict=True)):
        inside = _checked(state, i, n, base, k, node)
        at = binary("add", binary("mul", at, const(n, DType.i64)), inside)
    return LocalItem(base, at)


def list_node(base: ArrayRef | StructArray) -> SNode | None:
    """The dynamic node above a field; None for other fields."""
    while isinstance(base, StructArray):
        base = base.members[0][1]
    if not isinstance(base.source, AbstractLeaf):
        return None
    node = base.source.parent()
    has_length = node is not None and node.has is not None and node.has.length
    return node if has_length else None


def with_component(
    base: ArrayRef, indices: tuple[Expr, ...], component: Sequence[Expr]
) -> tuple[Expr, ...]:
    """The indices of one component of an element, in the order of the array's axes."""
    return (*indices, *component) if base.is_trailing else (*component, *indices)


def _components(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    if len(shape) == 1:
        return [(k,) for k in range(shape[0])]
    return [(k, m) for k in range(shape[0]) for m in range(shape[1])]


def _checked(
    state: Pass, i: Expr, extent: int, base: ArrayRef | LocalRef, axis: int, node: ast.AST
) -> Expr:
    """Checks an index against its extent.

    An index that is surely out of range is an error, except in fields, since their programs may rely on an earlier branch. A
    speculatively evaluated index is clamped.
    """
    inside = limits(i, state.extents)
    if inside is not None and inside[0] >= 0 and inside[1] < extent:
        return i
    exact = reach(i, state.extents)
    is_certain = state.speculative_depth == 0 and state.guard_depth == 0
    if exact is not None and is_certain and base.source is None:
        wrong = exact[0] if exact[0] < 0 else exact[1]
        state.fail(
            f"index {axis} of {base.name} in `{ast.unparse(node)}` reaches {wrong}, "
            f"outside 0..{extent - 1}: "
            "change the range of the loop, or clamp the index with min and max",
            node,
            KernelIndexError,
        )
    if state.speculative_depth and extent > 0:
        if inside is None or inside[0] < 0:
            i = binary("max", i, const(0, DType.i64))
        if inside is None or inside[1] >= extent:
            i = binary("min", i, const(extent - 1, DType.i64))
    elif state.is_debug:
        _assert_inside(state, i, extent, base, axis, node)
    return i


def _assert_inside(
    state: Pass, i: Expr, extent: int, base: ArrayRef | LocalRef, axis: int, node: ast.AST
) -> None:
    """Emits an assertion of debug mode: an index out of range ends the call."""
    low = compare("ge", i, const(0, i.dtype))
    high = compare("lt", i, const(extent, i.dtype))
    name = state.frames[0].parsed.fn.__name__
    told = f"kernel {name}: index {axis} of {base.name} in `{ast.unparse(node)}` must be from 0 to {extent - 1} and is "
    state.emit(Assert(binary("and", low, high), "", (told, i), state.frame.parsed.where(node)))
