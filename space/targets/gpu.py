"""GPUs as a kind of target: a launch is one grid of blocks, and threads are inside the tiles.

Outer dims are distributed to blocks, or are loops that all threads of a block run; mid dims are
loops, or distributed to threads. All tasks of a launch have the same grid, so a value that passes
from one to the other stays inside a block, where barriers order it. A value that passes between
blocks needs another launch. Accumulators are in registers: no loop over results is inside a
reduction loop.
"""

from __future__ import annotations

from ...kernels.ir.kernel import DType
from ..backbone import INNER, MID, OUTER
from ..values import ATOMIC, LANES, LAST_BLOCK, PARTIALS, REGISTER_ROOMS, TREE
from .cpu import CPU_KIND
from .kind import GPU, TargetKind

GPU_KIND = TargetKind(
    name=GPU,
    lacks=frozenset({DType.f16}),  # which NVRTC has in a header of the toolkit alone
    shared_reductions={OUTER: (PARTIALS, ATOMIC, LAST_BLOCK), MID: (TREE,), INNER: (LANES,)},
    max_stages=1,
    max_asynchronous_stages=3,
    # Mid dims may be threads, and those that reduce together come in powers of two.
    mid_sizes=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096),
    inner_sizes=CPU_KIND.inner_sizes,
    most_whole=CPU_KIND.most_whole,
    mid_dims_have_threads=True,
    shares_cells=True,
    has_teams=False,  # a copy is in shared memory, and all threads of its block copy it
    has_layouts=True,
    keeps_in_own_caches=False,  # a block has no cache in which prefetches or what it keeps could wait
    has_narrow_vectors=True,
    streams_vectors_only=False,  # a streaming store of every type
    ends_repeats=False,  # all launches are listed before
    has_load_hints=True,
    converted_at_once=1,  # neighbouring threads read neighbouring items
    threads_at_once=32,
    register_rooms=REGISTER_ROOMS,
)
