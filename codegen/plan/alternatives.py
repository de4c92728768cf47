"""Selects the decided variant of each body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...kernels.analysis.accesses import analyse
from ...kernels.ir.body import Body
from ...kernels.ir.on_trees import making
from ...kernels.ir.task import Problem, Task

HALO = "HALO"  # a value of `staged`
Choices = Mapping[str, Mapping[Any, str]]  # by kind and site


def with_bodies(problem: Problem, choices: Choices) -> Problem:
    """Returns the problem with the decided variant of each body."""
    tasks = tuple(_task(task, t, choices) for t, task in enumerate(problem.tasks))
    return problem if tasks == problem.tasks else replace(problem, tasks=tasks)


def _task(task: Task, t: int, choices: Choices) -> Task:
    body = task.body
    if body is None:
        return task
    if body.trees.lists:
        how = [choices["listgen"][t, x.name] for x in body.trees.lists]
        return replace(task, body=_made(task, body, how))
    others = dict(body.trees.others)
    if others and (other := others.get(choices["activate"][t])):
        return replace(task, body=other)
    if body.trees.tiles:
        staged = choices.get("staged", {})
        tiled = frozenset(x.name for x in body.trees.tiles if staged.get((t, x.name)) == HALO)
        return replace(task, body=dict(body.trees.forms).get(tiled, body))
    return task


def _made(task: Task, body: Body, how: list[str]) -> Body:
    statements = making(body.statements, how)
    if statements == body.statements:
        return body
    return replace(analyse(statements, task.scope, body.reason), trees=body.trees)
