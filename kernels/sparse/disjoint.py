"""Disjoint states: states that several threads may access at once while they run iterations of a loop."""

from __future__ import annotations

from collections.abc import Mapping

from ..analysis.accesses import sites_of
from ..analysis.conflicts import conflicting
from ..ir import kernel as ir
from ..ir.domain import UNBOUNDED, Loop
from ..ir.structure import StructureTree
from ..ir.walk import children, nested_statements, walk


def activated(s: ir.Stmt) -> frozenset[str]:
    """Returns the trees in which statement `s` activates cells, if several threads may do so at once.

    It is empty if the statement also queries active cells of one of these trees, or deactivates or appends cells of any tree: then
    the order of iterations may be visible.
    """
    every = list(nested_statements((s,)))
    asked = {
        x.tree
        for y in every
        for e in children(y)
        for x in walk(e)
        if isinstance(x, ir.IsActive | ir.Length | ir.Item)
    }
    changed = {x.tree for x in every if isinstance(x, ir.Append | ir.Deactivate)}
    found = {x.tree for x in every if isinstance(x, ir.Activate)}
    return frozenset() if found & (asked | changed) or changed else frozenset(found)


def fields_apart(s: ir.For | ir.ForActive, trees: Mapping[str, StructureTree]) -> frozenset[str]:
    """Returns the fields (arrays of the kernel) without conflicts between iterations of a loop.

    No two iterations access one element that one of them writes. This is tested by coordinates, since different active cells have
    different positions in memory.
    """
    if isinstance(s, ir.ForActive):
        shape = trees[s.tree].shape(s.node)
        loops = tuple(Loop(name, n, False) for name, n in zip(s.loops, shape, strict=True))
    else:
        n = int(s.extent.value) if isinstance(s.extent, ir.Const) else UNBOUNDED
        loops = (Loop(s.loop, n, False),)
    sites = sites_of(s.body, loops)
    met = conflicting(sites, loops)
    return frozenset(s.state.name for s in sites).difference(met)
