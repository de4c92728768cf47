"""Length classes: the order of vectorised iterations whose inner loops have lengths that arrays hold, as rows of CSR have.

The lanes of a vector run as long as the longest of its iterations. Iterations that are sorted by length within windows of
consecutive ones leave few lanes idle (SELL-C-sigma: Kreutzer et al., SIAM J. Sci. Comput. 36, 2014); small windows keep
neighbours together. The order depends on lengths alone, so calls with the same lengths may share one.
"""

from __future__ import annotations

from ...kernels.analysis.effects import arrays_written
from ...kernels.analysis.inner_ranges import run_time_length
from ...kernels.analysis.scatters import scatters
from ...kernels.ir.kernel import Expr
from ...kernels.ir.on_trees import IF_OLD, NO_TREES
from ...kernels.ir.task import Task
from ...kernels.ir.walk import loads
from ..backbone import INNER, OUTER
from ..backbone.colourings import MAX_SORTED
from ..draft import Draft, Family, Phrases, all_but, bits
from ..targets.kind import CPU
from .order import APART, ORDER, OUTSIDE
from .packing import DIRECT
from .scatter_sorts import SORT_ANEW, SORT_IF_CHANGED, SORTS
from .tiling import PARALLEL, VECTOR, runs_in_lanes_whole

UNSORTED = 0  # of `length_window`: iterations follow one another; other values are sizes of windows
NO_WINDOW = "UNSORTED"
WINDOWS = (
    64,
    512,
    4096,
    32768,
)  # iterations that are sorted among themselves, each a multiple of all numbers of lanes


# --- sites -----------------------------------------------------------------------------------


def declare(s: Draft) -> None:
    written = {name for task in s.problem.tasks for name in arrays_written(task)}
    for t, task in enumerate(s.problem.tasks):
        length = length_in(task) if _may_sort(s, t) else None
        if length is None:
            continue
        n = task.loops[0].extent
        windows = (size for size, less in zip(WINDOWS, (0, *WINDOWS), strict=False) if less < n)
        values = (NO_WINDOW, *map(str, windows))
        s.v.of_tasks["length_window"][t] = s.b.add("length_window", (task.name,), values)
        # Lengths that the sequence writes change from call to call: a search would take a kept order for free.
        is_fixed = not written.intersection(x.array for x in loads(length))
        ways = bits(SORT_ANEW, *([SORT_IF_CHANGED] if is_fixed else []))
        s.v.of_tasks["length_sort"][t] = s.b.add("length_sort", (task.name,), SORTS, ways)


def length_in(task: Task) -> Expr | None:
    """Returns the length of a task's iterations, in terms of its one loop; None if it is known, or only when they run."""
    if task.body is None or len(task.loops) != 1:
        return None
    return run_time_length(task.loops[0].name, task.body.statements)


def _may_sort(s: Draft, t: int) -> bool:
    """True if the iterations of a task's only loop may run in any order, in lanes."""
    task = s.problem.tasks[t]
    if task.body is None or len(task.loops) != 1 or task.body.trees != NO_TREES:
        return False
    d = s.backbone.dim(t, task.loops[0].name, INNER)
    if task.loops[0].extent >= MAX_SORTED or scatters(task, s.problem):
        return False
    return runs_in_lanes_whole(s, task, d)


# --- constraints -----------------------------------------------------------------------------


def only_in_lanes(s: Draft) -> None:
    """Coherence: loops without vectors sort nothing, and keep no order, so both choices have their first values.

    Only a team has memory that calls keep.
    """
    for t, window in s.v.of_tasks["length_window"].items():
        inner = s.backbone.dim(t, s.problem.tasks[t].loops[0].name, INNER)
        unsorted = (window, bits(UNSORTED))
        s.b.clause("lengths of lanes", [unsorted, (s.v.kind[inner], bits(VECTOR))])
        kept = s.v.of_tasks["length_sort"][t]
        anew = (kept, bits(SORT_ANEW))
        s.b.clause("kept lengths", [(window, ~bits(UNSORTED)), anew])
        outer = s.backbone.dim(t, s.problem.tasks[t].loops[0].name, OUTER)
        s.b.clause("kept lengths of a team", [anew, (s.v.kind[outer], bits(PARALLEL))])


def sorted_alone(s: Draft) -> None:
    """Coherence: a loop of sorted iterations merges with no other loop, and is in none."""
    windows = s.v.of_tasks["length_window"]
    for merge in s.backbone.merges:
        a, b = (levels[OUTER] for levels in s.levels_of(merge))
        for t in (t for t in (merge.a, merge.b) if t in windows):
            literals = [(windows[t], bits(UNSORTED)), (s.order(a, b), APART)]
            s.b.clause("lengths of one loop", literals)
    for t, window in windows.items():
        d = s.backbone.dim(t, s.problem.tasks[t].loops[0].name, OUTER)
        for x in (x for x in s.near_dims(t) if x != d):
            outside = (s.order(x, d), all_but(ORDER, OUTSIDE))
            s.b.clause("sorted loops are in none", [(window, bits(UNSORTED)), outside])


def read_where_they_lie(s: Draft) -> None:
    """Semantics: sorted iterations leave no block of neighbours, so none is copied."""
    windows = s.v.of_tasks["length_window"]
    for o, staged in s.v.staged.items():
        if o.task in windows:
            s.b.clause("no halo", [(windows[o.task], bits(UNSORTED)), (staged, bits(DIRECT))])


PHRASES = (
    Phrases(
        "length_window",
        "vectors",
        {str(n): f"sorts its iterations by length within windows of {n}" for n in WINDOWS},
        {str(n): f"sorted by length in windows of {n}" for n in WINDOWS},
    ),
    Phrases(
        "length_sort",
        "vectors",
        {IF_OLD: "keeps their order while lengths are the same"},
        {IF_OLD: "kept while lengths are the same"},
    ),
)

FAMILY = Family(
    "row_lengths", {CPU: (only_in_lanes, sorted_alone, read_where_they_lie)}, declare, PHRASES
)
