"""Variants of tasks on sparse fields: bodies that are lowered again for decisions on staging and activation."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from ..analysis.accesses import analyse
from ..ir.arrays import ArrayInfo
from ..ir.body import Body, Reason
from ..ir.domain import Loop
from ..ir.kernel import (
    ArrayParam,
    Compare,
    For,
    If,
    Load,
    LocalArray,
    LocalElement,
    LoopIndex,
    SetElement,
    Stmt,
    Update,
)
from ..ir.logical import LogicalLoop
from ..ir.on_trees import EACH
from ..ir.task import Problem, Task
from ..ir.walk import Renaming, coerced, nested_statements
from ..sparse.calls import lower_call
from .distribute import constant_extent
from .non_affine import plain
from .scalar_replacement import summed
from .segments import in_terms_of_sequence, segments_of

_MOST_KEPT = 256  # bodies: a search has the same ones in many candidates


@dataclass(frozen=True)
class _Frame:
    """Task without its statements: all that a variant of its body depends on."""

    loop: LogicalLoop
    loops: tuple[Loop, ...]
    repeats: tuple[Loop, ...]
    fast_math: bool
    reason: Reason
    arrays: tuple[ArrayInfo, ...]

    @staticmethod
    def of(problem: Problem, task: Task) -> _Frame | None:
        """Returns the frame of a task; None for a task that is no loop on sparse fields."""
        body, loop = task.body, task.logical
        if body is None or loop is None:
            return None
        return _Frame(loop, task.loops, task.repeats, task.fast_math, body.reason, problem.arrays)


def staged(problem: Problem, task: Task, names: Collection[str]) -> Body:
    """Returns the body of a task that accesses the fields with the tiles `names`, and no others, in local arrays.

    `names`: values of `TileSite.name`.
    """
    body, frame = task.body, _Frame.of(problem, task)
    assert body is not None and frame is not None
    fields = frozenset(x.field for x in body.trees.tiles if x.name in names)
    if not fields:
        return body
    made = _lowered(frame, fields)
    assert made is not None, "tiles change the inside of a loop only"
    tiles = _local_arrays(made) - _local_arrays(body)
    here = [x.loop for x in _loops(made) if not _is_transfer(x, tiles)]
    loops = tuple(zip(here, (x.loop for x in _loops(body)), strict=True))
    return replace(made, trees=replace(body.trees, tiles=(), loops=loops))


def _loops(body: Body) -> Iterator[For]:
    return (s for s in nested_statements(body.statements) if isinstance(s, For))


def _local_arrays(body: Body) -> set[str]:
    return {s.name for s in nested_statements(body.statements) if isinstance(s, LocalArray)}


def _is_transfer(loop: For, tiles: Container[str]) -> bool:
    """True if a loop only fills one of the local arrays `tiles`, or adds its elements to an array."""
    inside = [s for s in nested_statements(loop.body) if not isinstance(s, For)]
    return bool(inside) and all(_is_moved(s, tiles) for s in inside)


def _is_moved(s: Stmt, tiles: Container[str]) -> bool:
    match s:
        case SetElement(name=name, value=Load()) | Update(value=LocalElement(name=name)):
            return name in tiles
    return False


def in_each(problem: Problem, task: Task) -> Body | None:
    """Returns the body of a task with all of its activations, in each iteration.

    None if the body makes all of them already, or if they need arrays that the sequence does not have.
    """
    body, frame = task.body, _Frame.of(problem, task)
    if body is None or frame is None or body.trees.way in ("", EACH):
        return None
    made = _lowered(frame, in_each=True)
    return made and replace(made, trees=replace(body.trees, way=EACH))


@lru_cache(maxsize=_MOST_KEPT)
def _lowered(
    frame: _Frame, staged: frozenset[str] = frozenset(), *, in_each: bool = False
) -> Body | None:
    """Returns a loop, lowered with these decisions, as a body under the loops of its task.

    None unless it has loops of the same extents, and accesses arrays of the problem only.
    """
    call, top = frame.loop.call, frame.loop.top
    found = lower_call(call, frozenset((top, name) for name in staged), in_each=in_each)
    if found is None:
        return None
    whole = in_terms_of_sequence(found.body, found.lowered.ir, found.arrays, call.scalars)
    uid = frame.loop.statement.uid
    body = plain(next(x for x in segments_of(whole) if any(s.uid == uid for s in x)))
    for loop in frame.loops:
        s = body[0] if len(body) == 1 else None
        if not isinstance(s, For) or (loop.is_known and constant_extent(s.extent) != loop.extent):
            return None
        renaming = Renaming(loops={s.loop: LoopIndex(loop.name)})
        inner: tuple[Stmt, ...] = tuple(renaming.apply_stmt(x) for x in s.body)
        if not loop.is_known:
            index = LoopIndex(loop.name)
            inner = (If(Compare("lt", index, coerced(s.extent, index.dtype)), inner, (), s.where),)
        body = inner
    lists = frozenset(x for (_, key), x in call.sections.items() if key.startswith("list"))
    arrays = {a.name: ArrayParam(a.name, a.dtype, a.shape, a.name in lists) for a in frame.arrays}
    body = summed(body, arrays, frame.fast_math)
    made = analyse(body, (*frame.repeats, *frame.loops), frame.reason, lists)
    return made if all(s.state.name in arrays for s in made.sites) else None
