"""Writes the packing of operand blocks on a CPU, also double-buffered (see codegen/passes/packing.py)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from ...space.backbone import OUTER, Operand
from ..bodies.iteration_point import LoopIndexAt, Point, affine_at, row_strides
from ..loops import ir as loop_ir
from ..plan.plan import LoopPlan, TaskPlan
from ..text import csyntax as c
from .context import Context
from .packed import BufferState, PackedOperands
from .packed_copies import pack
from .strips import own_part
from .windows import fill_window


class PackWriter:
    """Writer of the phases in which threads of a team pack operand blocks."""

    def __init__(self, operands: PackedOperands) -> None:
        self.operands, self.scene = operands, operands.scene

    def write(
        self, phase: loop_ir.PackPhase | loop_ir.CopyPhase, task: TaskPlan, ctx: Context
    ) -> None:
        match phase:
            case loop_ir.PackBlock(_, operand):
                self.copy(task, operand, ctx)
            case loop_ir.PackFirstBlock(_, operand):
                self.first_block(task, operand, ctx)
            case loop_ir.OpenBlock(_, operand):
                self.stage(task, operand, ctx)
            case loop_ir.PackRest(_, operand):
                self.rest(task, operand, ctx)
            case _:
                raise AssertionError("nothing travels by itself on a CPU")

    def at_strip(self, strips: loop_ir.Strips, n_strips: int, ctx: Context) -> None:
        for t, operand in strips.packs:
            task = self.scene.plan.tasks[t]
            self.ask(task, operand, n_strips)
            self.slice(task, operand, ctx)

    def copy(self, task: TaskPlan, operand: Operand, ctx: Context) -> None:
        """Packs an operand's block for one outer tile; if the team shares the block, this thread's part of it."""
        if operand.is_window:
            fill_window(self.scene, task, operand, ctx)
            return
        if operand.site not in task.by_team:
            pack(self.scene, task, operand, ctx, {}, c.Num("0"))
            return
        assert ctx.is_team, "all threads pack a block together"
        p = self.shared_out(task, operand)
        start = ctx.variables[task.index, p.loop.name, OUTER]
        own: list[c.CExpr] = []
        for stem, place in zip(
            ("from", "to"), own_part(start, self.scene.tile_end(p, start), p.inner), strict=True
        ):
            name = self.scene.w.fresh(f"{p.loop.name}_{stem}")
            self.scene.w.write(c.Declare("long", name, place, constant=True))
            own.append(c.Id(name))
        pack(self.scene, task, operand, ctx, {p.loop.name: (own[0], own[1])}, c.Num("0"))

    def shared_out(self, task: TaskPlan, operand: Operand) -> LoopPlan:
        """Returns the loop whose register tiles are partitioned among the threads that pack a block together.

        This is the outermost loop with at least one tile per thread, else the loop with most tiles.
        """
        _, layout = self.scene.copies[task.index, operand.site]
        loops = [task.loop(name) for name in layout.order]
        enough = (p for p in loops if p.mid >= self.scene.plan.cores)
        return next(enough, max(loops, key=lambda p: p.mid))

    def pipeline(self, task: TaskPlan, operand: Operand) -> loop_ir.DoubleBuffer:
        return self.scene.launch.buffers[task.index, operand.site]

    def first_block(self, task: TaskPlan, operand: Operand, ctx: Context) -> None:
        """Packs the block of this thread's first iteration. A thread without iterations packs none."""
        holder = task.loop(self.pipeline(task, operand).holder)
        begin, end_of_part = self.scene.part_of(holder)
        start = {(task.index, holder.loop.name, OUTER): begin}
        inside = replace(ctx, variables={**ctx.variables, **start})
        if not holder.is_parallel:
            self.copy(task, operand, inside)
            return
        with self.scene.w.scope() as body:
            self.copy(task, operand, inside)
        self.scene.w.write(c.If(c.Bin("<", begin, end_of_part), tuple(body.statements)))

    def stage(self, task: TaskPlan, operand: Operand, ctx: Context) -> None:
        """Declares the state of double buffering (`BufferState`), at the head of the loop over blocks."""
        key = (task.index, operand.site)
        w, made, layout = self.scene.w, self.pipeline(task, operand), self.scene.copies[key][1]
        holder, rows = task.loop(made.holder), task.loop(made.across)
        now = ctx.variables[task.index, made.holder, OUTER]
        begin, end_of_part = self.scene.part_of(holder)

        def declare(stem: str, value: c.CExpr, constant: bool = True) -> c.Id:
            name = w.fresh(stem)
            w.write(c.Declare("long", name, value, constant=constant))
            return c.Id(name)

        block = c.Bin("%", c.Bin("/", c.minus(now, begin), c.number(holder.tile)), c.Num("2"))
        half = declare(
            f"{operand.access.array}_half", c.Bin("*", block, c.number(layout.n_elements))
        )
        ahead = declare(f"{made.holder}_ahead", c.Bin("+", now, c.number(holder.tile)))
        (other,) = (name for name in operand.loops if name != made.holder)
        starts = {made.holder: ahead, other: ctx.variables[task.index, other, OUTER]}
        start = starts[made.across]
        end = self.scene.tile_end(rows, start)
        elements = c.Bin("+", c.Bin("-", end, start), c.number(rows.inner - 1))
        slices = c.Bin("*", c.Bin("/", elements, c.number(rows.inner)), c.number(made.chunks))
        is_there = c.Bin("<", ahead, end_of_part)
        n_slices = declare(f"{operand.access.array}_slices", c.Cond(is_there, slices, c.Num("0")))
        done = declare(f"{operand.access.array}_slice", c.Num("0"), constant=False)
        self.operands.progress[key] = BufferState(half, n_slices, done, starts)
        self.scene.halves[key] = half

    def ask(self, task: TaskPlan, operand: Operand, n_before: int) -> None:
        """Prefetches the source lines of the slice that is packed `n_before` slices after the next one."""
        made, now = (
            self.pipeline(task, operand),
            self.operands.progress[task.index, operand.site],
        )
        asked = made.in_strips
        assert asked is not None
        w, array = self.scene.w, self.scene.plan.problem.array(operand.access.array)
        following = c.Bin("+", now.done, c.number(n_before))
        firsts = self.first_of(task, made, now, following)
        names = [w.fresh(f"{name}_asked") for name in (made.across, made.along)]
        with w.scope() as body:
            for name, first in zip(names, firsts, strict=True):
                w.write(c.Declare("long", name, first, constant=True))
            for r, k in product(range(asked.across.count), range(asked.along.count)):
                place = {
                    made.across: LoopIndexAt(c.Id(names[0]), r * asked.across.apart),
                    made.along: LoopIndexAt(c.Id(names[1]), k * asked.along.apart),
                }
                index, _ = affine_at(operand.access.axes, row_strides(array.shape), Point(place))
                w.ask(self.scene.global_array(array.name), index, asked.cache)
        w.used -= set(names)
        w.write(c.If(c.Bin("<", following, now.slices), tuple(body.statements)))

    def first_of(
        self, task: TaskPlan, made: loop_ir.DoubleBuffer, now: BufferState, number: c.CExpr
    ) -> tuple[c.CExpr, c.CExpr]:
        """Returns the indices at which slice `number` of the next block starts, along both loops of the block."""
        tile, chunk = _over(number, made.chunks), _mod(number, made.chunks)
        rows = _times(tile, task.loop(made.across).inner)
        return (
            c.add(now.starts[made.across], rows),
            c.add(now.starts[made.along], _times(chunk, made.chunk)),
        )

    def slice(self, task: TaskPlan, operand: Operand, ctx: Context) -> None:
        """Packs the next slice of the next block, if one is left."""
        now = self.operands.progress[task.index, operand.site]
        with self.scene.w.scope() as body:
            self.pack(task, operand, ctx, now.done)
            self.scene.w.write(c.Assign(now.done, c.Num("1"), "+"))
        self.scene.w.write(c.If(c.Bin("<", now.done, now.slices), tuple(body.statements)))

    def rest(self, task: TaskPlan, operand: Operand, ctx: Context) -> None:
        """Packs the remaining slices of the next block at the end of the current block.

        Some remain if the current block has fewer strips than the next one has slices.
        """
        w, now = self.scene.w, self.operands.progress[task.index, operand.site]
        name = w.fresh("slice")
        with w.scope() as body:
            self.pack(task, operand, ctx, c.Id(name))
        w.used.discard(name)
        w.write(c.For(name, now.done, now.slices, 1, tuple(body.statements)))

    def pack(self, task: TaskPlan, operand: Operand, ctx: Context, number: c.CExpr) -> None:
        """Packs slice `number` into the half of the buffer that is not in use."""
        key = (task.index, operand.site)
        w, made, now = self.scene.w, self.pipeline(task, operand), self.operands.progress[key]
        columns, layout = task.loop(made.along), self.scene.copies[key][1]
        row, column = self.first_of(task, made, now, number)
        names = [w.fresh(f"{name}_slice") for name in (made.across, made.along)]
        for name, first in zip(names, (row, column), strict=True):
            w.write(c.Declare("long", name, first, constant=True))
        end = self.scene.tile_end(columns, now.starts[made.along])
        last: c.CExpr = c.Bin("+", c.Id(names[1]), c.number(made.chunk))
        is_cut = columns.loop.extent % columns.tile or self.scene.unit_of(columns) != columns.tile
        if columns.tile % made.chunk or is_cut:
            last = c.minimum(last, end)
        starts = {(task.index, name, OUTER): x for name, x in now.starts.items()}
        window = {made.across: (c.Id(names[0]), None), made.along: (c.Id(names[1]), last)}
        pack(
            self.scene,
            task,
            operand,
            replace(ctx, variables={**ctx.variables, **starts}),
            window,
            c.Bin("-", c.number(layout.n_elements), now.half),
        )
        for name in names:
            w.used.discard(name)


def _times(x: c.CExpr, n: int) -> c.CExpr:
    return x if n == 1 or x == c.Num("0") else c.Bin("*", x, c.number(n))


def _over(x: c.CExpr, n: int) -> c.CExpr:
    return x if n == 1 else c.Bin("/", x, c.number(n))


def _mod(x: c.CExpr, n: int) -> c.CExpr:
    return c.Num("0") if n == 1 else c.Bin("%", x, c.number(n))
