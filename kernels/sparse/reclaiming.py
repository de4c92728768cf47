"""Reclaiming of pools, as plain IR: slots that were given back become free, before others are taken.

It runs while no other thread does.
"""

from __future__ import annotations

from ..ir.kernel import Activate, Append, Deactivate, LoopIndex, Stmt
from ..ir.simplify import binary, cast
from ..ir.walk import nested_statements
from .cells import I64, StatementBuilder, number, plus, times
from .directory import leave
from .layout import FREE, FREED, FRESH, TAKEN, pools_below
from .pools import Pools


def settle(b: StatementBuilder, pools: Pools, tree: str, n: int) -> None:
    """Appends the reclaiming of the pool of node `n`: commits taken slots, makes returned slots zero and free.

    Clearing a slot gives back slots of the pools below.
    """
    cells, t = pools.cells, pools.cells.layouts[tree].tree
    taken, free = (
        b.hold(stem, pools.cells.counter(tree, n, column))
        for stem, column in (("taken", TAKEN), ("free", FREE))
    )
    more = binary("max", binary("sub", taken, free), number(0))
    fresh = binary(
        "min",
        plus(pools.cells.counter(tree, n, FRESH), more),
        number(cells.layouts[tree].slots[n]),
    )
    left = b.hold("left", binary("max", binary("sub", free, taken), number(0)))
    freed = b.hold("freed", pools.cells.counter(tree, n, FREED))
    pools.set_counter(b, tree, n, FRESH, fresh)
    pools.set_counter(b, tree, n, TAKEN, number(0))
    name = cells.names.fresh("k")
    inner = b.inner()
    k = LoopIndex(name, I64)
    slot = inner.hold("slot", cells.load(tree, f"freed{n}", k))
    inner.store(cells.array(tree, f"free{n}"), (plus(left, k),), slot)
    chunk = t.nodes[n].chunk
    if t.nodes[n].has.directory:
        leave(inner, cells, tree, n, cast(slot, I64))
    inner.repeat(
        chunk,
        lambda deeper, c: pools.clear_item(deeper, tree, n, plus(times(cast(slot, I64), chunk), c)),
    )
    b.loop(name, freed, inner)
    pools.set_counter(b, tree, n, FREE, plus(left, freed))
    pools.set_counter(b, tree, n, FREED, number(0))


def settle_between(b: StatementBuilder, pools: Pools, s: Stmt) -> None:
    """Appends the reclaiming that is due before a top-level statement that takes slots.

    It is that of the pools whose slots earlier statements gave back. Records the pools whose slots `s` gives back.
    """
    inside = list(nested_statements((s,)))
    taking = {x.tree for x in inside if isinstance(x, Activate | Append)}
    for tree, n in sorted(pools.given_back):
        if tree in taking:
            settle(b, pools, tree, n)
    pools.given_back = {(tree, n) for tree, n in pools.given_back if tree not in taking}
    for x in inside:
        if isinstance(x, Deactivate):
            below = pools_below(pools.cells.layouts[x.tree].tree, {x.node})
            pools.given_back |= {(x.tree, n) for n in below}
