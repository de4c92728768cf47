"""Lookup of cells in pointer and hash nodes while a sequence runs: a slot table of all cells, or a hash directory.

The program has a table of all cells for a pointer node, and a directory of the active cells for a
hash node. A node retains its own structure; the other one is auxiliary. On a GPU pointer nodes have
no choice: from which size on a directory pays there is not known.
"""

from __future__ import annotations

from ...kernels.analysis.effects import arrays_read
from ...kernels.ir.kernel import DType
from ...kernels.ir.task import Keys, SlotTable
from ..draft import Draft, Family, Phrases, SequencePart
from ..targets.kind import CPU, GPU
from .leaf_layout import MOST_BYTES

TABLE, HASH = range(2)
DIRECTORY = (
    "TABLE",  # an entry for each cell, whether it is active or not
    "HASH",  # a directory of active cells by open addressing (Knuth, vol. 3, 6.4)
)


def declare(s: Draft) -> None:
    for x in s.problem.parts.tables:
        if is_open(s, x):
            tasks = enumerate(s.problem.tasks)
            looked_in = x.array if x.keys is None else x.keys.array
            site = SequencePart(x.name, next(t for t, y in tasks if looked_in in arrays_read(y)))
            values = DIRECTORY if x.keys is None else DIRECTORY[::-1]  # the program's first
            s.v.of_trees["directory"][site] = s.b.add("directory", (x.name,), values)


def is_open(s: Draft, x: SlotTable) -> bool:
    """True if the other lookup structure may be faster, and the workspace has room for it between calls."""
    if x.keys is not None:
        return table_bytes(x.keys) <= MOST_BYTES
    # A table that a core keeps in its own cache answers sooner than any key is compared.
    return s.kind.has_teams and s.is_beyond_own_cache(x.array)


def table_bytes(keys: Keys) -> int:
    """Number of bytes of a slot table for all cells of a hash node."""
    return (keys.n_cells + 1) * DType.u32.size_bytes


PHRASES = Phrases(
    "directory",
    "layouts",
    {
        "TABLE": "is looked up in a table of all its cells",
        "HASH": "is looked up in a directory of its active cells",
    },
    {"TABLE": "a table of all cells", "HASH": "a directory of active cells"},
)

FAMILY = Family("directory", {CPU: (), GPU: ()}, declare, (PHRASES,))
