"""Sets: lines a power of two apart, of which a first cache holds only as many as their sets have ways.

A cache of C bytes with W ways has C / W bytes of sets. An address and another that is a multiple of C / W away share a set. A
first cache takes its sets from address bits within a page, or from more: a multiple of the page is in at most (C / W) / page sets.
Lines whose distances are multiples of G therefore lie in one of gcd(G, C / W, page) / line parts of the sets. So a cache holds at
most C * line / gcd of them. Deeper caches mix more bits of physical addresses into the number of a set: of these nothing is known.

A segment (tiles.py) touches one such line at least for each combination of the loops whose steps are multiples of a line. It finds
those that its cache and registers hold; all others cross. The alignment of the array does not matter, since only distances count.
A register saves at most one line: only segments count that follow one another along a loop of the array. Then the next one touches
other elements, and what a vector has gathered from many lines is of no use to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd, prod
from typing import NamedTuple

from ...space.targets.target import PAGE_BYTES, Target


class LinesInSets(NamedTuple):
    """Lines that an access surely touches in few sets.

    `loops`: whose iterations touch different ones; `n_bytes`: of all lines; `held_bytes`: at most these of them are in the
    first cache and the registers of a core.
    """

    loops: tuple[str, ...] = ()
    n_bytes: float = 0.0
    held_bytes: float = 0.0


def lines_in_sets(target: Target, own: Mapping[str, tuple[int, int]]) -> LinesInSets:
    """Returns the lines of an access whose loops have these steps in bytes and extents; none where all sets may hold them."""
    line = target.line_bytes
    loops = tuple(
        n for n, (step, extent) in own.items() if step % line == 0 and step and extent > 1
    )
    first = target.levels[0] if target.levels else None
    if first is None or not first.ways or not loops:
        return LinesInSets()
    own_bytes = first.capacity_bytes * min(first.shared_by, target.cores) // target.cores
    apart = gcd(own_bytes // first.ways, PAGE_BYTES, *(own[n][0] for n in loops))
    if apart <= line:
        return LinesInSets()
    held = own_bytes * line / apart + target.vector_registers * line
    return LinesInSets(loops, float(prod(own[n][1] for n in loops) * line), held)
