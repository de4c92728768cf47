"""Reads and writes of values where the plan has them: registers, an array of the thread, an operand block, memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from ...kernels.analysis.contraction import ALL, FREE
from ...kernels.ir import kernel as ir
from ...kernels.ir.access import Access, access_of
from ...kernels.ir.arrays import ArrayInfo
from ...kernels.ir.kernel import DType
from ...kernels.tasks.narrowing import with_narrow_indices
from ...space.backbone import MID, OUTER, Flow, Operand
from ...space.targets.target import LINE_BYTES
from ..bodies.body_values import TilePlace
from ..bodies.emitter import LineAhead
from ..bodies.iteration_point import LoopIndexAt, Point, affine_at, row_strides
from ..bodies.memory import Value
from ..bodies.vector_functions import permitted_ulp
from ..passes.storage import SharedLayout
from ..plan.plan import LoopPlan, TaskPlan
from ..text import csyntax as c
from ..text.types import type_name
from .context import Context
from .emission import Emission
from .tile_loops import EmittedTile


class Operands(ABC):
    """Operand blocks of a launch, and reads of their elements."""

    @abstractmethod
    def read(
        self, task: TaskPlan, operand: Operand, access: Access, point: Point, ctx: Context
    ) -> Value:
        """Returns the value of a task's access at a point, read from the operand's block."""

    @abstractmethod
    def tile(self, task: TaskPlan, operand: Operand, ctx: Context) -> TilePlace:
        """Returns the operand block, with its halo, as a tile from which a body of statements reads."""


class Values:
    """Reads and writes of the values that a launch's tasks compute."""

    def __init__(self, scene: Emission, operands: Operands) -> None:
        self.scene, self.operands = scene, operands
        self._narrow: dict[tuple[int, int], tuple[ir.Expr, ir.Expr]] = {}

    def begin_value(self, task: TaskPlan, loops: list[LoopPlan], ctx: Context) -> None:
        """Declares the register tile from which other tasks read this task's value."""
        if not self.scene.read_behind(task):
            return
        array = self.scene.plan.problem.array(task.task.target.array)
        tile = self.tile_of(task, loops, ctx, f"{array.name}_value", array.dtype)
        self.scene.tiles[task.index, "value"] = tile
        self.scene.declare(tile, None)

    def tile_of(
        self, task: TaskPlan, loops: list[LoopPlan], ctx: Context, stem: str, dtype: DType
    ) -> EmittedTile:
        """Returns a new register tile with one element for each point of the task's register tile along `loops`."""
        vector = next((p for p in loops if p.is_vector), None)
        lanes = (
            self.scene.lanes(task)
            if vector is not None and self.scene.is_full(task, vector, ctx)
            else 0
        )
        full, slow = [], []
        for p in loops:
            copies = p.inner // self.scene.lanes(task) if p.is_vector else p.inner
            if self.scene.is_named(task, p, ctx):
                full.append((p.loop.name, copies))
            else:
                slow.append((p.loop.name, p.inner))
        return EmittedTile(self.scene.w.fresh_family(stem), dtype, lanes, tuple(full), tuple(slow))

    def put(self, task: TaskPlan, point: Point, value: Value, ctx: Context) -> None:
        """Stores a task's finished value wherever its readers expect it: registers, thread's array, memory."""
        array = self.scene.plan.problem.array(task.task.target.array)
        value = self.scene.w.converted(value, array.dtype)
        value = self.scene.w.splat(value, point.lanes())
        if self.scene.read_behind(task):
            tile = self.scene.tiles[task.index, "value"]
            place = tile.ref(point.copies, point.indices)
            self.scene.w.write(c.Assign(place, value.x))
            if not tile.slow:
                value = Value(place, array.dtype, value.lanes)
        if task.shared:
            buffer, layout = self.scene.shared[task.index]
            index, _ = self.shared_index(task, task.task.target, layout, point, ctx)
            self.scene.w.store(
                buffer.name, c.Id(buffer.name), index, value, array.dtype, stream=False
            )
        if task.is_stored:
            index, _ = affine_at(task.task.target.axes, row_strides(array.shape), point)
            self.scene.w.store(
                array.name,
                self.scene.global_array(array.name),
                index,
                value,
                array.dtype,
                task.is_streamed,
            )

    def value(
        self,
        task: TaskPlan,
        e: ir.Expr,
        point: Point,
        ctx: Context,
        total: Value | None = None,
        read: Callable[[ir.Load], Value | None] | None = None,
    ) -> Value:
        """Returns the C value of expression `e` at a point.

        `total`: value of the reduction's accumulator. `read`: gives the values of some loads, None
        for others.
        """

        def leaf(x: ir.Expr) -> Value:
            if isinstance(x, ir.Load):
                found = read(x) if read is not None else None
                return found if found is not None else self.read(task, x, point, ctx)
            if isinstance(x, ir.LoopIndex):
                return self.loop_index(point.at(x.loop), x.dtype)
            assert isinstance(x, ir.Accumulator) and total is not None, x
            return total

        if point.lanes():
            e = self.in_lanes(task, e)
        with self.scene.w.rounding(FREE if task.task.fast_math else ALL):
            return self.scene.w.evaluate(e, leaf, permitted_ulp(self.scene.plan, task))

    def in_lanes(self, task: TaskPlan, e: ir.Expr) -> ir.Expr:
        """Returns an expression as vectors compute it: masks of elements of 32 bits come from indices of 32 bits."""
        if task.task.dtype.size_bytes > DType.i32.size_bytes:
            return e
        key = task.index, id(e)
        if key not in self._narrow:  # with the expression, whose identity is the key
            extents = {x.name: x.extent for x in task.task.scope}
            self._narrow[key] = e, with_narrow_indices(e, extents)
        return self._narrow[key][1]

    def loop_index(self, at: LoopIndexAt, dtype: DType) -> Value:
        first = at.expression()
        if not at.lanes:
            return Value(c.CastTo(type_name(dtype, 0), first), dtype)
        return Value(
            c.Call(self.scene.prelude.use("iota", dtype, at.lanes), (first,)), dtype, at.lanes
        )

    def read(self, task: TaskPlan, load: ir.Load, point: Point, ctx: Context) -> Value:
        """Returns the value of a load: from the producer's register tile or array, from an operand block, or from memory."""
        access = access_of(load)
        array = self.scene.plan.problem.array(load.array)
        found = self.scene.flow_of.get((task.index, load.array))
        if found is not None and found[1] == "register":
            return self.read_register(found[0], array, point)
        lanes = point.lanes()
        if found is not None:
            producer = self.scene.plan.tasks[found[0].producer]
            kept = found[1] == "kept"
            owned = self.scene.kept[producer.index, load.array] if kept else None
            buffer, layout = owned or self.scene.shared[producer.index]
            index, stride = self.shared_index(producer, access, layout, point, ctx)
            value = self.scene.w.load(
                buffer.name, c.Id(buffer.name), index, array.dtype, lanes, stride
            )
            return self.keep(task, access, value, point, ctx)
        operand = task.copy_of(access)
        if operand is not None:
            return self.operands.read(task, operand, access, point, ctx)
        index, stride = affine_at(access.axes, row_strides(array.shape), point)
        value = self.scene.w.load(
            array.name,
            self.scene.global_array(array.name),
            index,
            array.dtype,
            lanes,
            stride,
            self.line_ahead(task, access, point),
            task.load_hints.get(array.name, ""),
        )
        return self.keep(task, access, value, point, ctx)

    def keep(
        self, task: TaskPlan, access: Access, value: Value, point: Point, ctx: Context
    ) -> Value:
        """Returns `value`, which an access has read.

        It also stores the value in the task's array of inputs for later tasks, if the plan gives it
        one; a scope stores it once.
        """
        found = self.scene.kept.get((task.index, access.array))
        if found is not None:
            buffer, layout = found
            index, _ = self.shared_index(task, access, layout, point, ctx)
            if not self.scene.w.knows(buffer.name, index, value.lanes):
                place = c.Id(buffer.name)
                self.scene.w.store(buffer.name, place, index, value, value.dtype, stream=False)
        return value

    def line_ahead(self, task: TaskPlan, access: Access, point: Point) -> LineAhead | None:
        """Returns the cache line to prefetch before a load.

        It returns None if none was decided or an earlier vector prefetched it.
        """
        for ahead in task.prefetches if point.lanes() else ():
            p = ahead.prefetch
            if p.access == access and p.along == point.vector_loop:
                size = self.scene.plan.problem.array(access.array).dtype.size_bytes
                starts_line = point.index[p.along].offset * size % LINE_BYTES == 0
                found = LineAhead(ahead.iterations * p.stride, ahead.cache)
                return found if starts_line else None
        return None

    def read_register(self, flow: Flow, array: ArrayInfo, point: Point) -> Value:
        return self.read_tile(self.scene.tiles[flow.producer, "value"], flow, array.dtype, point)

    def read_tile(self, tile: EmittedTile, flow: Flow, dtype: DType, point: Point) -> Value:
        """Returns the element that a flow's consumer reads at `point` from the register tile of the flow's producer."""
        names = dict(flow.pairs)
        copies = {p: point.copies[q] for p, q in names.items() if q in point.copies}
        indices = {p: point.indices[q] for p, q in names.items() if q in point.indices}
        value = Value(tile.ref(copies, indices), dtype, tile.lanes)
        if tile.lanes and not point.lanes():
            return Value(c.Index(value.x, c.number(point.lane)), dtype)
        return value

    def shared_index(
        self,
        producer: TaskPlan,
        access: Access,
        layout: SharedLayout,
        point: Point,
        ctx: Context,
    ) -> tuple[c.CExpr, int]:
        """Returns the index of an access's element in its producer's array of the thread, and the stride from lane to lane."""
        index, stride = affine_at(access.axes, layout.strides, point)
        terms: list[tuple[c.CExpr, int]] = [(index, 1)]
        const = 0
        for axis, level, step in zip(layout.axes, layout.levels, layout.strides, strict=True):
            if level is None:
                continue
            assert axis is not None
            const -= axis.const * step
            loop = axis.terms[0][0]
            start = self.level_start(producer, loop, level, ctx)
            terms.append((start, -step))
        merged: dict[c.CExpr, int] = {}
        flat, base_const = c.flatten(index)
        for x, k in flat:
            merged[x] = merged.get(x, 0) + k
        for x, k in terms[1:]:
            merged[x] = merged.get(x, 0) + k
        return c.linear(tuple(merged.items()), base_const + const), stride

    def level_start(self, producer: TaskPlan, loop: str, level: int, ctx: Context) -> c.CExpr:
        """Returns the variable at which the current tile of a producer's loop begins: its array is relative to that.

        Merged loops set the variable for all of their members.
        """
        wanted = OUTER if level == OUTER or producer.loop(loop).mid == 1 else MID
        own = ctx.variables.get((producer.index, loop, wanted))
        assert own is not None, "a merged loop binds its variable for all of its members"
        return own
