"""Emission context of one GPU kernel: thread and block indices, alignment, and shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from ...kernels.ir.access import access_of, flat_strides
from ...kernels.ir.affine import Affine
from ...kernels.ir.arrays import ArrayInfo
from ...kernels.ir.kernel import DType, Load
from ...space.backbone import Operand
from ...space.families.packing import rows_of_layout
from ...space.targets.gpu_facts import VECTOR_BYTES, adds_to_result, row_order, start_of
from ..bodies.iteration_point import affine_offset, row_strides
from ..loops.ir import Launch, Owner
from ..passes.barriers import copy_name, shared_name
from ..passes.map_grid import AXES, WARP, block_shape, blocks_along, partial_blocks
from ..passes.storage import AccumulatorLayout, Buffer, SharedLayout, Workspace
from ..plan.plan import LoopPlan, Plan, TaskPlan
from ..text import csyntax as c
from ..text.types import type_name
from .emission import Emission

SWIZZLED_ROWS = 8  # so many vectors of 16 bytes are in all banks


@dataclass(frozen=True)
class BlockLayout:
    """Layout of an operand's block in shared memory.

    `strides`: by loop, in the order of the block.
    `moved`: loops in the order of the array in global memory. `piece`: number of elements along the
    last of them that one move copies. In a transposed block they lie in as many rows.
    `swizzle` (n, width): element x of row r is stored at x ^ (r % n * width), against bank
    conflicts.
    `extents`: of a halo block, elements along each loop beyond the tile. `least`: for each axis,
    the first index that an iteration reads.
    """

    loops: tuple[LoopPlan, ...]
    strides: dict[str, int]
    n_elements: int
    piece: int
    swizzle: tuple[int, int] | None  # n, width
    extents: dict[str, int]
    moved: tuple[LoopPlan, ...]
    least: tuple[Affine | None, ...] = ()

    @property
    def is_transposed(self) -> bool:
        """True if rows of the block are columns of the array's block in global memory."""
        return self.moved != self.loops

    @staticmethod
    def of(task: TaskPlan, operand: Operand, source: ArrayInfo) -> BlockLayout:
        size = source.dtype.size_bytes
        is_transposed, gap = rows_of_layout(task.layouts.get(operand.site, "PLAIN"))
        moved = tuple(task.loop(name) for name in row_order(operand, source))
        order = row_order(operand, source, is_transposed=is_transposed)
        loops = tuple(map(task.loop, order))
        extents = {p.loop.name: p.tile + operand.reach(p.loop.name) for p in loops}
        width = VECTOR_BYTES // size
        between = {"ODD": 1, "PADDED": width}.get(gap, 0)
        strides, step = {}, 1
        for p in reversed(loops):
            strides[p.loop.name] = step
            step *= extents[p.loop.name]
            step += between if p is loops[-1] else 0
        step = -(-step // width) * width
        n = min(SWIZZLED_ROWS, loops[-1].tile // width)
        swizzle = (n, width) if gap == "SWIZZLED" else None
        if operand.is_window:
            least = operand.access.axes
            return BlockLayout(loops, strides, step, 1, swizzle, extents, moved, least)
        aligned = [] if is_transposed else [step, *strides.values()]
        # What travels by itself keeps its order, so of a transposed block it travels element by element.
        is_single = is_transposed and task.stages[operand.site] > 1
        piece = 1 if is_single else _piece(moved, operand, source, aligned)
        return BlockLayout(loops, strides, step, piece, swizzle, extents, moved)


def _piece(
    loops: Sequence[LoopPlan], operand: Operand, source: ArrayInfo, strides: list[int]
) -> int:
    """Returns the most elements of a row in memory that one aligned load can copy to the block.

    `strides`: of the block, if they are stored as one vector. The stride of 1 along rows is left out.
    """
    along, row = flat_strides(operand.access, source), loops[-1]
    if along[row.loop.name] != 1:
        return 1
    first = affine_offset(operand.access.axes, row_strides(source.shape))
    steps = [first, row.tile, row.loop.extent, *(along[p.loop.name] for p in loops[:-1])]
    steps += [x for x in strides if x != 1]
    fits = (n for n in (4, 2) if n * source.dtype.size_bytes <= VECTOR_BYTES)
    return next((n for n in fits if all(x % n == 0 for x in steps)), 1)


@dataclass(frozen=True)
class BlockCounters:
    """Counters of blocks in the workspace: finished ones, of all sums that a last block combines, and those that wait.

    A task has a counter for each group of blocks with the same results; `first`: the number of its
    first counter, by task. They are 0 before and after each launch.
    `meeting`: number of the counter of blocks that have arrived at a barrier of the grid. It is 0
    between launches; the sense of the barrier, 0 or 1, is behind it.
    """

    buffer: Buffer | None
    first: dict[int, int]
    meeting: int = 0

    @staticmethod
    def of(plan: Plan, launches: Sequence[Launch], workspace: Workspace) -> BlockCounters:
        first, n = {}, 0
        for task in plan.tasks:
            if task.by_last_block:
                first[task.index] = n
                n += prod(map(blocks_along, groups_along(task)))
        n_all = n + 2 * any(launch.stays for launch in launches)
        buffer = None
        if n_all:
            buffer = workspace.allocate("n_finished", DType.i32, n_all, is_private=False)
        return BlockCounters(buffer, first, n)


def groups_along(task: TaskPlan) -> list[LoopPlan]:
    """Returns the loops along which blocks have other results of a reduction."""
    return [p for p in task.loops if p.is_parallel and not p.loop.is_reduction]


class KernelScene:
    """Emission context of one GPU kernel: the launch's context, with the threads and the shared memory of its blocks."""

    def __init__(self, scene: Emission, index_type: str, counters: BlockCounters) -> None:
        self.scene, self.index_type, self.counters = scene, index_type, counters
        self.shape = block_shape([scene.plan.tasks[t] for t in scene.launch.tasks])
        self.blocks: dict[tuple[int, str], c.CExpr] = {}  # block number along a loop
        self.digits: dict[
            tuple[int, str], tuple[c.CExpr, int]
        ] = {}  # thread number, and its stride
        self.digit_names: dict[c.CExpr, str] = {}
        self.placed: dict[tuple[int, str], BlockLayout] = {}
        self.meets_warps = False
        self.uses_tid = False
        self.in_shared: list[list[Buffer]] = []  # by place
        self.places: dict[int, list[Buffer]] = {}  # those that several arrays have in common
        self.kept_copies: dict[tuple[int, str], Buffer] = {}
        # Begins of the blocks in use, of copies in several stages.
        self.stages: dict[tuple[int, str], c.CExpr] = {}
        self.opened_counters: Buffer | None = None

    # --- threads ---

    @property
    def n_threads(self) -> int:
        """Number of threads of a block."""
        return prod(self.shape)

    def order_threads(self) -> None:
        """Assigns to each task the order in which its parallel loops number the threads of a block."""
        for t in self.scene.launch.tasks:
            task, stride = self.scene.plan.tasks[t], 1
            for axis, p in enumerate(map(task.loop, task.threads)):
                if p.loop.name in task.warp_tile:
                    digit = self.digit_in_tiles(task, p)
                else:
                    digit = self.digit(p, axis, stride)
                self.digits[t, p.loop.name] = digit, stride
                stride *= p.mid

    def digit(self, p: LoopPlan, axis: int, stride: int) -> c.CExpr:
        """Returns the C variable of a thread's index along a loop: of its threadIdx, or a digit of its flat number.

        `axis`: of threadIdx. `stride`: distance of flat numbers between neighbouring threads along
        the loop.
        """
        if len(self.shape) > 1:
            x: c.CExpr = c.CastTo(self.index_type, c.Id(f"threadIdx.{AXES[axis]}"))
        else:
            self.uses_tid = True
            x = self.part_of(c.Id("tid"), stride, p.mid)
        return self.named(p, x)

    def digit_in_tiles(self, task: TaskPlan, p: LoopPlan) -> c.CExpr:
        """Returns the C variable of a thread's index along a loop of its task's warp tile.

        It is the thread's place in its warp, and the warp's place among those along the loop. In both the fastest loop of
        the task varies first. Without signs its divisions are shifts: signed ones cost a product registers that it lacks.
        """
        lanes, warps = 1, WARP
        for q in map(task.loop, task.threads):
            n = task.warp_tile[q.loop.name]
            if q is p:
                break
            lanes, warps = lanes * n, warps * (q.mid // n)
        number = c.Id(f"threadIdx.{AXES[0]}")
        terms = [(self.part_of(number, lanes, n), 1)]
        if p.mid > n:
            terms.append((self.part_of(number, warps, p.mid // n), n))
        return self.named(p, c.CastTo(self.index_type, c.linear(tuple(terms), 0)))

    def part_of(self, number: c.CExpr, stride: int, n: int) -> c.CExpr:
        """Returns one of `n` digits of a thread's flat number. `stride`: distance of numbers with neighbouring digits."""
        x = c.Bin("/", number, c.number(stride)) if stride > 1 else number
        return c.Bin("%", x, c.number(n)) if stride * n < self.n_threads else x

    def named(self, p: LoopPlan, x: c.CExpr) -> c.CExpr:
        """Returns the C variable that holds a thread's index `x` along a loop."""
        if isinstance(x, c.Id):
            return x
        if x not in self.digit_names:
            self.digit_names[x] = self.scene.w.fresh(f"t_{p.loop.name}")
        return c.Id(self.digit_names[x])

    def thread_declarations(self) -> Iterator[c.CStmt]:
        """Yields declarations of a thread's flat number (in the order of warps), and of its indices along loops."""
        if self.uses_tid:
            terms, stride = [], 1
            for axis, n in zip(AXES, self.shape, strict=False):
                terms.append((c.Id(f"threadIdx.{axis}"), stride))
                stride *= n
            tid = c.CastTo(self.index_type, c.linear(tuple(terms), 0))
            yield c.Declare(self.index_type, "tid", tid, constant=True)
        for x, name in self.digit_names.items():
            yield c.Declare(self.index_type, name, x, constant=True)

    # --- memory ---

    def allocate(self, task: TaskPlan) -> None:
        """Allocates a task's buffers: partial results (workspace), values of a tile and operand blocks (shared memory)."""
        t = task.index
        array = self.scene.plan.problem.array(task.task.target.array)
        acc = self.scene.launch.accumulators.get(t)
        if acc is not None and acc.owner is Owner.PARTIALS:
            layout = AccumulatorLayout.of(task, acc, array)
            n = layout.n_elements * partial_blocks(task)
            if self.adds_to_result(task):
                buffer = Buffer(self.scene.w.names[array.name], array.dtype, n, 0, False)
            else:
                stem = f"{array.name}_sum" if task.is_atomic else f"{array.name}_parts"
                buffer = self.scene.buffer(stem, task.task.dtype, n, False)
            self.scene.accumulators[t] = (buffer, layout)
        if task.shared:
            shared = SharedLayout.of(task, task.shared, array, self.scene.merged)
            stem, name = f"{array.name}_tile", shared_name(array.name)
            kept = self.keep(stem, array.dtype, shared.n_elements, name)
            self.scene.shared[t] = (kept, shared)
        for operand in task.copies:
            source = self.scene.plan.problem.array(operand.access.array)
            block = BlockLayout.of(task, operand, source)
            n_elements = block.n_elements * task.stages[operand.site]
            stem, name = f"{source.name}_tile", copy_name(t, operand.site)
            kept = self.keep(stem, source.dtype, n_elements, name)
            self.placed[t, operand.site] = block
            self.kept_copies[t, operand.site] = kept

    def adds_to_result(self, task: TaskPlan) -> bool:
        """True if the blocks reduce directly into the array of the result."""
        return task.is_atomic and adds_to_result(self.scene.plan.problem, task.task)

    def is_set_already(self, task: TaskPlan) -> bool:
        """True if the blocks add to the result's previous value, so no kernel initialises it."""
        start = start_of(task.task)
        is_own = isinstance(start, Load) and access_of(start) == task.task.target
        return is_own and self.adds_to_result(task)

    def keep(self, stem: str, dtype: DType, n_elements: int, name: str = "") -> Buffer:
        """Allocates an array of `n_elements` in shared memory. `name`: that of its touches in barrier placement."""
        buffer = Buffer(self.scene.w.fresh(stem), dtype, n_elements, 0, False)
        place = self.scene.launch.places.get(name)
        if place is not None and place in self.places:
            self.places[place].append(buffer)
        else:
            self.in_shared.append([buffer])
            if place is not None:
                self.places[place] = self.in_shared[-1]
        return buffer

    def shared_declarations(self) -> Iterator[c.CStmt]:
        """Yields declarations of the arrays in shared memory.

        If static shared memory suffices, each place is an array of its own, otherwise a part of the
        launch's dynamic shared memory.
        """
        if self.asks_for_bytes:
            pool, offset = self.scene.w.fresh("shared_memory"), 0
            yield c.Declare("char", pool, extent=0, is_shared=True)
            for place in self.in_shared:
                for b in place:
                    yield _part(b, c.add(c.Id(pool), c.number(offset)))
                offset += _bytes_of(place)
        else:
            for place in self.in_shared:
                if len(place) == 1:
                    (b,) = place
                    kind = type_name(b.dtype, 0)
                    yield c.Declare(kind, b.name, extent=b.n_elements, is_shared=True)
                    continue
                memory = self.scene.w.fresh("place")
                yield c.Declare("char", memory, extent=_bytes_of(place), is_shared=True)
                yield from (_part(b, c.Id(memory)) for b in place)
        if self.meets_warps:
            yield c.Declare("double", "meeting", extent=self.n_threads, is_shared=True)

    @property
    def asks_for_bytes(self) -> int:
        """Bytes of dynamic shared memory that the launch needs; 0 if static shared memory suffices."""
        n_bytes = sum(map(_bytes_of, self.in_shared))
        met = 8 * self.n_threads if self.meets_warps else 0
        return n_bytes if n_bytes + met > self.scene.target.shared_bytes_per_block else 0

    def open_counters(self) -> Buffer:
        """Makes the counters of blocks accessible to this kernel, and returns them."""
        if self.opened_counters is None:
            buffer = self.counters.buffer
            assert buffer is not None
            name = self.scene.w.fresh(buffer.name)
            self.opened_counters = replace(buffer, name=name)
            self.scene.opened.append(self.opened_counters)
        return self.opened_counters

    def open_buffer(self, b: Buffer) -> c.CStmt:
        kind = type_name(b.dtype, 0)
        place = c.Bin("+", c.Id("workspace"), c.number(b.offset_bytes))
        return c.Declare(f"{kind} *", b.name, c.CastTo(f"{kind} *", place))


def _bytes_of(place: Sequence[Buffer]) -> int:
    return max(b.stride_bytes for b in place)


def _part(b: Buffer, place: c.CExpr) -> c.Declare:
    kind = type_name(b.dtype, 0)
    return c.Declare(f"{kind} *const ", b.name, c.CastTo(f"{kind} *", place))
