"""Variants of tasks on sparse fields: bodies that are lowered again for decisions about staged fields and activations."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache

from ..analysis.accesses import analyse
from ..ir.body import Body
from ..ir.kernel import ArrayParam, Compare, For, If, LoopIndex, Stmt
from ..ir.logical import LogicalLoop
from ..ir.on_trees import EACH
from ..ir.task import Problem, Task
from ..ir.walk import Renaming, coerced, nested_statements
from ..sparse.calls import lower_call
from .distribute import constant_extent
from .non_affine import plain
from .scalar_replacement import summed
from .segments import Statements, in_terms_of_sequence, segments_of

_MOST_KEPT = 256  # lowered loops: a search lowers the same ones for many candidates


def staged(problem: Problem, task: Task, names: Collection[str]) -> Body:
    """Returns the body of a task that reads these of its tiles (`TileSite.name`), and no others, out of local arrays."""
    body, loop = task.body, task.logical
    assert body is not None and loop is not None
    fields = frozenset(x.field for x in body.trees.tiles if x.name in names)
    if not fields:
        return body
    made = _under(problem, task, _segment(loop, fields))
    assert made is not None, "tiles change the inside of a loop only"
    # Tiles are filled before the loops over cells, which are those of the body without tiles.
    here, before = (
        [s.loop for s in nested_statements(x.statements) if isinstance(s, For)]
        for x in (made, body)
    )
    loops = tuple(zip(here[len(here) - len(before) :], before, strict=True))
    return replace(made, trees=replace(body.trees, tiles=(), loops=loops))


def in_each(problem: Problem, task: Task) -> Body | None:
    """Returns the body of a task that makes all of its activations, in each iteration.

    None if the task makes all of them itself, or if they need arrays that the sequence does not have.
    """
    body, loop = task.body, task.logical
    if body is None or loop is None or body.trees.way in ("", EACH):
        return None
    segment = _segment(loop, in_each=True)
    made = _under(problem, task, segment) if segment and len(segment) == 1 else None
    return made and replace(made, trees=replace(body.trees, way=EACH))


def _under(problem: Problem, task: Task, segment: Statements | None) -> Body | None:
    """Returns statements as a body under the loops of a task.

    None unless they have loops of the same lengths, and access arrays of the problem only.
    """
    if segment is None:
        return None
    assert task.body is not None and task.logical is not None
    body = plain(segment)
    for loop in task.loops:
        s = body[0] if len(body) == 1 else None
        if not isinstance(s, For) or (loop.is_known and constant_extent(s.extent) != loop.extent):
            return None
        renaming = Renaming(loops={s.loop: LoopIndex(loop.name)})
        inner: tuple[Stmt, ...] = tuple(renaming.apply_stmt(x) for x in s.body)
        if not loop.is_known:
            index = LoopIndex(loop.name)
            inner = (If(Compare("lt", index, coerced(s.extent, index.dtype)), inner, (), s.where),)
        body = inner
    lists = frozenset(
        array for (_, key), array in task.logical.call.sections.items() if key.startswith("list")
    )
    arrays = {a.name: ArrayParam(a.name, a.dtype, a.shape, a.name in lists) for a in problem.arrays}
    body = summed(body, arrays, task.fast_math)
    made = analyse(body, (*task.repeats, *task.loops), task.body.reason, lists)
    return made if all(s.state.name in arrays for s in made.sites) else None


@lru_cache(maxsize=_MOST_KEPT)
def _segment(
    loop: LogicalLoop, staged: frozenset[str] = frozenset(), *, in_each: bool = False
) -> Statements | None:
    """Returns the segment of a loop in terms of the sequence, lowered with these decisions; None where `lower_call` has none."""
    call = loop.call
    found = lower_call(call, frozenset((loop.top, name) for name in staged), in_each=in_each)
    if found is None:
        return None
    whole = in_terms_of_sequence(found.body, found.lowered.ir, found.arrays, call.scalars)
    uid = loop.statement.uid
    return next(x for x in segments_of(whole) if any(s.uid == uid for s in x))
