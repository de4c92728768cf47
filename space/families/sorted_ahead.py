"""Software prefetch of sorted iterations: prefetch distance for elements that they read at their iteration number.

Consecutive iterations of a block may have iteration numbers that are far apart.
"""

from __future__ import annotations

from ...kernels.analysis.scatters import scatters
from ..draft import Draft, Family, Phrases, bits
from ..targets.kind import CPU
from .scatter import SORTING

EIGHT, UNSORTED_AHEAD, SIXTEEN, THIRTY_TWO = range(4)
SORTED_AHEAD = (
    "EIGHT",  # prefetches for the iteration so many places later in the order
    "NONE",  # the hardware finds out by itself
    "SIXTEEN",
    "THIRTY_TWO",
)
AHEAD_ITERATIONS = {"EIGHT": 8, "NONE": 0, "SIXTEEN": 16, "THIRTY_TWO": 32}


def declare(s: Draft) -> None:
    for t in s.v.scatter_cells:
        name = (s.problem.tasks[t].name,)
        s.v.of_tasks["sorted_ahead"][t] = s.b.add("sorted_ahead", name, SORTED_AHEAD)


def sorted_ones_ask(s: Draft) -> None:
    """Coherence: unsorted iterations prefetch nothing, so the choice has its first value."""
    for t, var in s.v.of_tasks["sorted_ahead"].items():
        found = scatters(s.problem.tasks[t], s.problem)
        sorted_ = [(s.v.scatter[t, x.array], bits(*SORTING)) for x in found]
        s.b.clause("sorted iterations ask", [*sorted_, (var, bits(EIGHT))])


PHRASES = Phrases(
    "sorted_ahead",
    "scatters",
    {
        "NONE": "prefetches nothing",
        "SIXTEEN": "prefetches sixteen iterations ahead",
        "THIRTY_TWO": "prefetches thirty-two iterations ahead",
    },
    {"NONE": "nothing ahead", "SIXTEEN": "sixteen ahead", "THIRTY_TWO": "thirty-two ahead"},
)

FAMILY = Family("sorted_ahead", {CPU: (sorted_ones_ask,)}, declare, (PHRASES,))
