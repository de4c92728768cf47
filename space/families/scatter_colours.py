"""Greedy colourings of scatters (GREEDY): the size of the coloured blocks of iterations, and when a colouring is made.

Small blocks need few colours, large ones little work of the thread that colours them, and keep neighbours together.
A colouring depends on the indices of the updates alone, so calls with the same indices may share one.
"""

from __future__ import annotations

from ...kernels.analysis.scatters import scatters
from ...kernels.ir.on_trees import ANEW, IF_OLD
from ..draft import Draft, Family, Phrases, bits
from ..targets.kind import CPU
from .scatter import GREEDY, may_colour

SIZES = (1, 16, 256, 4096)  # iterations

GENERATE, IF_CHANGED = range(2)
COLOURING = (
    ANEW,  # GENERATE: each call colours the blocks
    IF_OLD,  # IF_CHANGED: calls keep the colouring, and compare the rows with those that it was made for
)


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        found = scatters(task, s.problem)
        if any(may_colour(s, task, found, x) for x in found):
            sizes = tuple(str(n) for n in SIZES if n == 1 or 2 * n <= task.loops[0].extent)
            s.v.of_tasks["greedy_block"][t] = s.b.add("greedy_block", (task.name,), sizes)
            s.v.of_tasks["colouring"][t] = s.b.add("colouring", (task.name,), COLOURING)


def of_coloured_blocks(s: Draft) -> None:
    """Coherence: without a colouring, both choices have their first values."""
    for kind in ("greedy_block", "colouring"):
        for t, var in s.v.of_tasks[kind].items():
            coloured = [(how, bits(GREEDY)) for (u, _), how in s.v.scatter.items() if u == t]
            s.b.clause("blocks of a colouring", [*coloured, (var, bits(0))])


PHRASES = Phrases(
    "colouring",
    "scatters",
    {IF_OLD: "keeps the colours of its blocks while the indices of its updates are the same"},
    {IF_OLD: "kept while indices are the same"},
)

FAMILY = Family("scatter_colours", {CPU: (of_coloured_blocks,)}, declare, (PHRASES,))
