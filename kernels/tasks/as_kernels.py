"""Conversion of tasks to kernels, one per task, so that executors of recordings can run tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..frontend.recorder import Call, Recording
from ..ir import kernel
from ..ir.affine import expression
from ..ir.domain import Loop
from ..ir.task import Problem, Task
from ..ir.walk import (
    Renaming,
    children,
    nested_statements,
    neutral_of,
    rewrite,
    walk,
)

_SUM = "sum@"  # no local of a program is called so


def task_statements(task: Task) -> tuple[kernel.Stmt, ...]:
    """Returns the statements of a task, with the loops of the task around them.

    The loops of a reduction are inside the others.
    """
    if task.body is not None:
        return _within(task, task.loops, task.body.statements)
    assert task.value is not None
    value, inside = task.value, tuple[kernel.Stmt, ...]()
    if task.op is not None:
        reduced = [x for x in task.loops if x.is_reduction]
        update = kernel.UpdateLocal(_SUM, task.op, value, task.where)
        begin = kernel.SetLocal(_SUM, neutral_of(task.op, task.dtype), task.where)
        inside = (begin, *_within(task, reduced, (update,)))
        total: kernel.Expr = kernel.Local(_SUM, task.dtype)
        finish = total if task.finish is None else task.finish
        value = rewrite(finish, lambda x: total if isinstance(x, kernel.Accumulator) else x)
    stored = stored_by(replace(task, value=value))
    return _within(task, [x for x in task.loops if not x.is_reduction], (*inside, *stored))


def stored_by(task: Task) -> tuple[kernel.Stmt, ...]:
    """Returns the statements that store an assignment's value, in a branch if the assignment has a condition."""
    assert task.value is not None
    axes = (axis for axis in task.target.axes if axis is not None)
    target = tuple(expression(axis, kernel.DType.i64) for axis in axes)
    stored: kernel.Stmt = kernel.Store(task.target.array, target, task.value, task.where)
    return (
        stored if task.condition is None else kernel.If(task.condition, (stored,), (), task.where),
    )


def _within(
    task: Task, loops: Sequence[Loop], body: tuple[kernel.Stmt, ...]
) -> tuple[kernel.Stmt, ...]:
    for loop in reversed(loops):
        body = (
            kernel.For(loop.name, kernel.Const(loop.extent, kernel.DType.i64), body, task.where),
        )
    return body


def recording_of(
    problem: Problem,
    bodies: Sequence[tuple[kernel.Stmt, ...]],
    more: Sequence[kernel.ArrayParam] = (),
) -> Recording:
    """Returns a recording with one call per task, which runs the statements of `bodies` on a problem's arrays.

    `more`: further arrays.
    Tasks that are equal up to the names of their arrays are calls of one kernel, which is compiled once.
    """
    known = [kernel.ArrayParam(a.name, a.dtype, a.shape) for a in problem.arrays]
    temps = {a.name for a in problem.arrays if a.role == "temp"}
    by_name = {a.name: a for a in (*known, *more)}
    kernels: dict[kernel.KernelIR, kernel.KernelIR] = {}
    calls = []
    for task, body in zip(problem.tasks, bodies, strict=True):
        used = _arrays_in(body)
        own = {name: f"a{k}" for k, name in enumerate(used)}
        steps = {x.name: kernel.Param(f"{x.name}@", kernel.DType.i64) for x in task.steps}
        numbers = (*problem.scalars, *steps.values())
        given: tuple[kernel.Expr, ...] = problem.scalars
        given += tuple(kernel.LoopIndex(name, kernel.DType.i64) for name in steps)
        renaming = Renaming(loops=steps, arrays=own)
        body = tuple(map(renaming.apply_stmt, body))
        params = tuple(replace(by_name[name], name=own[name]) for name in used)
        ir = kernel.KernelIR(task.kernel, params, numbers, body, task.where, task.fast_math)
        ir = kernels.setdefault(ir, ir)
        calls.append(Call(ir, used, given, task.where))
    return Recording(
        problem.name,
        (*(a for a in known if a.name not in temps), *more),
        tuple(a for a in known if a.name in temps),
        problem.scalars,
        tuple(calls),
        repeats=problem.repeats,
    )


def _arrays_in(body: tuple[kernel.Stmt, ...]) -> tuple[str, ...]:
    """Returns names of the arrays that statements access, in order of their first occurrence."""
    found: dict[str, None] = {}
    for s in nested_statements(body):
        if isinstance(s, kernel.Store | kernel.Update):
            found[s.array] = None
        found.update(
            (x.array, None) for e in children(s) for x in walk(e) if isinstance(x, kernel.Load)
        )
    return tuple(found)
