"""Reads decisions into a plan (plan.py), by the task or place that has each choice. Nothing is chosen here.

Decisions are names of values, made by a candidate of a search (candidates.py) or by rules
(defaults.py).
"""

from __future__ import annotations

from dataclasses import replace

from ...kernels.ir.task import Problem
from ...space.backbone import Backbone
from ...space.draft import Decisions
from ...space.families.splitting import SPLITTING, WHOLE
from ...space.targets.target import Target
from .layouts import laid_out
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
    if SPLITTING[WHOLE] in decisions.get("splitting", {}).values():
        return _whole_calls(problem, decisions, target)
    if ONE_BY_ONE not in decisions.get("nests", {}).values():
        from .bands import read_bands

        return read_bands(problem, decisions, target, backbone)
    problem = laid_out(problem, decisions, target)
    tasks = tuple(
        TaskPlan(
            t, task, (), False, True, (), (), (), steps=steps_of(problem, t, decisions, target)
        )
        for t, task in enumerate(problem.tasks)
    )
    launches = tuple((PlannedBody(t),) for t, _ in enumerate(tasks))
    return Plan(problem, tasks, (), launches, target, decisions)


def _whole_calls(problem: Problem, decisions: Decisions, target: Target) -> Plan:
    """Returns the plan of a sequence whose calls are not split: each by the rules of standalone kernels."""
    from .defaults import defaults

    unsplit = problem.unsplit
    assert unsplit is not None
    whole = replace(problem, arrays=unsplit.arrays, tasks=tuple(x.task for x in unsplit.calls))
    tasks = []
    for t, call in enumerate(unsplit.calls):
        alone = replace(whole, tasks=(call.task,))
        decided = defaults(alone, target, call.independent, keeps_order=True)
        alone = laid_out(alone, decided, target)
        steps = steps_of(alone, 0, decided, target)
        tasks.append(TaskPlan(t, alone.tasks[0], (), False, True, (), (), (), steps=steps))
    nests = {"nests": {x.index: ONE_BY_ONE for x in tasks}}
    launches = tuple((PlannedBody(x.index),) for x in tasks)
    splitting = {"splitting": decisions["splitting"]}
    whole = replace(whole, tasks=tuple(x.task for x in tasks))
    return Plan(whole, tuple(tasks), (), launches, target, {**splitting, **nests})
