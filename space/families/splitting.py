"""Splitting of calls into tasks (loop distribution): by the loops that their statements have, or not at all.

All other choices are about the tasks. Calls that are not split have one implementation, by the rules of
standalone kernels (codegen/plan/defaults.py): that of a program that calls them. A search measures it
once, beside its tree.
"""

from __future__ import annotations

from ..draft import Draft, Family, Phrases, SequencePart
from ..targets.kind import CPU

SPLIT, WHOLE = range(2)
SPLITTING = (
    "SPLIT",  # a task for each nest of loops
    "WHOLE",  # statements of a call in the order and the loops in which the kernel has them
)


def declare(s: Draft) -> None:
    if s.problem.unsplit is not None:
        var = s.b.add("splitting", ("calls",), SPLITTING)
        s.v.of_trees["splitting"][SequencePart("calls", 0)] = var
        s.v.apart.append(var)


PHRASES = Phrases(
    "splitting",
    "launches",
    {"WHOLE": "are as the program makes them, none split into tasks"},
    {"WHOLE": "as the program makes them"},
)

FAMILY = Family("splitting", {CPU: ()}, declare, (PHRASES,))
