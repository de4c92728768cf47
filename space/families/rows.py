"""Neighbour reads of tasks that store in place: one load per neighbour, or shifts out of whole vectors of a row."""

from __future__ import annotations

from ...kernels.analysis.speculation import may_blend
from ...kernels.ir.access import access_of, flat_strides
from ...kernels.ir.affine import Affine
from ...kernels.ir.task import Problem, Task
from ...kernels.ir.walk import loads
from ..backbone import INNER
from ..draft import Draft, Family, Phrases, bits
from ..targets.kind import CPU
from .tiling import VECTOR

MAX_REACH = 4  # elements to either side that are worth a shift

WALK, ROWS = range(2)
ROWS_KIND = (
    "WALK",  # each neighbour is loaded from where it lies
    "ROWS",  # rows of vectors are loaded before any is stored; neighbours in a row are shifted out of two of them, which a loop
    # hands on from tile to tile
)


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        if row_loop(s.problem, task) and may_blend(task, s.problem):
            name = (f"{task.name}.{task.target.array}",)
            s.v.of_tasks["rows"][t] = s.b.add("rows", name, ROWS_KIND)


def row_loop(problem: Problem, task: Task) -> str:
    """Returns the loop along which a guarded task reads neighbours of the element that it stores.

    It returns "" if there is none.
    A vector of neighbours overlaps the previous store, so its load waits until the store has
    reached the cache.
    """
    if not task.is_guarded or task.value is None:
        return ""
    strides = flat_strides(task.target, problem.array(task.target.array))
    along = [name for name, step in strides.items() if step == 1]
    own = [x for x in loads(task.value) if x.array == task.target.array]
    shifted = [x for x in own if shift_of(task, access_of(x).axes)]
    return along[0] if along and shifted else ""


def shift_of(task: Task, axes: tuple[Affine | None, ...]) -> int:
    """Returns the distance of an access from the task's store along the last axis.

    It returns 0 if it cannot be a shift of vectors.
    The access may be in another row.
    """
    for x, own in zip(axes, task.target.axes, strict=True):
        if x is None or own is None or x.terms != own.terms:
            return 0
    last, own_last = axes[-1], task.target.axes[-1]
    assert last is not None
    assert own_last is not None
    distance = last.const - own_last.const
    return distance if abs(distance) <= MAX_REACH else 0


def rows_of_vectors(s: Draft) -> None:
    """Coherence: shifts out of rows need vectors along the loop of the neighbours."""
    for t, var in s.v.of_tasks["rows"].items():
        loop = row_loop(s.problem, s.problem.tasks[t])
        inner = s.v.kind[s.backbone.dim(t, loop, INNER)]
        s.b.clause("rows of vectors", [(var, bits(WALK)), (inner, bits(VECTOR))])


PHRASES = Phrases(
    "rows",
    "branches",
    {"ROWS": "with neighbours out of rows of vectors"},
    {"ROWS": "neighbours out of rows"},
)

FAMILY = Family("rows", {CPU: (rows_of_vectors,)}, declare, (PHRASES,))
