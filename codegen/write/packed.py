"""Writes blocks of operands of a CPU, also those that are double-buffered (see codegen/passes/packing.py)."""

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
from .emission import Scene
from .packing import place_in_block
from .values import Operands
from .windows import read_window, tile_of_window


@dataclass(frozen=True)
class Progress:
    """Names of what changes while a block is used.

    `half`: where in the buffer the present block begins; `slices`: how many the next one has; `done`: how many of them are packed.
    `starts`: where the next block begins, by loop.
    """

    half: c.Id
    slices: c.Id
    done: c.Id
    starts: dict[str, c.CExpr]


class PackedOperands(Operands):
    """Of a CPU: blocks of a thread's own, or such that all threads pack together; two of them take turns where there are two."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.progress: dict[tuple[int, str], Progress] = {}

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
