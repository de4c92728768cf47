"""Sorts of iterations that calls keep: when a scatter's iterations are sorted by the block that they update.

A sort depends on the blocks alone, so calls with iterations in the same blocks may share one.
Only indices that the sequence reads as they are, and never writes, count as the same: particles move from call to call.
"""

from __future__ import annotations

from ...kernels.analysis.effects import arrays_written
from ...kernels.analysis.scatters import placing, scatters
from ...kernels.ir.on_trees import ANEW, IF_OLD
from ...kernels.ir.task import Task
from ..backbone import OUTER
from ..draft import Draft, Family, Phrases, bits
from ..targets.kind import CPU
from .scatter import SORTING
from .tiling import PARALLEL

SORT_ANEW, SORT_IF_CHANGED = range(2)
SORTS = (
    ANEW,  # GENERATE: each call sorts the iterations
    IF_OLD,  # IF_CHANGED: calls keep the order, and compare the blocks with those that it was made for
)


def declare(s: Draft) -> None:
    for t in s.v.scatter_cells:
        task = s.problem.tasks[t]
        if _is_by_indices(s, task):
            s.v.of_tasks["sorting"][t] = s.b.add("sorting", (task.name,), SORTS)


def _is_by_indices(s: Draft, task: Task) -> bool:
    """True if blocks are computed from integers that the sequence does not write."""
    written = {name for t in s.problem.tasks for name in arrays_written(t)}
    for x in (x for x in scatters(task, s.problem) if x.window):
        made = placing(task, x.bases)
        read = made.arrays_read(x.bases) if made is not None else ()
        if not read or written.intersection(read):
            return False
        if not all(s.array(name).dtype.is_integer for name in read):
            return False
    return True


def sorted_ones_keep(s: Draft) -> None:
    """Coherence: iterations that no team sorts have the choice's first value."""
    for t, var in s.v.of_tasks["sorting"].items():
        anew = (var, bits(SORT_ANEW))
        sorted_ = [(how, bits(*SORTING)) for (u, _), how in s.v.scatter.items() if u == t]
        s.b.clause("kept sorts", [*sorted_, anew])
        outer = s.backbone.dim(t, s.problem.tasks[t].loops[0].name, OUTER)
        s.b.clause("kept sorts of a team", [anew, (s.v.kind[outer], bits(PARALLEL))])


PHRASES = Phrases(
    "sorting",
    "scatters",
    {IF_OLD: "keeps the order of its iterations while they are in the same blocks"},
    {IF_OLD: "kept while blocks are the same"},
)

FAMILY = Family("scatter_sorts", {CPU: (sorted_ones_keep,)}, declare, (PHRASES,))
