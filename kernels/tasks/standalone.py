"""Calls as they are written: one non-affine task each, whose body is all statements of the kernel."""

from __future__ import annotations

from collections.abc import Mapping

from ..analysis.accesses import analyse
from ..ir.access import Access
from ..ir.arrays import ArrayInfo
from ..ir.body import Closure, Reason
from ..ir.domain import Loop
from ..ir.kernel import DType, KernelIR, Stmt
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
    task = whole_task(ir, unique_loops(gathered(ir).body), {a.name: a.dtype for a in ir.arrays})
    return Problem(ir.name, problem.arrays, ir.scalars, (task,), "", parts=problem.parts)


def whole_task(
    ir: KernelIR,
    statements: tuple[Stmt, ...],
    dtypes: Mapping[str, DType],
    name: str = "",
    steps: tuple[Loop, ...] = (),
) -> Task:
    """Returns all statements of a kernel as one task, inside of the time loops `steps`.

    `dtypes`: those of the arrays in the statements. `name`: of the task; that of the kernel without one.
    """
    reason = Reason(Closure.ORDER, "the order of its statements", ir.where)
    written = next(iter(sorted(written_in(statements), key=[*dtypes].index)), "")
    return Task(
        name=name or ir.name,
        kernel=ir.name,
        loops=(),
        target=Access(written, ()),
        dtype=dtypes.get(written, DType.f64),
        value=None,
        body=analyse(statements, steps, reason),
        fast_math=ir.fast_math,
        where=ir.where,
        repeats=steps,
    )


def parameters_of(ir: KernelIR) -> Problem:
    """Returns a problem without tasks that has the arrays and scalars of a kernel."""
    written = written_in(ir.body)
    arrays = tuple(
        ArrayInfo(a.name, a.dtype, a.shape, "inout" if a.name in written else "input")
        for a in ir.arrays
    )
    return Problem(ir.name, arrays, ir.scalars, (), "", parts=TreeParts(shared=ir.shared))
