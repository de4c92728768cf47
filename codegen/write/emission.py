"""Emission context of one launch: its plan, the buffers and tiles of its values, and iteration over register tiles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

from ...kernels.ir.kernel import DType
from ...kernels.ir.walk import loads
from ...space.backbone import INNER, MID, OUTER, Flow, Operand
from ...space.families.tiling import vector_width
from ..bodies.emitter import Builder
from ..bodies.iteration_point import LoopIndexAt, Point
from ..bodies.memory import Value
from ..loops.ir import Launch, Runs, loops_in
from ..passes import storage
from ..plan.plan import LoopPlan, Plan, PlannedLoop, PlannedNode, TaskPlan
from ..text import csyntax as c
from ..text.types import type_name
from .context import Carried, Context, PartialLoop
from .tile_loops import EmittedTile


class Emission:
    """Emission context: all state that the writers of one launch share."""

    def __init__(
        self,
        plan: Plan,
        launch: Launch,
        workspace: storage.Workspace,
        w: Builder,
    ) -> None:
        self.plan, self.launch, self.target = plan, launch, plan.target
        self.workspace, self.w, self.prelude = workspace, w, w.prelude
        self.tiles: dict[
            tuple[int, str], EmittedTile
        ] = {}  # (task, "acc" or "value"), see also rescaled_sums.py
        self.shared: dict[int, tuple[storage.Buffer, storage.SharedLayout]] = {}
        self.kept: dict[tuple[int, str], tuple[storage.Buffer, storage.SharedLayout]] = {}
        # Blocks of operands, by task and site.
        self.copies: dict[tuple[int, str], tuple[storage.Buffer, storage.CopyLayout]] = {}
        self.windows: dict[tuple[int, str], tuple[storage.Buffer, storage.WindowLayout]] = {}
        # Begins of the present blocks of double-buffered operands, in their buffers.
        self.halves: dict[tuple[int, str], c.CExpr] = {}
        self.accumulators: dict[int, tuple[storage.Buffer, storage.AccumulatorLayout]] = {}
        self.scatters: dict[int, storage.ScatterMemory] = {}
        self.colourings: dict[int, storage.ColourMemory] = {}
        self.length_orders: dict[int, storage.OrderMemory] = {}
        self.opened: list[storage.Buffer] = []
        self.counters: list[
            storage.Buffer
        ] = []  # of parts of loops that threads take one after the other
        self.hoisted: list[c.CStmt] | None = None
        self.carried: Carried | None = None  # of the loop that is written
        # Units of the thread ranges of loops partitioned in blocks, by extent and step.
        self.units = {(n.extent, n.step): n.unit for n in loops_in(launch.nodes) if n.unit}
        self.partitions: dict[tuple[int, int], tuple[c.CExpr, c.CExpr]] = {}
        self.merged: dict[tuple[Flow, str], int] = storage.merged_levels(plan, self.matches())
        self.flow_of = {
            (f.consumer, f.array): (f, kind)
            for t in plan.tasks
            for kind, flows in (("register", t.registers), ("shared", t.shared), ("kept", t.kept))
            for f in flows
        }

    def matches(self) -> dict[tuple[int, str, int], set[tuple[int, str, int]]]:
        """Returns, for each loop level (task, loop, level), the loop levels merged with it."""
        found: dict[tuple[int, str, int], set[tuple[int, str, int]]] = {}

        def visit(nodes: tuple[PlannedNode, ...]) -> None:
            for n in nodes:
                if isinstance(n, PlannedLoop):
                    keys = {(m.task, m.loop, m.level) for m in n.members}
                    for key in keys:
                        found[key] = keys - {key}
                    visit(n.children)

        for roots in self.plan.launches:
            visit(roots)
        return found

    def buffer(self, stem: str, dtype: DType, n_elements: int, is_private: bool) -> storage.Buffer:
        buffer = self.workspace.allocate(self.w.fresh(stem), dtype, n_elements, is_private)
        self.opened.append(buffer)
        return buffer

    def nest_order(self, task: TaskPlan, operand: Operand) -> tuple[str, ...]:
        """Returns an operand's loops: first those with intra-tile (mid) loops, in their nesting order, then the others."""
        order = [
            m.loop
            for n in loops_in(self.launch.nodes)
            for m in n.members
            if m.task == task.index and m.level == MID
        ]
        mids = [name for name in order if name in operand.loops]
        return (*mids, *(name for name in operand.loops if name not in mids))

    @staticmethod
    def end_of(start: c.CExpr, tile: int, extent: int) -> c.CExpr:
        """Returns the end of the tile of `tile` iterations that begins at `start`: at most `extent`."""
        if tile >= extent:
            return c.number(extent)
        end = c.linear(((start, 1),), tile)
        return end if extent % tile == 0 else c.minimum(end, c.number(extent))

    def tile_end(self, p: LoopPlan, start: c.CExpr) -> c.CExpr:
        """Returns the end of a loop's tile that begins at `start`: at most the end of the loop, or of this thread's range."""
        extent, unit = p.loop.extent, self.unit_of(p)
        if unit == p.tile:
            return self.end_of(start, p.tile, extent)
        return c.minimum(c.linear(((start, 1),), p.tile), self.partition(extent, p.tile)[1])

    def unit_of(self, p: LoopPlan) -> int:
        """Number of consecutive iterations that one thread runs: a tile, or fewer for a loop shared out in blocks."""
        if self.launch.runs is not Runs.TEAM or not p.is_parallel or not p.is_blocked:
            return p.tile
        return self.units[p.loop.extent, p.tile]

    def partition(self, extent: int, step: int) -> tuple[c.CExpr, c.CExpr]:
        """Returns begin and end of this thread's contiguous range of a parallel loop in tiles of `step`.

        See `Loop.unit`.
        """
        key = (extent, step)
        if key not in self.partitions:
            suffix = "" if not self.partitions else f"_{len(self.partitions)}"
            begin, end = self.w.fresh(f"begin{suffix}"), self.w.fresh(f"end{suffix}")
            self.partitions[key] = c.Id(begin), c.Id(end)
            self.w.multiples[begin] = self.units[extent, step]
        return self.partitions[key]

    @contextmanager
    def sharing(self, key: tuple[int, int], part: tuple[c.CExpr, c.CExpr]) -> Iterator[None]:
        """Context in which `part` is the thread's range of every parallel loop with this `key` (extent, step)."""
        before = self.partitions.pop(key, None)
        self.partitions[key] = part
        yield
        del self.partitions[key]
        if before is not None:
            self.partitions[key] = before

    def part_of(self, p: LoopPlan) -> tuple[c.CExpr, c.CExpr]:
        """Returns begin and end of a thread's contiguous range of a tile loop."""
        assert p.is_blocked
        if p.is_parallel:
            return self.partition(p.loop.extent, p.tile)
        return c.Num("0"), c.number(p.loop.extent)

    def partition_declarations(self) -> Iterator[c.CStmt]:
        for (extent, step), (begin, end) in self.partitions.items():
            unit = self.units[extent, step]
            n_units = -(-extent // unit)
            for name, who in ((begin, c.Id("tid")), (end, c.Bin("+", c.Id("tid"), c.Num("1")))):
                first = c.Bin("/", c.Bin("*", c.number(n_units), who), c.Id("n_threads"))
                place: c.CExpr = c.Bin("*", first, c.number(unit)) if unit > 1 else first
                if name is end and extent % unit:
                    place = c.minimum(place, c.number(extent))
                assert isinstance(name, c.Id)
                yield c.Declare("long", name.name, place, constant=True)

    def start(self, task: TaskPlan, p: LoopPlan, ctx: Context) -> c.CExpr:
        """Returns the index at which the current register tile of a loop starts."""
        level = MID if p.mid > 1 else OUTER
        return ctx.variables[task.index, p.loop.name, level]

    def is_full(self, task: TaskPlan, p: LoopPlan, ctx: Context) -> bool:
        """True if the register tile of a loop is full at this place of the loop tree, so that all copies are written."""
        is_undecided_full = not ctx.is_slow and (p.is_vector or not ctx.by_rows)
        return p.reach == 1 or ctx.status.get(
            (task.index, p.loop.name), is_undecided_full or p.divides
        )

    def is_named(self, task: TaskPlan, p: LoopPlan, ctx: Context) -> bool:
        """True if each copy of a register tile is a C variable of its own. Otherwise the tile is a C array."""
        return p.inner == 1 or self.is_full(task, p, ctx)

    def lanes(self, task: TaskPlan) -> int:
        """Number of lanes of a task's vectors."""
        lanes = self.target.lanes(task.task.lane_bytes)
        vector = task.vector
        return lanes if vector is None else vector_width(vector.inner, lanes)

    def points(self, task: TaskPlan, loops: list[LoopPlan], ctx: Context) -> Iterator[Point]:
        """Yields the points of the register tiles of `loops`.

        For partial tiles it opens `for` loops; see `slow_loops`.
        """
        base: dict[str, LoopIndexAt] = {}
        indices: dict[str, c.CExpr] = {}
        grids: list[list[tuple[str, LoopIndexAt, int]]] = []
        for p in sorted(loops, key=lambda p: p.is_vector):
            name, start = p.loop.name, self.start(task, p, ctx)
            if not self.is_full(task, p, ctx):
                variable = ctx.variables[task.index, name, INNER]
                base[name] = LoopIndexAt(variable)
                distance = c.Bin("-", variable, start)
                indices[name] = (
                    distance if p.spread == 1 else c.Bin("/", distance, c.number(p.spread))
                )
            elif p.is_vector:
                n = self.lanes(task)
                ats = [LoopIndexAt(start, k * n * p.spread, n) for k in range(p.inner // n)]
                grids.append([(name, at, k) for k, at in enumerate(ats)])
            else:
                ats = [LoopIndexAt(start, k * p.spread) for k in range(p.inner)]
                grids.append([(name, at, k) for k, at in enumerate(ats)])
        for cell in product(*grids):
            at = {name: index for name, index, _ in cell}
            yield Point({**base, **at}, {name: k for name, _, k in cell}, indices)

    def slow_loops(
        self, task: TaskPlan, loops: list[LoopPlan], ctx: Context
    ) -> tuple[list[PartialLoop], Context]:
        """Returns the `for` loops that run through partial register tiles, and the context inside them."""
        made = []
        variables = dict(ctx.variables)
        for p in loops:
            if self.is_full(task, p, ctx):
                continue
            start = self.start(task, p, ctx)
            if p.inner == 1:  # of the one element of a thread
                made.append(PartialLoop("", start, c.number(p.loop.extent)))
                variables[task.index, p.loop.name, INNER] = start
                continue
            name = self.w.fresh(p.loop.name)
            end = self.end_of_partial(start, p)
            if p.is_thread and not p.has_neighbours:
                outer = ctx.variables[task.index, p.loop.name, OUTER]
                end = self.end_of(outer, p.tile, p.loop.extent)
            made.append(PartialLoop(name, start, end, p.spread))
            variables[task.index, p.loop.name, INNER] = c.Id(name)
        return made, replace(ctx, variables=variables)

    @staticmethod
    def end_of_partial(start: c.CExpr, p: LoopPlan) -> c.CExpr:
        return c.minimum(c.linear(((start, 1),), p.inner), c.number(p.loop.extent))

    def declare(self, tile: EmittedTile, first: c.CExpr | None) -> None:
        """Declares a register tile; `first` is the initial value of each element."""
        kind = type_name(tile.dtype, tile.lanes)
        if tile.lanes:
            self.prelude.vector_type(tile.dtype, tile.lanes)
        for name in tile.members():
            self.w.used.add(name)
            extent = tile.array_extent
            if self.hoisted is not None:
                zero: c.CExpr = c.Num("0")
                if tile.lanes and not extent:
                    zero = self.w.memory.vector_of(self.w, tile.dtype, tile.lanes, (zero,))
                self.hoisted.append(c.Declare(kind, name, None if extent else zero, extent))
                if first is not None and extent is None:
                    self.w.write(c.Assign(c.Id(name), first))
            else:
                self.w.write(c.Declare(kind, name, first if extent is None else None, extent))
            if first is not None and extent is not None:
                k = self.w.fresh("k")
                self.w.used.discard(k)
                fill = c.Assign(c.Index(c.Id(name), c.Id(k)), first)
                self.w.write(c.For(k, c.Num("0"), c.number(extent), 1, (fill,)))

    def fold(self, op: str, value: Value) -> Value:
        """Returns the reduction of a vector's lanes by `op` to a scalar; a scalar is returned unchanged."""
        return Value(
            c.Call(self.prelude.use(f"fold_{op}", value.dtype, value.lanes), (value.x,)),
            value.dtype,
        )

    def read_behind(self, task: TaskPlan) -> bool:
        """True if a result in registers is read behind the task's loop, not only by rescaled sums inside it."""

        def is_only_inside(f: Flow) -> bool:
            reader = self.plan.tasks[f.consumer]
            finish = reader.task.finish
            reads = {x.array for x in loads(finish)} if finish is not None else set()
            return (
                reader.rescaled is not None and f in reader.rescaled.flows and f.array not in reads
            )

        return any(not is_only_inside(f) for f in task.registers)

    def free_loops(self, task: TaskPlan) -> list[LoopPlan]:
        return [p for p in task.loops if not p.loop.is_reduction]

    def tiled_loops(self, task: TaskPlan) -> set[str]:
        """Returns the loops of a reduction along which its finish, or its correction, reads register tiles.

        Along these loops each copy must be a C variable of its own.
        """
        reads = (
            {x.array for x in loads(task.task.finish)} if task.task.finish is not None else set()
        )
        if task.rescaled is not None:
            reads |= {f.array for f in task.rescaled.flows}
        held = [self.flow_of.get((task.index, array)) for array in reads]
        registers = [found[0] for found in held if found is not None and found[1] == "register"]
        return {q for f in registers for _, q in f.index_pairs}

    def global_array(self, name: str) -> c.CExpr:
        return c.Id(self.w.names[name])
