"""C scopes for loops that are not in the loop tree: over partial register tiles, and over the live part of a result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

from ...space.backbone import MID, OUTER
from ..bodies.emitter import Block
from ..bodies.iteration_point import LoopIndexAt, Point
from ..plan.plan import LoopPlan, TaskPlan
from ..text import csyntax as c
from .context import Context
from .emission import Emission
from .strips import length_of, own_part, strips


class Over:
    """Context inside `for` loops over the partial register tiles of `loops`.

    Without partial tiles it is the open scope.
    """

    def __init__(
        self, scene: Emission, task: TaskPlan, loops: list[LoopPlan], ctx: Context
    ) -> None:
        self.scene = scene
        self.headers, self.context = scene.slow_loops(task, loops, ctx)
        self.array = task.task.target.array

    def __enter__(self) -> Context:
        if self.headers:
            self.scene.w.blocks.append(Block())
        return self.context

    def __exit__(self, *_: object) -> None:
        w = self.scene.w
        if not self.headers:
            return
        body = tuple(w.blocks.pop().statements)
        for h in reversed(self.headers):
            if not h.variable:
                body = (c.If(c.Bin("<", h.start, h.end), body),)
                continue
            body = (c.For(h.variable, h.start, h.end, h.step, body),)
            w.used.discard(h.variable)
        w.write(body[0])
        w.forget(self.array)


class Flat:
    """Element-wise loops over the live part of a reduction's result, outermost axis first.

    `share`: all threads share the iterations. The innermost loop runs in vectors if its elements
    are contiguous. Loops along which the finish reads register tiles are unrolled: a register has
    no index.
    """

    def __init__(self, scene: Emission, task: TaskPlan, ctx: Context, share: bool = False) -> None:
        self.scene, self.task = scene, task
        plan = scene.launch.accumulators[task.index]
        layout = scene.accumulators[task.index][1]
        self.context = ctx
        self.headers: list[tuple[str, c.CExpr, c.CExpr]] = []
        self.shared: int | None = None  # which of them all threads share
        index: dict[str, LoopIndexAt] = {}
        indices: dict[str, c.CExpr] = {}
        tiled: list[LoopPlan] = []
        loops = sorted(plan.extents, key=lambda name: -layout.strides[name])
        widest = max(loops, key=lambda name: plan.extents[name]) if loops and share else None
        in_registers = scene.tiled_loops(task)
        for name in loops:
            p = task.loop(name)
            if name in in_registers and scene.is_full(task, p, ctx):
                tiled.append(p)
                continue
            lo, hi = self.live_range(p, plan.levels[name], ctx)
            if name == widest and not plan.is_small:
                self.shared = len(self.headers)
            variable = scene.w.fresh(name)
            self.headers.append((variable, lo, hi))
            index[name] = LoopIndexAt(c.Id(variable))
            if name in in_registers:
                indices[name] = c.Bin("-", c.Id(variable), scene.start(task, p, ctx))
        self.points = list(self.copies(tiled, Point(index, {}, indices)))
        self.along = (
            loops[-1] if loops and not in_registers and layout.strides[loops[-1]] == 1 else ""
        )

    def write(self, body: Callable[[Point], None], lanes: int) -> None:
        """Writes the loops around the code that `body` gives for a point, in vectors of at most `lanes` elements."""
        w = self.scene.w

        def inside(n: int) -> tuple[c.CStmt, ...]:
            with w.scope() as made:
                for point in self.points:
                    at = {**point.index}
                    if n:
                        at[self.along] = replace(at[self.along], lanes=n)
                    body(replace(point, index=at))
            return tuple(made.statements)

        if not self.headers:
            w.write(c.Scope(inside(0)))
            return
        lanes = lanes if self.along else 1
        ranges = [(lo, hi) for _, lo, hi in self.headers]
        is_whole = False
        if self.shared is not None:
            length = length_of(*ranges[self.shared])
            is_innermost = self.shared == len(ranges) - 1
            is_whole = is_innermost and length is not None and length % lanes == 0
            ranges[self.shared] = own_part(*ranges[self.shared], lanes if is_whole else 1)
        names = [name for name, _, _ in self.headers]
        loops = strips(names[-1], *ranges[-1], lanes, inside, is_whole)
        for name, (lo, hi) in zip(names[-2::-1], ranges[-2::-1], strict=True):
            loops = (c.For(name, lo, hi, 1, loops),)
        for loop in loops:
            w.write(loop)
        w.used -= set(names)

    def copies(self, tiled: list[LoopPlan], point: Point) -> Iterator[Point]:
        for cell in product(*(range(p.inner) for p in tiled)):
            here = point
            for p, k in zip(tiled, cell, strict=True):
                lanes = self.scene.lanes(self.task) if p.is_vector else 1
                at = LoopIndexAt(self.scene.start(self.task, p, self.context), k)
                here = replace(
                    here,
                    index={**here.index, p.loop.name: at},
                    copies={**here.copies, p.loop.name: k // lanes},
                    lane=k % lanes if p.is_vector else here.lane,
                )
            yield here

    def live_range(self, p: LoopPlan, level: int, ctx: Context) -> tuple[c.CExpr, c.CExpr]:
        w, t, extent = self.scene, self.task.index, p.loop.extent
        if level == OUTER:
            if p.is_parallel and self.scene.launch.is_parallel:
                assert p.is_blocked, "sums of a team are kept in blocks"
                return w.partition(extent, p.tile)
            return c.Num("0"), c.number(extent)
        if level == MID:
            start = ctx.variables[t, p.loop.name, OUTER]
            return start, w.tile_end(p, start)
        start = w.start(self.task, p, ctx)
        return start, w.end_of(start, p.inner, extent)
