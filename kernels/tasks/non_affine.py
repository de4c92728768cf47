"""Non-affine tasks: statements without affine form, kept as a body under their outermost loop; and their report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath

from ..analysis.accesses import analyse, longest, sites_of
from ..analysis.conflicts import conflicting
from ..ir import kernel as ir
from ..ir import walk
from ..ir.affine import index_range, to_affine, unclamped
from ..ir.body import Closure, Reason, access_at, count_of
from ..ir.domain import Loop
from ..ir.on_trees import OnTrees
from ..ir.task import Problem, Task
from .distribute import constant_extent
from .parts import TreeLoop
from .scalar_replacement import summed

_NAMED = 3  # reasons in a sentence
SETTLING, LISTING = "the reclamation of pools", "the generation of a list of cells"  # reasons
# The number of prints. Each print updates this array, so dependences preserve their order.
PRINTED = ir.ArrayParam("print.count", ir.DType.i64, (1,))


def closed_task(
    body: tuple[ir.Stmt, ...],
    kernel: str,
    arrays: Mapping[str, ir.ArrayParam],
    fast_math: bool,
    reason: Reason,
    *,
    serial: bool = False,
    steps: tuple[Loop, ...] = (),
) -> Task | None:
    """Returns one non-affine task for `body`, inside of the time loops `steps`.

    None if the body neither writes nor prints.
    It is parallel over its outermost loop if that is a single loop with a known bound of its extent, else serial. Loops of `body`
    have unique names (`i@3`).
    """
    body = plain(body)
    lists = frozenset(name for name, a in arrays.items() if a.is_list)
    loops: tuple[Loop, ...] = ()
    if not serial and len(body) == 1 and isinstance(body[0], ir.For):
        known = _known_loop(body[0], arrays, steps)
        if known is not None:
            loops, body = _nest((known[0],), known[1], steps)
    inside = analyse(summed(body, arrays, fast_math), (*steps, *loops), reason, lists)
    first = next((site for site in inside.sites if site.writes), None)
    if first is None:
        return None
    target = access_at(first, (*steps, *loops))
    dtype = {**arrays, PRINTED.name: PRINTED}[target.array].dtype
    return Task(
        target.array,
        kernel,
        loops,
        target,
        dtype,
        None,
        body=inside,
        fast_math=fast_math,
        where=reason.where,
        repeats=steps,
    )


def is_settling(task: Task) -> bool:
    """True if a task reclaims a pool: of fields it stores zeros to returned slots alone, which no active cell has."""
    return task.body is not None and task.body.reason.text == SETTLING


def with_trees(task: Task, loop: TreeLoop, steps: tuple[Loop, ...], *, is_alone: bool) -> Task:
    """Returns a task with the form before sparse lowering of its loop on sparse fields.

    `steps`: the time loops around the task.
    The loop's domain and facts become those of the task only if the loop is all of it (`is_alone`). If the loop became a time loop,
    the task is over loops in it: then iterations are not disjoint, and nothing of it is lowered again. Loops that activate cells
    read no tiles.
    """
    body, facts = task.body, loop.facts
    if body is None:
        return task
    if task.repeats != steps:
        facts = replace(facts, apart=frozenset(), tiles=())
        return replace(task, body=replace(body, trees=facts)) if task.loops else task
    if not (is_alone and task.loops):
        trees = OnTrees(tiles=facts.tiles)
        return replace(task, body=replace(body, trees=trees), logical=loop.logical)
    trees = replace(facts, tiles=()) if facts.way else facts
    return replace(task, domain=loop.domain, body=replace(body, trees=trees), logical=loop.logical)


def _nest(
    loops: tuple[Loop, ...], body: tuple[ir.Stmt, ...], steps: tuple[Loop, ...]
) -> tuple[tuple[Loop, ...], tuple[ir.Stmt, ...]]:
    """Returns the outer loops of a perfect nest without conflicts between iterations, and the remaining body."""
    while len(body) == 1 and isinstance(body[0], ir.For) and all(x.is_known for x in loops):
        extent = constant_extent(body[0].extent)
        if not extent:
            break
        more = (*loops, Loop(body[0].loop, extent, False))
        around = (*steps, *more)
        if conflicting(sites_of(body[0].body, around), around):
            break
        loops, body = more, body[0].body
    return loops, body


def _known_loop(
    s: ir.For, arrays: Mapping[str, ir.ArrayParam], steps: tuple[Loop, ...]
) -> tuple[Loop, tuple[ir.Stmt, ...]] | None:
    """Returns a loop as one of constant extent, and its statements; None if its extent has no known bound.

    If the extent is known only at run time, the loop has the largest possible one, and each iteration tests if it is needed.
    """
    extent = constant_extent(s.extent)
    if extent is not None:
        return Loop(s.loop, extent, False), s.body
    if walk.locals_read(s.extent) or any(_may_change(x, s.body) for x in walk.loads(s.extent)):
        return None
    shapes = {name: a.shape for name, a in arrays.items()}
    most = _most_of_steps(s, steps)
    if most is None:
        most = longest(s, shapes, steps)
    if most is None:
        return None
    index = ir.LoopIndex(s.loop)
    wanted = ir.Compare("lt", index, walk.coerced(s.extent, index.dtype))
    return Loop(s.loop, most, False, count_of(s)), (ir.If(wanted, s.body, (), s.where),)


def _may_change(x: ir.Load, body: tuple[ir.Stmt, ...]) -> bool:
    """True if statements may write the element of a load. Counters of one tree, say, are different elements of an array."""
    return any(
        isinstance(s, ir.Store | ir.Update)
        and s.array == x.array
        and not any(
            isinstance(i, ir.Const) and isinstance(j, ir.Const) and i.value != j.value
            for i, j in zip(s.indices, x.indices, strict=True)
        )
        for s in walk.nested_statements(body)
    )


def _most_of_steps(s: ir.For, steps: tuple[Loop, ...]) -> int | None:
    """Returns the largest extent of a loop over all steps of the time loops; None if it depends on other values."""
    extent = to_affine(unclamped(s.extent))
    lengths = {loop.name: loop.extent for loop in steps}
    if extent is None or any(name not in lengths for name, _ in extent.terms):
        return None
    return max(0, index_range(extent, lengths)[1])


def _counting_prints(body: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
    """Returns `body` with an update of the array PRINTED behind each print."""
    made: list[ir.Stmt] = []
    for s in body:
        if isinstance(s, ir.Print):
            one, zero = ir.Const(1, ir.DType.i64), ir.Const(0, ir.DType.i64)
            made += [s, ir.Update(PRINTED.name, (zero,), "add", one, s.where)]
        else:
            made.append(walk.with_blocks(s, _counting_prints))
    return tuple(made)


def plain(body: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
    """Returns the statements with the user's names of loops, and an update of PRINTED behind each print.

    Names are numbered if one occurs again.
    """
    names: dict[str, ir.Expr] = {}
    used: set[str] = set()
    for s in walk.nested_statements(body):
        if isinstance(s, ir.For):
            base = s.loop.split("@")[0]
            n, name = 1, base
            while name in used:
                n += 1
                name = f"{base}{n}"
            used.add(name)
            names[s.loop] = ir.LoopIndex(name)
    renaming = walk.Renaming(loops=names)
    return _counting_prints(tuple(renaming.apply_stmt(s) for s in body))


def with_fixed_order(task: Task, arrays: Mapping[str, ir.ArrayParam]) -> Task:
    """Returns an affine task `target op= value` as a non-affine one that preserves the order of its updates."""
    assert task.op is not None
    assert task.value is not None
    assert isinstance(task.finish, ir.Binary)
    own = task.finish.a
    assert isinstance(own, ir.Load)
    body: tuple[ir.Stmt, ...] = (
        ir.Update(own.array, own.indices, task.op, task.value, task.where),
    )
    for loop in reversed(task.loops):
        body = (ir.For(loop.name, ir.Const(loop.extent, ir.DType.i64), body, task.where),)
    serial = task.loops[0].is_reduction  # iterations of the outermost loop conflict
    text = f"the updates of {own.array} in their order (fast_math=False)"
    reason = Reason(Closure.ORDER, text, task.where)
    made = closed_task(body, task.kernel, arrays, False, reason, serial=serial, steps=task.repeats)
    assert made is not None
    return replace(made, name=task.name)


# --- for people ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class NonAffineTask:
    """Non-affine task of a problem, with the reason."""

    task: str
    reason: Reason

    def __str__(self) -> str:
        """Text such as `an if around a store, line 12 of relu.py`."""
        where = self.reason.where
        place = f", line {where.line} of {PurePath(where.file).name}" if where.line else ""
        return f"{self.reason.text}{place}"


@dataclass(frozen=True)
class NonAffineTasks:
    """The non-affine tasks of a problem; false if there are none."""

    tasks: tuple[NonAffineTask, ...]
    n_tasks: int  # of the whole problem

    def __bool__(self) -> bool:
        return bool(self.tasks)

    def __str__(self) -> str:
        """Text such as `1 of 2 tasks is non-affine: an if around a store, line 12 of relu.py`; "" if none is."""
        if not self.tasks:
            return ""
        n = len(self.tasks)
        reasons = list(dict.fromkeys(map(str, self.tasks)))
        named = "; ".join(reasons[:_NAMED])
        more = f"; and {len(reasons) - _NAMED} more" if len(reasons) > _NAMED else ""
        verb = "is" if n == 1 else "are"
        return f"{n} of {self.n_tasks} tasks {verb} non-affine: {named}{more}"


def counted_text(is_profiled: bool) -> str:
    """Text that states which costs of non-affine tasks the lower bound counts."""
    if is_profiled:
        return "what their bodies surely do for this input"
    return "what their bodies surely do for any input"


ALL_AFFINE = NonAffineTasks((), 0)


def non_affine_tasks(problem: Problem) -> NonAffineTasks:
    """Returns the non-affine tasks of a problem, in program order."""
    found = tuple(NonAffineTask(t.name, t.body.reason) for t in problem.tasks if t.body is not None)
    return NonAffineTasks(found, len(problem.tasks))
