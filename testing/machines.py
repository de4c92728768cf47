"""A target with round numbers, spaces of library sequences on it, and a machine that is simulated."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product, zip_longest
from math import prod
from operator import mul
from typing import Any

import numpy as np

from ..kernels.analysis.effects import task_reads
from ..kernels.frontend.recorder import record_sequence
from ..kernels.ir.access import Access
from ..kernels.library import load
from ..kernels.tasks.pipeline import normalise
from ..space import choices as ch
from ..space.backbone import INNER, MID, OUTER, Dim, Flow, Operand
from ..space.build import build_space
from ..space.candidate import Candidate, Space
from ..space.engine.order import MERGED, OrderNode, forest
from ..space.targets.target import CacheLevel, Target
from .meaning import runs

MEBI = 1 << 20
_APART = 1 << 40  # bytes between the buffers that threads have of their own


def round_target(**changes: Any) -> Target:
    """Two cores; reads 50, writes 40, both together 64 bytes a ns; 1 + 1 + 6 MiB of cache; vectors as fast as single elements."""
    lane = 1 / changes.get("vector_bytes", 64)
    facts: dict[str, Any] = {
        "backend": "cpu",
        "name": "round numbers",
        "cores": 2,
        "vector_bytes": 64,
        "vector_registers": 32,
        "levels": (
            CacheLevel(name="L1", capacity_bytes=1 * MEBI, read_bytes_per_ns=1000.0),
            CacheLevel(name="L2", capacity_bytes=1 * MEBI, read_bytes_per_ns=400.0),
            CacheLevel(name="L3", capacity_bytes=6 * MEBI, read_bytes_per_ns=200.0),
        ),
        "memory_read_bytes_per_ns": 50.0,
        "memory_write_bytes_per_ns": 40.0,
        "memory_mixed_bytes_per_ns": 64.0,
        "f32_flops_per_ns": 500.0,
        "f64_flops_per_ns": 250.0,
        "launch_ns": 400.0,
        "barrier_ns": 200.0,
        "call_ns": 100.0,
    }
    scalar = {
        f"scalar_{name}_flops_per_ns": size * lane * {**facts, **changes}[f"{name}_flops_per_ns"]
        for name, size in (("f32", 4), ("f64", 8))
    }
    mixed = {
        f"{name}_mixed_flops_per_ns": 0.75 * {**facts, **changes}[f"{name}_flops_per_ns"]
        for name in ("f32", "f64")
    }
    return Target(**{**facts, **scalar, **mixed, **changes})


class Unfilled:
    """Stands in for a random generator where only shapes matter."""

    def uniform(self, low: float, high: float, shape: Any = None) -> Any:
        return np.zeros(shape, np.float32)


def library_space(
    name: str, target: Target | None = None, dtype: Any = np.float32, **sizes: int
) -> Space:
    """The space of a library sequence."""
    entry = load(name)
    args = entry.make_arguments(entry.complete(sizes), dtype, Unfilled())  # type: ignore[arg-type]
    problem = normalise(record_sequence(entry.sequence, args))
    return build_space(problem, target or round_target())


def root_of(space: Space) -> Candidate:
    root = space.root()
    assert isinstance(root, Candidate)
    return root


def _of_objects(node: OrderNode, objects: Sequence[int]) -> OrderNode:
    """The same tree of the objects that its numbers stand for."""
    children = tuple(_of_objects(child, objects) for child in node.children)
    return OrderNode(tuple(objects[x] for x in node.objects), children)


@dataclass
class _Blocks:
    """Packed blocks of an operand, one in each iteration of an outer dim; `bases`: where their buffers are, used in turn."""

    operand: Operand
    holder: Dim
    widths: tuple[int, ...]  # of a block, by loop of the operand
    bases: tuple[int, ...]
    at: int = 0  # the present buffer
    thread: int = 0  # that packed it
    starts: tuple[int, ...] = field(default=())  # first indices of the block in it


@dataclass(frozen=True)
class _Access:
    """An access of each point of a task, or (`at_end`) of those that end a reduction.

    `start`, `strides`: its address at index 0, and the bytes between neighbours along each loop. `block`: the packed block that it
    is in, which has moving addresses.
    """

    start: int
    strides: tuple[int, ...]
    is_write: bool
    at_end: bool
    block: _Blocks | None


class IdealMachine:
    """Runs a complete candidate element by element through one least-recently-used cache of lines.

    The cache has `n_sets` sets of equal size.
    A line is written back when it is evicted dirty, and a write never fetches a line.
    The outermost shared loop is divided into equal parts for `n_threads` threads, which access the cache in turn. Blocks that a
    thread packs are its own, and so are its sums in memory.
    Registers hold REGISTER flows, and the accumulators of one register tile. Where a loop of the results of a reduction runs
    inside a reduced one, all accumulators are in memory, and those of a tile go there when the next tile begins.
    What a thread keeps of an array for another task (SHARED) is free where both share a loop, since it may then be as small as a
    tile. Else it is a copy of the whole array, which takes its lines.
    A block of a packed operand is read where it lies and stored at the head of the loop that selects it, and read there.
    """

    def __init__(
        self, candidate: Candidate, n_lines: int, n_sets: int = 1, n_threads: int = 1
    ) -> None:
        self.c, self.space = candidate, candidate.space
        self.b, self.v = self.space.backbone, self.space.variables
        self.n_ways = n_lines // n_sets
        self.n_threads = n_threads
        self.thread: int | None = None  # whose part of a shared loop runs
        self.accesses: list[tuple[int, bool]] = []  # of that thread
        self.base: dict[str, int] = {}
        at = 0
        for array in self.space.problem.arrays:
            self.base[array.name] = at
            at += -(-array.size_bytes // 64) * 64
        # By the task that writes the copy, and by the one that reads it.
        self.filled: dict[tuple[int, str], int] = {}
        self.taken: dict[tuple[int, str], int] = {}
        for f in self.whole_copies():
            key = (f.producer, f.array)
            if key not in self.filled:
                self.filled[key] = at
                at += -(-self.space.problem.array(f.array).size_bytes // 64) * 64
            self.taken[f.consumer, f.array] = self.filled[key]
        self.blocks: list[_Blocks] = []
        for o, var in self.v.staged.items():
            if self.c.value(var) != ch.DIRECT and not o.is_window:
                self.blocks.append(self.blocks_of(o, self.c.value(var), at))
                at += len(self.blocks[-1].bases) * self.block_bytes(o)
        self.sums: dict[int, int] = {}  # where those in memory are, by task
        self.tile: dict[int, tuple[range, ...]] = {}  # of results in registers
        for t in range(len(self.space.problem.tasks)):
            if self.has_sums_in_memory(t):
                self.sums[t] = at
                at += -(-self.result_bytes(t) // 64) * 64
        self.found: dict[int, list[_Access]] = {}  # by task
        self.known: set[int] = set()  # addresses of sums that were begun
        self.sets: list[OrderedDict[int, bool]] = [OrderedDict() for _ in range(n_sets)]
        self.read = self.written = 0

    def whole_copies(self) -> list[Flow]:
        """Flows through an array of a thread whose two tasks share no loop."""
        values = self.c.assignment()
        model = self.space.model

        def share_a_loop(f: Flow) -> bool:
            return any(
                model.relation(values, d.order_id, e.order_id) == MERGED
                for d, partners in self.b.partners.items()
                for e in partners
                if (d.task, e.task) == (f.producer, f.consumer)
            )

        shared = [f for f, var in self.v.mem_space.items() if self.c.value(var) == ch.SHARED]
        return [f for f in shared if not share_a_loop(f)]

    def blocks_of(self, o: Operand, n_buffers: int, first: int) -> _Blocks:
        """The buffers of an operand, from address `first` on."""
        values, model = self.c.assignment(), self.space.model
        dims = [self.b.dim(o.task, name, OUTER) for name in o.loops]
        holder = next(
            d
            for d in dims
            if all(
                e == d or model.relation(values, d.order_id, e.order_id) == ch.INSIDE for e in dims
            )
        )
        bases = tuple(first + k * self.block_bytes(o) for k in range(n_buffers))
        return _Blocks(o, holder, self.widths(o), bases)

    def widths(self, o: Operand) -> tuple[int, ...]:
        dims = (self.b.dim(o.task, name, OUTER) for name in o.loops)
        return tuple(min(d.loop.extent, self.size(d, MID) * self.size(d, INNER)) for d in dims)

    def block_bytes(self, o: Operand) -> int:
        """Bytes of the lines of a block."""
        size = self.space.problem.array(o.access.array).dtype.size_bytes
        return -(-prod(self.widths(o)) * size // 64) * 64

    def pack(self, x: _Blocks, at: dict[tuple[int, str, int], int]) -> None:
        """Reads a block where it lies, and stores it."""
        o = x.operand
        tiles = [at[o.task, name, OUTER] for name in o.loops]
        x.starts = tuple(k * n for k, n in zip(tiles, x.widths, strict=True))
        x.at, x.thread = (x.at + 1) % len(x.bases), self.thread or 0
        extents = (self.b.dim(o.task, name, OUTER).loop.extent for name in o.loops)
        ends = (min(s + n, e) for s, n, e in zip(x.starts, x.widths, extents, strict=True))
        for point in product(*map(range, x.starts, ends)):
            index = dict(zip(o.loops, point, strict=True))
            self.touch(self.base[o.access.array] + self.offset(o.access, index), False)
            self.touch(self.packed_at(x, index), True)

    def packed_at(self, x: _Blocks, index: dict[str, int]) -> int:
        """The address of an element in the present block."""
        flat = 0
        for name, start, n in zip(x.operand.loops, x.starts, x.widths, strict=True):
            flat = flat * n + index[name] - start
        size = self.space.problem.array(x.operand.access.array).dtype.size_bytes
        return x.bases[x.at] + x.thread * _APART + flat * size

    def result_bytes(self, t: int) -> int:
        task = self.space.problem.tasks[t]
        return self.space.problem.array(task.target.array).size_bytes

    def has_sums_in_memory(self, t: int) -> bool:
        """True if a loop of the results of a reduction runs inside a reduced loop."""
        values, model = self.c.assignment(), self.space.model
        dims = [d for d in self.b.dims_of(t) if d.level != INNER and self.trips(d) > 1]
        reduced = [d for d in dims if d.loop.is_reduction]
        return any(
            model.relation(values, d.order_id, r.order_id) == ch.INSIDE
            for d in dims
            if not d.loop.is_reduction
            for r in reduced
        )

    def traffic(self, calls: int = 3) -> tuple[float, float]:
        """Bytes read and written by a call, on average, once a first call has warmed the cache."""
        self.run()
        self.read = self.written = 0
        for _ in range(calls):
            self.run()
        return self.read / calls, self.written / calls

    def run(self) -> None:
        values = self.c.assignment()
        self.known.clear()
        self.tile.clear()
        for tasks, _ in runs(self.space.problem):
            chosen = [x for x, t in enumerate(self.b.order_tasks) if t in tasks]
            for tree in forest(self.space.model.relation_matrix(values, chosen)):
                self.walk(_of_objects(tree, chosen), {})

    def walk(self, node: OrderNode, at: dict[tuple[int, str, int], int]) -> None:
        bodies = [self.b.body_ids.index(k) for k in node.objects if k in self.b.body_ids]
        if bodies:
            self.body(bodies[0], at)
            return
        dims = [d for d in self.b.dims if d.order_id in node.objects]
        iterations = range(self.trips(dims[0]))
        is_shared = any(
            d.level == OUTER and self.c.value(self.v.kind[d]) == ch.PARALLEL for d in dims
        )
        if self.n_threads == 1 or self.thread is not None or not is_shared or len(iterations) < 2:
            self.iterate(node, dims, iterations, at)
            return
        each, sums, found = -(-len(iterations) // self.n_threads), self.sums, []
        for thread in range(self.n_threads):
            self.thread, self.accesses = thread, []
            self.tile.clear()
            self.sums = {t: first + thread * _APART for t, first in sums.items()}
            self.iterate(node, dims, iterations[thread * each : (thread + 1) * each], at)
            found.append(self.accesses)
        self.thread, self.sums = None, sums
        self.tile.clear()
        for step in zip_longest(*found):
            for access in step:
                if access is not None:
                    self.touch(*access)

    def iterate(
        self,
        node: OrderNode,
        dims: list[Dim],
        iterations: range,
        at: dict[tuple[int, str, int], int],
    ) -> None:
        for k in iterations:
            for d in dims:
                at[d.task, d.loop.name, d.level] = k
            for x in (x for x in self.blocks if x.holder in dims):
                self.pack(x, at)
            for child in node.children:
                self.walk(child, at)

    def size(self, d: Dim, level: int) -> int:
        part = self.b.dim(d.task, d.loop.name, level)
        return int(self.v.universe[part][self.c.value(self.v.size[part])])

    def trips(self, d: Dim) -> int:
        tile = self.size(d, MID) * self.size(d, INNER)
        return self.size(d, MID) if d.level == MID else -(-d.loop.extent // tile)

    def body(self, t: int, at: dict[tuple[int, str, int], int]) -> None:
        task = self.space.problem.tasks[t]
        ranges = []
        for loop in task.loops:
            d = self.b.dim(t, loop.name, OUTER)
            inner = self.size(d, INNER)
            tile = at[t, loop.name, OUTER] * self.size(d, MID) + at[t, loop.name, MID]
            ranges.append(range(tile * inner, min((tile + 1) * inner, loop.extent)))
        # The last step of a reduction that starts at index 0 everywhere ends at the last index.
        ends = [(k, x.extent - 1) for k, x in enumerate(task.loops) if x.is_reduction]
        zero = dict.fromkeys((x.name for x in task.loops), 0)
        accesses = [
            (x.start if x.block is None else self.packed_at(x.block, zero), x)
            for x in self.accesses_of(t)
        ]
        for point in product(*ranges):
            is_last = all(point[k] == end for k, end in ends)
            for start, x in accesses:
                if is_last or not x.at_end:
                    self.touch(start + sum(map(mul, x.strides, point)), x.is_write)
        if t in self.sums:
            self.add_up(t, ranges)

    def add_up(self, t: int, ranges: Sequence[range]) -> None:
        """Adds the results of a register tile to sums in memory, unless the tile before was of the same results."""
        task = self.space.problem.tasks[t]
        loops = zip(task.loops, ranges, strict=True)
        free = {x.name: r for x, r in loops if not x.is_reduction}
        tile = tuple(free.values())
        if self.tile.get(t) == tile:
            return
        self.tile[t] = tile
        for point in product(*tile):
            index = dict.fromkeys((x.name for x in task.loops), 0)
            index |= dict(zip(free, point, strict=True))
            address = self.sums[t] + self.offset(task.target, index)
            if address in self.known:
                self.touch(address, False)
            self.known.add(address)
            self.touch(address, True)

    def accesses_of(self, t: int) -> list[_Access]:
        """The accesses of one point of a task, in order."""
        if t in self.found:
            return self.found[t]
        task, found = self.space.problem.tasks[t], list[_Access]()
        names = [x.name for x in task.loops]

        def add(
            access: Access, base: int, *, is_write: bool, at_end: bool, block: _Blocks | None = None
        ) -> None:
            def place(index: dict[str, int]) -> int:
                return self.packed_at(block, index) if block else self.offset(access, index)

            zero = dict.fromkeys(names, 0)
            strides = tuple(place({**zero, name: 1}) - place(zero) for name in names)
            start = 0 if block else base + place(zero)
            found.append(_Access(start, strides, is_write, at_end, block))

        for access, in_finish in task_reads(task):
            kept = t, access.array
            block = next(
                (x for x in self.blocks if x.operand.task == t and x.operand.holds(access)), None
            )
            if block is not None:
                add(access, 0, is_write=False, at_end=in_finish, block=block)
            elif kept in self.taken:
                add(access, self.taken[kept], is_write=False, at_end=in_finish)
            elif self.is_in_memory(*kept):
                add(access, self.base[access.array], is_write=False, at_end=in_finish)
            if kept in self.filled:  # an input, kept for a task that reads it again
                add(access, self.filled[kept], is_write=True, at_end=in_finish)
        target = task.target
        if self.is_stored(t):
            add(target, self.base[target.array], is_write=True, at_end=True)
        if (t, target.array) in self.filled:
            add(target, self.filled[t, target.array], is_write=True, at_end=True)
        return self.found.setdefault(t, found)

    def is_in_memory(self, t: int, array: str) -> bool:
        flows = [f for f in self.v.mem_space if (f.consumer, f.array) == (t, array)]
        spaces = [self.c.value(self.v.mem_space[f]) for f in flows]
        is_from_far = any((f.consumer, f.array) == (t, array) for f in self.b.far_flows)
        return not spaces or is_from_far or ch.GLOBAL in spaces

    def is_stored(self, t: int) -> bool:
        return t not in self.v.store or self.c.value(self.v.store[t]) == ch.KEEP

    def offset(self, access: Access, index: dict[str, int]) -> int:
        """Returns the offset of an element in its array, in bytes."""
        array = self.space.problem.array(access.array)
        flat: int = 0
        for axis, extent in zip(access.axes, array.shape, strict=True):
            assert axis is not None
            flat = flat * extent + axis.const + sum(c * index[name] for name, c in axis.terms)
        return int(flat * array.dtype.size_bytes)

    def touch(self, address: int, is_write: bool) -> None:
        if self.thread is not None:
            self.accesses.append((address, is_write))
            return
        line = address // 64
        lines = self.sets[line % len(self.sets)]
        if line in lines:
            lines.move_to_end(line)
        elif not is_write:
            self.read += 64
        lines[line] = lines.get(line, False) or is_write
        if len(lines) > self.n_ways:
            _, is_dirty = lines.popitem(last=False)
            self.written += 64 * is_dirty
