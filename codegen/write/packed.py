"""Reads of packed operand blocks on a CPU, also of double-buffered ones (see codegen/passes/packing.py)."""

from __future__ import annotations

from dataclasses import dataclass

from ...kernels.ir.access import Access
from ...space.backbone import Operand
from ..bodies.body_values import TilePlace
from ..bodies.iteration_point import Point
from ..bodies.memory import Value
from ..plan.plan import TaskPlan
from ..text import csyntax as c
from .context import Context
from .emission import Emission
from .packed_copies import place_in_block
from .planned_values import Operands
from .windows import read_window, tile_of_window


@dataclass(frozen=True)
class BufferState:
    """State of double buffering, as names of C variables.

    `half`: start of the current block in the buffer. `slices`: number of slices of the next block.
    `done`: number of them that are packed. `starts`: start index of the next block, by loop.
    """

    half: c.Id
    slices: c.Id
    done: c.Id
    starts: dict[str, c.CExpr]


class PackedOperands(Operands):
    """Operand blocks on a CPU and reads of them: private to a thread, or packed by all threads together.

    Double-buffered blocks alternate.
    """

    def __init__(self, scene: Emission) -> None:
        self.scene = scene
        self.progress: dict[tuple[int, str], BufferState] = {}

    def read(
        self, task: TaskPlan, operand: Operand, access: Access, point: Point, ctx: Context
    ) -> Value:
        key = (task.index, operand.site)
        if operand.is_window:
            window = self.scene.windows[key]
            return read_window(self.scene, task, window, access, point, ctx)
        buffer, layout = self.scene.copies[key]
        index, stride = place_in_block(self.scene, task, layout, point, ctx)
        index = c.add(index, self.scene.halves.get(key, c.Num("0")))
        base = c.Id(buffer.name)
        return self.scene.w.load(buffer.name, base, index, buffer.dtype, point.lanes(), stride)

    def tile(self, task: TaskPlan, operand: Operand, ctx: Context) -> TilePlace:
        buffer, layout = self.scene.windows[task.index, operand.site]
        return tile_of_window(buffer.name, layout.extents, task, operand, ctx)
