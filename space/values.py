"""Values of choices that targets and other families than their own name: each is described in its family."""

from __future__ import annotations

IN_STEP, LATE = range(2)


SEQUENTIAL, LANES, TREE, PARTIALS, ATOMIC = range(5)


# How many times the registers that there are may be counted: by compilers' reports a count may be too high. With the last one
# nothing is cut: no block has so many copies in so many threads.
REGISTER_ROOMS = (1, 2, 4, 8)
