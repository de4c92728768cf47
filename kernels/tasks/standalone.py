"""Calls as they are written: one non-affine task each, whose body is all statements of the kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..analysis.accesses import analyse
from ..ir.access import Access
from ..ir.arrays import ArrayInfo
from ..ir.body import Closure, Reason
from ..ir.domain import Loop
from ..ir.kernel import Const, DType, For, KernelIR, Stmt
from ..ir.task import Problem, Task, TreeParts
from ..ir.walk import identified, with_blocks, written_in
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


def nest_problem(problem: Problem, task: Task, nest: Sequence[For]) -> Problem:
    """Returns the problem of some loops of a standalone kernel alone: they are those of its one task, with the innermost body.

    `nest`: perfectly nested loops of constant extents, outermost first.
    """
    assert task.body is not None
    loops = []
    for x in nest:
        assert isinstance(x.extent, Const)
        loops.append(Loop(x.loop, max(0, int(x.extent.value)), False))
    inner = replace(task.body, statements=nest[-1].body)
    made = replace(task, loops=tuple(loops), body=inner)
    body = analyse(inner.statements, made.scope, inner.reason)
    return replace(problem, tasks=(replace(made, body=body),))


def with_loop_body(task: Task, loop: str, body: tuple[Stmt, ...]) -> Task:
    """Returns a standalone kernel's task with another body of one of its loops."""
    assert task.body is not None

    def block(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map(changed, statements))

    def changed(s: Stmt) -> Stmt:
        if isinstance(s, For) and s.loop == loop:
            return replace(s, body=body)
        return with_blocks(s, block)

    every = identified(block(task.body.statements))
    return replace(task, body=analyse(every, task.scope, task.body.reason))


def parameters_of(ir: KernelIR) -> Problem:
    """Returns a problem without tasks that has the arrays and scalars of a kernel."""
    written = written_in(ir.body)
    arrays = tuple(
        ArrayInfo(a.name, a.dtype, a.shape, "inout" if a.name in written else "input")
        for a in ir.arrays
    )
    return Problem(ir.name, arrays, ir.scalars, (), "", parts=TreeParts(shared=ir.shared))
