"""Default rules for batches of small matrices and signals: blocks of a vector of iterations interleaved, local arrays in registers.

A block is what one iteration of a batch loop works on (kernels/tasks/batch_blocks.py). The decisions are about a loop of a body,
and come before all others: those see the body that they give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...kernels.analysis.inner_ranges import widest
from ...kernels.analysis.uniformity import Uniformity
from ...kernels.analysis.vectorisable import refusal
from ...kernels.ir import kernel as ir
from ...kernels.ir.task import Problem, Task
from ...kernels.ir.walk import children, nested_statements, size
from ...kernels.tasks import work
from ...kernels.tasks.batch_blocks import BatchBlock, batch_blocks, interleaved
from ...kernels.tasks.standalone import nest_problem
from ...kernels.transforms.local_elements import in_locals
from .default_lanes import LEAST_BYTES, lanes_of, runs_along_rows

_COPY_NS = 2.0  # of an element to its place among those of the other lanes, or back
_MOST_NODES = 2048  # of expressions in a body whose local arrays are in registers


def batched_nest(
    problem: Problem,
    task: Task,
    nest: Sequence[ir.For],
    are_apart: Callable[[Sequence[ir.For], tuple[ir.Stmt, ...]], bool],
    vector_bytes: int,
) -> tuple[ir.For, ...]:
    """Returns the loops of a perfect nest down to the one whose blocks are to be interleaved; () if there is none that pays.

    Nests whose outermost loop is as long as data say have none: blocks are of loops with a known extent.
    `are_apart`: as that of `lanes_of` (default_lanes.py). If `lanes_of` finds a loop inside that fills vectors, that one is better,
    since it needs no copies.
    """
    if vector_bytes < LEAST_BYTES or not isinstance(nest[0].extent, ir.Const):
        return ()
    if refusal(nest[0].body, problem):
        return ()
    lanes = lanes_of(problem, nest, are_apart, vector_bytes)
    n_lanes = vector_bytes // widest(nest[0].body)
    if lanes is not None and any(x.loop == lanes[0] and _fills(x, n_lanes) for x in nest[1:]):
        return ()
    for levels in range(1, len(nest) + 1):
        around, loop = nest[:levels], nest[levels - 1]
        if _may_pay(loop, vector_bytes) and are_apart(around, loop.body):
            alone = nest_problem(problem, task, around)
            found = batch_blocks(alone, alone.tasks[0])
            if found and _pays(loop, found):
                return tuple(around)
    return ()


def is_short_in_locals(
    problem: Problem, task: Task, nest: Sequence[ir.For], used: frozenset[str]
) -> bool:
    """True if the body of an interleaved nest is short after its local arrays are locals: a plain call waits for its compiler.

    `used`: names in the kernel.
    """
    alone = nest_problem(problem, task, nest)
    made = in_locals(interleaved(alone, alone.tasks[0], used).statements, used)
    if made is None:
        return False
    return sum(size(e) for s in nested_statements(made) for e in children(s)) <= _MOST_NODES


def _may_pay(loop: ir.For, vector_bytes: int) -> bool:
    """True if a loop fills vectors, and compilers do not vectorise the loops inside of it."""
    n_lanes = vector_bytes // widest(loop.body)
    inner = [s for s in nested_statements(loop.body) if isinstance(s, ir.For)]
    innermost = [
        s for s in inner if not any(isinstance(x, ir.For) for x in nested_statements(s.body))
    ]
    if not innermost or not _fills(loop, n_lanes):
        return False
    uniformity = Uniformity(loop.loop, loop.body, frozenset())
    return not all(_fills(s, n_lanes) and runs_along_rows(s, uniformity) for s in innermost)


def _fills(loop: ir.For, n_lanes: int) -> bool:
    """True if a loop has the iterations of a vector at least, as far as that is known."""
    return isinstance(loop.extent, ir.Const) and int(loop.extent.value) >= n_lanes


def _pays(loop: ir.For, blocks: Sequence[BatchBlock]) -> bool:
    """True if the operations of an iteration take longer than copies of its blocks."""
    copied = sum(x.n_elements * (1 + x.is_written) for x in blocks)
    return work.iteration_ns(loop.body) > _COPY_NS * copied
