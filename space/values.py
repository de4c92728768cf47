"""Values of choices that targets and several families share. The family of each describes it."""

from __future__ import annotations

IN_STEP, LATE = range(2)


SEQUENTIAL, LANES, TREE, PARTIALS, ATOMIC = range(5)


# Factors by which the available registers may be counted: compilers' reports show that a count may be too high. The last one
# cuts nothing: no block has so many copies in so many threads.
REGISTER_ROOMS = (1, 2, 4, 8)
