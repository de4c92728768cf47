"""Neighbour reads around a cell of a sparse field's leaf: from the leaves themselves, or from a copied tile with a halo.

CPUs only: a body runs in one thread. On a GPU each thread would have a tile in its own memory, no
nearer than the leaves. The bound does not depend on the choice: a body counts only its guaranteed
memory traffic, which is equal for both.
"""

from __future__ import annotations

from ...kernels.ir.verify import LOCAL_ARRAY_BYTES
from ..draft import Draft, Family, Phrases, bits
from ..engine.declarations import Group, Literal, Term
from ..targets.kind import CPU

IN_ROWS, IN_TILE = range(2)
LEAF_ROWS = (
    "ROWS",  # from the leaves around, found once a leaf; in a row all but the cell at its end are beside one another
    "HALO",  # from a tile of the leaf with its border, copied once a leaf
)


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        for x in task.body.trees.tiles if task.body is not None else ():
            s.v.of_places["staged"][t, x.name] = s.b.add("staged", (x.name,), LEAF_ROWS)


def on_the_stack(s: Draft) -> None:
    """Hardware: all tiles of a task fit on the stack of a thread."""
    for t, task in enumerate(s.problem.tasks):
        groups = []
        for x in task.body.trees.tiles if task.body is not None else ():
            var = s.v.of_places["staged"][t, x.name]
            in_tile = Literal(var, bits(IN_TILE))
            groups.append(Group((in_tile,), (Term(None, var, (x.n_bytes,) * len(LEAF_ROWS)),)))
        if groups:
            s.b.groups_at_most(f"tiles of {task.name}", groups, LOCAL_ARRAY_BYTES)


PHRASES = Phrases(
    "staged",
    "packing",
    {"HALO": "is copied leaf by leaf, with a border, before it is read"},
    {"HALO": "in tiles of leaves"},
)

FAMILY = Family("leaf_tiles", {CPU: (on_the_stack,)}, declare, (PHRASES,))
