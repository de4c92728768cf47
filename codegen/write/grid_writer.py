"""Writes one GPU kernel: loop IR to C syntax, which all threads of a block run.

Conditions of loops and tests are uniform over the threads of a block, except tests around straight-line code. So all threads reach
each barrier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod

from ...space.backbone import MID
from ..loops import ir as loop_ir
from ..passes.map_grid import AXES
from ..plan.plan import TaskPlan
from ..text import csyntax as c
from .accumulators import Accumulators
from .block_sums import BlockSumWriter
from .context import Context
from .copy_phases import CopyWriter
from .grid_compaction import Step
from .grid_emission import KernelScene
from .last_block import LastBlockWriter
from .launch_writer import LaunchWriter
from .planned_values import Values
from .register_stages import with_loads_ahead
from .register_sums import update
from .shared_operands import SharedOperands
from .threads import Statements, Threads


@dataclass(frozen=True)
class GridKernel:
    """A GPU kernel: its body, and its launch configuration (grid, block, shared memory)."""

    body: tuple[c.CStmt, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0  # that its launch asks for

    @property
    def n_threads(self) -> int:
        """Number of threads of a block."""
        return prod(self.block)


class BlockThreads(Threads):
    """Threads of a GPU block and blocks of its grid, as the `Threads` of a launch."""

    def __init__(self, kernel: KernelScene, sums: Accumulators) -> None:
        self.kernel, self.scene, self.sums = kernel, kernel.scene, sums
        self.index_type = kernel.index_type
        self.axes = list(_grid(kernel.scene.launch.nodes))  # outermost first
        self.numbers = [self.counted_along(x) for x in self.axes]  # of this block, along each

    def is_among(self, n_threads: int) -> c.CExpr:
        self.kernel.uses_tid = True
        return c.Bin("<", c.Id("tid"), c.number(n_threads))

    def block_along(self, loop: loop_ir.Loop) -> c.CExpr:
        number = self.numbers[self.axes.index(loop)]
        for m in loop.members:
            self.kernel.blocks[m.task, m.loop] = number
        return number

    def counted_along(self, loop: loop_ir.Loop) -> c.CExpr:
        """Returns the number that the GPU gives this block along a loop of the grid."""
        axis = AXES[len(self.axes) - 1 - self.axes.index(loop)]
        return c.CastTo(self.index_type, c.Id(f"blockIdx.{axis}"))

    def start_in_bands(self) -> Iterator[c.Declare]:
        """Yields declarations of the row and the column of this block in a grid whose rows are in bands.

        Blocks start in the order of their numbers: all columns of a band, then those of the next
        band. The last band has the rows that remain.
        """
        if not any(x.band > 1 for x in self.axes):
            return
        rows, columns = self.axes[-2:]
        n_rows, n_columns = map(blocks_of, (rows, columns))
        band = min(rows.band, n_rows)
        number = c.linear(((self.numbers[-1], 1), (self.numbers[-2], n_columns)), 0)
        block, opened = self.named("block", number)
        yield opened
        of_band = c.number(band * n_columns)
        first: c.CExpr = c.Bin("*", c.Bin("/", block, of_band), c.number(band))
        height: c.CExpr = c.number(band)
        if n_rows % band:
            first, opened = self.named("band", first)
            yield opened
            rest = c.Bin("-", c.number(n_rows), first)
            height, opened = self.named("height", c.minimum(rest, height))
            yield opened
        inside = c.Bin("%", block, of_band)
        row = c.Bin("+", first, c.Bin("%", inside, height))
        self.numbers[-2], opened = self.named("row", row)
        yield opened
        self.numbers[-1], opened = self.named("column", c.Bin("/", inside, height))
        yield opened

    def named(self, name: str, value: c.CExpr) -> tuple[c.Id, c.Declare]:
        """Returns a new constant, and its declaration."""
        found = c.Id(self.scene.w.fresh(name))
        return found, c.Declare(self.index_type, found.name, value, constant=True)

    @contextmanager
    def inside(
        self, loop: loop_ir.Loop, variable: c.CExpr, ctx: Context
    ) -> Iterator[tuple[Statements, Context]]:
        w = self.scene.w
        variables = dict(ctx.variables)
        begun: dict[c.CExpr, c.Id] = {}
        declared: list[c.CStmt] = []
        for m in loop.members:
            task = self.scene.plan.tasks[m.task]
            p = loop_ir.last_loop_plan(loop, self.scene.plan.tasks, m)
            if p is None or not p.is_thread:
                continue
            is_vector = p.is_vector and self.scene.is_full(task, p, ctx)
            step = self.scene.lanes(task) if is_vector else 1
            step = p.inner if p.has_neighbours else step
            digit = self.kernel.digits[m.task, m.loop][0]
            start = c.linear(((variable, 1), (digit, step)), 0)
            if start not in begun:
                begun[start] = c.Id(w.fresh(m.loop))
                w.multiples[begun[start].name] = step
                name = begun[start].name
                declared.append(c.Declare(self.index_type, name, start, constant=True))
            variables[m.task, m.loop, MID] = begun[start]
        yield tuple(declared), replace(ctx, variables=variables)
        for x in begun.values():
            w.used.discard(x.name)

    def update(self, task: TaskPlan, ctx: Context) -> None:
        update(self.sums, task, ctx)

    def phase(
        self,
        phase: loop_ir.SumPhase
        | loop_ir.PackPhase
        | loop_ir.CopyPhase
        | loop_ir.ScatterPhase
        | loop_ir.SortByLength,
        task: TaskPlan,
        ctx: Context,
    ) -> None:
        assert not isinstance(phase, loop_ir.ScatterPhase), "blocks of a grid do not scatter"
        assert not isinstance(phase, loop_ir.SortByLength), "blocks of a grid sort nothing"
        if isinstance(phase, loop_ir.SumPhase):
            BlockSumWriter(self.kernel, self.sums).write(phase, task, ctx)
        else:
            CopyWriter(self.kernel).write(phase, task, ctx)

    def ahead(self, loop: loop_ir.Loop, written: c.For) -> Statements:
        t = loop.members[0].task
        copies = [b.name for (u, _), b in self.kernel.kept_copies.items() if u == t]
        return with_loads_ahead(written, copies, self.scene.w.fresh)

    def at_strip(self, strips: loop_ir.Strips, n_strips: int, ctx: Context) -> None:
        raise AssertionError("threads of a block do not pack in strips")


def _grid(nodes: Sequence[loop_ir.Node]) -> Iterator[loop_ir.Loop]:
    """Yields the loops whose iterations the blocks of the grid run, outermost first."""
    for n in nodes:
        if isinstance(n, loop_ir.Loop) and n.is_parallel:
            yield n
            yield from _grid(n.children)


def blocks_of(loop: loop_ir.Loop) -> int:
    """Number of blocks along a loop of the grid."""
    return loop.n_blocks or -(-loop.extent // loop.step)


class KernelWriter:
    """Writer of one GPU kernel: of a launch, or of the initialisation or combination of a task's partial results."""

    def __init__(self, kernel: KernelScene) -> None:
        self.kernel, self.scene = kernel, kernel.scene
        self.values = Values(self.scene, SharedOperands(kernel))
        self.sums = Accumulators(self.scene, self.values)

    def main(self) -> GridKernel:
        """Returns the kernel of the launch itself."""
        scene, kernel = self.scene, self.kernel
        for t in scene.launch.tasks:
            kernel.allocate(scene.plan.tasks[t])
        kernel.order_threads()
        threads = BlockThreads(kernel, self.sums)
        writer = LaunchWriter(scene, self.values, threads)
        with scene.w.scope() as body:
            for statement in threads.start_in_bands():
                scene.w.write(statement)
            writer.children(scene.launch.nodes, Context(is_team=True))
            last = LastBlockWriter(kernel, self.sums)
            for task in (scene.plan.tasks[t] for t in scene.launch.tasks):
                if task.by_last_block:
                    last.write(task)
        return GridKernel(
            self.opened(tuple(body.statements)),
            _along_axes(map(blocks_of, reversed(threads.axes))),
            _along_axes(kernel.shape),
            kernel.asks_for_bytes,
        )

    def combining(self, task: TaskPlan, buffers: KernelScene) -> GridKernel:
        """Returns the kernel that combines a task's partial results, which `buffers` describes."""
        self.take_over(task, buffers)
        with self.scene.w.scope() as body:
            blocks = BlockSumWriter(self.kernel, self.sums).combine_launch(task)
        return self.beside(tuple(body.statements), blocks)

    def starting(self, task: TaskPlan, buffers: KernelScene) -> GridKernel:
        """Returns the kernel that initialises the results to which blocks add; `buffers` describes them."""
        self.take_over(task, buffers)
        with self.scene.w.scope() as body:
            blocks = BlockSumWriter(self.kernel, self.sums).start_launch(task)
        return self.beside(tuple(body.statements), blocks)

    def emptying(self) -> GridKernel:
        """Returns the kernel that sets the counters of finished blocks to 0, by one block."""
        with self.scene.w.scope() as body:
            blocks = LastBlockWriter(self.kernel, self.sums).empty_counters()
        return self.beside(tuple(body.statements), blocks)

    def stepping(self, step: Step) -> GridKernel:
        """Returns one kernel of a task that all blocks share, which `step` writes."""
        with self.scene.w.scope() as body:
            blocks = step(self.kernel)
        return self.beside(tuple(body.statements), blocks)

    def beside(self, body: tuple[c.CStmt, ...], blocks: int) -> GridKernel:
        """Returns a kernel of `blocks` blocks that runs before or after the launch's own kernel."""
        return GridKernel(self.opened(body), _along_axes([blocks]), _along_axes(self.kernel.shape))

    def take_over(self, task: TaskPlan, buffers: KernelScene) -> None:
        """Makes a task's partial results, which another kernel of this launch allocated, accessible to this kernel."""
        scene, found = self.scene, buffers.scene.accumulators[task.index]
        scene.accumulators[task.index] = found
        if not self.kernel.adds_to_result(task):
            scene.opened.append(found[0])
            scene.w.used.add(found[0].name)

    def opened(self, body: tuple[c.CStmt, ...]) -> tuple[c.CStmt, ...]:
        """Returns `body` behind declarations of its buffers and of its thread indices."""
        kernel = self.kernel
        opening: list[c.CStmt] = [*kernel.shared_declarations()]
        opening += [kernel.open_buffer(b) for b in self.scene.opened]
        return (*opening, *kernel.thread_declarations(), *body)


def _along_axes(sizes: Iterable[int]) -> tuple[int, int, int]:
    x, y, z = [*sizes, 1, 1, 1][:3]
    return x, y, z
