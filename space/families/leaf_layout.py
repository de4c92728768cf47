"""Data layout of the fields in the leaves of a sparse tree while a sequence runs: SoA, AoS or AoSoA.

The program has one array per field (SoA). Copies convert other layouts when the sequence begins,
and back when it ends. These copies are part of the sequence.
"""

from __future__ import annotations

from ...kernels.analysis.effects import arrays_read, arrays_written
from ...kernels.ir.task import Leaves, Problem
from ..draft import Draft, Family, Phrases, SequencePart
from ..targets.kind import CPU, GPU
from ..targets.target import Target

SOA, AOS, AOSOA = range(3)
LEAF_LAYOUT = (
    "SOA",  # each component of each field by itself, as the program has them
    "AOS",  # all components of a cell side by side: a line of the cache has what an iteration needs of a cell at any place
    "AOSOA",  # one component of as many cells as a vector has lanes, or a warp threads, then the next component of them
)

MOST_BYTES = 1 << 28  # of a copy, which stays in the workspace between calls


def declare(s: Draft) -> None:
    for x in s.problem.parts.leaves:
        if x.n_components > 1 and fits(s, x):
            site = SequencePart(x.name, first_user(s.problem, x))
            s.v.of_trees["leaf_layout"][site] = s.b.add("leaf_layout", (x.name,), LEAF_LAYOUT)


def fits(s: Draft, leaves: Leaves) -> bool:
    """True if a copy of the leaves' fields takes at most MOST_BYTES."""
    return sum(s.array(name).size_bytes for name in leaves.arrays) <= MOST_BYTES


def first_user(problem: Problem, leaves: Leaves) -> int:
    """Returns the first task that accesses the leaves' fields."""
    names = set(leaves.arrays)
    touched = ({*arrays_read(t), *arrays_written(t)} for t in problem.tasks)
    return next(t for t, here in enumerate(touched) if names & here)


def tile_of(value: str, leaves: Leaves, target: Target, threads_at_once: int) -> int:
    """Number of consecutive cells that hold one component contiguously; 0: all cells (SoA)."""
    lanes = 1 if threads_at_once > 1 else target.lanes(leaves.dtype.size_bytes)
    return {"AOS": 1, "AOSOA": threads_at_once * lanes}.get(value, 0)


PHRASES = Phrases(
    "leaf_layout",
    "layouts",
    {
        "AOS": "has the components of a cell side by side (arrays of structures), converted on entry and back on exit",
        "AOSOA": "has components of a vector of cells side by side, converted on entry and back on exit",
    },
    {"AOS": "arrays of structures", "AOSOA": "structures of vectors"},
)

FAMILY = Family("leaf_layout", {CPU: (), GPU: ()}, declare, (PHRASES,))
