"""Values of choices that several families or targets share. The file of each family explains its values."""

from __future__ import annotations

IN_STEP, LATE = range(2)


SEQUENTIAL, LANES, TREE, PARTIALS, ATOMIC, LAST_BLOCK = range(6)
REDUCTION = (
    "SEQUENTIAL",  # one accumulator, in order along this dim
    "LANES",  # one accumulator per lane or unrolled copy, added up at the end
    "TREE",  # threads combine pairwise (GPU)
    "PARTIALS",  # one partial result per thread (CPU) or block (GPU), combined after a barrier or by a second launch
    "ATOMIC",  # the blocks add to one result, which a launch before has set to nothing
    "LAST_BLOCK",  # one partial result per block; the last block to leave its own combines them in the same launch
)


# Factors by which the available registers may be counted: compilers' reports show that a count may be too high. The last one
# cuts nothing: no block has so many copies in so many threads.
REGISTER_ROOMS = (1, 2, 4, 8)
