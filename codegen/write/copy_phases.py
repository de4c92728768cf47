"""Writes the copies of operand blocks to shared memory, which all threads of a GPU block make together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ...kernels.ir.arrays import ArrayInfo
from ...kernels.ir.kernel import DType
from ...space.backbone import OUTER, Operand
from ..bodies.cuda_prelude import COPY_ASYNC
from ..bodies.iteration_point import LoopIndexAt, Point, affine_at, row_strides
from ..loops import ir as loop_ir
from ..plan.plan import TaskPlan
from ..text import csyntax as c
from ..text.types import type_name
from .context import Context
from .grid_emission import BlockLayout, KernelScene
from .shared_operands import locate


class CopyWriter:
    """Writer of the phases that copy operand blocks to shared memory (codegen/passes/packing.py)."""

    def __init__(self, kernel: KernelScene) -> None:
        self.kernel, self.scene = kernel, kernel.scene

    def write(
        self, phase: loop_ir.PackPhase | loop_ir.CopyPhase, task: TaskPlan, ctx: Context
    ) -> None:
        match phase:
            case loop_ir.PackBlock(_, operand):
                self.copy(task, operand, ctx)
            case loop_ir.StartCopies() | loop_ir.AwaitCopies() | loop_ir.AdvanceCopies():
                self.transfer(phase, ctx)
            case _:
                raise AssertionError("threads of a block do not pack ahead")

    def copy(self, task: TaskPlan, operand: Operand, ctx: Context) -> None:
        """Copies an operand's block for one tile, by all threads together.

        Neighbouring threads copy neighbouring pieces.
        """
        self.move_block(task, operand, ctx, None)
        self.scene.w.forget(self.kernel.kept_copies[task.index, operand.site].name)

    def transfer(self, phase: loop_ir.CopyPhase, ctx: Context) -> None:
        """Writes asynchronous copies, which proceed during computation on earlier tiles.

        Each step is one commit group.
        """
        w, stages = self.scene.w, [x.stages for x in phase.copies]
        match phase:
            case loop_ir.StartCopies(copies, holder):
                for group in range(max(stages) - 1):
                    self.fill(copies, holder, group, ctx)
            case loop_ir.AwaitCopies():
                w.write(c.Evaluate(c.Call(f"copy_async_wait<{min(stages) - 2}>", ())))
            case loop_ir.AdvanceCopies(copies, holder):
                for n in sorted(set(stages)):
                    self.follow([x for x in copies if x.stages == n], n, holder, ctx)
                w.write(c.Evaluate(c.Call("copy_async_commit", ())))

    def fill(
        self, copies: tuple[loop_ir.Copy, ...], holder: loop_ir.Loop, group: int, ctx: Context
    ) -> None:
        """Writes commit group number `group` of the asynchronous copies in front of loop `holder`.

        The group holds the copies that iteration `group - (number of groups in front of the loop)`
        would start.
        """
        most = max(x.stages for x in copies)
        for x in copies:
            t, operand = x.task, x.operand
            tile = group - (most - x.stages)
            if 0 <= tile * holder.step < holder.extent and tile >= 0:
                task = self.scene.plan.tasks[t]
                layout = self.kernel.placed[t, operand.site]
                first = {(t, loop_ir.loop_of(holder, t), OUTER): c.number(tile * holder.step)}
                begun = replace(ctx, variables={**ctx.variables, **first})
                self.move_block(task, operand, begun, c.number(tile * layout.n_elements))
        self.scene.w.write(c.Evaluate(c.Call("copy_async_commit", ())))

    def follow(
        self, copies: Sequence[loop_ir.Copy], stages: int, holder: loop_ir.Loop, ctx: Context
    ) -> None:
        """Declares the shared-memory stages that hold this iteration's tiles, and starts the copies of later tiles.

        The later tiles are those of the iteration `stages - 1` later, if there is one.
        """
        w = self.scene.w
        first = holder.members[0]
        outer = ctx.variables[first.task, first.loop, OUTER]
        for x in copies:
            key = (x.task, x.operand.site)
            layout = self.kernel.placed[key]
            here = w.fresh(f"{x.operand.access.array}_stage")
            w.multiples[here] = layout.n_elements
            place = self.stage(outer, holder.step, stages, layout)
            w.write(c.Declare(self.kernel.index_type, here, place, constant=True))
            self.kernel.stages[key] = c.Id(here)
            w.forget(self.kernel.kept_copies[key].name)
        later = w.fresh(f"{first.loop}_next")
        ahead = c.linear(((outer, 1),), (stages - 1) * holder.step)
        w.write(c.Declare(self.kernel.index_type, later, ahead, constant=True))
        with w.scope() as body:
            for x in copies:
                t, operand = x.task, x.operand
                layout = self.kernel.placed[t, operand.site]
                begun = {**ctx.variables, (t, loop_ir.loop_of(holder, t), OUTER): c.Id(later)}
                place = self.stage(c.Id(later), holder.step, stages, layout)
                task = self.scene.plan.tasks[t]
                self.move_block(task, operand, replace(ctx, variables=begun), place)
        test = c.Bin("<", c.Id(later), c.number(holder.extent))
        w.write(c.If(test, tuple(body.statements)))

    @staticmethod
    def stage(outer: c.CExpr, step: int, stages: int, layout: BlockLayout) -> c.CExpr:
        """Returns the index at which a tile's block starts in a shared array of several stages."""
        number = outer if step == 1 else c.Bin("/", outer, c.number(step))
        return c.Bin("*", c.Bin("%", number, c.number(stages)), c.number(layout.n_elements))

    def move_block(
        self, task: TaskPlan, operand: Operand, ctx: Context, stage: c.CExpr | None
    ) -> None:
        """Copies an operand's block for one tile in the widest aligned pieces.

        The copy is asynchronous if a `stage` is given.
        """
        w = self.scene.w
        layout = self.kernel.placed[task.index, operand.site]
        buffer = self.kernel.kept_copies[task.index, operand.site]
        array = self.scene.plan.problem.array(operand.access.array)
        element = w.fresh("e")
        index: dict[str, LoopIndexAt] = {}
        declared: list[c.CStmt] = []
        inside: list[c.CExpr] = []
        here: dict[str, tuple[dict[c.CExpr, int], int]] = {}
        n_pieces = prod(layout.extents.values()) // layout.piece
        rest = n_pieces
        for p in layout.moved:
            name = p.loop.name
            width = layout.piece if p is layout.moved[-1] else 1
            digit: c.CExpr = c.Id(element)
            below = rest * width // layout.extents[name]
            if below > 1:
                digit = c.Bin("/", digit, c.number(below))
            if rest < n_pieces:
                digit = c.Bin("%", digit, c.number(layout.extents[name] // width))
            rest = below
            offset = w.fresh(f"d_{name}")
            digit = c.linear(((digit, width),), 0)
            declared.append(c.Declare(self.kernel.index_type, offset, digit, constant=True))
            at = c.add(ctx.variables[task.index, name, OUTER], c.Id(offset))
            index[name] = LoopIndexAt(at)
            here[name] = {c.Id(offset): 1}, 0
            end = p.loop.extent + operand.reach(name)
            leaves = operand.is_window and operand.leaves(p.loop, array.shape)
            if leaves:
                first, last = operand.inside(array.shape)[name]
                end = min(end, last)
                inside += [c.Bin(">=", at, c.number(first))] if first > 0 else []
            if p.loop.extent % p.tile or leaves:
                inside.append(c.Bin("<", at, c.number(end)))
        there, _ = affine_at(operand.access.axes, row_strides(array.shape), Point(index))
        source = c.Index(self.scene.global_array(array.name), there)
        hint = task.load_hints.get(array.name, "")
        n_rows = layout.piece if layout.is_transposed else 1
        along = layout.moved[-1].loop.name
        places = [
            c.Index(c.Id(buffer.name), locate(layout, {**here, along: (here[along][0], k)}, stage))
            for k in range(n_rows)
        ]
        moves: tuple[c.CStmt, ...] = (
            self.transpose(places, source, hint, array)
            if n_rows > 1
            else (self.move(places[0], source, hint, array.dtype, layout.piece, stage is not None),)
        )
        if inside:
            test = inside[0]
            for x in inside[1:]:
                test = c.Bin("&&", test, x)
            moves = (c.If(test, moves),)
        self.kernel.uses_tid = True
        step = self.kernel.n_threads
        w.write(c.For(element, c.Id("tid"), c.number(n_pieces), step, (*declared, *moves)))
        w.used -= {element, *(d.name for d in declared if isinstance(d, c.Declare))}

    def move(
        self,
        place: c.Index,
        source: c.Index,
        hint: str,
        dtype: DType,
        piece: int,
        is_asynchronous: bool,
    ) -> c.CStmt:
        """Returns a copy of `piece` contiguous elements from global to shared memory."""
        prelude, there = self.scene.prelude, c.Un("&", place)
        if is_asynchronous and piece * dtype.size_bytes >= 4:  # less is copied by threads that wait
            prelude.defined.setdefault("copy_async", COPY_ASYNC)
            function = f"copy_async{piece * dtype.size_bytes}"
            return c.Evaluate(c.Call(function, (there, c.Un("&", source))))
        if piece == 1:
            return c.Assign(place, self.scene.w.memory.element(source.base, source.index, hint))
        x = self.load(source, hint, dtype, piece)
        return c.Evaluate(c.Call(prelude.use("store", dtype, piece), (there, x)))

    def load(self, source: c.Index, hint: str, dtype: DType, piece: int) -> c.Call:
        """Returns a load of `piece` contiguous elements from global memory."""
        load = self.scene.prelude.use(f"load_{hint.lower()}" if hint else "load", dtype, piece)
        return c.Call(load, (c.Un("&", source),))

    def transpose(
        self, places: Sequence[c.Index], source: c.Index, hint: str, array: ArrayInfo
    ) -> tuple[c.CStmt, ...]:
        """Returns a copy of contiguous elements of global memory to `places` in as many rows of shared memory.

        It is one load, and a store for each element.
        """
        w, piece = self.scene.w, len(places)
        vector = w.fresh(f"{array.name}_")
        w.used.discard(vector)
        x = self.load(source, hint, array.dtype, piece)
        opened = c.Declare(type_name(array.dtype, piece), vector, x, constant=True)
        lanes = (c.Index(c.Id(vector), c.number(k)) for k in range(piece))
        return (opened, *(c.Assign(at, lane) for at, lane in zip(places, lanes, strict=True)))
