"""Where a loop over the cells of leaves of a sparse field reads what is around its own cell.

Of CPUs alone: a body runs in one thread, so on a GPU each would have a tile in its own memory, which is no nearer than the leaves.

No term of the bound counts it: a body counts for what surely passes through memory, which is the same in both.
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
    """All tiles of a task are on the stack of a thread."""
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
