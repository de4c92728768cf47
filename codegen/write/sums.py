"""Writes reductions on a CPU: accumulators in registers and memory, and their combination over lanes and threads."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from math import prod

from ...kernels.ir.access import flat_strides
from ...space.targets.target import LINE_BYTES
from ..bodies.iteration_point import Point
from ..bodies.memory import Value
from ..loops import ir as loop_ir
from ..passes.storage import Buffer
from ..plan.plan import TaskPlan
from ..text import csyntax as c
from ..text.constants import neutral
from ..text.types import type_name
from . import rescaled_sums
from .accumulators import Accumulators
from .context import Context
from .partial_tiles import Flat, Over
from .register_sums import add_to_memory, finish, reset
from .strips import strips
from .tile_loops import EmittedTile

UNROLLED_THREADS = 8  # up to so many partial results are added in one expression


class SumWriter:
    """Writer of the phases of reductions on a CPU."""

    def __init__(self, accumulators: Accumulators) -> None:
        self.sums = accumulators
        self.scene, self.values = accumulators.scene, accumulators.values

    def write(self, phase: loop_ir.SumPhase, task: TaskPlan, ctx: Context) -> None:
        match phase:
            case loop_ir.FillSums():
                self.fill(task, ctx)
            case loop_ir.PrefetchSums():
                self.ask(task, ctx)
            case loop_ir.ResetSums():
                reset(self.sums, task, ctx)
                rescaled_sums.begin(self.sums, task, ctx)
            case loop_ir.FlushSums():
                self.flush(task, ctx)
            case loop_ir.FinishSums():
                finish(self.sums, task, ctx)
            case loop_ir.CombineSums():
                self.combine(task, ctx)
            case loop_ir.AdvanceSums():
                rescaled_sums.advance(self.sums, task, ctx)
            case loop_ir.RescaleSums():
                rescaled_sums.rescale(self.sums, task, ctx)
            case loop_ir.ReduceThreads():
                raise AssertionError("threads of a team do not reduce together")

    def ask(self, task: TaskPlan, ctx: Context) -> None:
        """Prefetches the cache lines of the accumulators in memory to which a full register tile will be added."""
        buffer, layout = self.scene.accumulators[task.index]
        free = self.scene.free_loops(task)
        if not all(self.scene.is_full(task, p, ctx) for p in free):
            return
        target, strides = task.task.target, layout.strides
        if self.scene.launch.accumulators[task.index].in_result:
            strides = flat_strides(target, self.scene.plan.problem.array(target.array))
        along = next(p.loop.name for p in free if strides[p.loop.name] == 1)
        for point in self.scene.points(task, free, ctx):
            if point.index[along].offset * buffer.dtype.size_bytes % LINE_BYTES == 0:
                index = self.sums.index(task, point, ctx)
                self.scene.w.ask(c.Id(buffer.name), index, cache=1, is_stored=True)

    def flush(self, task: TaskPlan, ctx: Context) -> None:
        """Adds register accumulators to those in memory.

        Elements of a tile beyond the end of a loop are left out.
        """
        plan = self.scene.launch.accumulators[task.index]
        cut = [p for p in self.scene.free_loops(task) if p.loop.name in plan.overhangs]
        if not cut:
            self.flush_tile(task, ctx)
            return
        with self.scene.w.scope() as whole:
            self.flush_tile(task, ctx)
        with self.scene.w.scope() as part:
            tile = self.scene.tiles[task.index, "acc"]
            self.scene.tiles[task.index, "acc"] = self.laid_out(task, ctx)
            free = {(task.index, p.loop.name): False for p in self.scene.free_loops(task)}
            self.flush_tile(task, replace(ctx, status={**ctx.status, **free}, is_slow=True))
            self.scene.tiles[task.index, "acc"] = tile
        ends = (c.linear(((self.scene.start(task, p, ctx), 1),), p.inner) for p in cut)
        tests = [
            c.Bin("<=", end, c.number(p.loop.extent)) for end, p in zip(ends, cut, strict=True)
        ]
        fits = reduce(lambda a, b: c.Bin("&&", a, b), tests)
        self.scene.w.write(c.If(fits, tuple(whole.statements), tuple(part.statements)))

    def laid_out(self, task: TaskPlan, ctx: Context) -> EmittedTile:
        """Copies the totals of a register tile to a C array, and returns it: registers have no index."""
        free = sorted(self.scene.free_loops(task), key=lambda p: p.is_vector)
        extents = tuple((p.loop.name, p.inner) for p in free if p.inner > 1)
        name = self.scene.w.fresh_family(f"{task.task.target.array}_part")
        tile = EmittedTile(name, task.task.dtype, 0, (), extents)
        self.scene.declare(tile, None)
        steps = {p: prod(n for _, n in extents[k + 1 :]) for k, (p, _) in enumerate(extents)}
        lanes = {p.loop.name: self.scene.lanes(task) if p.is_vector else 1 for p in free}
        with Over(self.scene, task, free, ctx) as inner:
            for point in self.scene.points(task, free, inner):
                copies = ((p, k) for p, k in point.copies.items() if p in steps)
                first = sum(k * lanes[p] * steps[p] for p, k in copies)
                slow = tuple((index, steps[p]) for p, index in point.indices.items())
                place = c.Index(c.Id(name), c.linear(slow, first))
                total = self.sums.total(task, point)
                if total.lanes:
                    store = self.scene.prelude.use("store", total.dtype, total.lanes)
                    self.scene.w.write(c.Evaluate(c.Call(store, (c.Un("&", place), total.x))))
                else:
                    self.scene.w.write(c.Assign(place, total.x))
        return tile

    def flush_tile(self, task: TaskPlan, ctx: Context) -> None:
        plan = self.scene.launch.accumulators[task.index]
        free = self.scene.free_loops(task)
        with Over(self.scene, task, free, ctx) as inner:
            for point in self.scene.points(task, free, inner):
                total = self.scene.w.name(
                    self.sums.total(task, point), f"{task.task.target.array}_total"
                )
                if plan.in_memory:
                    add_to_memory(self.sums, task, point, total, inner)
                else:
                    buffer, _ = self.scene.accumulators[task.index]
                    index = self.sums.index(task, point, inner)
                    self.scene.w.store(
                        buffer.name, c.Id(buffer.name), index, total, buffer.dtype, stream=False
                    )
        if not plan.in_memory and task.partials:
            self.fill_missing(task)

    def fill(self, task: TaskPlan, ctx: Context) -> None:
        """Sets the live accumulators in memory to the neutral element."""
        assert task.task.op is not None
        buffer, _ = self.scene.accumulators[task.index]
        nothing = Value(neutral(task.task.op, buffer.dtype), buffer.dtype)
        if task.partials:
            k = self.scene.w.fresh("k")

            def element(lanes: int) -> tuple[c.CStmt, ...]:
                with self.scene.w.scope() as made:
                    self.put_into(buffer, c.Id(k), self.scene.w.splat(nothing, lanes))
                return tuple(made.statements)

            lanes = self.scene.target.lanes(buffer.dtype.size_bytes)
            for loop in strips(k, c.Num("0"), c.number(buffer.n_elements), lanes, element):
                self.scene.w.write(loop)
            self.scene.w.used.discard(k)
            self.fill_missing(task)
            return

        def cell(point: Point) -> None:
            index = self.sums.index(task, point, ctx)
            self.put_into(buffer, index, self.scene.w.splat(nothing, point.lanes()))

        Flat(self.scene, task, ctx).write(cell, self.scene.target.lanes(buffer.dtype.size_bytes))

    def put_into(self, buffer: Buffer, index: c.CExpr, value: Value) -> None:
        w, place = self.scene.w, c.Id(buffer.name)
        if value.lanes:
            w.store(buffer.name, place, index, value, buffer.dtype, stream=False)
        else:
            w.write(c.Assign(c.Index(place, index), value.x))

    def fill_missing(self, task: TaskPlan) -> None:
        """Sets the partial results of planned threads that the system did not start to the neutral element.

        The combination reads the partial results of the whole planned team.
        """
        assert task.task.op is not None
        buffer, _ = self.scene.accumulators[task.index]
        slot, k = self.scene.w.fresh("slot"), self.scene.w.fresh("k")
        self.scene.w.used -= {slot, k}
        kind = type_name(buffer.dtype, 0)
        place = c.linear(((c.Id(slot), buffer.stride_bytes),), buffer.offset_bytes)
        part = c.CastTo(f"{kind} *", c.Bin("+", c.Id("workspace"), place))
        zero = c.Assign(c.Index(part, c.Id(k)), neutral(task.task.op, buffer.dtype))
        each = c.For(k, c.Num("0"), c.number(buffer.n_elements), 1, (zero,))
        first = c.Bin("+", c.Id("tid"), c.Id("n_threads"))
        loop = c.For(slot, first, c.number(self.scene.target.cores), 1, (each,))
        self.scene.w.write(loop)

    def combine(self, task: TaskPlan, ctx: Context) -> None:
        """Combines the partial results of all threads, element by element, and applies the reduction's finish."""
        op = task.task.op
        assert op is not None
        buffer, _ = self.scene.accumulators[task.index]
        flat = Flat(self.scene, task, ctx, share=ctx.is_team)

        def cell(point: Point) -> None:
            index = self.sums.index(task, point, ctx)
            n = self.scene.target.cores
            if n <= UNROLLED_THREADS:
                parts = [self.sums.slot(buffer, c.number(s), index, point) for s in range(n)]
                total = parts[0]
                for part in parts[1:]:
                    total = self.scene.w.combine(op, total, part)
            else:
                total = self.sum_of_slots(task, buffer, index, point)
            self.values.put(task, point, self.sums.finished(task, point, total, ctx), ctx)

        flat.write(cell, self.sums.result_lanes(task, flat))
        self.scene.w.forget(task.task.target.array)

    def sum_of_slots(self, task: TaskPlan, buffer: Buffer, index: c.CExpr, point: Point) -> Value:
        assert task.task.op is not None
        total, slot = self.scene.w.fresh("total"), self.scene.w.fresh("slot")
        self.scene.w.used -= {total, slot}
        lanes = point.lanes()
        nothing = self.scene.w.splat(
            Value(neutral(task.task.op, buffer.dtype), buffer.dtype), lanes
        )
        self.scene.w.write(c.Declare(type_name(buffer.dtype, lanes), total, nothing.x))
        so_far = Value(c.Id(total), buffer.dtype, lanes)
        part = self.sums.slot(buffer, c.Id(slot), index, point)
        added = self.scene.w.combine(task.task.op, so_far, part)
        cores = c.number(self.scene.target.cores)
        self.scene.w.write(c.For(slot, c.Num("0"), cores, 1, (c.Assign(so_far.x, added.x),)))
        return so_far
