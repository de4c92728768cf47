"""Every choice kind and every value, in one place: the readable declaration of what may be decided.

A value's position in its tuple is its bit in a domain. Integer choices carry their universe in the space itself. A kind that is
added later has the plain value, what code did without it, first: decisions stored before do not name it, and mean that one.
"""

from __future__ import annotations

BEFORE, AFTER, INSIDE, OUTSIDE, MERGED = range(5)
ORDER = (
    "BEFORE",  # all of x comes before all of y
    "AFTER",  # all of x comes after all of y
    "INNER",  # x is inside y
    "OUTER",  # x is around y
    "MERGED",  # x and y are one loop
)

SAME_LAUNCH, SEPARATE = range(2)
FUSED = (
    "SAME_LAUNCH",  # both tasks run in one launch: one team of threads, barriers where a hazard needs one
    "SEPARATE",  # the team ends between them
)

PARALLEL, LOOP, UNROLL, VECTOR, ABSENT = range(5)
DIM_KIND = (
    "PARALLEL",  # shared out to the threads of the launch (outer dims)
    "LOOP",  # a loop (outer and mid dims)
    "UNROLL",  # copies of the body (inner dims)
    "VECTOR",  # vector registers, several where the size is a multiple of the lanes (inner dims)
    "ABSENT",  # size 1: no loop (mid and inner dims)
)

BLOCK, THREAD = PARALLEL, 5
GPU_DIM_KIND = (
    "BLOCK",  # shared out to the blocks of the grid, a tile each (outer dims)
    "LOOP",  # a loop that all threads of a block run (outer and mid dims)
    "UNROLL",  # copies of the body; with threads on the mid dim, as far apart as there are threads (inner dims)
    "VECTOR",  # vector types, several where the size is a multiple of the lanes (inner dims)
    "ABSENT",  # size 1: no loop (mid and inner dims)
    "THREAD",  # one thread of the block an iteration (mid dims)
)

NOT_THREADS, FASTER, SLOWER = range(3)
THREAD_LEVEL = (
    "NOT_THREADS",  # x and y are not both shared out to threads
    "INNER",  # x varies faster than y from one thread to the next
    "OUTER",  # x varies more slowly
)

BLOCKED, CYCLIC = range(2)
SCHEDULE = (
    "BLOCKED",  # of a PARALLEL dim: each thread runs one contiguous part
    "CYCLIC",  # tiles go to the threads in turn, so that neighbouring tiles are worked on at the same time
)

SEQUENTIAL, LANES, TREE, PARTIALS = range(4)
REDUCTION = (
    "SEQUENTIAL",  # one accumulator, in order along this dim
    "LANES",  # one accumulator per lane or unrolled copy, added up at the end
    "TREE",  # threads combine pairwise (GPU)
    "PARTIALS",  # one partial result per thread (CPU) or block (GPU), combined after a barrier or by a second launch
)

ATOMIC = 4
GPU_REDUCTION = (
    *REDUCTION,
    "ATOMIC",  # the blocks add to one result, which a launch before has set to nothing
)

REGISTER, SHARED, GLOBAL = range(3)
MEM_SPACE = (
    "REGISTER",  # handed over in a register or a named scalar
    "SHARED",  # in an array that one thread (CPU) or one block (GPU) keeps in its cache
    "GLOBAL",  # in memory that all threads see
)

DIRECT, COPY, TWO_STAGES = range(3)
STAGED = (
    "DIRECT",  # read where it lies
    "COPY",  # the block of one outer tile is packed first, in the order in which it is used
    "TWO_STAGES",  # two such blocks: the next one is packed, some slices with each register tile, while one is used
)

TEAM_COPY = len(STAGED)  # of a CPU; a GPU has another value there
CPU_STAGED = (
    *STAGED,  # each thread packs what it needs for itself
    "TEAM_COPY",  # one block for all threads of the launch, of which each packs a part
)

GPU_STAGED = (
    *STAGED,  # all threads of a block copy it into shared memory; of several blocks the next ones travel asynchronously
    "THREE_STAGES",  # three: the next two travel
)  # a value is the number of blocks

PLAIN, ODD, PADDED, SWIZZLED = range(4)
LAYOUT = (
    "PLAIN",  # rows of a copy follow one another
    "ODD",  # an element between them that nobody uses, so that the elements of a column are in different banks
    "PADDED",  # 16 bytes between them, which also leaves vectors aligned
    "SWIZZLED",  # nothing between them: the vectors of each row change places, in another way than those of the next row
)

CACHED, STREAM = range(2)
CACHE = (
    "DEFAULT",  # an ordinary store
    "STREAM",  # a store of what is not needed again soon: around the caches of a CPU, first to leave those of a GPU
)

CA, CG, READ_ONLY, STREAM_LOAD = range(4)
LOAD_CACHE = (
    "CA",  # an ordinary load: both caches of a GPU keep it
    "CG",  # only the cache of all multiprocessors keeps it
    "READ_ONLY",  # through the path for what the launch does not write
    "STREAM",  # the first to leave the caches
)

NO_PREFETCH, NEXT, NEAR, FAR = range(4)
PREFETCH = (
    "NONE",  # the hardware finds out by itself
    "NEXT",  # the first cache is asked for lines of the next register tile of the loop between lines
    "NEAR",  # the second cache is asked for lines PREFETCH_ITERATIONS[NEAR] iterations of that loop ahead
    "FAR",
)
PREFETCH_ITERATIONS = {NEAR: 12, FAR: 24}

NO_SUMS_AHEAD, SUMS_AHEAD = range(2)
PREFETCH_OF_SUMS = (
    "NONE",  # sums in memory are loaded when a register tile is added to them
    "AHEAD",  # the first cache is asked for them before the register tile is computed
)

IN_STEP, LATE = range(2)
SHIFT = (
    "IN_STEP",  # the task runs after what it waits for, in the same iteration of the loop that they share
    "LATE",  # it runs one iteration late, inside the loop that it would have waited for: loop shifting
)

KEEP, ELIDED = range(2)
STORE = (
    "KEEP",  # the array is written
    "ELIDED",  # every reader gets the value on chip, so the array is never written
)

# Universes of the integer choice `size`: 1 is in all, so that a level can be absent. Few values between powers of two: register
# tiles of 3, 6 and 12 rows matter for dense products, and blocks of 384 steps fill three quarters of a first cache of 32 KiB.
MID_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512, 1024, 4096)
# Of a GPU, where they may be threads: those that reduce together come in powers of two.
GPU_MID_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)
INNER_SIZES = (1, 2, 3, 4, 6, 8, 12, 14, 16, 32, 48, 64, 128)
