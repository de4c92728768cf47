"""CPUs as a kind of target: a launch is a team of threads, one per core, which share outer dims."""

from __future__ import annotations

from ...kernels.sparse.converting import SOME_PAGES
from ..backbone import INNER, OUTER
from ..values import LANES, PARTIALS
from .kind import CPU, TargetKind

CPU_KIND = TargetKind(
    name=CPU,
    lacks=frozenset(),
    shared_reductions={OUTER: (PARTIALS,), INNER: (LANES,)},
    max_stages=2,
    max_asynchronous_stages=2,
    # Few values between powers of two: register tiles of 3, 6 and 12 rows matter for dense products, and blocks of 384 steps fill
    # three quarters of a first cache of 32 KiB.
    mid_sizes=(1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512, 1024, 4096),
    inner_sizes=(1, 2, 3, 4, 6, 8, 12, 14, 16, 32, 48, 64, 128),
    most_whole=16,
    mid_dims_have_threads=False,
    shares_cells=False,
    has_teams=True,
    has_layouts=False,  # copies are packed in the order in which they are used
    keeps_in_own_caches=True,
    has_narrow_vectors=False,
    streams_vectors_only=True,
    ends_repeats=True,
    has_load_hints=False,  # none but prefetches
    converted_at_once=SOME_PAGES,
    threads_at_once=1,
    register_rooms=(1,),
)
