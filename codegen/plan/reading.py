"""Reads decisions into plans (plan.py), by the task or place that has them. Nothing is chosen here.

Decisions are names, whoever took them: a candidate of a search gives them (candidates.py), or rules do (defaults.py).
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
    """Returns the plan of a problem by complete decisions. `backbone`: that of the problem, where it is known.

    Decisions are about the loops in the bodies of tasks, or about the loops of tasks. A call of a kernel by itself needs only the
    first, and starts sooner if it imports nothing of the second.
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
