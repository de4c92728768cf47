"""Iterations of a vectorised loop inside of a body that are fewer than its lanes: one after the other, or a vector with a mask."""

from __future__ import annotations

from ...kernels.ir.kernel import Const, For
from ..draft import Draft, Family, Phrases, bits
from ..targets.kind import CPU
from .ranges import N_VECTORS, RANGES, lanes_of, ranges_of
from .unrolling import place_of

LEAST_BYTES = 32  # of a register, from which on masked loads are instructions (AVX2, AVX-512)

ONE_BY_ONE, MASKED = range(2)
REMAINDERS = (
    "ONE_BY_ONE",  # in scalar code, behind the sums of the vectors
    "MASKED",  # as one more vector of which only the first lanes are live; its sums are those of the vectors
)


def declare(s: Draft) -> None:
    if s.target.vector_bytes < LEAST_BYTES:
        return
    for t, task in enumerate(s.problem.tasks):
        for loop in ranges_of(s, task):
            if _with_remainder(s, loop):
                place = place_of(task, loop.loop)
                s.v.of_places["remainders"][t, place] = s.b.add("remainders", (place,), REMAINDERS)


def _with_remainder(s: Draft, loop: For) -> list[int]:
    """Returns the values of the choice `ranges` with which vectors may not be filled."""
    n = int(loop.extent.value) if isinstance(loop.extent, Const) else None
    lanes = lanes_of(s, loop)
    return [RANGES.index(x) for x, k in N_VECTORS.items() if n is None or n % (k * lanes)]


def only_in_vectors(s: Draft) -> None:
    """Coherence: loops without vectors, and those that fill all, mask nothing; so the choice has its first value."""
    for t, task in enumerate(s.problem.tasks):
        for loop in ranges_of(s, task):
            var = s.v.of_places["remainders"].get((t, place_of(task, loop.loop)))
            if var is not None:
                cut = (s.v.ranges[t, loop.loop], bits(*_with_remainder(s, loop)))
                s.b.clause("masked remainders", [(var, bits(ONE_BY_ONE)), cut])


PHRASES = Phrases(
    "remainders",
    "vectors",
    {"MASKED": "has iterations that do not fill a vector in one with a mask"},
    {"MASKED": "masked at its end"},
)

FAMILY = Family("remainders", {CPU: (only_in_vectors,)}, declare, (PHRASES,))
