"""Kinds of targets: facts common to all targets of one kind.

They determine the values of choices, not any speed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...kernels.ir.kernel import DType

CPU, GPU = "cpu", "gpu"


@dataclass(frozen=True, kw_only=True)
class TargetKind:
    """A kind of target (CPU or GPU), as the families of choices read it (space/targets/cpu.py, gpu.py)."""

    name: str  # CPU, GPU
    lacks: frozenset[DType]  # types of values that its code has no arithmetic on
    # How a reduction dim of a level may be reduced, other than in order.
    shared_reductions: Mapping[int, tuple[int, ...]]
    max_stages: int  # blocks of a copy
    max_asynchronous_stages: int  # where the target copies asynchronously
    # Universes of the integer choice `size`: 1 is in all, so that a level can be absent.
    mid_sizes: tuple[int, ...]
    inner_sizes: tuple[int, ...]
    most_whole: int  # extents up to this one are inner sizes of their loops, too
    mid_dims_have_threads: bool  # mid dims may be shared out to the threads of a block
    shares_cells: bool  # loops over the cells of a leaf are dims: threads of a block may share them
    has_teams: bool  # all threads of a launch meet, and may pack a block together
    has_layouts: bool  # rows of a copy may be moved apart, because of banks
    keeps_in_own_caches: bool  # a core keeps what it uses in caches of its own
    has_narrow_vectors: bool  # of two elements and more; otherwise whole registers only
    streams_vectors_only: bool
    ends_repeats: bool  # what runs a sequence can test an array between steps of a repeat
    has_load_hints: bool
    converted_at_once: int  # items that a thread converts where parts of trees lie otherwise
    threads_at_once: int  # that read together: those of a warp
    # How many times the registers may be counted; (1,): they are not.
    register_rooms: tuple[int, ...]

    def tiles_of(self, extent: int) -> tuple[int, ...]:
        """Returns the sizes of register tiles of a loop: the inner sizes, and the whole extent of a short loop."""
        whole = {extent} if 0 < extent <= self.most_whole else set[int]()
        return tuple(sorted({*self.inner_sizes, *whole}))
