"""How cells of pointer nodes are looked up while a sequence runs. The program has a table of all cells, and keeps it true.

Hash nodes have no choice: the program keeps their directory and no table, which would be one more state that each claim changes.
Of CPUs alone, as `leaf_layout`: plans of GPUs have no launches that make a directory.
"""

from __future__ import annotations

from ...kernels.ir.effects import arrays_read
from ..draft import Draft, Family, Phrases, TreePart
from ..targets.kind import CPU

TABLE, HASH = range(2)
DIRECTORY = (
    "TABLE",  # an entry for each cell, whether it is active or not: one read
    "HASH",  # a directory of active cells by open addressing, made from the table at the begin (Knuth, vol. 3, 6.4)
)


def declare(s: Draft) -> None:
    # A table that a core keeps in its own cache answers sooner than any key is compared.
    for x in s.problem.parts.tables if s.kind.has_teams else ():
        if s.is_beyond_own_cache(x.array):
            tasks = enumerate(s.problem.tasks)
            site = TreePart(x.name, next(t for t, y in tasks if x.array in arrays_read(y)))
            s.v.of_trees["directory"][site] = s.b.add("directory", (x.name,), DIRECTORY)


PHRASES = Phrases(
    "directory",
    "layouts",
    {"HASH": "is looked up in a directory of its active cells, made before"},
    {"HASH": "a directory of active cells"},
)

FAMILY = Family("directory", {CPU: ()}, declare, (PHRASES,))
