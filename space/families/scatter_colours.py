"""Greedy colourings of scatters (GREEDY): the size of the coloured blocks of iterations, and when a colouring is made.

Small blocks need few colours, large ones little work of the thread that colours them, and keep neighbours together.
A colouring depends on the indices of the updates alone, so calls with the same indices may share one, and so may tasks:
the loops of a mesh's forces and of their adjoint.
"""

from __future__ import annotations

from ...kernels.analysis.updated_rows import inspector
from ...kernels.ir.on_trees import ANEW, AS_IS, IF_OLD
from ...kernels.ir.task import Problem, Task
from ...kernels.sparse.leaves import read_for_rows
from ..backbone.colourings import colourable, earlier_colouring, rows_of
from ..draft import Draft, Family, Phrases, all_but, bits
from ..targets.kind import CPU
from .order import BEFORE
from .scatter import GREEDY, SCATTER

SIZES = (1, 16, 256, 4096)  # iterations

GENERATE, IF_CHANGED, REUSE = range(3)
COLOURING = (
    ANEW,  # GENERATE: each call colours the blocks
    IF_OLD,  # IF_CHANGED: calls keep the colouring, and compare the rows with those that it was made for
    AS_IS,  # REUSE: it is the colouring of an earlier task, whose iterations update at least the same rows
)

# --- sites -----------------------------------------------------------------------------------


def _is_by_indices(task: Task, problem: Problem) -> bool:
    """True if rows follow from integers. Those of positions change from call to call: a search that measures with the same ones
    would take a kept colouring for free.
    """
    found = (inspector(task, (rows_of(x),)) for x in colourable(task, problem))
    return not any(made is not None and made.kept for made in found)


def declare(s: Draft) -> None:
    for component in s.backbone.components:
        for t in component:
            task = s.problem.tasks[t]
            if not colourable(task, s.problem):
                continue
            sizes = tuple(str(n) for n in SIZES if n == 1 or 2 * n <= task.loops[0].extent)
            s.v.of_tasks["greedy_block"][t] = s.b.add("greedy_block", (task.name,), sizes)
            found = earlier_colouring(s.problem, component, t)
            kept = [IF_CHANGED] if _is_by_indices(task, s.problem) else []
            ways = bits(GENERATE, *kept, *([REUSE] if found is not None else []))
            s.v.of_tasks["colouring"][t] = s.b.add("colouring", (task.name,), COLOURING, ways)


# --- constraints -----------------------------------------------------------------------------


def of_coloured_blocks(s: Draft) -> None:
    """Coherence: without a colouring, both choices have their first values."""
    for kind in ("greedy_block", "colouring"):
        for t, var in s.v.of_tasks[kind].items():
            coloured = [(how, bits(GREEDY)) for (u, _), how in s.v.scatter.items() if u == t]
            s.b.clause("blocks of a colouring", [*coloured, (var, bits(0))])


def of_layouts(s: Draft) -> None:
    """Semantics: rows are found before the loop, in the program's arrays, and copies in other layouts may have changed by then.

    A layout that other components share has no constraint with their choices: there no task is coloured.
    """
    leaves, lists = s.problem.parts.leaves, s.problem.parts.lists
    copied = [(x.name, kind, x.arrays) for x in leaves for kind in ("leaf_layout", "cell_order")]
    copied += [(x.name, "record", (x.array,)) for x in lists]
    found = {t: read_for_rows(s.problem.tasks[t], s.problem) for t, _ in s.v.scatter}
    component_of = {t: k for k, tasks in enumerate(s.backbone.components) for t in tasks}
    for name, kind, arrays in copied:
        layouts = ((x, var) for x, var in s.v.of_trees[kind].items() if x.name == name)
        for site, layout in layouts:
            for (t, array), how in s.v.scatter.items():
                if found[t].get(array, frozenset()) & {*arrays}:
                    other = (how, all_but(SCATTER, GREEDY))
                    is_apart = component_of[site.task] != component_of[t]
                    own = [] if is_apart else [(layout, bits(0))]
                    s.b.clause("layouts of rows", [other, *own])


def of_earlier_tasks(s: Draft) -> None:
    """Semantics: a task with another's colouring runs behind it, has equal blocks, and updates rows that it has coloured."""
    colouring, blocks = s.v.of_tasks["colouring"], s.v.of_tasks["greedy_block"]
    bodies = s.backbone.body_ids
    for component in s.backbone.components:
        for t in (t for t in component if t in colouring):
            found = earlier_colouring(s.problem, component, t)
            if found is None:
                continue
            own = (colouring[t], all_but(COLOURING, REUSE))
            for array, holders in found.holders.items():
                other = (s.v.scatter[t, array], all_but(SCATTER, GREEDY))
                held = [(s.v.scatter[found.task, name], bits(GREEDY)) for name in holders]
                s.b.clause("rows of an earlier colouring", [own, other, *held])
            for k in range(s.b.n_values(blocks[t])):
                other = (blocks[t], ~bits(k))
                same = (blocks[found.task], bits(k))
                s.b.clause("blocks of an earlier colouring", [own, other, same])
            if s.backbone.may_share_launch(found.task, t):
                order = s.b.order(bodies[found.task], bodies[t])
                s.b.clause("an earlier colouring", [own, (order, bits(BEFORE))])


PHRASES = Phrases(
    "colouring",
    "scatters",
    {
        IF_OLD: "keeps the colours of its blocks while the indices of its updates are the same",
        AS_IS: "has the colours of an earlier task's blocks",
    },
    {IF_OLD: "kept while indices are the same", AS_IS: "colours of an earlier task"},
)

FAMILY = Family(
    "scatter_colours",
    {CPU: (of_coloured_blocks, of_layouts, of_earlier_tasks)},
    declare,
    (PHRASES,),
)
