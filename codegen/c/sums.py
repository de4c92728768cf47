"""Writes reductions: accumulators in registers and in memory, their combination over lanes and threads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import reduce
from itertools import product
from math import prod

from ...kernels.ir import kernel as ir
from ...kernels.ir.access import flat_strides
from ...kernels.ir.walk import walk
from ...space.backbone import MID, OUTER
from ...space.targets.target import LINE_BYTES
from ..loops.ir import (
    CombineSums,
    FillSums,
    FinishSums,
    FlushSums,
    PrefetchSums,
    ReduceThreads,
    ResetSums,
    SumPhase,
)
from ..passes.storage import Buffer
from ..plan import TaskPlan
from . import csyntax as c
from .constants import neutral
from .memory import Value
from .point import Point, affine_at, row_strides
from .scene import Scene
from .scopes import Context, Flat
from .strips import strips
from .tiles import Tile
from .values import Values
from .vectors import operator, type_name

UNROLLED_THREADS = 8  # up to so many partial results are added in one expression


class SumWriter(ABC):
    """Writes the phases of a launch's reductions (codegen/passes/reductions.py)."""

    @abstractmethod
    def update(self, task: TaskPlan, ctx: Context) -> None:
        """Adds one register tile to its accumulators."""

    @abstractmethod
    def write(self, phase: SumPhase, task: TaskPlan, ctx: Context) -> None:
        """A phase before or after that."""


