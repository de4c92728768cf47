"""Gathers: elements at loaded indices, each of which takes a load, or a lane of a vector that gathers.

Lanes of a body whose index each loads for itself take one element each, at the calibrated rate of gathers, or by two loads. It
holds where dim_kind is VECTOR and no choice may load rows instead (`gathers` TRANSPOSED, `batch_layout` INTERLEAVED). Elements of
less than four bytes have other ways. All other loads at loaded indices take the best rate of loads and gathers, since compilers
may gather, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...kernels.analysis.effects import are_independent
from ...kernels.ir.task import Task
from ...kernels.tasks.guarded_bodies import followed
from ...space.backbone import INNER
from ...space.candidate import Space
from ...space.targets.target import Target
from .bodies import body_operations
from .columns import table


def gather_tables(space: Space) -> dict[str, Any]:
    """Returns the table of `BoundTables` for gathers: a row for each dim whose iterations may be lanes that gather."""
    return {"gather": table(_rows(space), "task kind loads", "ns")}


def single_gathers_ns(space: Space, task: Task) -> float:
    """Returns the least ns on all cores in which a body loads elements at loaded indices, in lanes or not; 0 if unknown."""
    shown, rate = followed(task), _best_rate(space)
    if shown.is_structured or not rate:
        return 0.0
    return body_operations(shown, space.profile).gathers(space.target.vector_bytes) / rate


def _best_rate(space: Space) -> float:
    target = space.target
    return max(target.loads_per_ns, target.gathers_per_ns) if target.loads_per_ns else 0.0


def lanes_rate(target: Target) -> float:
    """Returns the best rate of lanes that gather, in elements a ns; 0 if unknown.

    Compilers may store a vector of indices and load them one by one: two loads an element, which no calibration of gathers has.
    """
    return max(target.gathers_per_ns, target.loads_per_ns / 2) if target.gathers_per_ns else 0.0


def _rows(space: Space) -> Iterator[tuple[float, ...]]:
    target, rate, v, parts = space.target, _best_rate(space), space.variables, space.problem.parts
    own = lanes_rate(target)
    if not 0 < own < rate or parts.tables or parts.leaves or parts.lists:
        return  # of trees' lists other choices decide how cells are found
    for t, task in enumerate(space.problem.tasks):
        shown = followed(task)
        if shown.body is None or task.body is None or t in v.of_tasks["batch_layout"]:
            continue
        if not task.loops:
            continue
        loop = task.loops[-1]
        if not are_independent(task, loop):
            continue  # a part of the body may be none for lanes (lane_parts)
        counter = body_operations(shown, space.profile)
        n = counter.gathers(target.vector_bytes, loop.name, rate / own)
        if n > 0:
            kind = v.kind[space.backbone.dim(t, loop.name, INNER)]
            yield t, kind, v.of_tasks["gathers"].get(t, -1), n / rate
