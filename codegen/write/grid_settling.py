"""Reclaiming of pools on a GPU: threads of all blocks clear returned slots, and one thread changes the counters behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ...kernels.ir import kernel as ir
from ...kernels.ir.settlements import Settlement, settlements
from ...kernels.ir.walk import children, nested_statements, walk
from ..bodies.bodies import BodyWriter
from ..passes.map_grid import WARP
from ..plan.plan import TaskPlan
from ..text import csyntax as c
from .grid_compaction import BLOCKS_EACH, Step, most_iterations
from .grid_emission import KernelScene

SETTLING_THREADS = 256  # of a block


def steps_of(task: TaskPlan) -> Iterator[tuple[Step, str]]:
    """Yields the kernels of a task that reclaims pools, in order, each with what its comment says.

    A slot that is cleared returns slots of the pools below it, so each pool has a launch behind that of the pool above.
    """
    body = task.task.body
    assert body is not None
    found = settlements(body.statements)
    assert found, "pools that many threads reclaim have loops that wait for no counter"
    for x in found:
        yield partial(_cleared, x=x), ""
    yield partial(_committed, found=found), "changes the counters of pools"


def _cleared(kernel: KernelScene, x: Settlement) -> int:
    """Writes the grid-stride loop over the returned slots of a pool; returns its number of blocks."""
    scene = kernel.scene
    w, problem = scene.w, scene.plan.problem
    kernel.shape, kernel.uses_tid = (SETTLING_THREADS,), True
    wanted = -(-most_iterations(x.loop, problem) // SETTLING_THREADS)
    n_blocks = max(1, min(BLOCKS_EACH * scene.target.cores, wanted))
    writer = _writer(kernel)
    writer.v.strong = frozenset({s.array for s in problem.parts.states} & _met(x.loop))
    opening = writer.iteration(x.held)
    k, end = (c.Id(w.fresh(name)) for name in ("k", "n_returned"))
    extent = w.converted(writer.v.evaluate(x.loop.extent), ir.DType.i64).x
    writer.v.loops = {x.loop.loop: k}
    one = writer.iteration(x.loop.body)
    block = c.CastTo(kernel.index_type, c.Id("blockIdx.x"))
    first = c.Bin("+", c.linear(((block, SETTLING_THREADS),), 0), c.Id("tid"))
    ended = c.Declare(kernel.index_type, end.name, extent, constant=True)
    loop = c.For(k.name, first, end, n_blocks * SETTLING_THREADS, one)
    w.write(c.Scope((*opening, ended, loop)))
    return n_blocks


def _committed(kernel: KernelScene, found: Sequence[Settlement]) -> int:
    """Writes what one thread does behind all loops: it changes the counters of all pools."""
    kernel.shape, kernel.uses_tid = (WARP,), True
    writer = _writer(kernel)
    committed: list[ir.Stmt] = []
    for x in found:
        committed += [*x.held, *x.stores]
    done = writer.iteration(tuple(committed))
    alone = c.Bin("==", c.Id("tid"), c.Num("0"))
    kernel.scene.w.write(c.If(alone, done))
    return 1


def _writer(kernel: KernelScene) -> BodyWriter:
    """Returns a writer of statements that several threads run, whose updates are atomic."""
    scene = kernel.scene
    writer = BodyWriter(scene.w, scene.plan.problem, scene.global_array, lambda update: True)
    writer.v.plain_indices = True
    return writer


def _met(loop: ir.For) -> set[str]:
    """Returns arrays of which several iterations may change one element: those also read or updated, and those with marks.

    A mark is a constant. Two slots that one cell has had in turn clear the same key.
    """
    inside = list(nested_statements(loop.body))
    loaded = {
        e.array
        for s in inside
        for part in children(s)
        for e in walk(part)
        if isinstance(e, ir.Load)
    }
    stores = [s for s in inside if isinstance(s, ir.Store)]
    marked = {s.array for s in stores if isinstance(s.value, ir.Const)}
    updated = {s.array for s in inside if isinstance(s, ir.Update)}
    return updated | marked | ({s.array for s in stores} & loaded)
