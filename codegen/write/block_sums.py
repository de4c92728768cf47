"""Writes reductions of a GPU kernel: in registers, then trees over threads, then partial results of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from ...space.backbone import OUTER
from ...space.targets.gpu_facts import start_of
from ..bodies.iteration_point import LoopIndexAt, Point, affine_at, row_strides
from ..bodies.memory import Value
from ..loops import ir as loop_ir
from ..passes.map_grid import WARP, blocks_along, partial_blocks
from ..plan.plan import LoopPlan, TaskPlan
from ..text import csyntax as c
from ..text.constants import neutral
from ..text.types import type_name
from .accumulators import Accumulators
from .context import Context
from .grid_emission import KernelScene
from .partial_tiles import Over
from .register_sums import finish, reset
from .tile_loops import EmittedTile

FINISHING_THREADS = 256  # of a block that combines partial results
SHORT_SUM = 32  # so many partial results one thread combines alone


class BlockSumWriter:
    """Writer of reductions on a GPU: register accumulators, trees over the threads of a block, partial results of blocks."""

    def __init__(self, kernel: KernelScene, accumulators: Accumulators) -> None:
        self.kernel, self.scene = kernel, kernel.scene
        self.sums, self.values = accumulators, accumulators.values

    def write(self, phase: loop_ir.SumPhase, task: TaskPlan, ctx: Context) -> None:
        match phase:
            case loop_ir.ResetSums():
                reset(self.sums, task, ctx)
            case loop_ir.ReduceThreads():
                self.tree(task, ctx)
            case loop_ir.FlushSums():
                self.flush(task, ctx)
            case loop_ir.FinishSums():
                self.finish(task, ctx)
            case loop_ir.FillSums() | loop_ir.PrefetchSums() | loop_ir.CombineSums():
                raise AssertionError("sums of a block are in registers")

    def tree(self, task: TaskPlan, ctx: Context) -> None:
        """Combines the accumulators of the threads of a block that share a result.

        Each of these threads gets the total.
        """
        old = self.scene.tiles[task.index, "acc"]
        vector = task.vector
        in_lanes = old.lanes if vector is not None and not vector.loop.is_reduction else 0
        free = {p.loop.name for p in task.loops if not p.loop.is_reduction}
        full = tuple((name, n) for name, n in old.full if name in free)
        name = self.scene.w.fresh_family(f"{task.task.target.array}_all")
        new = EmittedTile(name, old.dtype, in_lanes, full, old.slow)
        self.scene.declare(new, None)
        for cell in product(*(range(n) for _, n in full)):
            copies = {p: k for (p, _), k in zip(full, cell, strict=True)}
            headers = [(self.scene.w.fresh("k"), n) for _, n in old.slow]
            indices: dict[str, c.CExpr] = {
                p: c.Id(k) for (p, _), (k, _) in zip(old.slow, headers, strict=True)
            }
            with self.scene.w.scope() as block:
                total = self.sums.total(task, Point({}, copies, indices))
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
        """Returns `x` combined over the threads along reduction loops: within warps, then across warps."""
        digits = [
            (self.kernel.digits[task.index, p.loop.name][1], p.mid)
            for p in task.loops
            if p.is_thread and p.loop.is_reduction
        ]
        return combined(self.kernel, task, x, digits)

    def own_result(self, task: TaskPlan) -> list[c.CExpr]:
        """Returns C conditions that hold for exactly one of the threads of a block that share a result."""
        return [
            c.Bin("==", self.kernel.digits[task.index, p.loop.name][0], c.Num("0"))
            for p in task.loops
            if p.is_thread and p.loop.is_reduction
        ]

    def by_one(self, task: TaskPlan, body: tuple[c.CStmt, ...]) -> None:
        """Writes `body` so that only one of the threads of a block that share a result runs it."""
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
            finish(self.sums, task, ctx)
            return
        with self.scene.w.scope() as block:
            finish(self.sums, task, ctx)
        self.by_one(task, tuple(block.statements))
        self.scene.w.forget(task.task.target.array)

    def flush(self, task: TaskPlan, ctx: Context) -> None:
        """Stores the totals of a block in its part of the workspace, or adds them atomically to the totals of all blocks."""
        buffer, _ = self.scene.accumulators[task.index]
        free = self.scene.free_loops(task)
        with self.scene.w.scope() as block, Over(self.scene, task, free, ctx) as inner:
            for point in self.scene.points(task, free, inner):
                stem = f"{task.task.target.array}_total"
                total = self.scene.w.name(self.sums.total(task, point), stem)
                if task.is_atomic:
                    self.add_atomically(task, point, total, inner)
                else:
                    self.leave(task, point, total, inner)
        self.by_one(task, tuple(block.statements))
        self.scene.w.forget(buffer.name)

    def leave(self, task: TaskPlan, point: Point, total: Value, ctx: Context) -> None:
        buffer, layout = self.scene.accumulators[task.index]
        terms, const = c.flatten(self.sums.index(task, point, ctx))
        block_number = self.block_number(task)
        index = c.linear(((block_number, layout.n_elements), *terms), const)
        self.scene.w.store(buffer.name, c.Id(buffer.name), index, total, buffer.dtype, stream=False)

    def add_atomically(self, task: TaskPlan, point: Point, total: Value, ctx: Context) -> None:
        buffer, layout = self.scene.accumulators[task.index]
        array = self.scene.plan.problem.array(task.task.target.array)
        if self.kernel.adds_to_result(task):
            axes = task.task.target.axes
            index, stride = affine_at(axes, row_strides(array.shape), point)
        else:
            index = self.sums.index(task, point, ctx)
            stride = layout.strides.get(point.vector_loop or "", 0)
        add = self.scene.prelude.use(f"atomic_{task.task.op}", buffer.dtype, 0)
        for n in range(max(1, total.lanes)):
            terms, const = c.flatten(index)
            place = c.Index(c.Id(buffer.name), c.linear(tuple(terms), const + n * stride))
            x = c.Index(total.x, c.number(n)) if total.lanes else total.x
            self.scene.w.write(c.Evaluate(c.Call(add, (c.Un("&", place), x))))

    def block_number(self, task: TaskPlan) -> c.CExpr:
        """Returns the number of this block among the blocks that contribute to the same results."""
        reduced = [p for p in task.loops if p.is_parallel and p.loop.is_reduction]
        return block_among(self.kernel, task, reduced)

    # --- the launch that combines partial results ---

    def start_launch(self, task: TaskPlan) -> int:
        """Writes the kernel that initialises the results to which blocks add. Returns its number of blocks."""
        buffer, layout = self.scene.accumulators[task.index]
        op, w = task.task.op, self.scene.w
        assert op is not None
        blocks = self.by_result(layout.n_elements)
        result = self.number_of_result(c.Id("tid"), self.kernel.n_threads)
        with w.scope() as body:
            index: c.CExpr = c.Id(result)
            value = neutral(op, buffer.dtype)
            if self.kernel.adds_to_result(task):
                array = self.scene.plan.problem.array(task.task.target.array)
                point, context = self.point_of(task, result)
                index, _ = affine_at(task.task.target.axes, row_strides(array.shape), point)
                start = start_of(task.task)
                if start is not None:
                    x = self.values.value(task, start, point, context)
                    value = w.converted(x, buffer.dtype).x
            w.write(c.Assign(c.Index(c.Id(buffer.name), index), value))
        is_there = c.Bin("<", c.Id(result), c.number(layout.n_elements))
        w.write(c.If(is_there, tuple(body.statements)))
        return blocks

    def by_result(self, n_results: int) -> int:
        """Sets the block shape such that each thread handles one result. Returns the number of blocks."""
        threads = min(FINISHING_THREADS, max(WARP, -(-n_results // WARP) * WARP))
        self.kernel.shape = (threads,)
        return -(-n_results // threads)

    def number_of_result(self, thread: c.CExpr, threads: int) -> str:
        """Declares the index of the result that a thread handles, and returns the variable's name.

        `threads`: results of a block, one for each thread; 1: the whole block handles one result, whose index is the block's.
        """
        self.kernel.uses_tid = True
        result = self.scene.w.fresh("result")
        block = c.CastTo(self.kernel.index_type, c.Id("blockIdx.x"))
        number = c.linear(((block, threads), (thread, 1)), 0) if threads > 1 else block
        self.scene.w.write(c.Declare(self.kernel.index_type, result, number, constant=True))
        return result

    def combine_launch(self, task: TaskPlan) -> int:
        """Writes the kernel that combines the partial results of a task's blocks.

        Returns its number of blocks.
        """
        buffer, layout = self.scene.accumulators[task.index]
        n_parts, n_results = partial_blocks(task), layout.n_elements
        op = task.task.op
        assert op is not None
        w, kind = self.scene.w, type_name(buffer.dtype, 0)
        alone = n_parts <= SHORT_SUM
        if alone:
            blocks = self.by_result(n_results)
        else:
            blocks, self.kernel.shape = n_results, (FINISHING_THREADS,)
        threads = self.kernel.n_threads
        result = self.number_of_result(c.Id("tid"), threads if alone else 1)
        total, part = w.fresh("total"), w.fresh("part")
        w.write(c.Declare(kind, total, neutral(op, buffer.dtype)))
        index = c.linear(((c.Id(part), n_results), (c.Id(result), 1)), 0)
        with w.scope() as summed:
            x = Value(c.Index(c.Id(buffer.name), index), buffer.dtype)
            w.write(self.sums.added(Value(c.Id(total), buffer.dtype), op, x))
        start: c.CExpr = c.Num("0") if alone else c.Id("tid")
        step = 1 if alone else threads
        loop: c.CStmt = c.For(part, start, c.number(n_parts), step, tuple(summed.statements))
        if n_parts == 1:
            loop = c.Assign(c.Id(total), c.Index(c.Id(buffer.name), c.Id(result)))
        is_there = c.Bin("<", c.Id(result), c.number(n_results))
        with w.scope() as finished:
            self.store_result(task, result, total)
        if alone:
            w.write(c.If(is_there, (loop, *finished.statements)))
            return blocks
        w.write(loop)
        everyone = combined(self.kernel, task, c.Id(total), [(1, threads)])
        w.write(c.Assign(c.Id(total), everyone.x))
        w.write(c.If(c.Bin("==", c.Id("tid"), c.Num("0")), tuple(finished.statements)))
        return blocks

    def store_result(self, task: TaskPlan, result: str, total: str) -> None:
        """Applies the reduction's finish to a total, and stores the result.

        `result`: C variable with the result's number. `total`: C variable with its total.
        """
        point, context = self.point_of(task, result)
        value = self.sums.finished(task, point, Value(c.Id(total), task.task.dtype), context)
        self.values.put(task, point, value, context)

    def point_of(self, task: TaskPlan, result: str) -> tuple[Point, Context]:
        """Declares the loop indices of a result, and returns its point and context.

        `result`: C variable with the result's number.
        """
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
            self.scene.w.write(c.Declare(self.kernel.index_type, variable, x, constant=True))
            index[name] = LoopIndexAt(c.Id(variable))
        return outer_point(task, index)


def outer_point(task: TaskPlan, index: dict[str, LoopIndexAt]) -> tuple[Point, Context]:
    """Returns the point and the context of one result, whose index along each loop is given."""
    outer = {(task.index, name, OUTER): at.expression() for name, at in index.items()}
    return Point(index), Context(outer)


def combined(
    kernel: KernelScene, task: TaskPlan, x: c.CExpr, digits: list[tuple[int, int]]
) -> Value:
    """Returns `x` combined over threads whose numbers differ in some digits, each a stride and a count."""
    op, dtype, prelude = task.task.op, task.task.dtype, kernel.scene.prelude
    for stride, n in digits:
        end = stride * n
        if stride < WARP:
            shuffle = prelude.use(f"warp_{op}", dtype, 0)
            x = c.Call(shuffle, (x, c.number(stride), c.number(min(end, WARP))))
        if end > WARP:
            first = max(stride, WARP)
            meet = prelude.use(f"block_{op}", dtype, 0)
            place: c.CExpr = c.CastTo(f"{type_name(dtype, 0)} *", c.Id("meeting"))
            kernel.meets_warps = kernel.uses_tid = True
            numbers = (c.number(first), c.number(end // first))
            x = c.Call(meet, (x, place, c.Id("tid"), *numbers))
    return Value(x, dtype)


def block_among(kernel: KernelScene, task: TaskPlan, loops: Sequence[LoopPlan]) -> c.CExpr:
    """Returns the number of this block among the blocks along some loops of a task."""
    terms, n_blocks = [], 1
    for p in reversed(loops):
        terms.append((kernel.blocks[task.index, p.loop.name], n_blocks))
        n_blocks *= blocks_along(p)
    return terms[0][0] if len(terms) == 1 else c.linear(tuple(reversed(terms)), 0)
