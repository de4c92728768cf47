"""Stream compaction on a GPU: by one block in the order of the iterations, or by all blocks in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from ...kernels.ir import kernel as ir
from ...kernels.ir.on_trees import Compaction, compactions
from ...kernels.ir.task import Problem
from ...kernels.ir.walk import children, nested_statements, walk
from ...kernels.sparse.flat_loops import coalesced
from ..passes.map_grid import WARP
from ..plan.plan import TaskPlan
from ..text import csyntax as c
from .compaction import CompactionParts, parts_of
from .grid_emission import KernelScene

APPENDING_THREADS = 256  # of a block that appends
BLOCKS_EACH = (
    4  # blocks that append, a multiprocessor: 1024 threads hide most of the latency of a load
)

_MANY = 1 << 30  # more iterations than a grid has threads

Step = Callable[[KernelScene], int]
"""Writes one kernel of a compaction into a scene, and returns its number of blocks."""


def steps_of(task: TaskPlan) -> Iterator[tuple[Step, str]]:
    """Yields the kernels of a task that makes lists, in order, each with what its comment says.

    One block runs all compactions of the task in one kernel. Blocks of a grid do not synchronise, so there the list is
    emptied before the kernel that appends to it, and marked as made behind it.
    """
    body = task.task.body
    assert body is not None
    found = [replace(x, loop=coalesced(x.loop)) for x in compactions(body.statements)]
    assert found, "a list that several threads make is no compaction"
    if task.compaction == "BLOCK_SCAN":
        yield partial(_in_one_block, found=found), ""
        return
    for k in range(len(found)):
        yield partial(_between, found=found, k=k), "empties the list"
        yield partial(_appended, found=found, k=k), ""
    yield partial(_between, found=found, k=len(found)), "marks the list as made"


def _in_one_block(kernel: KernelScene, found: Sequence[Compaction]) -> int:
    """Writes compactions by one block: prefix sums of the threads' counts say where each stores its elements."""
    scene = kernel.scene
    most = scene.target.max_threads_per_block
    n_threads = max(
        min(most, _whole_warps(most_iterations(x.loop, scene.plan.problem))) for x in found
    )
    kernel.shape, kernel.uses_tid = (n_threads,), True
    sums = c.Id(kernel.keep("warp_sums", found[0].count.dtype, n_threads // WARP).name)
    for parts in parts_of(scene, found):
        scene.w.write(c.Scope(_scanned(kernel, parts, sums)))
    return 1


def _scanned(kernel: KernelScene, parts: CompactionParts, sums: c.CExpr) -> tuple[c.CStmt, ...]:
    w, count = kernel.scene.w, parts.x.count.dtype
    length = c.Id(w.fresh("length"))
    scan = kernel.scene.prelude.use("block_scan", count, 0)
    threads = c.number(kernel.n_threads)
    before = c.Call(scan, (c.Un("&", length), parts.n, sums, c.Id("tid"), threads))
    loop = _rounds(kernel, parts, c.Num("0"), kernel.n_threads, before)
    last = c.Bin("&&", parts.is_old, c.Bin("==", c.Id("tid"), c.Num("0")))
    return (
        *parts.opening(),
        c.Declare(parts.kind, length.name, c.Num("0")),
        c.If(parts.is_old, loop),
        c.Barrier(),
        c.If(last, (c.Assign(parts.n, length), *parts.statements(parts.x.ends))),
        c.Barrier(),
    )


def _appended(kernel: KernelScene, found: Sequence[Compaction], k: int) -> int:
    """Writes compaction `k` by all blocks: each warp takes room for its elements by one atomic addition to the length."""
    scene, x = kernel.scene, found[k]
    kernel.shape, kernel.uses_tid = (APPENDING_THREADS,), True
    wanted = -(-most_iterations(x.loop, scene.plan.problem) // APPENDING_THREADS)
    n_blocks = max(1, min(BLOCKS_EACH * scene.target.cores, wanted))
    parts = list(parts_of(scene, found))[k]
    first = x.ends[0]
    length = c.Un("&", parts.writer.v.element(first.array, first.indices).x)
    room = scene.prelude.use("warp_room", x.count.dtype, 0)
    before = c.Call(room, (length, parts.n, c.Id("tid")))
    block = c.CastTo(kernel.index_type, c.Id("blockIdx.x"))
    start = c.linear(((block, APPENDING_THREADS),), 0)
    loop = _rounds(kernel, parts, start, n_blocks * APPENDING_THREADS, before)
    scene.w.write(c.Scope((*parts.opening(), c.If(parts.is_old, loop))))
    return n_blocks


def _rounds(
    kernel: KernelScene, parts: CompactionParts, start: c.CExpr, step: int, before: c.CExpr
) -> tuple[c.CStmt, ...]:
    """Returns the loop in which each thread of a block has an iteration a round, from `start` on.

    `before`: the position of a thread's first element, a call that all threads make. So threads without an iteration stay
    in the loop.
    """
    w = kernel.scene.w
    first, end = c.Id(w.fresh("first")), c.Id(w.fresh("n_looked_at"))
    is_there = c.Bin("<", parts.i, end)
    own = c.Bin("+", first, c.Id("tid"))
    one = (
        c.Declare(kernel.index_type, parts.i.name, own, constant=True),
        c.Assign(parts.n, c.Num("0")),
        c.If(is_there, parts.counted()),
        c.Assign(parts.n, before),
        c.If(is_there, parts.stored()),
    )
    return (
        c.Declare(kernel.index_type, end.name, parts.extent, constant=True),
        c.For(first.name, start, end, step, one),
    )


def _between(kernel: KernelScene, found: Sequence[Compaction], k: int) -> int:
    """Writes what one thread does before compaction `k`: it marks the list before as made, and empties the own one."""
    kernel.shape, kernel.uses_tid = (WARP,), True
    made: list[c.CStmt] = []
    for n, parts in enumerate(parts_of(kernel.scene, found)):
        if n == k - 1:
            done = parts.statements(parts.x.ends[1:])
        elif n == k:
            done = parts.emptied()
        else:
            continue
        made.append(c.Scope((parts.tested(), c.If(parts.is_old, done))))
    alone = c.Bin("==", c.Id("tid"), c.Num("0"))
    kernel.scene.w.write(c.If(alone, tuple(made)))
    return 1


def most_iterations(loop: ir.For, problem: Problem) -> int:
    """Upper bound of the iterations of a loop: that of its extent, and the length of an array that it reads.

    Without either, more than a grid has threads.
    """
    every = (e for s in nested_statements(loop.body) for part in children(s) for e in walk(part))
    lengths = [
        problem.array(e.array).shape[axis]
        for e in every
        if isinstance(e, ir.Load)
        for axis, index in enumerate(e.indices)
        if isinstance(index, ir.LoopIndex) and index.loop == loop.loop
    ]
    return min((_most(loop.extent), *lengths))


def _most(e: ir.Expr) -> int:
    """Upper bound of an extent that is a constant, or is limited by one."""
    match e:
        case ir.Const(value=int(n)):
            return n
        case ir.Binary(op="min", a=a, b=b):
            return min(_most(a), _most(b))
        case ir.Binary(op="add", a=a, b=ir.Const(value=int(n))):
            return _most(a) + n
    return _MANY


def _whole_warps(n: int) -> int:
    return max(WARP, -(-n // WARP) * WARP)
