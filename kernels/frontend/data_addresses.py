"""Addresses of elements in kernels: each call passes base addresses of arrays, the kernel adds offsets."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..fields.addresses import field_at, get_addr, memory_of
from ..fields.field import AbstractLeaf
from ..fields.tree import SNode
from ..ir.kernel import DType, Expr, Item, Param
from ..ir.simplify import binary, cast, const
from .elements import element_of
from .hidden import Address
from .protocol import Frontend
from .python_objects import lifted
from .scopes import Pass
from .values import ArrayRef, Element, Static, StructArray, Typed, Value, leaves

__all__ = ["address", "get_addr"]


def address(state: Pass, frontend: Frontend, node: ast.Call) -> Value:
    """Returns the value of `get_addr(field, indices)` in a kernel: an address in bytes, of type u64."""
    if len(node.args) != 2 or node.keywords:
        state.fail(f"`{ast.unparse(node.func)}` takes a field and its indices", node)
    base = frontend.place(node.args[0])
    if isinstance(base, Static) and isinstance(base.python, SNode):
        leaf = field_at(base.python)
        base = base if leaf is None else lifted(state, leaf)
    if not isinstance(base, ArrayRef | StructArray) or (
        isinstance(base, ArrayRef) and not isinstance(base.source, AbstractLeaf)
    ):
        state.fail(
            f"`{ast.unparse(node.func)}` takes a field, or the node of one, not `{ast.unparse(node.args[0])}`",
            node,
        )
    given = frontend.value(node.args[1])
    indices = [frontend.as_index(frontend.operators.number(n, node), node) for n in leaves(given)]
    element = next(leaves(element_of(state, base, indices, node)), None)
    if not isinstance(element, Element):
        state.fail(f"`{ast.unparse(node)}` needs all indices of an element", node)
    at, shape = _in_memory(state, element)
    flat: Expr = const(0, DType.i64)
    for i, n in zip(at, shape, strict=True):
        flat = binary("add", binary("mul", flat, const(n, DType.i64)), cast(i, DType.i64))
    n_bytes = binary("mul", flat, const(element.array.dtype.size_bytes, DType.i64))
    return Typed(binary("add", _begin(state, element, node), cast(n_bytes, DType.u64)))


def _in_memory(state: Pass, x: Element) -> tuple[Sequence[Expr], tuple[int, ...]]:
    """Returns the indices of an element in the NumPy array that stores it, and the shape of that array.

    For a sparse field the last index is the item number of the cell.
    """
    p = state.placed.get(x.array.name)
    if p is None:
        return x.indices, x.array.shape
    n = len(x.indices) - len(state.structures[p.tree].tree.axes(p.node))
    item = Item(p.tree, p.node, x.indices[n:])
    return (*x.indices[:n], item), memory_of(_source(state, x)).shape


def _begin(state: Pass, x: Element, node: ast.AST) -> Param:
    known = state.addresses.get(x.array.name)
    if known is None:
        param = Param(state.fresh(f"address_of_{x.array.name}"), DType.u64)
        known = Address(param, _source(state, x), state.frame.parsed.where(node))
        state.addresses[x.array.name] = known
    return known.param


def _source(state: Pass, x: Element) -> AbstractLeaf:
    """Returns the field that stores the array of element `x`."""
    found = next(f for p, f in state.captured.values() if p.name == x.array.name)
    assert isinstance(found, AbstractLeaf)
    return found