class Reductions(SumWriter):
    """Of a CPU: accumulators in registers and in memory."""

    def __init__(self, scene: Scene, values: Values) -> None:
        self.scene, self.values = scene, values

    def write(self, phase: SumPhase, task: TaskPlan, ctx: Context) -> None:
        match phase:
            case FillSums():
                self.fill(task, ctx)
            case PrefetchSums():
                self.ask(task, ctx)
            case ResetSums():
                self.reset(task, ctx)
            case FlushSums():
                self.flush(task, ctx)
            case FinishSums():
                self.finish(task, ctx)
            case CombineSums():
                self.combine(task, ctx)
            case ReduceThreads():
                raise AssertionError("threads of a team do not reduce together")

    def update(self, task: TaskPlan, ctx: Context) -> None:
        """Adds one register tile of a reduction to its accumulators."""
        plan = self.scene.launch.accumulators[task.index]
        if plan.flushes_at_body:
            self.update_memory(task, ctx)
            return
        tile = self.scene.tiles[task.index, "acc"]
        assert task.task.op is not None and task.task.value is not None
        with self.scene.over(task, list(task.loops), ctx) as inner:
            for point in self.scene.points(task, list(task.loops), inner):
                value = self.values.value(task, task.task.value, point, inner)
                accumulator = Value(tile.ref(point.copies, point.indices), tile.dtype, tile.lanes)
                if tile.lanes and not point.lanes():
                    # A partial tile of the reduction goes to the first lane: the lanes are added up at the end.
                    accumulator = Value(c.Index(accumulator.x, c.Num("0")), tile.dtype)
                self.accumulate(accumulator, task.task.op, value)

    def accumulate(self, accumulator: Value, op: str, value: Value) -> None:
        if op in ("add", "mul") and (sign := operator(op, accumulator.dtype)) is not None:
            self.scene.w.write(c.Assign(accumulator.x, value.x, sign))
        else:
            self.scene.w.write(
                c.Assign(accumulator.x, self.scene.w.combine(op, accumulator, value).x)
            )

    def update_memory(self, task: TaskPlan, ctx: Context) -> None:
        """No reduction loop is inside the loops of the result: each register tile goes to memory at once."""
        assert task.task.op is not None and task.task.value is not None
        with self.scene.over(task, list(task.loops), ctx) as inner:
            sums: dict[str, tuple[Point, Value]] = {}
            free = {p.loop.name for p in self.scene.free_loops(task)}
            folds = task.vector is not None and task.vector.loop.name not in free
            for point in self.scene.points(task, list(task.loops), inner):
                value = self.values.value(task, task.task.value, point, inner)
                value = self.scene.w.splat(value, point.lanes())
                key = str(sorted((k, v) for k, v in point.copies.items() if k in free))
                if key in sums:
                    value = self.scene.w.combine(task.task.op, sums[key][1], value)
                sums[key] = (
                    point.first_lane() if folds else point,
                    self.scene.w.name(value, "sum"),
                )
            for point, total in sums.values():
                # Lanes last, and once: what the copies of a reduction have in common are its lanes.
                if folds and total.lanes:
                    total = self.scene.fold(task.task.op, total)
                self.add_to_memory(task, point, total, inner)

    def reset(self, task: TaskPlan, ctx: Context) -> None:
        """Register accumulators, one per copy of the result, and one per copy of reduction dims that keep theirs apart."""
        assert task.task.op is not None
        vector = task.vector
        lanes = (
            self.scene.lanes(task)
            if vector is not None and self.scene.is_full(task, vector, ctx)
            else 0
        )
        full, slow = [], []
        for p in task.loops:
            name = p.loop.name
            copies = p.inner // self.scene.lanes(task) if p.is_vector else p.inner
            if p.loop.is_reduction:
                if p.has_lanes and self.scene.is_full(task, p, ctx):
                    full.append((name, copies))
            elif self.scene.is_named(task, p, ctx):
                full.append((name, copies))
            else:
                slow.append((name, p.inner))
        stem = f"{task.task.target.array}_acc"
        tile = Tile(
            self.scene.w.fresh_family(stem), task.task.dtype, lanes, tuple(full), tuple(slow)
        )
        self.scene.tiles[task.index, "acc"] = tile
        start = neutral(task.task.op, task.task.dtype)
        first = self.scene.w.splat(Value(start, task.task.dtype), lanes).x
        self.scene.declare(tile, first)

    def ask(self, task: TaskPlan, ctx: Context) -> None:
        """Asks memory for the lines of the sums that a whole register tile is going to be added to."""
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
                index = self.accumulator_index(task, point, ctx)
                self.scene.w.ask(c.Id(buffer.name), index, cache=1, is_stored=True)

    def total(self, task: TaskPlan, point: Point) -> Value:
        """The register accumulators at a point of the result, with the copies of reduction dims combined."""
        tile = self.scene.tiles[task.index, "acc"]
        assert task.task.op is not None
        reduced = [(p.loop.name) for p in task.loops if p.loop.is_reduction]
        apart = [[(name, k) for k in range(n)] for name, n in tile.full if name in reduced]
        total: Value | None = None
        for cell in product(*apart):
            x = Value(
                tile.ref({**point.copies, **dict(cell)}, point.indices), tile.dtype, tile.lanes
            )
            total = x if total is None else self.scene.w.combine(task.task.op, total, x)
        assert total is not None
        vector = task.vector
        if tile.lanes and vector is not None and vector.loop.is_reduction:
            total = self.scene.fold(task.task.op, total)
        return total

    def flush(self, task: TaskPlan, ctx: Context) -> None:
        """Sums go from registers to memory accumulators: of a tile that reaches beyond the end of a loop, those that lie before."""
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

    def laid_out(self, task: TaskPlan, ctx: Context) -> Tile:
        """The sums of a register tile as elements of an array: those in registers have no index."""
        free = sorted(self.scene.free_loops(task), key=lambda p: p.is_vector)
        extents = tuple((p.loop.name, p.inner) for p in free if p.inner > 1)
        name = self.scene.w.fresh_family(f"{task.task.target.array}_part")
        tile = Tile(name, task.task.dtype, 0, (), extents)
        self.scene.declare(tile, None)
        steps = {p: prod(n for _, n in extents[k + 1 :]) for k, (p, _) in enumerate(extents)}
        lanes = {p.loop.name: self.scene.lanes(task) if p.is_vector else 1 for p in free}
        with self.scene.over(task, free, ctx) as inner:
            for point in self.scene.points(task, free, inner):
                copies = ((p, k) for p, k in point.copies.items() if p in steps)
                first = sum(k * lanes[p] * steps[p] for p, k in copies)
                slow = tuple((index, steps[p]) for p, index in point.indices.items())
                place = c.Index(c.Id(name), c.linear(slow, first))
                total = self.total(task, point)
                if total.lanes:
                    store = self.scene.prelude.use("store", total.dtype, total.lanes)
                    self.scene.w.write(c.Evaluate(c.Call(store, (c.Un("&", place), total.x))))
                else:
                    self.scene.w.write(c.Assign(place, total.x))
        return tile

    def flush_tile(self, task: TaskPlan, ctx: Context) -> None:
        plan = self.scene.launch.accumulators[task.index]
        free = self.scene.free_loops(task)
        with self.scene.over(task, free, ctx) as inner:
            for point in self.scene.points(task, free, inner):
                total = self.scene.w.name(
                    self.total(task, point), f"{task.task.target.array}_total"
                )
                if plan.in_memory:
                    self.add_to_memory(task, point, total, inner)
                else:
                    buffer, _ = self.scene.accumulators[task.index]
                    index = self.accumulator_index(task, point, inner)
                    self.scene.w.store(
                        buffer.name, c.Id(buffer.name), index, total, buffer.dtype, stream=False
                    )
        if not plan.in_memory and task.partials:
            self.fill_missing(task)

    def add_to_memory(self, task: TaskPlan, point: Point, value: Value, ctx: Context) -> None:
        buffer, _ = self.scene.accumulators[task.index]
        index = self.accumulator_index(task, point, ctx)
        assert task.task.op is not None
        old = self.scene.w.load(buffer.name, c.Id(buffer.name), index, buffer.dtype, value.lanes, 1)
        new = self.scene.w.combine(task.task.op, old, value)
        self.scene.w.store(buffer.name, c.Id(buffer.name), index, new, buffer.dtype, stream=False)

    def accumulator_index(self, task: TaskPlan, point: Point, ctx: Context) -> c.CExpr:
        """Where the memory accumulator of a point lies.

        In an array of its own that is relative to the tile, for loops of which a tile is live at once.
        """
        _, layout = self.scene.accumulators[task.index]
        plan = self.scene.launch.accumulators[task.index]
        if plan.in_result:
            target = task.task.target
            shape = self.scene.plan.problem.array(target.array).shape
            return affine_at(target.axes, row_strides(shape), point)[0]
        terms: dict[c.CExpr, int] = {}
        const = 0
        for name, stride in layout.strides.items():
            at = point.index[name]
            const += stride * at.offset
            if at.variable is not None:
                terms[at.variable] = terms.get(at.variable, 0) + stride
            level = plan.levels[name]
            if level != OUTER:
                p = task.loop(name)
                start = (
                    ctx.variables[task.index, name, OUTER]
                    if level == MID
                    else self.scene.start(task, p, ctx)
                )
                terms[start] = terms.get(start, 0) - stride
        return c.linear(tuple(sorted(terms.items(), key=lambda i: -abs(i[1]))), const)

    def fill(self, task: TaskPlan, ctx: Context) -> None:
        """Memory accumulators take the neutral element, over what of them is live here."""
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
            index = self.accumulator_index(task, point, ctx)
            self.put_into(buffer, index, self.scene.w.splat(nothing, point.lanes()))

        self.scene.flat(task, ctx).write(cell, self.scene.target.lanes(buffer.dtype.size_bytes))

    def put_into(self, buffer: Buffer, index: c.CExpr, value: Value) -> None:
        w, place = self.scene.w, c.Id(buffer.name)
        if value.lanes:
            w.store(buffer.name, place, index, value, buffer.dtype, stream=False)
        else:
            w.write(c.Assign(c.Index(place, index), value.x))

    def fill_missing(self, task: TaskPlan) -> None:
        """Partial results of threads that the system did not give: the combination reads those of the whole planned team."""
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

    def finish(self, task: TaskPlan, ctx: Context) -> None:
        plan = self.scene.launch.accumulators[task.index]
        if plan.in_result:
            self.scene.w.forget(task.task.target.array)
            return
        if plan.in_memory:
            buffer, _ = self.scene.accumulators[task.index]
            flat = self.scene.flat(task, ctx)

            def cell(point: Point) -> None:
                index = self.accumulator_index(task, point, ctx)
                total = self.part(buffer, c.Id(buffer.name), index, point)
                self.values.put(task, point, self.finished(task, point, total, ctx), ctx)

            flat.write(cell, self.result_lanes(task, flat))
            self.scene.w.forget(task.task.target.array)
            return
        free = self.scene.free_loops(task)
        self.values.begin_value(task, free, ctx)
        with self.scene.over(task, free, ctx) as inner:
            for point in self.scene.points(task, free, inner):
                total = self.scene.w.name(
                    self.total(task, point), f"{task.task.target.array}_total"
                )
                self.values.put(task, point, self.finished(task, point, total, inner), inner)

    def finished(self, task: TaskPlan, point: Point, total: Value, ctx: Context) -> Value:
        finish = task.task.finish
        return total if finish is None else self.values.value(task, finish, point, ctx, total)

    def combine(self, task: TaskPlan, ctx: Context) -> None:
        """Partial results of all threads, added element by element and finished."""
        op = task.task.op
        assert op is not None
        buffer, _ = self.scene.accumulators[task.index]
        flat = self.scene.flat(task, ctx, share=ctx.is_team)

        def cell(point: Point) -> None:
            index = self.accumulator_index(task, point, ctx)
            n = self.scene.target.cores
            if n <= UNROLLED_THREADS:
                parts = [self.slot(buffer, c.number(s), index, point) for s in range(n)]
                total = parts[0]
                for part in parts[1:]:
                    total = self.scene.w.combine(op, total, part)
            else:
                total = self.sum_of_slots(task, buffer, index, point)
            self.values.put(task, point, self.finished(task, point, total, ctx), ctx)

        flat.write(cell, self.result_lanes(task, flat))
        self.scene.w.forget(task.task.target.array)

    def result_lanes(self, task: TaskPlan, flat: Flat) -> int:
        """Elements of the vectors in which sums in memory become results; 1 where results do not lie side by side or have to be
        put into registers too, or where numbers of several widths make them.
        """
        buffer, _ = self.scene.accumulators[task.index]
        array, size = self.scene.plan.problem.array(task.task.target.array), buffer.dtype.size_bytes
        if (
            task.registers
            or task.shared
            or flat_strides(task.task.target, array).get(flat.along) != 1
        ):
            return 1
        parts = [] if task.task.finish is None else list(walk(task.task.finish))
        widths = {x.dtype.size_bytes for x in parts if not isinstance(x, ir.Compare)}
        is_one_width = widths | {array.dtype.size_bytes} <= {size}
        return self.scene.target.lanes(size) if is_one_width else 1

    def part(self, buffer: Buffer, base: c.CExpr, index: c.CExpr, point: Point) -> Value:
        """Sums in memory: one of them, or a vector."""
        if not point.lanes():
            return Value(c.Index(base, index), buffer.dtype)
        load = self.scene.prelude.use("load", buffer.dtype, point.lanes())
        place = c.Un("&", c.Index(base, index))
        return Value(c.Call(load, (place,)), buffer.dtype, point.lanes())

    def slot(self, buffer: Buffer, number: c.CExpr, index: c.CExpr, point: Point) -> Value:
        kind = type_name(buffer.dtype, 0)
        place = c.linear(((number, buffer.stride_bytes),), buffer.offset_bytes)
        if isinstance(number, c.Num):
            place = c.number(int(number.text) * buffer.stride_bytes + buffer.offset_bytes)
        part = c.CastTo(f"{kind} *", c.Bin("+", c.Id("workspace"), place))
        return self.part(buffer, part, index, point)

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
        part = self.slot(buffer, c.Id(slot), index, point)
        added = self.scene.w.combine(task.task.op, so_far, part)
        cores = c.number(self.scene.target.cores)
        self.scene.w.write(c.For(slot, c.Num("0"), cores, 1, (c.Assign(so_far.x, added.x),)))
        return so_far
