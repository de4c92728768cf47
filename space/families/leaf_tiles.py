"""Accesses around a cell of a sparse field's leaf: to the leaves themselves, or to a tile of the leaf with a halo.

A tile of neighbour reads is copied before them. A tile of neighbour updates is summed up, and added once a leaf: so a scatter makes
one update a cell, in rows, and looks up each neighbour leaf once.

CPUs only: a body runs in one thread. On a GPU each thread would have a tile in its own memory, no
nearer than the leaves. The bound does not depend on the choice: a body counts only its guaranteed
memory traffic, which is equal for both. Atomic updates that may be in tiles do not count.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...kernels.analysis.updated_rows import MAX_ROWS
from ...kernels.ir.verify import LOCAL_ARRAY_BYTES
from ..backbone.colourings import earlier_colouring
from ..draft import Draft, Family, Phrases, all_but, bits
from ..engine.declarations import Group, Literal, Term
from ..targets.kind import CPU
from .scatter import GREEDY, SCATTER
from .scatter_colours import COLOURING, REUSE

IN_ROWS, IN_TILE = range(2)
LEAF_ROWS = (
    "ROWS",  # in the leaves around, found once a leaf; in a row all but the cell at its end are beside one another
    "HALO",  # in a tile of the leaf with its border, copied or added once a leaf
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


def rows_of_tiles(s: Draft) -> None:
    """Semantics: a tile is added to cells of its border that no update of the leaf reaches: an earlier colouring may lack them.

    Coherence: a colouring by rows of tiles serves its task alone. Hardware: it has room for all cells of a tile.
    """
    for t, task in enumerate(s.problem.tasks):
        for x in task.body.trees.tiles if task.body is not None else ():
            in_place = (s.v.of_places["staged"][t, x.name], bits(IN_ROWS))
            how = s.v.scatter.get((t, x.updated))
            if how is None:
                continue
            for u in (t, *_users(s, t)):
                if u in s.v.of_tasks["colouring"]:
                    own = (s.v.of_tasks["colouring"][u], all_but(COLOURING, REUSE))
                    s.b.clause("rows of an earlier colouring", [in_place, own])
            if x.n_bytes // s.array(x.updated).dtype.size_bytes > MAX_ROWS:
                s.b.clause("rows of a tile", [in_place, (how, all_but(SCATTER, GREEDY))])


def _users(s: Draft, t: int) -> Iterator[int]:
    """Yields the tasks that may have the colouring of task `t`."""
    (component,) = (x for x in s.backbone.components if t in x)
    for u in range(t + 1, component.stop):
        found = earlier_colouring(s.problem, component, u)
        if found is not None and found.task == t:
            yield u


PHRASES = Phrases(
    "staged",
    "packing",
    {
        "HALO": "is in a tile of each leaf, with a border: copied before it is read, or added when the leaf is done"
    },
    {"HALO": "in tiles of leaves"},
)

FAMILY = Family("leaf_tiles", {CPU: (on_the_stack, rows_of_tiles)}, declare, (PHRASES,))
