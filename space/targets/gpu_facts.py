"""Facts of GPUs that space and code generator share: the layout of operand copies, and reductions that blocks can combine."""

from __future__ import annotations

from ...kernels.ir import kernel as ir
from ...kernels.ir.access import access_of, flat_strides
from ...kernels.ir.arrays import ArrayInfo
from ...kernels.ir.task import Problem, Task
from ...kernels.ir.walk import loads, walk
from ..backbone import Operand
from .target import Target

VECTOR_BYTES = 16  # the widest access of a thread; between padded rows of a copy

ATOMIC_OPERATIONS = ("add", "min", "max")


def tree_bytes(max_threads: int) -> int:
    """Bytes of shared memory for reductions across the warps of a block: up to 8 bytes per thread."""
    return 8 * max_threads


def shared_bytes(target: Target) -> int:
    """Bytes of shared memory of a block, without the part for reductions across its warps."""
    most = max(target.shared_bytes_per_block, target.shared_bytes_per_block_most)
    return most - tree_bytes(target.max_threads_per_block)


def is_small(problem: Problem, target: Target, task: Task) -> bool:
    """True if the whole result of a task fits into shared memory: it is a vector, or one value."""
    along = [axis for axis in task.target.axes if axis is not None and axis.terms]
    n_bytes = problem.array(task.target.array).size_bytes
    return len(along) <= 1 and n_bytes <= shared_bytes(target)


def row_order(operand: Operand, source: ArrayInfo, *, is_transposed: bool = False) -> list[str]:
    """Returns the loops of an operand in the order of its copy's axes. The last one runs along rows.

    It is the order in memory. A transposed copy has the last two axes the other way round.
    """
    along = flat_strides(operand.access, source)
    order = sorted(operand.loops, key=lambda name: -abs(along[name]))
    return [*order[:-2], *order[:-3:-1]] if is_transposed else order


def start_of(task: Task) -> ir.Expr | None:
    """Returns the operand that a reduction's finish combines with the sum by the reduction's operator; else None.

    For example `y` in `y + sum`.
    """
    match task.finish:
        case ir.Binary(op, ir.Accumulator(), x, dtype) | ir.Binary(op, x, ir.Accumulator(), dtype):
            is_alone = not any(isinstance(part, ir.Accumulator) for part in walk(x))
            return x if op == task.op and dtype is task.dtype and is_alone else None
    return None


def adds_to_result(problem: Problem, task: Task) -> bool:
    """True if blocks that reduce atomically do so in the result's array.

    Otherwise a second kernel finishes the reduction.
    """
    start = start_of(task)
    own = [access_of(x) for x in loads(start) if x.array == task.target.array] if start else []
    is_plain = task.finish is None or isinstance(task.finish, ir.Accumulator) or start is not None
    is_plain = is_plain and all(access == task.target for access in own)
    return is_plain and problem.array(task.target.array).dtype is task.dtype
