"""Conversion of assignments under data-dependent conditions to tasks with a body.

Execution counts and bounds follow statements. An assignment over a band does not tell how often its branch is taken.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ..analysis.accesses import analyse
from ..ir.body import Closure, Reason
from ..ir.task import Task
from .as_kernels import stored_by


def is_decided_by_values(task: Task) -> bool:
    """True if data (values of arrays) decide in which iterations a task assigns."""
    return task.is_guarded and bool(task.guard.data)


@lru_cache(maxsize=256)  # called for each array of a task
def followed(task: Task) -> Task:
    """Returns the task with its statements as a body if data decide in which iterations it assigns.

    Any other task is returned unchanged.
    """
    if not is_decided_by_values(task):
        return task
    reason = Reason(Closure.BRANCH, "a condition on values", task.where)
    body = analyse(stored_by(task), task.loops, reason)
    return replace(task, body=body, value=None, condition=None)
