"""Writes one GPU kernel: loop IR to C syntax, which all threads of a block run.

Conditions of loops and tests are uniform over the threads of a block, except tests around straight-line code. So all threads reach
each barrier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod

from ...space.backbone import MID
from ..bodies.cuda_prelude import MEET_GRID, PUBLISH, STRONG
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
    stays: bool = False  # its blocks wait for each other

    @property
    def n_threads(self) -> int:
        """Number of threads of a block."""
        return prod(self.block)


class BlockThreads(Threads):
    """Threads of a GPU block and blocks of its grid, as the `Threads` of a launch."""

    def __init__(self, kernel: KernelScene, sums: Accumulators) -> None:
        self.kernel, self.scene, self.sums = kernel, kernel.scene, sums
        self.last = LastBlockWriter(kernel, sums)
        self.unfinished: list[int] = []  # tasks whose sums a last block has yet to combine
        self.index_type = kernel.index_type
        # The loops of the grid in each nest, outermost first. All nests have as many blocks along each.
        self.nests = list(loop_ir.grid_nests(kernel.scene.launch.nodes))
        self.axes = self.nests[0] if self.nests else ()
        self.numbers = [self.counted_along(k) for k in range(len(self.axes))]  # of this block

    def is_among(self, n_threads: int) -> c.CExpr:
        self.kernel.uses_tid = True
        return c.Bin("<", c.Id("tid"), c.number(n_threads))

    def block_along(self, loop: loop_ir.Loop) -> c.CExpr:
        number = self.numbers[next(x.index(loop) for x in self.nests if loop in x)]
        for m in loop.members:
            self.kernel.blocks[m.task, m.loop] = number
        return number

    def meet_grid(self) -> None:
        self.finish_sums()
        write_grid_barrier(self.kernel)

    def flushed(self, node: loop_ir.Node) -> None:
        """Notes the sums of which blocks have left partial results behind a node of the launch."""
        phases = (p for p in loop_ir.phases_of(node) if isinstance(p, loop_ir.FlushSums))
        self.unfinished += (p.task for p in phases if self.scene.plan.tasks[p.task].by_last_block)

    def finish_sums(self) -> None:
        """Writes the combinations, by the last block of each group, of all sums whose blocks have left partial results."""
        for t in (t for t in self.scene.launch.tasks if t in self.unfinished):
            self.last.write(self.scene.plan.tasks[t])
        self.unfinished = []

    def counted_along(self, k: int) -> c.CExpr:
        """Returns the number that the GPU gives this block along loop number `k` of the grid."""
        axis = AXES[len(self.axes) - 1 - k]
        return c.CastTo(self.index_type, c.Id(f"blockIdx.{axis}"))

    def start_in_bands(self) -> Iterator[c.Declare]:
        """Yields declarations of the row and the column of this block in a grid whose rows are in bands.

        Blocks start in the order of their numbers: all columns of a band, then those of the next
        band. The last band has the rows that remain.
        """
        if not any(x.band > 1 for x in self.axes):
            return
        rows, columns = self.axes[-2:]
        n_rows, n_columns = map(loop_ir.blocks_of, (rows, columns))
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


def write_grid_barrier(kernel: KernelScene) -> None:
    """Writes a call of the function in which all blocks synchronise, with their count and its sense."""
    counters, w = kernel.open_counters(), kernel.scene.w
    for name, text in (("strong", STRONG), ("publish", PUBLISH), ("meet_grid", MEET_GRID)):
        w.prelude.defined.setdefault(name, text)
    first = kernel.counters.meeting
    places = (c.Index(c.Id(counters.name), c.number(first + k)) for k in range(2))
    w.write(c.Evaluate(c.Call("meet_grid", tuple(c.Un("&", x) for x in places))))
    w.forget_all()


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
            for node in scene.launch.nodes:
                writer.node(node, Context(is_team=True))
                threads.flushed(node)
            threads.finish_sums()
        return GridKernel(
            self.opened(tuple(body.statements)),
            _along_axes(map(loop_ir.blocks_of, reversed(threads.axes))),
            _along_axes(kernel.shape),
            kernel.asks_for_bytes,
            scene.launch.stays,
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
