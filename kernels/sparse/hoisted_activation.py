"""Hoisted activation: activations of one cell by all cells of a leaf run once, before the loops over its cells.

If the activated cell is surely active, it is only searched there.

Hoisting is proved if the loop visits all cells of an element (a cell of a listed node), by enumeration of the index along each
axis.
In every element all activations are of cells in one cell of the lowest node that may be inactive, and inside. Conditions on indices
may exclude cells, but not all of an element.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ..ir import kernel
from ..ir.ops import OPS
from ..ir.per_object import per_object
from ..ir.simplify import cast, scalar
from ..ir.structure import StructureTree
from ..ir.walk import Renaming, walk
from .cells import I64, Found, StatementBuilder, number, times
from .current_cell import changing, own_of, shrinks
from .disjoint import activated
from .pools import Pools
from .redundancy import PURE, ActivationSite, activation_sites

_MOST_VALUES = 1 << 20  # values of an index that are enumerated; with more nothing is proved
Key = tuple[str, int, tuple[kernel.Expr, ...]]  # a tree, a node, indices
Leaves = Mapping[Key, tuple[int, Found]]  # of cells: the node that was made active, and its item


def once_a_leaf(
    ir: kernel.KernelIR, trees: Mapping[str, StructureTree]
) -> dict[int, frozenset[int]]:
    """Returns the activations that may be hoisted to once per element of the list, by top-level statement.

    They are given by their numbers in the order of the text.
    """
    found: dict[int, frozenset[int]] = {}
    first = 0
    for top, s in enumerate(ir.body):
        sites = list(activation_sites(s, first))
        first += len(sites)
        if isinstance(s, kernel.ForActive) and _visits_all(s, trees[s.tree]):
            numbers = frozenset(x.number for x in sites if _is_same(x, s, trees))
            found |= {top: numbers} if numbers else {}
    return found


@per_object
def hoistable(ir: kernel.KernelIR) -> frozenset[int]:
    """The activations of a kernel that may be hoisted, by their numbers in the text."""
    found = once_a_leaf(ir, {t.name: t for t in ir.trees})
    return frozenset(n for numbers in found.values() for n in numbers)


def leaf_extents(s: kernel.ForActive, t: StructureTree) -> dict[str, int]:
    """Returns the number of cells of an element along the axis of each loop, by the loop's name."""
    below = t.path(s.node)[t.path(s.node).index(t.last(s.node, "is_listed")) + 1 :]
    extents = dict.fromkeys(t.axes(s.node), 1)
    for n in below:
        for axis, extent in zip(t.nodes[n].axes, t.nodes[n].extents, strict=True):
            extents[axis] *= extent
    return dict(zip(s.loops, extents.values(), strict=True))


def first_indices(
    s: kernel.ForActive, t: StructureTree, at: Mapping[int, kernel.Expr]
) -> dict[str, kernel.Expr]:
    """Returns the indices of the first cell of an element, by the loops' names.

    `at`: the coordinates of the element, by axis.
    """
    extents = leaf_extents(s, t)
    axes = zip(s.loops, t.axes(s.node), strict=True)
    return {loop: times(at[axis], extents[loop]) for loop, axis in axes}


def made_once(
    b: StatementBuilder,
    sites: Sequence[ActivationSite],
    pools: Pools,
    expr: Callable[[kernel.Expr], kernel.Expr],
    sure: Container[int] = (),
) -> Leaves:
    """Appends the hoisted activations of sites, one per node and cell; returns the activated cells.

    `expr` substitutes the first cell of the element. `sure`: the numbers of sites whose cells are surely active: these are only
    searched.
    """
    made: dict[Key, tuple[int, Found]] = {}
    done: dict[Key, Found] = {}
    for x in sites:
        tree, node = x.statement.tree, x.statement.node
        t = pools.cells.layouts[tree].tree
        above = t.last(node, "is_sparse")
        first = [cast(expr(i), I64) for i in _first_cell(x)]
        cell = tuple(pools.cells.above(t, node, above, first))
        if (tree, above, cell) not in done:
            indices = [b.hold("i", i) for i in cell]
            make = pools.cells.active if x.number in sure else pools.activate
            done[tree, above, cell] = make(b, tree, above, indices)
        made[tree, node, x.statement.indices] = above, done[tree, above, cell]
    return made


def _first_cell(x: ActivationSite) -> tuple[kernel.Expr, ...]:
    """The indices at which a site activates, with 0 for all loops inside of the loop over cells."""
    loops: dict[str, kernel.Expr] = {
        a.loop: number(0) for a in x.around if isinstance(a, kernel.For)
    }
    return tuple(Renaming(loops=loops).apply(i) for i in x.indices)


