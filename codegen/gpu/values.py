"""Values of a kernel: as on a CPU, but that a block of an operand is copied by all threads, into shared memory."""

from __future__ import annotations

from ...kernels import ir
from ...space.backbone import OUTER, Operand
from .. import csyntax as c
from ..block import Value
from ..plan import TaskPlan
from ..point import LoopIndexAt, Point, affine_at, row_strides
from ..scene import Context
from ..values import Values
from .scene import BlockLayout, GpuScene


class GpuValues(Values):
    """Values of a kernel's tasks."""

    scene: GpuScene

    def read(self, task: TaskPlan, load: ir.Load, point: Point, ctx: Context) -> Value:
        if (task.index, load.array) not in self.scene.placed:
            return super().read(task, load, point, ctx)
        layout = self.scene.placed[task.index, load.array]
        buffer = self.scene.kept_copies[task.index, load.array]
        index, stride = self.place(task, layout, point, ctx)
        lanes = point.lanes()
        return self.scene.w.load(buffer.name, c.Id(buffer.name), index, buffer.dtype, lanes, stride)

    def place(
        self, task: TaskPlan, layout: BlockLayout, point: Point, ctx: Context
    ) -> tuple[c.CExpr, int]:
        """Where an element lies in its block, and the stride from lane to lane."""
        terms: dict[c.CExpr, int] = {}
        const, lane_stride = 0, 0
        for name, stride in layout.strides.items():
            at = point.index[name]
            const += at.offset * stride
            if at.variable is not None:
                terms[at.variable] = terms.get(at.variable, 0) + stride
            outer = ctx.variables[task.index, name, OUTER]
            terms[outer] = terms.get(outer, 0) - stride
            if at.lanes:
                lane_stride = stride
        return c.linear(tuple(sorted(terms.items(), key=lambda i: -abs(i[1]))), const), lane_stride

    def copy(self, task: TaskPlan, operand: Operand, ctx: Context) -> None:
        """All threads copy the block of one outer tile together, neighbours by neighbours."""
        w = self.scene.w
        layout = self.scene.placed[task.index, operand.access.array]
        buffer = self.scene.kept_copies[task.index, operand.access.array]
        array = self.scene.plan.problem.array(operand.access.array)
        element = w.fresh("e")
        index: dict[str, LoopIndexAt] = {}
        declared: list[c.CStmt] = []
        inside: list[c.CExpr] = []
        here: list[tuple[c.CExpr, int]] = []
        total = 1
        for p in layout.loops:
            total *= p.tile
        rest = total
        for p in layout.loops:
            name = p.loop.name
            digit: c.CExpr = c.Id(element)
            below = rest // p.tile
            if below > 1:
                digit = c.Bin("/", digit, c.number(below))
            if rest < total:
                digit = c.Bin("%", digit, c.number(p.tile))
            rest = below
            offset = w.fresh(f"d_{name}")
            declared.append(c.Declare(self.scene.index_type, offset, digit, constant=True))
            outer = ctx.variables[task.index, name, OUTER]
            at = c.add(outer, c.Id(offset))
            index[name] = LoopIndexAt(at)
            here.append((c.Id(offset), layout.strides[name]))
            if p.loop.extent % p.tile:
                inside.append(c.Bin("<", at, c.number(p.loop.extent)))
        there, _ = affine_at(operand.access.axes, row_strides(array.shape), Point(index))
        hint = task.load_hints.get(array.name, "")
        source = w.element(self.scene.global_array(array.name), there, hint)
        move: c.CStmt = c.Assign(c.Index(c.Id(buffer.name), c.linear(tuple(here), 0)), source)
        if inside:
            test = inside[0]
            for x in inside[1:]:
                test = c.Bin("&&", test, x)
            move = c.If(test, (move,))
        self.scene.uses_tid = True
        step = self.scene.n_threads
        w.write(c.For(element, c.Id("tid"), c.number(total), step, (*declared, move)))
        w.used -= {element, *(d.name for d in declared if isinstance(d, c.Declare))}
        w.forget(buffer.name)
