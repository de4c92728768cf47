"""Builds the search space of a problem on a target: choices and constraints of all families of the target's kind."""

from __future__ import annotations

from functools import lru_cache

from ..kernels.ir.errors import LanguageError
from ..kernels.ir.kernel import DType
from ..kernels.ir.task import Problem
from ..kernels.ir.walk import children, nested_statements, walk
from ..kernels.tasks.leaf_loops import with_leaf_loops
from .backbone import build_backbone
from .candidate import Space
from .catalogue import FAMILIES, KINDS
from .decisions import fix
from .draft import Draft, Variables
from .engine.builder import ModelBuilder
from .engine.rows import PlaceRelation
from .targets.target import Target


def build_space(problem: Problem, target: Target, register_room: int = 1) -> Space:
    """Returns the space of all implementations of `problem` on `target`.

    On a GPU, the limit on counted registers is multiplied by `register_room`: one of REGISTER_ROOMS
    of space/values.py. Raises LanguageError if the kind of target lacks a dtype of the problem, or cannot end its repeats.
    """
    lacking = sorted(d.name for d in _types(problem) & KINDS[target.kind].lacks)
    if lacking:
        raise LanguageError(
            f"{problem.name} computes with {lacking[0]}, on which code for a {target.kind.upper()} has no arithmetic: use f32"
        )
    if problem.ending and not KINDS[target.kind].ends_repeats:
        raise LanguageError(
            f"{sorted(problem.ending)[0]} ends a repeat of {problem.name}, and a {target.kind.upper()} runs a fixed number "
            "of steps: explore it on a CPU, or write the loop with range"
        )
    if KINDS[target.kind].shares_cells:
        problem = with_leaf_loops(problem)
    draft = _empty(problem, target, register_room)
    for family in FAMILIES[target.kind]:
        if family.declare is not None:
            family.declare(draft)
    for family in FAMILIES[target.kind]:
        for rule in family.rules[target.kind]:
            rule(draft)
    return Space(
        model=draft.b.freeze(),
        problem=problem,
        target=target,
        backbone=draft.backbone,
        variables=draft.v,
    )


def _types(problem: Problem) -> set[DType]:
    """Returns the dtypes of all values: arrays, scalars, and expressions in bodies of statements.

    Structured tasks have the types of their arrays and scalars.
    """
    found = {a.dtype for a in problem.arrays} | {p.dtype for p in problem.scalars}
    for task in problem.tasks:
        for s in nested_statements(task.body.statements) if task.body is not None else ():
            for e in children(s):
                found |= {x.dtype for x in walk(e)}
    return found


@lru_cache(maxsize=4)
def widened(space: Space, register_room: int) -> Space:
    """Returns a GPU's space with its limit on counted registers multiplied by `register_room`.

    Choices and their positions in the domain vector stay the same.
    """
    wider = build_space(space.problem, space.target, register_room)
    return fix(wider, space.fixed).profiled(space.profile)


def _empty(problem: Problem, target: Target, register_room: int) -> Draft:
    """Returns a model builder that declares only the objects of the order algebra."""
    backbone = build_backbone(problem)
    near = backbone.neighbours
    b = ModelBuilder(PlaceRelation(tuple(r.start for r in near), tuple(r.stop - 1 for r in near)))
    bodies = set(backbone.body_ids)
    for k, (name, t) in enumerate(zip(backbone.order_names, backbone.order_tasks, strict=True)):
        b.add_object(name, leaf=k in bodies, place=t)
    return Draft(problem, target, KINDS[target.kind], backbone, b, Variables(), register_room)
