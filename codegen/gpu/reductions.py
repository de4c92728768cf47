"""Writes reductions of a kernel: in registers of a thread, then in a tree over threads, then as partial results of blocks."""

from __future__ import annotations

from itertools import product
from math import prod

from ...space.backbone import OUTER
from .. import csyntax as c
from ..block import Value
from ..plan import TaskPlan
from ..point import LoopIndexAt, Point
from ..reductions import Reductions
from ..scene import Context, neutral
from ..storage import Tile
from ..vectors import type_name
from .nest import partial_blocks
from .scene import WARP, GpuScene

FINISHING_THREADS = 256  # of a block that combines partial results
SHORT_SUM = 32  # so many partial results one thread combines alone


class GpuReductions(Reductions):
    """The phases of a kernel's reductions (codegen/gpu/nest.py)."""

    scene: GpuScene

    def tree(self, task: TaskPlan, ctx: Context) -> None:
        """Combines the accumulators of the threads that share a result; all of them get it."""
        old = self.scene.tiles[task.index, "acc"]
        vector = task.vector
        in_lanes = old.lanes if vector is not None and not vector.loop.is_reduction else 0
        free = {p.loop.name for p in task.loops if not p.loop.is_reduction}
        full = tuple((name, n) for name, n in old.full if name in free)
        name = self.scene.w.fresh_family(f"{task.task.target.array}_all")
        new = Tile(name, old.dtype, in_lanes, full, old.slow)
        self.scene.declare(new, None)
        for cell in product(*(range(n) for _, n in full)):
            copies = {p: k for (p, _), k in zip(full, cell, strict=True)}
            headers = [(self.scene.w.fresh("k"), n) for _, n in old.slow]
            indices: dict[str, c.CExpr] = {
                p: c.Id(k) for (p, _), (k, _) in zip(old.slow, headers, strict=True)
            }
            with self.scene.w.scope() as block:
                total = self.total(task, Point({}, copies, indices))
                place = new.ref(copies, indices)
                self.scene.w.write(c.Assign(place, total.x))
                for n in range(in_lanes) if in_lanes else (None,):
                    lane = place if n is None else c.Index(place, c.number(n))
                    self.scene.w.write(c.Assign(lane, self.over_threads(task, lane).x))
            body = tuple(block.statements)
            for k, n in reversed(headers):
                body = (c.For(k, c.Num("0"), c.number(n), 1, body),)
                self.scene.w.used.discard(k)
            for statement in body:
                self.scene.w.write(statement)
        self.scene.tiles[task.index, "acc"] = new

    def over_threads(self, task: TaskPlan, x: c.CExpr) -> Value:
        """A value combined over the threads of the loops that are reduced: inside warps, then across them."""
        digits = [
            (self.scene.digits[task.index, p.loop.name][1], p.mid)
            for p in task.loops
            if p.is_thread and p.loop.is_reduction
        ]
        return self.combined(task, x, digits)

    def combined(self, task: TaskPlan, x: c.CExpr, digits: list[tuple[int, int]]) -> Value:
        op, dtype = task.task.op, task.task.dtype
        for stride, n in digits:
            end = stride * n
            if stride < WARP:
                shuffle = self.scene.prelude.use(f"warp_{op}", dtype, 0)
                x = c.Call(shuffle, (x, c.number(stride), c.number(min(end, WARP))))
            if end > WARP:
                first = max(stride, WARP)
                meet = self.scene.prelude.use(f"block_{op}", dtype, 0)
                place: c.CExpr = c.CastTo(f"{type_name(dtype, 0)} *", c.Id("meeting"))
                self.scene.meets_warps = True
                x = c.Call(meet, (x, place, c.number(first), c.number(end // first)))
        return Value(x, dtype)

    def own_result(self, task: TaskPlan) -> list[c.CExpr]:
        """Tests that only one of the threads with the same result passes."""
        return [
            c.Bin("==", self.scene.digits[task.index, p.loop.name][0], c.Num("0"))
            for p in task.loops
            if p.is_thread and p.loop.is_reduction
        ]

    def by_one(self, task: TaskPlan, body: tuple[c.CStmt, ...]) -> None:
        """Writes statements for one of the threads with the same result."""
        tests = self.own_result(task)
        if not tests:
            for s in body:
                self.scene.w.write(s)
            return
        test = tests[0]
        for x in tests[1:]:
            test = c.Bin("&&", test, x)
        self.scene.w.write(c.If(test, body))

    def finish(self, task: TaskPlan, ctx: Context) -> None:
        if not self.own_result(task):
            super().finish(task, ctx)
            return
        with self.scene.w.scope() as block:
            super().finish(task, ctx)
        self.by_one(task, tuple(block.statements))
        self.scene.w.forget(task.task.target.array)

    def flush(self, task: TaskPlan, ctx: Context) -> None:
        """Stores the partial results of a block, in its own part of the workspace."""
        buffer, layout = self.scene.accumulators[task.index]
        free = self.scene.free_loops(task)
        block_number = self.block_number(task)
        with self.scene.w.scope() as block, self.scene.over(task, free, ctx) as inner:
            for point in self.scene.points(task, free, inner):
                stem = f"{task.task.target.array}_total"
                total = self.scene.w.name(self.total(task, point), stem)
                place = self.accumulator_index(task, point, inner)
                terms, const = c.flatten(place)
                index = c.linear(((block_number, layout.n_elements), *terms), const)
                self.scene.w.store(
                    buffer.name, c.Id(buffer.name), index, total, buffer.dtype, stream=False
                )
        self.by_one(task, tuple(block.statements))
        self.scene.w.forget(buffer.name)

    def block_number(self, task: TaskPlan) -> c.CExpr:
        return next(
            self.scene.blocks[task.index, p.loop.name]
            for p in task.loops
            if p.is_parallel and p.loop.is_reduction
        )

    # --- the launch that combines partial results ---

    def combine_launch(self, task: TaskPlan) -> tuple[int, int]:
        """Writes the kernel that combines a task's partial results; its blocks and threads."""
        buffer, layout = self.scene.accumulators[task.index]
        n_parts = partial_blocks(task)
        n_results = layout.n_elements
        op = task.task.op
        assert op is not None
        w, kind = self.scene.w, type_name(buffer.dtype, 0)
        alone = n_parts <= SHORT_SUM
        threads = FINISHING_THREADS
        if alone:
            threads = min(threads, max(WARP, -(-n_results // WARP) * WARP))
        self.scene.n_threads = threads
        self.scene.uses_tid = True
        result, total, part = w.fresh("result"), w.fresh("total"), w.fresh("part")
        block = c.CastTo(self.scene.index_type, c.Id("blockIdx.x"))
        number = c.linear(((block, threads), (c.Id("tid"), 1)), 0) if alone else block
        w.write(c.Declare(self.scene.index_type, result, number, constant=True))
        w.write(c.Declare(kind, total, neutral(op, buffer.dtype)))
        index = c.linear(((c.Id(part), n_results), (c.Id(result), 1)), 0)
        with w.scope() as summed:
            x = Value(c.Index(c.Id(buffer.name), index), buffer.dtype)
            self.accumulate(Value(c.Id(total), buffer.dtype), op, x)
        start: c.CExpr = c.Num("0") if alone else c.Id("tid")
        step = 1 if alone else threads
        loop = c.For(part, start, c.number(n_parts), step, tuple(summed.statements))
        is_there = c.Bin("<", c.Id(result), c.number(n_results))
        with w.scope() as finished:
            self.store_result(task, result, total)
        if alone:
            w.write(c.If(is_there, (loop, *finished.statements)))
            return -(-n_results // threads), threads
        w.write(loop)
        everyone = self.combined(task, c.Id(total), [(1, threads)])
        w.write(c.Assign(c.Id(total), everyone.x))
        w.write(c.If(c.Bin("==", c.Id("tid"), c.Num("0")), tuple(finished.statements)))
        return n_results, threads

    def store_result(self, task: TaskPlan, result: str, total: str) -> None:
        """Finishes and stores one result, whose number is in `result`."""
        _, layout = self.scene.accumulators[task.index]
        extents = {p.loop.name: p.loop.extent for p in task.loops}
        index = {}
        size = prod(extents[name] for name in layout.strides)
        for name, stride in layout.strides.items():
            x: c.CExpr = c.Id(result)
            if stride > 1:
                x = c.Bin("/", x, c.number(stride))
            if stride * extents[name] < size:
                x = c.Bin("%", x, c.number(extents[name]))
            variable = self.scene.w.fresh(name)
            self.scene.w.write(c.Declare(self.scene.index_type, variable, x, constant=True))
            index[name] = LoopIndexAt(c.Id(variable))
        point = Point(index)
        context = Context(
            {(task.index, name, OUTER): at.expression() for name, at in index.items()}
        )
        value = self.finished(task, point, Value(c.Id(total), task.task.dtype), context)
        self.values.put(task, point, value, context)
