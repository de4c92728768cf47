"""Names of the values of all choices, for code that reads candidates.

Each family (space/families/) explains its own.
A value's position in its tuple is its bit in a domain. The values of integer choices are in the
space itself (`Variables.universe`). A kind of choice that is added later has its plain value first:
the behaviour of code without that kind. Older stored decisions do not name the kind, and mean that
value.
"""

from __future__ import annotations

from .families.directory import DIRECTORY, HASH, TABLE
from .families.fusion import FUSED, SAME_LAUNCH, SEPARATE
from .families.gathers import GATHERS, ONE_BY_ONE, TRANSPOSED
from .families.guard import BLEND, BRANCH, GUARD, STRIDE
from .families.leaf_layout import AOS, AOSOA, LEAF_LAYOUT, SOA
from .families.leaf_tiles import IN_ROWS, IN_TILE
from .families.load_hints import CA, CG, LOAD_CACHE, READ_ONLY, STREAM_LOAD
from .families.memory import GLOBAL, MEM_SPACE, REGISTER, SHARED
from .families.order import AFTER, BEFORE, INSIDE, MERGED, ORDER, OUTSIDE
from .families.packing import (
    BY_TEAM,
    BY_THREAD,
    COPY,
    DIRECT,
    LAYOUT,
    ODD,
    PACKED_BY,
    PADDED,
    PLAIN,
    STAGED,
    SWIZZLED,
    THREE_STAGES,
    TRANSPOSED_PADDED,
    TWO_STAGES,
    WINDOW,
)
from .families.prefetching import (
    FAR,
    NEAR,
    NEXT,
    NO_PREFETCH,
    NO_SUMS_AHEAD,
    PREFETCH,
    PREFETCH_ACCUMULATORS,
    PREFETCH_ITERATIONS,
    SUMS_AHEAD,
)
from .families.ranges import ALONG, IN_TURN, RANGES
from .families.rows import ROWS, ROWS_KIND, WALK
from .families.scatter import (
    BY_ATOMICS,
    BY_BLOCKS,
    COLOUR,
    GREEDY,
    PRIVATE,
    SCATTER,
    SERIAL,
    SORTED,
    SORTING,
    TILE,
)
from .families.schedule import BALANCED, BLOCKED, CYCLIC, GUIDED, SCHEDULE
from .families.shifting import SHIFT
from .families.stores import CACHE, CACHED, ELIDED, KEEP, STORE, STREAM
from .families.threads import FASTER, NOT_THREADS, SLOWER, THREAD_LEVEL
from .families.tiling import (
    ABSENT,
    DIM_KIND,
    LOOP,
    PARALLEL,
    THREAD,
    UNROLL,
    VECTOR,
)
from .families.wavefronts import BY_DIAGONALS, BY_ROWS, IN_ORDER, WAVES
from .values import ATOMIC, IN_STEP, LANES, LAST_BLOCK, LATE, PARTIALS, REDUCTION, SEQUENTIAL, TREE

__all__ = [
    "ABSENT",
    "AFTER",
    "ALONG",
    "AOS",
    "AOSOA",
    "ATOMIC",
    "BALANCED",
    "BEFORE",
    "BLEND",
    "BLOCKED",
    "BRANCH",
    "BY_ATOMICS",
    "BY_BLOCKS",
    "BY_DIAGONALS",
    "BY_ROWS",
    "BY_TEAM",
    "BY_THREAD",
    "CA",
    "CACHE",
    "CACHED",
    "CG",
    "COLOUR",
    "COPY",
    "CYCLIC",
    "DIM_KIND",
    "DIRECT",
    "DIRECTORY",
    "ELIDED",
    "FAR",
    "FASTER",
    "FUSED",
    "GATHERS",
    "GLOBAL",
    "GREEDY",
    "GUARD",
    "GUIDED",
    "HASH",
    "INSIDE",
    "IN_ORDER",
    "IN_ROWS",
    "IN_STEP",
    "IN_TILE",
    "IN_TURN",
    "KEEP",
    "LANES",
    "LAST_BLOCK",
    "LATE",
    "LAYOUT",
    "LEAF_LAYOUT",
    "LOAD_CACHE",
    "LOOP",
    "MEM_SPACE",
    "MERGED",
    "NEAR",
    "NEXT",
    "NOT_THREADS",
    "NO_PREFETCH",
    "NO_SUMS_AHEAD",
    "ODD",
    "ONE_BY_ONE",
    "ORDER",
    "OUTSIDE",
    "PACKED_BY",
    "PADDED",
    "PARALLEL",
    "PARTIALS",
    "PLAIN",
    "PREFETCH",
    "PREFETCH_ACCUMULATORS",
    "PREFETCH_ITERATIONS",
    "PRIVATE",
    "RANGES",
    "READ_ONLY",
    "REDUCTION",
    "REGISTER",
    "ROWS",
    "ROWS_KIND",
    "SAME_LAUNCH",
    "SCATTER",
    "SCHEDULE",
    "SEPARATE",
    "SEQUENTIAL",
    "SERIAL",
    "SHARED",
    "SHIFT",
    "SLOWER",
    "SOA",
    "SORTED",
    "SORTING",
    "STAGED",
    "STORE",
    "STREAM",
    "STREAM_LOAD",
    "STRIDE",
    "SUMS_AHEAD",
    "SWIZZLED",
    "TABLE",
    "THREAD",
    "THREAD_LEVEL",
    "THREE_STAGES",
    "TILE",
    "TRANSPOSED",
    "TRANSPOSED_PADDED",
    "TREE",
    "TWO_STAGES",
    "UNROLL",
    "VECTOR",
    "WALK",
    "WAVES",
    "WINDOW",
]
