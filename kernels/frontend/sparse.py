"""Functions of the language on sparse fields: activity of cells, lists of dynamic nodes, struct-for loops."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ..fields import node_cells
from ..fields.field import AbstractField
from ..fields.tree import SNode
from ..ir import kernel as ir
from ..ir.simplify import binary, cast, const
from .elements import element_of, list_node
from .errors import KernelIndexError, KernelTypeError, LanguageError
from .protocol import Frontend
from .python_objects import lifted
from .scopes import Pass
from .values import (
    ArrayRef,
    ListOf,
    MatrixValue,
    Method,
    Static,
    StructArray,
    Typed,
    Value,
    leaves,
)

_METHODS = ("append", "length", "deactivate")


def _in_kernels(name: str, meaning: str) -> Callable[..., Any]:
    def only_in_kernels(*_: Any, **__: Any) -> NoReturn:
        raise LanguageError(f"ks.{name} was called outside a kernel: it is a word of kernels")

    only_in_kernels.__name__ = name
    only_in_kernels.__doc__ = meaning
    return only_in_kernels


no_activate = _in_kernels(
    "no_activate",
    "`no_activate(x)` of a node or field: stores of the kernel in it do not activate, and are lost where it is inactive.",
)
loop_unique = _in_kernels("loop_unique", "`loop_unique(x)` is `x`: a hint, which nothing needs.")
block_local = _in_kernels(
    "block_local", "`block_local(field)`: a hint about what to stage, which nothing needs."
)

CHANGING: tuple[Any, ...] = (node_cells.activate, node_cells.deactivate, node_cells.append)
cache_read_only = _in_kernels(
    "cache_read_only", "`cache_read_only(field)`: a hint about caches, which nothing needs."
)
_HINTS: tuple[Any, ...] = (block_local, cache_read_only, no_activate)
_ASKING: tuple[Any, ...] = (
    node_cells.is_active,
    node_cells.length,
    node_cells.rescale_index,
    loop_unique,
)


def is_call(target: object) -> bool:
    """True if the callee is a function of this module, or `parent` of a node or field."""
    if any(target is x for x in (*CHANGING, *_HINTS, *_ASKING)):
        return True
    owner = getattr(target, "__self__", None)
    return isinstance(owner, SNode | AbstractField) and getattr(target, "__name__", "") == "parent"


def is_method(base: ArrayRef | StructArray | ListOf, name: str) -> bool:
    """True if `name` is a list method (append, length, deactivate) and `base` a field in a dynamic node."""
    return name in _METHODS and (isinstance(base, ListOf) or list_node(base) is not None)


def node_of(state: Pass, x: Value, node: ast.AST) -> SNode:
    """Returns the node that an argument denotes: a node itself, or the node directly above a field."""
    if isinstance(x, ArrayRef | StructArray):
        while isinstance(x, StructArray):
            x = x.members[0][1]
        found = x.source.snode if x.source is not None else None
    else:
        found = x.python if isinstance(x, Static) else None
        found = found.snode if isinstance(found, AbstractField) else found
    if not isinstance(found, SNode):
        return state.fail(f"`{ast.unparse(node)}` needs a node of a tree, or a field in one", node)
    above = found.parent() if found.kind == "place" else found
    assert above is not None
    return above


def number_of(state: Pass, node: SNode) -> tuple[str, int] | None:
    """Returns the name of a node's sparse tree and the node's number in it; None if the node is not sparse."""
    structure = node.structure
    if structure is None:
        return None
    state.structures[structure.tree.name] = structure
    return structure.tree.name, structure.numbers[id(node)]


def call(
    state: Pass, frontend: Frontend, target: Any, node: ast.Call, is_statement: bool
) -> Value | None:
    """Returns the value of a call of `target`, a function of this module; None if the call has no value."""
    owner = getattr(target, "__self__", None)
    if isinstance(owner, SNode | AbstractField):
        given = [frontend.static(a) for a in node.args]
        return Static(target(*given))
    if target is loop_unique:
        return frontend.value(node.args[0]) if node.args else _count(state, 1, node)
    if any(target is x for x in _HINTS):
        for a in node.args if target is no_activate else ():
            found = number_of(state, node_of(state, frontend.place(a), node))
            if found is not None:
                state.not_activated.add(found)
        return None
    given_values = [frontend.place(a) for a in node.args[:1]] + frontend.values(node.args[1:])
    wanted = 3 if target in (node_cells.append, node_cells.rescale_index) else 2
    if len(given_values) != wanted or node.keywords:
        _count(state, wanted, node)
    if target is node_cells.rescale_index:
        second = frontend.place(node.args[1])
        return _rescaled(state, given_values[0], second, given_values[2], node)
    snode = node_of(state, given_values[0], node)
    indices = _indices(frontend, given_values[1], node)
    has_length = snode.has is not None and snode.has.length
    is_list = target in (node_cells.append, node_cells.length) or (
        target is node_cells.deactivate and has_length
    )
    if is_list and not has_length:
        state.fail(f"`{ast.unparse(node)}` takes a dynamic node, not a {snode.kind} one", node)
    cell = snode.parent() if is_list else snode
    n_axes = len(cell.shape) if cell is not None else 0
    if len(indices) != n_axes:
        state.fail(
            f"`{ast.unparse(node)}` takes {node_cells.n_indices(n_axes)} of that node, not {len(indices)}",
            node,
            KernelIndexError,
        )
    return _of_cell(state, frontend, target, snode, indices, given_values[2:], node)


def method(
    state: Pass, frontend: Frontend, called: Method, node: ast.Call, is_statement: bool
) -> Value | None:
    """Returns the value of `x.append(value)`, `x[i].length()` or `x[i].deactivate()` on a field in a dynamic node.

    None if the call has no value.
    """
    owner = called.owner
    base, indices = (owner.base, owner.indices) if isinstance(owner, ListOf) else (owner, ())
    assert isinstance(base, ArrayRef | StructArray)
    snode = list_node(base)
    assert snode is not None
    given = frontend.values(node.args)
    target = {
        "append": node_cells.append,
        "length": node_cells.length,
        "deactivate": node_cells.deactivate,
    }[called.name]
    if len(given) != (target is node_cells.append):
        _count(state, int(target is node_cells.append), node)
    if len(indices) != len(base.shape) - 1:
        state.fail(
            f"`{ast.unparse(node)}` needs {node_cells.n_indices(len(base.shape) - 1)} before", node
        )
    return _of_cell(state, frontend, target, snode, indices, given, node, base)


def _of_cell(
    state: Pass,
    frontend: Frontend,
    target: Any,
    snode: SNode,
    indices: tuple[ir.Expr, ...],
    given: Sequence[Value],
    node: ast.Call,
    base: ArrayRef | StructArray | None = None,
) -> Value | None:
    where = state.frame.parsed.where(node)
    found = number_of(state, snode)
    if found is None:
        if target is node_cells.is_active:
            return Typed(const(1, ir.DType.i32))
        return None
    tree, number = found
    if target is node_cells.is_active:
        return Typed(cast(ir.IsActive(tree, number, indices), ir.DType.i32))
    if target is node_cells.length:
        return Typed(ir.Length(tree, number, indices))
    if target is node_cells.activate:
        state.emit(ir.Activate(tree, number, indices, where))
    elif target is node_cells.deactivate:
        if not state.structures[tree].tree.nodes[number].has.is_sparse:
            state.fail(f"`{ast.unparse(node)}`: cells of a dense node are always active", node)
        state.emit(ir.Deactivate(tree, number, indices, where))
    else:
        result = state.fresh("appended")
        values = [frontend.places.kept(x, node) for x in given]
        state.emit(ir.Append(tree, number, indices, result, where))
        _store(
            state, frontend, snode, base, (*indices, ir.Local(result, ir.DType.i32)), values, node
        )
        return Typed(ir.Local(result, ir.DType.i32))
    return None


def _store(
    state: Pass,
    frontend: Frontend,
    snode: SNode,
    base: ArrayRef | StructArray | None,
    indices: tuple[ir.Expr, ...],
    given: Sequence[Value],
    node: ast.Call,
) -> None:
    """Emits the stores of an appended cell's values, one number for each field of the node, in order."""
    fields = [base] if base is not None else [lifted(state, x.leaf) for x in snode.below if x.leaf]
    whole = tuple(cast(i, ir.DType.i64) for i in indices)
    # Where the axis of the node is not the last one: indices are in the order of axes.
    (own,) = snode.axes
    parent = snode.parent()
    axes = [*_axes(parent), own]
    ordered = tuple(x for _, x in sorted(zip(axes, whole, strict=True), key=lambda pair: pair[0]))
    places = []
    for f in fields:
        assert isinstance(f, ArrayRef | StructArray)
        shifted = [
            binary("add", i, const(o, ir.DType.i64))
            for i, o in zip(ordered, _offset(f) or (0,) * len(ordered), strict=True)
        ]
        places.append(element_of(state, f, shifted, node))
    if len(places) == 1:
        frontend.places.assign(places[0], given[0], node)
        return
    targets = [p for place in places for p in leaves(place)]
    numbers = [x for value in given for x in leaves(value)]
    if len(targets) != len(numbers):
        state.fail(
            f"`{ast.unparse(node)}` gives {len(numbers)} numbers to a cell that has {len(targets)}",
            node,
        )
    for p, x in zip(targets, numbers, strict=True):
        frontend.places.assign(p, x, node)