def _visits_all(s: kernel.ForActive, t: StructureTree) -> bool:
    listed = t.last(s.node, "is_listed")
    if listed < 0 or changing(s, t) > listed or shrinks(s):
        return False
    path = t.path(s.node)
    return not any(t.nodes[n].has.is_sparse for n in path[path.index(listed) + 1 :])


def _is_same(x: ActivationSite, s: kernel.ForActive, trees: Mapping[str, StructureTree]) -> bool:
    """True if a site activates in every element, and the same cell from all cells of the element."""
    node, t = x.statement.node, trees[x.statement.tree]
    sparse = t.last(node, "is_sparse")
    is_own = own_of(s, trees[s.tree]).item(t.name, node, x.statement.indices) is not None
    if not x.runs or is_own or t.name not in activated(s) or sparse < 0:
        return False
    if any(t.nodes[n].has.length for n in t.path(node)):
        return False
    n_above = len(t.path(sparse))
    for axis, index, n in zip(t.axes(node), x.indices, t.shape(node), strict=True):
        below = prod(t.split(node, axis)[n_above:]) if axis in t.axes(sparse) else n
        if not _stays(index, below, n, x, s, trees[s.tree]):
            return False
    return True


def _stays(
    index: kernel.Expr, below: int, n: int, x: ActivationSite, s: kernel.ForActive, t: StructureTree
) -> bool:
    """True if `index // below` is equal for all activating cells of an element, with `index` in 0 .. n - 1.

    In each element some cell activates.
    """
    parts = [e for part in (index, *x.guards) for e in walk(part)]
    used = {e.loop for e in parts if isinstance(e, kernel.LoopIndex)}
    # Compiled code may round floats differently.
    if any(type(e).__name__ not in (*PURE, "Compare") or e.dtype.is_float for e in parts):
        return False
    extents = dict(zip(s.loops, t.shape(s.node), strict=True))
    leaf = leaf_extents(s, t)
    for a in x.around:
        if isinstance(a, kernel.For) and isinstance(a.extent, kernel.Const):
            extents[a.loop] = leaf[a.loop] = int(a.extent.value)
    if not used <= set(extents):
        return False
    here = {name: extents[name] for name in extents if name in used}
    if prod(here.values()) > _MOST_VALUES:
        return False
    values = _values(index, here)
    held = np.ones(values.shape, bool)
    for guard in x.guards:
        held &= _values(guard, here) != 0
    if values[held].size and (values[held].min() < 0 or values[held].max() >= n):
        return False
    cells, first = values // below, [np.arange(m) // leaf[k] * leaf[k] for k, m in here.items()]
    same = cells == (cells[np.ix_(*first)] if first else cells)
    return bool(same[held].all()) and _each_has_some(held, [leaf[k] for k in here])


def _each_has_some(held: npt.NDArray[np.bool_], leaf: list[int]) -> bool:
    """True if `held` is true somewhere in each box of the extents `leaf` into which it splits."""
    for axis, n in enumerate(leaf):
        held = np.logical_or.reduceat(held, np.arange(0, held.shape[axis], n), axis)
    return bool(held.all())


def _values(e: kernel.Expr, extents: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """The values of an expression of loop indices, as an array with an axis per loop, in the order of `extents`.

    Its subexpressions are of PURE or comparisons, and wrap around as their types do.
    """
    loops = np.meshgrid(*(np.arange(n) for n in extents.values()), indexing="ij")
    known = dict(zip(extents, loops, strict=True))

    def value(x: kernel.Expr) -> Any:
        match x:
            case kernel.Const():
                return scalar(x)
            case kernel.LoopIndex(loop):
                return known[loop].astype(x.dtype.numpy)
            case kernel.Cast():
                return np.asarray(value(x.x)).astype(x.dtype.numpy)
            case kernel.Unary():
                return OPS[x.op].numpy(value(x.x))
            case kernel.Binary() | kernel.Compare():
                return OPS[x.op].numpy(value(x.a), value(x.b))
        raise TypeError(f"{type(x).__name__} is no part of an index that is known")

    with np.errstate(all="ignore"):
        found = np.asarray(value(e)).astype(np.int64)
        return np.broadcast_to(found, tuple(extents.values()))


def chosen(
    ir: kernel.KernelIR, numbers: frozenset[int]
) -> Iterator[tuple[int, kernel.ForActive, Sequence[ActivationSite]]]:
    """Yields the loops with the hoisted activations `numbers`: number at top level, loop, and these sites."""
    first = 0
    for top, s in enumerate(ir.body):
        sites = list(activation_sites(s, first))
        first += len(sites)
        here = [x for x in sites if x.number in numbers]
        if here and isinstance(s, kernel.ForActive):
            yield top, s, here
