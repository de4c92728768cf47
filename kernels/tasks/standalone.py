"""Problem of a standalone kernel call: one non-affine task, whose body is all statements of the kernel."""

from __future__ import annotations

from ..analysis.accesses import analyse
from ..ir.access import Access
from ..ir.arrays import ArrayInfo
from ..ir.body import Closure, Reason
from ..ir.kernel import DType, KernelIR
from ..ir.task import Problem, Task, TreeParts
from ..ir.walk import written_in
from ..transforms.gathered import gathered
from .distribute import unique_loops


def standalone(ir: KernelIR) -> Problem:
    """Returns the problem of one call of a kernel.

    Its one task has no loops: decisions are about loops of its body.
    Updates of one element by all iterations of a nest become sums in locals where that is legal. The loops of the body have unique
    names (`i@1`); loops that never run are left out.
    """
    problem = parameters_of(ir)
    reason = Reason(Closure.ORDER, "the order of its statements", ir.where)
    body = analyse(unique_loops(gathered(ir).body), (), reason)
    written = next((a for a in problem.arrays if a.role != "input"), None)
    target, dtype = ("", DType.f64) if written is None else (written.name, written.dtype)
    task = Task(
        name=ir.name,
        kernel=ir.name,
        loops=(),
        target=Access(target, ()),
        dtype=dtype,
        value=None,
        body=body,
        fast_math=ir.fast_math,
        where=ir.where,
    )
    return Problem(ir.name, problem.arrays, ir.scalars, (task,), "", parts=problem.parts)


def parameters_of(ir: KernelIR) -> Problem:
    """Returns a problem without tasks that has the arrays and scalars of a kernel."""
    written = written_in(ir.body)
    arrays = tuple(
        ArrayInfo(a.name, a.dtype, a.shape, "inout" if a.name in written else "input")
        for a in ir.arrays
    )
    return Problem(ir.name, arrays, ir.scalars, (), "", parts=TreeParts(shared=ir.shared))
