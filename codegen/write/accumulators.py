"""Accumulators of reductions: C expressions of their elements, in registers and in memory, and of their totals."""

from __future__ import annotations

from itertools import product

from ...kernels.ir import kernel as ir
from ...kernels.ir.access import flat_strides
from ...kernels.ir.walk import walk
from ...space.backbone import MID, OUTER
from ..bodies.iteration_point import Point, affine_at, row_strides
from ..bodies.memory import Value
from ..bodies.vectors import operator
from ..passes.storage import Buffer
from ..plan.plan import TaskPlan
from ..text import csyntax as c
from ..text.types import type_name
from .context import Context
from .emission import Emission
from .partial_tiles import Flat
from .planned_values import Values


class Accumulators:
    """Accumulators of the reductions of a launch: in registers, in memory, and in slots (a thread's part of the workspace)."""

    def __init__(self, scene: Emission, values: Values) -> None:
        self.scene, self.values = scene, values

    def total(self, task: TaskPlan, point: Point) -> Value:
        """Returns the total of the register accumulators at a point of the result, over all copies of reduction loops.

        If the reduction loop is vectorised, its lanes are combined too.
        """
        assert task.task.op is not None
        total, *others = self.copies(task, point)
        for x in others:
            total = self.scene.w.combine(task.task.op, total, x)
        tile, vector = self.scene.tiles[task.index, "acc"], task.vector
        if tile.lanes and vector is not None and vector.loop.is_reduction:
            total = self.scene.fold(task.task.op, total)
        return total

    def copies(self, task: TaskPlan, point: Point) -> list[Value]:
        """Returns the register accumulators at a point of the result, one for each copy of unrolled reduction loops."""
        tile = self.scene.tiles[task.index, "acc"]
        reduced = [(p.loop.name) for p in task.loops if p.loop.is_reduction]
        apart = [[(name, k) for k in range(n)] for name, n in tile.full if name in reduced]
        cells = ({**point.copies, **dict(cell)} for cell in product(*apart))
        return [Value(tile.ref(x, point.indices), tile.dtype, tile.lanes) for x in cells]

    def index(self, task: TaskPlan, point: Point, ctx: Context) -> c.CExpr:
        """Returns the index of a point's accumulator in memory.

        If the accumulators are an array of their own (not the result), the index is relative to the
        tile along each loop of which only one tile is live at a time.
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

    def added(self, accumulator: Value, op: str, value: Value) -> c.CStmt:
        """Returns the C statement `accumulator = accumulator op value`."""
        if op in ("add", "mul") and (sign := operator(op, accumulator.dtype)) is not None:
            return c.Assign(accumulator.x, value.x, sign)
        return c.Assign(accumulator.x, self.scene.w.combine(op, accumulator, value).x)

    def finished(self, task: TaskPlan, point: Point, total: Value, ctx: Context) -> Value:
        finish = task.task.finish
        return total if finish is None else self.values.value(task, finish, point, ctx, total)

    def part(self, buffer: Buffer, base: c.CExpr, index: c.CExpr, point: Point) -> Value:
        """Returns the accumulator `base[index]` in memory; for a vector point, a vector of accumulators."""
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

    def result_lanes(self, task: TaskPlan, flat: Flat) -> int:
        """Returns the vector width in which accumulators in memory become results.

        It is 1 if results are not contiguous, if they also go to registers or shared buffers, or if
        element types of several sizes are involved.
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
