"""Operand blocks of a GPU kernel: all threads of a block copy them together to shared memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...kernels.ir.access import Access
from ...space.backbone import OUTER, Operand
from ..bodies.body_values import TilePlace
from ..bodies.cuda_memory import gather
from ..bodies.iteration_point import Point
from ..bodies.memory import Value
from ..passes.storage import Buffer, steps_between
from ..plan.plan import TaskPlan
from ..text import csyntax as c
from .context import Context
from .grid_emission import BlockLayout, KernelScene
from .planned_values import Operands
from .windows import tile_of_window


class SharedOperands(Operands):
    """Operand blocks in shared memory on a GPU, and reads of their elements."""

    def __init__(self, kernel: KernelScene) -> None:
        self.kernel, self.scene = kernel, kernel.scene

    def read(
        self, task: TaskPlan, operand: Operand, access: Access, point: Point, ctx: Context
    ) -> Value:
        key = (task.index, operand.site)
        layout, buffer = self.kernel.placed[key], self.kernel.kept_copies[key]
        stage = self.kernel.stages.get(key)
        lanes = point.lanes()
        along = next(
            (stride for name, stride in layout.strides.items() if point.index[name].lanes), 0
        )
        w = self.scene.w
        if layout.least:
            beyond = steps_between(layout.least, access.axes)
            point = replace(
                point,
                index={
                    name: replace(at, offset=at.offset + beyond.get(name, 0))
                    for name, at in point.index.items()
                },
            )
        width, row = task.fragments.get(operand.site, 0), layout.loops[-1].loop.name
        if width and row in point.copies:
            return self.of_fragment(
                point, row, width, buffer, lambda at: self.place(task, layout, at, ctx, stage)
            )
        index = self.place(task, layout, point, ctx, stage)
        if layout.swizzle is None or along == 0 or (along == 1 and w.is_multiple(index, lanes)):
            return w.load(buffer.name, c.Id(buffer.name), index, buffer.dtype, lanes, along)
        # Neighbours that are no whole vector, or in different rows, are anywhere.
        places = [self.place(task, layout, point, ctx, stage, k) for k in range(lanes)]
        return gather(w, buffer.name, places, buffer.dtype)

    def of_fragment(
        self, point: Point, row: str, width: int, buffer: Buffer, place: Callable[[Point], c.CExpr]
    ) -> Value:
        """Returns the element of a point in an operand block, from the vector of `width` copies along loop `row`.

        Copies in the same vector share its load.
        """
        lane = point.copies[row] % width
        first = replace(point.index[row], offset=point.index[row].offset - lane)
        index = place(replace(point, index={**point.index, row: first}))
        vector = self.scene.w.load(
            buffer.name, c.Id(buffer.name), index, buffer.dtype, width, lane_stride=1
        )
        return Value(c.Index(vector.x, c.number(lane)), buffer.dtype)

    def tile(self, task: TaskPlan, operand: Operand, ctx: Context) -> TilePlace:
        key = (task.index, operand.site)
        buffer, layout = self.kernel.kept_copies[key], self.kernel.placed[key]
        return tile_of_window(buffer.name, layout.extents, task, operand, ctx)

    def place(
        self,
        task: TaskPlan,
        layout: BlockLayout,
        point: Point,
        ctx: Context,
        stage: c.CExpr | None,
        lane: int = 0,
    ) -> c.CExpr:
        """Returns the element of a point in its operand block; for a vector, that of lane `lane`."""
        offsets: dict[str, tuple[dict[c.CExpr, int], int]] = {}
        for name in layout.strides:
            at = point.index[name]
            terms: dict[c.CExpr, int] = {} if at.variable is None else {at.variable: 1}
            outer = ctx.variables[task.index, name, OUTER]
            terms[outer] = terms.get(outer, 0) - 1
            offsets[name] = terms, at.offset + (lane if at.lanes else 0)
        return locate(layout, offsets, stage)


def locate(
    layout: BlockLayout,
    offsets: dict[str, tuple[dict[c.CExpr, int], int]],
    stage: c.CExpr | None,
) -> c.CExpr:
    """Returns the index of an element in an operand block.

    `offsets`: by loop, the distance from the block's begin: C terms with factors, and a constant.
    `stage`: begin of the block in the array.
    """
    total: dict[c.CExpr, int] = {}
    const = 0
    if stage is not None and stage != c.Num("0"):
        total[stage] = 1
    rows = [p.loop.name for p in layout.loops]
    plain = rows if layout.swizzle is None else rows[:-1]
    for name in plain:
        terms, offset = offsets[name]
        const += offset * layout.strides[name]
        for x, k in terms.items():
            total[x] = total.get(x, 0) + k * layout.strides[name]
    ordered = sorted(
        total.items(), key=lambda item: -abs(item[1]) if item[0] != stage else -(1 << 40)
    )
    index = c.linear(tuple(ordered), const)
    if layout.swizzle is None:
        return index
    n, width = layout.swizzle
    row, column = (c.linear(tuple(offsets[x][0].items()), offsets[x][1]) for x in rows[-2:])
    turned = c.linear(((c.Bin("%", row, c.number(n)), width),), 0)
    return c.add(index, c.Bin("^", column, turned))
