"""Writes the end of a kernel whose last block combines partial results: counters of finished blocks, and the combination.

Blocks with the same results are a group. Each leaves its partial results in the workspace and counts itself in the counter of its
group. The one that completes the count finds what all have left, and finishes the results. It leaves 0 in the counter.
"""

from __future__ import annotations

from math import prod

from ..bodies.iteration_point import LoopIndexAt
from ..bodies.memory import Value
from ..passes.map_grid import blocks_along, partial_blocks
from ..plan.plan import LoopPlan, TaskPlan
from ..text import csyntax as c
from ..text.constants import neutral
from ..text.types import type_name
from .accumulators import Accumulators
from .block_sums import FINISHING_THREADS, SHORT_SUM, block_among, combined, outer_point
from .grid_emission import KernelScene, groups_along


class LastBlockWriter:
    """Writer of the combination that the last block of a group makes."""

    def __init__(self, kernel: KernelScene, sums: Accumulators) -> None:
        self.kernel, self.scene, self.sums = kernel, kernel.scene, sums

    def empty_counters(self) -> int:
        """Writes a kernel that sets all counters to 0. Returns its number of blocks."""
        buffer, w = self.kernel.open_counters(), self.scene.w
        self.kernel.shape, self.kernel.uses_tid = (FINISHING_THREADS,), True
        k = w.fresh("k")
        emptied = c.Assign(c.Index(c.Id(buffer.name), c.Id(k)), c.Num("0"))
        n, threads = c.number(buffer.n_elements), self.kernel.n_threads
        w.write(c.For(k, c.Id("tid"), n, threads, (emptied,)))
        return 1

    def write(self, task: TaskPlan) -> None:
        """Writes the end of a kernel, which all threads of a block reach."""
        buffer, w = self.kernel.open_counters(), self.scene.w
        self.kernel.uses_tid = True
        terms, const = c.flatten(block_among(self.kernel, task, groups_along(task)))
        counter = c.linear(tuple(terms), const + self.kernel.counters.first[task.index])
        place = c.Un("&", c.Index(c.Id(buffer.name), counter))
        test = self.scene.prelude.use("last_block", buffer.dtype, 0)
        is_last = c.Call(test, (place, c.number(partial_blocks(task)), c.Id("tid")))
        w.write(c.If(is_last, (self.combination(task),)))

    def combination(self, task: TaskPlan) -> c.CStmt:
        """Returns the combination of a group's partial results, by all threads of one block.

        Where there are many results, or few parts of each, a thread combines a result alone; else all
        threads combine one result after the other.
        """
        _, layout = self.scene.accumulators[task.index]
        sizes = {name: _results_along(task.loop(name)) for name in layout.strides}
        threads, n_results = self.kernel.n_threads, prod(sizes.values())
        alone = partial_blocks(task) <= SHORT_SUM or n_results >= threads
        result = self.scene.w.fresh("result")
        with self.scene.w.scope() as block:
            self.one_result(task, result, sizes, alone)
        body = tuple(block.statements)
        if alone:
            return c.For(result, c.Id("tid"), c.number(n_results), threads, body)
        if n_results == 1:
            return c.Scope(body)
        return c.For(result, c.Num("0"), c.number(n_results), 1, body)

    def one_result(self, task: TaskPlan, result: str, sizes: dict[str, int], alone: bool) -> None:
        """Writes the combination of one result, by one thread if `alone`; `sizes`: results of the group along each loop."""
        w, index, inside, stride = self.scene.w, {}, [], 1
        for name, size in sizes.items():
            variable, p = w.fresh(name), task.loop(name)
            digit = _digit(c.Id(result), stride, size, prod(sizes.values()))
            at = self.first_along(task, p, digit)
            w.write(c.Declare(self.kernel.index_type, variable, at, constant=True))
            index[name] = LoopIndexAt(c.Id(variable))
            if p.is_parallel and p.loop.extent % (blocks_along(p) * size):
                inside.append(c.Bin("<", c.Id(variable), c.number(p.loop.extent)))
            stride *= size
        with w.scope() as block:
            self.total_and_finish(task, index, alone)
        body = tuple(block.statements)
        for test in inside:
            body = (c.If(test, body),)
        for statement in body:
            w.write(statement)

    def first_along(self, task: TaskPlan, p: LoopPlan, digit: c.CExpr) -> c.CExpr:
        """Returns the index along a loop of the group's result with that number along it.

        Blocks in turn have results of several tiles, which are as far apart as there are blocks.
        """
        if not p.is_parallel:
            return digit
        block = self.kernel.blocks[task.index, p.loop.name]
        if not p.n_blocks:
            return c.linear(((block, p.tile), (digit, 1)), 0)
        tile: c.CExpr = c.Bin("/", digit, c.number(p.tile)) if p.tile > 1 else digit
        inside: c.CExpr = c.Bin("%", digit, c.number(p.tile)) if p.tile > 1 else c.Num("0")
        return c.linear(((block, p.tile), (tile, p.n_blocks * p.tile), (inside, 1)), 0)

    def total_and_finish(self, task: TaskPlan, index: dict[str, LoopIndexAt], alone: bool) -> None:
        """Writes the sum of a result's parts, which are read from L2, its finish and its store."""
        buffer, layout = self.scene.accumulators[task.index]
        op, dtype, w = task.task.op, buffer.dtype, self.scene.w
        assert op is not None
        point, context = outer_point(task, index)
        total, part, threads = w.fresh("total"), w.fresh("part"), self.kernel.n_threads
        terms, const = c.flatten(self.sums.index(task, point, context))
        place = c.linear(((c.Id(part), layout.n_elements), *terms), const)
        left = c.Call("__ldcg", (c.Un("&", c.Index(c.Id(buffer.name), place)),))
        with w.scope() as summed:
            w.write(self.sums.added(Value(c.Id(total), dtype), op, Value(left, dtype)))
        start, step = (c.Num("0"), 1) if alone else (c.Id("tid"), threads)
        n_parts, body = c.number(partial_blocks(task)), tuple(summed.statements)
        w.write(c.Declare(type_name(dtype, 0), total, neutral(op, dtype)))
        w.write(c.For(part, start, n_parts, step, body))
        with w.scope() as finished:
            value = self.sums.finished(task, point, Value(c.Id(total), task.task.dtype), context)
            self.sums.values.put(task, point, value, context)
        stored = tuple(finished.statements)
        if not alone:
            everyone = combined(self.kernel, task, c.Id(total), [(1, threads)])
            w.write(c.Assign(c.Id(total), everyone.x))
            stored = (c.If(c.Bin("==", c.Id("tid"), c.Num("0")), stored),)
        for statement in stored:
            w.write(statement)


def _results_along(p: LoopPlan) -> int:
    """Number of results along a loop that a group of blocks has, or would have with whole tiles."""
    if not p.is_parallel:
        return p.loop.extent
    n_tiles = -(-p.loop.extent // p.tile)
    return -(-n_tiles // p.n_blocks) * p.tile if p.n_blocks else p.tile


def _digit(number: c.CExpr, stride: int, size: int, end: int) -> c.CExpr:
    """Returns the digit with that stride of a number below `end`, whose digits are below `size`."""
    if size == 1:
        return c.Num("0")
    x = number if stride == 1 else c.Bin("/", number, c.number(stride))
    return x if stride * size == end else c.Bin("%", x, c.number(size))