def _offset(f: ArrayRef | StructArray) -> tuple[int, ...]:
    while isinstance(f, StructArray):
        f = f.members[0][1]
    return f.offset


def _axes(node: SNode | None) -> list[int]:
    found: set[int] = set()
    while node is not None:
        found |= set(node.axes)
        node = node.parent()
    return sorted(found)


def _indices(frontend: Frontend, x: Value, node: ast.Call) -> tuple[ir.Expr, ...]:
    return tuple(frontend.as_index(frontend.operators.number(n, node), node) for n in leaves(x))


def _rescaled(state: Pass, a: Value, b: Value, x: Value, node: ast.Call) -> Value:
    shapes = [_shape(state, v, node) for v in (a, b)]
    found = []
    for k, item in enumerate(leaves(x)):
        number = item if isinstance(item, Typed) else Typed(item.loaded.expr)  # type: ignore[union-attr]
        if k < min(map(len, shapes)):
            n, m = shapes[0][k], shapes[1][k]
            if n > m:
                divisor = const(n // m, number.dtype)
                number = Typed(binary("floordiv", number.expr, divisor))
            elif n < m:
                number = Typed(binary("mul", number.expr, const(m // n, number.dtype)))
        found.append(number)
    return MatrixValue((len(found),), tuple(found))


def _shape(state: Pass, x: Value, node: ast.Call) -> tuple[int, ...]:
    if isinstance(x, ArrayRef | StructArray):
        return x.shape
    return node_of(state, x, node).shape


def _count(state: Pass, n: int, node: ast.Call) -> NoReturn:
    state.fail(
        f"`{ast.unparse(node.func)}` takes {n} argument{'s' * (n != 1)} in a kernel, not {len(node.args)}",
        node,
        KernelTypeError,
    )
