"""Reads decisions into a plan (plan.py), by the task or place that has each choice. Nothing is chosen here.

Decisions are names of values, made by a candidate of a search (candidates.py) or by rules
(defaults.py).
"""

from __future__ import annotations

from ...kernels.ir.task import Problem
from ...space.backbone import Backbone
from ...space.draft import Decisions
from ...space.targets.target import Target
from .nest_plan import ONE_BY_ONE
from .plan import Plan, PlannedBody, TaskPlan
from .steps import steps_of


def read_plan(
    problem: Problem, decisions: Decisions, target: Target, backbone: Backbone | None = None
) -> Plan:
    """Returns the plan of a problem by complete decisions.

    `backbone`: the problem's objects, if already built.
    Decisions are about the loops in the bodies of tasks, or about the loops of tasks. A standalone
    kernel has only the former; it imports nothing for the latter, and so starts sooner.
    """
    if ONE_BY_ONE not in decisions.get("nests", {}).values():
        from .bands import read_bands

        return read_bands(problem, decisions, target, backbone)
    tasks = tuple(
        TaskPlan(
            t, task, (), False, True, (), (), (), steps=steps_of(problem, t, decisions, target)
        )
        for t, task in enumerate(problem.tasks)
    )
    launches = tuple((PlannedBody(t),) for t, _ in enumerate(tasks))
    return Plan(problem, tasks, (), launches, target, decisions)
