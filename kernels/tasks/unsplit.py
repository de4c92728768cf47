"""Sequences whose calls are not split: each call is one task without loops, as a standalone call is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..analysis.accesses import analyse
from ..ir.body import Closure, Reason
from ..ir.domain import Loop
from ..ir.kernel import ArrayParam, DType, Expr, Print
from ..ir.task import Task, WholeCall
from ..ir.walk import nested_statements
from ..transforms.gathered import gathered
from .as_kernels import task_statements
from .initialisers import zero_temporaries
from .segments import in_terms_of_sequence
from .standalone import whole_task

if TYPE_CHECKING:
    from ..frontend.recorder import Call, Recording

_MOST_CALLS = 64  # of a sequence: each becomes a function


def whole_calls(
    recording: Recording,
    known: Mapping[str, ArrayParam],
    labels: Sequence[str],
    around: Sequence[tuple[Loop, ...]],
) -> tuple[WholeCall, ...]:
    """Returns the calls of a sequence as they are written, with tasks that store zeros to temporaries where these are needed.

    `known`: arrays by name. `labels`, `around`: name of each call, and the time loops around it. () for a sequence of more than
    `_MOST_CALLS` calls, one on sparse fields, and one that prints.
    """
    calls = recording.calls
    prints = (isinstance(s, Print) for x in calls for s in nested_statements(x.ir.body))
    if recording.trees or len(calls) > _MOST_CALLS or any(prints):
        return ()
    dtypes = {name: a.dtype for name, a in known.items()}
    tasks = [_task(x, dtypes, n, steps) for x, n, steps in zip(calls, labels, around, strict=True)]
    written = dict(zip(labels, (x.ir.independent for x in calls), strict=True))
    every = map(_without_loops, zero_temporaries(tuple(tasks), recording.temps))
    return tuple(WholeCall(task, written.get(task.name, ())) for task in every)


def _task(call: Call, dtypes: Mapping[str, DType], label: str, around: tuple[Loop, ...]) -> Task:
    ir = gathered(call.ir)
    arrays = {p.name: name for p, name in zip(ir.arrays, call.arrays, strict=True)}
    scalars: dict[str, Expr] = dict(zip((p.name for p in ir.scalars), call.scalars, strict=True))
    statements = in_terms_of_sequence(ir.body, ir, arrays, scalars)
    return whole_task(ir, statements, dtypes, label, around)


def _without_loops(task: Task) -> Task:
    """Returns a task with its loops as statements of its body."""
    if not task.is_structured:
        return task
    reason = Reason(Closure.ORDER, "the order of its statements", task.where)
    body = analyse(task_statements(task), task.repeats, reason)
    return replace(task, loops=(), value=None, body=body)
