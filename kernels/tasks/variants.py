"""Variants of tasks on sparse fields: bodies that are lowered again for decisions on staging, activation and scatters."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from ..analysis.accesses import analyse
from ..analysis.scatters import scatters
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
from ..ir.on_trees import EACH, OnTrees
from ..ir.task import Problem, Task
from ..ir.walk import Renaming, children, coerced, loads, nested_statements, with_blocks
from ..sparse.calls import lower_call
from ..sparse.leaf_layout import fresh_name
from ..sparse.sums_by_cell import summed_by_cell
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


# --- sums by cell --------------------------------------------------------------------------------


def arrays_of_sums(problem: Problem) -> dict[str, ArrayInfo]:
    """Returns, for each sparse field that a loop scatters to by coordinates of cells, the array of its sums.

    No memory holds the whole of it: tiles do (`scatter` TILE).
    """
    taken = {a.name for a in problem.arrays} | {p.name for p in problem.scalars}
    found: dict[str, ArrayInfo] = {}
    for task in (t for t in problem.tasks if t.logical is not None):
        for x in scatters(task, problem):
            if x.is_in_tree and x.array not in found:
                name, dtype = fresh_name(f"{x.array}_sums", taken), problem.array(x.array).dtype
                found[x.array] = ArrayInfo(name, dtype, x.extents, "temp")
    return found


def with_sums(problem: Problem, task: Task, fields: Collection[str]) -> Body | None:
    """Returns the body of a task that adds up its updates of `fields` by coordinates of cells before it looks the cells up.

    None if the additions need arrays that the sequence does not have. The accesses of the body are those of the fields: the array
    of the sums is a thread's own.
    """
    body, frame = task.body, _Frame.of(problem, task)
    arrays = arrays_of_sums(problem)
    names = tuple((x, arrays[x].name) for x in sorted(fields))
    if body is None or frame is None:
        return None
    every = (*frame.arrays, *(arrays[x] for x in sorted(fields)))
    made = _lowered(replace(frame, loop=summed_by_cell(frame.loop, names), arrays=every))
    if made is None:
        return None
    trees, sums = replace(body.trees, sums=names), {name for _, name in names}
    here = _loops(replace(made, statements=without_additions(made.statements, trees)[0]))
    loops = tuple((x.loop, y.loop) for x, y in zip(here, _loops(body), strict=True))
    sites = tuple(s for s in made.sites if s.state.name not in sums)
    return replace(made, sites=sites, trees=replace(trees, loops=loops))


def without_additions(
    body: tuple[Stmt, ...], trees: OnTrees
) -> tuple[tuple[Stmt, ...], dict[str, For]]:
    """Returns the statements without the loops that add sums to fields, and these loops by field."""
    field_of = {name: field for field, name in trees.sums}
    found: dict[str, For] = {}

    def block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        made: list[Stmt] = []
        for s in body:
            every = nested_statements((s,)) if isinstance(s, For) else ()
            read = {x.array for y in every for e in children(y) for x in loads(e)}
            field = next((field_of[name] for name in read if name in field_of), "")
            if isinstance(s, For) and field:
                found[field] = s
            else:
                made.append(with_blocks(s, block) if isinstance(s, If) else s)
        return tuple(made)

    return block(body), found


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
