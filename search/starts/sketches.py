"""Sketches: partial descriptions of first implementations, composed from the roles of loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from ...space import choices as ch
from .tiles import BlockSizes


@dataclass(frozen=True, slots=True)
class Fusion:
    """Fusion of tasks: shared launches and shared loops.

    `sums`: reductions share a loop even if one needs another's result in its finish.
    `rescaled`: sums share the loop of a maximum or mean that their terms read.
    `sums_inside`: in separate loop nests, the reduction loops of products are innermost.
    `stores_values`: the earlier of two bodies stores the values that both compute.
    """

    launch: bool = True  # one launch
    loops: bool = True  # one loop for tasks that walk the same elements
    in_sweeps: bool = False  # fuse only tasks of one pass, each with its own loop order
    sums: bool = False
    rescaled: bool = False
    sums_inside: bool = False
    stores_values: bool = False


@dataclass(frozen=True, slots=True)
class TileSizes:
    """Tile sizes.

    The register tile is `vectors` vector registers (0: no vectors) by `rows` copies of a second
    loop.
    The vector registers lie along the contiguous loop.
    A mid tile has `panel` iterations of the contiguous loop, or `block` iterations of all loops.
    With `blocks` it has those of the loops of rows, of vectors and of the reduction, and all rows
    of the tile pass by each panel of vectors.
    `columns`: copies of the other result loops if vectors run along the reduction.
    `depth`: copies along the reduction in a register tile of a GPU, added up in order.
    """

    rows: int = 1
    vectors: int = 1
    panel: int = 1
    block: int = 1
    blocks: BlockSizes | None = None
    ranges: int = ch.IN_TURN  # of loops inside bodies: a value of the choice
    columns: int = 1
    depth: int = 1


class Axis(Enum):
    """Selects the loop that threads share: the one most tasks have in common, or the one along memory."""

    COMMON = "the loop that most tasks share"
    CONTIGUOUS = "the loop that walks along memory"


@dataclass(frozen=True, slots=True)
class Along:
    """Threads of a CPU: the loop that the tasks share among threads (`axis`), and its schedule.

    `schedule`: one part per thread, or (CYCLIC) tile by tile.
    `team`: without it there is one thread, with the same loop nests.
    `scatter`: method for updates of elements that iterations share, in blocks of at least `cells`;
    with SERIAL the loops around such updates have one thread.
    `by_work`: iterations whose cost is only known at run time are partitioned by their work, or
    part by part.
    `lanes`: the iterations of bodies are vectorised, contiguous or not.
    `by_length`: iterations in lanes are sorted by length within windows of about so many; 0: they are not.
    `where_pays`: tasks have a team, and update methods, as in standalone calls: small ones have one
    thread.
    """

    axis: Axis = Axis.COMMON
    schedule: int = ch.BLOCKED
    team: bool = True
    scatter: int = ch.SERIAL
    cells: int = 1
    by_work: bool = False
    lanes: bool = False
    where_pays: bool = False
    by_length: int = 0


class Sums(Enum):
    """Ways to distribute reductions over the blocks of a GPU: by one block each, partial results, or atomics."""

    WHOLE = "each by one block"
    PARTIALS = "blocks leave partial results"
    ATOMIC = "blocks add up atomically"
    LAST_BLOCK = "the last block combines what blocks leave"


@dataclass(frozen=True, slots=True)
class ThreadBlock:
    """Threads of a GPU block: numbers along the contiguous loop and along a second one.

    `stays`: all blocks of a launch are resident, and synchronise between tasks.
    """

    contiguous: int = 1
    rows: int = 1
    sums: Sums = Sums.WHOLE
    stays: bool = False


@dataclass(frozen=True, slots=True)
class Packing:
    """Packed copies of the operands that are read in vectors, or of `every` operand, made outside of the vector loop.

    So each is packed once for a block of rows.
    `depth_first`: blocks of the reduction are outermost. Then the operand read in vectors is packed
    once for all rows of a thread, or of all threads if `by_team`, and accumulators are in memory.
    `prefetched`: these accumulators are prefetched before their addends are computed.
    `stages`: number of block buffers; without asynchronous copies, only for operands without unit
    stride.
    `transposed`: rows of a copy in shared memory go along results, also where those in memory go along a sum.
    """

    every: bool = False
    depth_first: bool = False
    by_team: bool = False
    stages: int = ch.COPY
    prefetched: bool = False
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class CopyInputs:
    """Reuse by copies: a thread keeps what one task reads in a copy near the core, from which a later task reads it.

    Registers are preferred, then shared, then global memory.
    """


@dataclass(frozen=True, slots=True)
class Sketch:
    """Partial description of an implementation. `shift`, `prefetch` and `stores` are values of these choices.

    >>> Sketch(tile=TileSizes(vectors=8), threads=Along(Axis.CONTIGUOUS, ch.CYCLIC), reuse=CopyInputs(), shift=ch.LATE)
    """

    fusion: Fusion = Fusion()
    tile: TileSizes = TileSizes()
    threads: Along | ThreadBlock = Along()
    packing: Packing | None = None
    reuse: CopyInputs | None = None
    shift: int = ch.IN_STEP
    prefetch: int = ch.NO_PREFETCH
    stores: int = ch.CACHED

    def __str__(self) -> str:
        """Text of the parts that differ from the default. No two sketches have the same text."""
        return ", ".join(self._words())

    def _words(self) -> Iterator[str]:
        yield from _words_of_tile(self.tile)
        yield from _words_of_fusion(self.fusion)
        yield from self._words_of_threads()
        if self.packing is not None:
            yield from _words_of_packing(self.packing)
        if self.reuse is not None:
            yield "inputs copied"
        if self.shift == ch.LATE:
            yield "late"
        if self.prefetch != ch.NO_PREFETCH:
            yield f"prefetch {ch.PREFETCH[self.prefetch].lower()}"
        if self.stores == ch.STREAM:
            yield "streamed"

    def _words_of_threads(self) -> Iterator[str]:
        threads = self.threads
        if isinstance(threads, ThreadBlock):
            yield f"{threads.rows} x {threads.contiguous} threads"
            if threads.sums is not Sums.WHOLE:
                yield threads.sums.name.lower()
            if threads.stays:
                yield "whole grid"
            return
        if threads.axis is Axis.CONTIGUOUS:
            yield "contiguous"
        if threads.schedule == ch.CYCLIC:
            yield "cyclic"
        if threads.by_work:
            yield "by work"
        if not threads.team:
            yield "one thread"
        if threads.where_pays:
            yield "threads where they pay"
        if threads.scatter != ch.SERIAL:
            yield f"scatters {ch.SCATTER[threads.scatter].lower()}"
            yield from [f"cells{threads.cells}"] * (threads.cells > 1)
        yield from ["in lanes"] * threads.lanes


def _words_of_tile(tile: TileSizes) -> Iterator[str]:
    yield f"rows{tile.rows} vectors{tile.vectors}"
    for word, n in (
        ("columns", tile.columns),
        ("depth", tile.depth),
        ("panel", tile.panel),
        ("block", tile.block),
    ):
        if n > 1:
            yield f"{word}{n}"
    if tile.ranges == ch.ALONG:
        yield "along ranges"
    if tile.blocks is not None:
        yield f"blocks {' x '.join(str(n) for n in tile.blocks)}"


def _words_of_fusion(fusion: Fusion) -> Iterator[str]:
    if not fusion.launch:
        yield "launches apart"
    if not fusion.loops:
        yield "loops apart"
    if fusion.sums_inside:
        yield "sums inside"
    if fusion.in_sweeps:
        yield "in sweeps"
    if fusion.sums:
        yield "sums together"
    if fusion.stores_values:
        yield "values stored"


def _words_of_packing(packing: Packing) -> Iterator[str]:
    yield "packed" if packing.every else "vectors packed"
    if packing.depth_first:
        yield "depth first"
    if packing.by_team:
        yield "by the team"
    if packing.stages != ch.COPY:
        yield f"{packing.stages} stages"
    if packing.prefetched:
        yield "sums prefetched"
    if packing.transposed:
        yield "transposed"
