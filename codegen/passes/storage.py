"""Storage of values during a launch: buffers in the workspace, their layouts, and the workspace itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...kernels.analysis.effects import arrays_read, arrays_written
from ...kernels.ir.access import flat_strides
from ...kernels.ir.affine import Affine
from ...kernels.ir.arrays import ArrayInfo
from ...kernels.ir.kernel import DType
from ...space.backbone import INNER, MID, OUTER, Flow, Operand
from ..loops.ir import AccumulatorPlan
from ..plan.plan import Plan, TaskPlan
from ..text.facts import ALIGNMENT_BYTES

# Behind each thread's copy of a buffer, and before the first of them. A prefetcher runs ahead of what a thread reads, but not
# beyond a page: with less between them it takes the first lines of the next thread's copy away from it, again with every pass.
APART_BYTES = 4096


@dataclass(frozen=True)
class Buffer:
    """An array in the workspace.

    If `is_private`, each thread has a copy, at a distance of `stride_bytes` from the previous one.
    The last `apart_bytes` of each stride are unused.
    """

    name: str
    dtype: DType
    n_elements: int
    offset_bytes: int
    is_private: bool
    apart_bytes: int = 0

    @property
    def stride_bytes(self) -> int:
        return aligned(self.n_elements * self.dtype.size_bytes) + self.apart_bytes


@dataclass
class Workspace:
    """Allocates buffers one after another; private buffers of threads lie behind all others, separately.

    Launches run one after the other, so buffers of one lie where those of another did.
    """

    n_threads: int
    apart_bytes: int = APART_BYTES
    size_bytes: int = 0  # that all launches need
    colourings: dict[int, ColourMemory] = field(default_factory=dict)  # by the task that makes them
    _end: int = 0  # of the buffers that are alive
    _last: Buffer | None = None  # of these
    _held: tuple[int, Buffer | None] = (0, None)  # the same before the launch

    def allocate(self, name: str, dtype: DType, n_elements: int, is_private: bool) -> Buffer:
        if is_private and self._last is not None and not self._last.is_private:
            self._end += self.apart_bytes
        apart = self.apart_bytes if is_private else 0
        buffer = self._last = Buffer(name, dtype, n_elements, self._end, is_private, apart)
        self._end += buffer.stride_bytes * (self.n_threads if is_private else 1)
        self.size_bytes = max(self.size_bytes, self._end)
        return buffer

    def hold(self) -> None:
        """Keeps the buffers there are to the end of the sequence."""
        self._held = self._end, self._last

    def release(self) -> None:
        """Ends the buffers that were allocated since `hold`: later ones lie where they did."""
        self._end, self._last = self._held


def aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


@dataclass(frozen=True)
class AccumulatorLayout:
    """Layout of accumulators in memory: loops in the order of the result's axes, so that vectors stay contiguous."""

    strides: dict[str, int]
    n_elements: int

    @staticmethod
    def of(task: TaskPlan, plan: AccumulatorPlan, target: ArrayInfo) -> AccumulatorLayout:
        along = flat_strides(task.task.target, target)
        loops = sorted(plan.extents, key=lambda name: (abs(along.get(name, 0)), name))
        strides, n = {}, 1
        for name in loops:
            strides[name] = n
            unit = task.loop(name).reach if plan.has_room else 1
            n *= -(-plan.extents[name] // unit) * unit
        return AccumulatorLayout(strides, n)


@dataclass(frozen=True)
class CopyLayout:
    """Layout of a packed block: mid steps in the order of the loops, then register tiles, with the vector loop last.

    `outer_strides[loop]`: distance in elements from one mid step to the next, per iteration of the
    loop. `inner_strides[loop]`: distance inside a register tile.
    """

    order: tuple[str, ...]
    inner_order: tuple[str, ...]
    outer_strides: dict[str, int]
    inner_strides: dict[str, int]
    n_elements: int

    @staticmethod
    def of(task: TaskPlan, operand: Operand, order: tuple[str, ...]) -> CopyLayout:
        def rank(name: str) -> tuple[bool, bool]:
            p = task.loop(name)
            return (p.is_vector, not p.loop.is_reduction)

        inner_order = tuple(sorted(order, key=rank))
        step = 1
        inner, outer = {}, {}
        for name in reversed(inner_order):
            inner[name] = step
            step *= task.loop(name).inner
        for name in reversed(order):
            p = task.loop(name)
            outer[name] = step // p.inner
            step *= p.mid
        return CopyLayout(order, inner_order, outer, inner, step)


@dataclass(frozen=True)
class WindowLayout:
    """Layout of a halo block: rows along the axis that is contiguous in the array.

    `strides`: by loop, in the order of memory. `least`: indices of an iteration's first access,
    whose constants are the least.
    """

    strides: dict[str, int]
    extents: dict[str, int]
    least: tuple[Affine | None, ...]
    n_elements: int

    @staticmethod
    def of(task: TaskPlan, operand: Operand, source: ArrayInfo) -> WindowLayout:
        along = flat_strides(operand.access, source)
        extents = {name: task.loop(name).tile + operand.reach(name) for name in operand.loops}
        strides, n = {}, 1
        for name in sorted(operand.loops, key=lambda name: abs(along[name])):
            strides[name] = n
            n *= extents[name]
        order = dict(reversed(strides.items()))
        return WindowLayout(order, extents, operand.access.axes, n)

    def beyond(self, axes: tuple[Affine | None, ...]) -> int:
        """Returns the distance, in elements of the block, from an iteration's first access to the access `axes`."""
        return sum(self.strides[name] * k for name, k in steps_between(self.least, axes).items())


def steps_between(
    least: tuple[Affine | None, ...], axes: tuple[Affine | None, ...]
) -> dict[str, int]:
    """Returns, by loop, the distance from access `least` to access `axes`, which differ in constants only."""
    found: dict[str, int] = {}
    for x, y in zip(least, axes, strict=True):
        assert x is not None
        assert y is not None
        found |= {loop: y.const - x.const for loop, _ in x.terms}
    return found


@dataclass(frozen=True)
class SharedLayout:
    """Layout of a thread's array for values of a task.

    Each axis has an extent, and a loop level at whose index it begins.
    A level of None stands for the whole axis. `axes`: indices in terms of the loops of the task
    that fills the array.
    """

    axes: tuple[Affine | None, ...]
    extents: tuple[int, ...]
    levels: tuple[int | None, ...]

    @property
    def strides(self) -> tuple[int, ...]:
        strides, n = [], 1
        for extent in reversed(self.extents):
            strides.append(n)
            n *= extent
        return tuple(reversed(strides))

    @property
    def n_elements(self) -> int:
        n = 1
        for extent in self.extents:
            n *= extent
        return n

    @staticmethod
    def of(
        task: TaskPlan,
        flows: tuple[Flow, ...],
        array: ArrayInfo,
        merged: dict[tuple[Flow, str], int],
    ) -> SharedLayout:
        """Returns the layout for the consumers of `flows`, all of one array of one task.

        `merged[flow, loop of the producer]`: innermost level of that loop which producer and
        consumer share.
        """
        extents: list[int] = []
        levels: list[int | None] = []
        for axis, extent in zip(flows[0].axes, array.shape, strict=True):
            assert axis is not None
            loops = [name for name, k in axis.terms if k == 1]
            level = None
            if len(axis.terms) == 1 and loops:
                shared = [merged.get((f, loops[0])) for f in flows]
                level = None if None in shared else min(s for s in shared if s is not None)
            if level is None:
                extents.append(extent)
            else:
                p = task.loop(loops[0])
                extents.append(p.tile if level == OUTER else p.inner)
            levels.append(level)
        return SharedLayout(flows[0].axes, tuple(extents), tuple(levels))


@dataclass(frozen=True)
class SortMemory:
    """Buffers of a counting sort of iterations.

    `blocks`: block of each iteration. `counts`: number of iterations, by thread and block. `order`:
    the sorted iterations. `starts`: begin of each block in that order. `kept`: locals of an
    iteration, computed in the count phase and read in the body.
    `held`: of a sort that later calls use again; None if each call sorts anew. `again`: then a word, 1 in a call that sorts.
    """

    blocks: Buffer
    counts: Buffer
    order: Buffer
    starts: Buffer
    kept: dict[str, Buffer]
    held: KeptMemory | None = None
    again: Buffer | None = None

    @property
    def shared(self) -> tuple[Buffer, ...]:
        """Buffers that several threads of a team access."""
        word = () if self.again is None else (self.again,)
        return (self.blocks, self.counts, self.order, self.starts, *word, *self.kept.values())


@dataclass(frozen=True)
class ColourMemory:
    """Buffers of a colouring of blocks.

    `rows`: rows that each iteration updates. `taken`: colours of the blocks that update a row, a bit each.
    `colours`: of each block. `order`: the blocks by colour. `ends`: end of each colour in that order, and the number of colours.
    `held`: None if each call colours anew. `kept`: locals of an iteration, computed with its rows and read in the body.
    """

    rows: Buffer
    taken: Buffer
    colours: Buffer
    order: Buffer
    ends: Buffer
    held: KeptMemory | None = None
    kept: Mapping[str, Buffer] = field(default_factory=dict)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        state = () if self.held is None else (self.held.is_valid,)
        return (self.rows, self.taken, self.colours, self.order, self.ends, *state)


@dataclass(frozen=True)
class OrderMemory:
    """Buffers of an order by length: the length of each iteration, and the iterations in their order.

    `held`: None if each call sorts anew.
    """

    lengths: Buffer
    order: Buffer
    held: KeptMemory | None = None


@dataclass(frozen=True)
class KeptMemory:
    """Memory of the library, not of the workspace, with buffers whose contents a later call may use again.

    While one call uses this memory, others at the same time have the buffers in the workspace, one behind the other.
    `is_valid`: the last of the buffers, a word that is 1 while the others may be used again.
    `place`: a word of the workspace, the address of the memory in use.
    `lock`: a word of the workspace, the address of the flag that this call must clear when it needs the memory no more, or 0.
    `base`, `memory`, `in_use`, `is_mine`: names of C variables, that of the address, and those of the launch's function.
    """

    buffers: tuple[Buffer, ...]
    place: Buffer
    lock: Buffer
    base: str
    memory: str
    in_use: str
    is_mine: str

    @property
    def is_valid(self) -> Buffer:
        return self.buffers[-1]


@dataclass(frozen=True)
class ScatterMemory:
    """Targets of the updates of a task's scatters, by array: private copies, or tiles with the variable of their origin."""

    copies: dict[str, Buffer]
    tiles: dict[str, tuple[Buffer, str]]
    sort: SortMemory | None

    @property
    def shared(self) -> tuple[Buffer, ...]:
        """Buffers that several threads of a team access."""
        return (*self.copies.values(), *(() if self.sort is None else self.sort.shared))


def merged_levels(
    plan: Plan, matches: dict[tuple[int, str, int], set[tuple[int, str, int]]]
) -> dict[tuple[Flow, str], int]:
    """Returns, for each (flow, loop of its producer), the innermost level of that loop shared with the consumer."""
    found: dict[tuple[Flow, str], int] = {}
    for flow in plan.flows:
        for p, q in flow.pairs:
            if p not in flow.loops:
                continue
            for level in (OUTER, MID):
                if (flow.consumer, q, level) in matches.get((flow.producer, p, level), set()):
                    absent = level == OUTER and plan.tasks[flow.producer].loop(p).mid == 1
                    found[flow, p] = INNER if absent else level
    return found


def _is_in_memory(plan: Plan, array: ArrayInfo) -> bool:
    """True if a temporary array needs memory: some task stores it, or a body of statements names it."""
    named: set[str] = set()
    for t in plan.tasks:
        if t.is_stored or not t.task.is_structured:
            named.update(arrays_written(t.task))
        if not t.task.is_structured:
            named.update(arrays_read(t.task))
    return array.name in named


def place_temporaries(plan: Plan, workspace: Workspace) -> tuple[tuple[ArrayInfo, int], ...]:
    """Allocates the temporary arrays that need memory; returns each with its offset in the workspace."""
    placed = []
    for array in plan.problem.arrays:
        if array.role == "temp" and _is_in_memory(plan, array):
            n = array.size_bytes // array.dtype.size_bytes
            buffer = workspace.allocate(array.name, array.dtype, n, is_private=False)
            placed.append((array, buffer.offset_bytes))
    return tuple(placed)
