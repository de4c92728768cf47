"""Tasks whose assignment depends on values, as tasks with a body: counts and bounds follow statements, and an assignment over a
band says nothing of how often its branch is taken.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ..analysis.accesses import analyse
from ..ir.body import Closure, Reason
from ..ir.task import Task
from .as_kernels import stored_by


def is_decided_by_values(task: Task) -> bool:
    """Whether values of arrays say in which iterations a task assigns."""
    return task.is_guarded and bool(task.guard.data)


@lru_cache(maxsize=256)  # asked for each array of a task
def followed(task: Task) -> Task:
    """The task with its statements as a body where values decide whether it assigns, and any other as it is."""
    if not is_decided_by_values(task):
        return task
    reason = Reason(Closure.BRANCH, "a condition on values", task.where)
    body = analyse(stored_by(task), task.loops, reason)
    return replace(task, body=body, value=None, condition=None)
