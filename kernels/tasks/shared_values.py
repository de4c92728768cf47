"""Shared values: two bodies compute them alike, and the later body may load them from arrays that the earlier body fills.

The adjoint of a kernel computes most locals of its kernel again. Recomputing them is rematerialisation (Briggs, Cooper and Torczon,
1992), and recompute-all in reverse mode; storing them is store-all, a tape of intermediates (Griewank and Walther, Evaluating
Derivatives, 2008, section 3.2). Snapshots of states are another thing (program/snapshots.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from ..analysis.accesses import analyse
from ..analysis.domain_bounds import points
from ..analysis.effects import arrays_written
from ..ir import kernel as ir
from ..ir.arrays import ArrayInfo
from ..ir.body import Body
from ..ir.domain import BOX, Loop
from ..ir.on_trees import NO_TREES
from ..ir.ops import OPS
from ..ir.per_object import per_object
from ..ir.task import Problem, Task
from ..ir.walk import (
    Renaming,
    children,
    identified,
    loads,
    local_changed,
    locals_read,
    nested_statements,
    walk,
)
from ..sparse.leaf_layout import fresh_name
from ..transforms.dead_stores import without_unread
from ..transforms.own_names import Names, with_own_names
from ..transforms.value_numbering import numbered_apart

MOST_BYTES = 1 << 28  # of the stored values of one pair of tasks
# Operations and loads that a stored value saves at least: it costs a store and a load itself.
_LEAST_SAVED = 4
_NEAR = 8  # tasks, as many as a launch has (space/backbone/objects.py)
_MOST_STATEMENTS = 1 << 10
_MOST_KEPT = 256

Statements = tuple[ir.Stmt, ...]


@dataclass(frozen=True)
class SharedValues:
    """Shared values of two tasks.

    `producer`, `consumer`: the earlier and the later task.
    `arrays`: temporary arrays for the values, an element an iteration.
    `storing`, `loading`: the bodies of both tasks with the values stored.
    `spared`: arrays from which the consumer then loads less.
    """

    producer: int
    consumer: int
    arrays: tuple[ArrayInfo, ...]
    storing: Body
    loading: Body
    spared: frozenset[str]


@per_object
def shared_values(problem: Problem) -> tuple[SharedValues, ...]:
    """Returns the pairs of tasks that share values. A task is in one pair at most; its producer is the one that saves most."""
    found: list[SharedValues] = []
    paired = set[int]()
    taken = {a.name for a in problem.arrays} | {p.name for p in problem.scalars}
    for u in range(len(problem.tasks)):
        made = [(t, x) for t, x in _producers(problem, u) if t not in paired]
        if made:
            t, x = max(made, key=lambda one: (one[1].saved, one[0]))
            n_bytes = sum(d.size_bytes for d in x.types) * points(problem.tasks[u])
            if n_bytes <= MOST_BYTES:
                found.append(_named(problem, t, u, x, taken))
                paired |= {t, u}
    return tuple(found)


def spared_by(problem: Problem, producer: int, consumer: int) -> frozenset[str]:
    """Returns the arrays from which a task loads less if another one stores the values that both share.

    Of a part of a problem, too, whose own pairs may be others.
    """
    made = dict(_producers(problem, consumer)).get(producer)
    return frozenset() if made is None else made.spared


def materialised(problem: Problem, found: Iterable[SharedValues]) -> Problem:
    """Returns the problem with these values stored by their producers and loaded by their consumers.

    The arrays of all pairs are declared, so problems that differ in these decisions have the same arrays.
    """
    every = [a for x in shared_values(problem) for a in x.arrays]
    if not every:
        return problem
    tasks = list(problem.tasks)
    for x in found:
        for t, body in ((x.producer, x.storing), (x.consumer, x.loading)):
            tasks[t] = replace(tasks[t], body=body)
    return replace(problem, arrays=(*problem.arrays, *every), tasks=tuple(tasks))


# --- pairs


@dataclass(frozen=True)
class _Handed:
    """Bodies of a pair whose shared values are stored.

    `types`: those of the values. The arrays of the values have their numbers for names.
    `saved`: operations and loads that the later body has less, without the loads of the values.
    """

    storing: Statements
    loading: Statements
    types: tuple[ir.DType, ...]
    saved: float
    spared: frozenset[str]


def _producers(problem: Problem, u: int) -> Iterator[tuple[int, _Handed]]:
    """Yields the earlier tasks near `u` whose values it computes again, each with both bodies."""
    later = problem.tasks[u]
    if not _is_plain(later):
        return
    changed = set(arrays_written(later))
    for t in range(u - 1, max(-1, u - _NEAR), -1):
        task = problem.tasks[t]
        changed |= set(arrays_written(task))
        if not _is_plain(task) or not _have_equal_iterations(task, later):
            continue
        if _loaded(task) & _loaded(later) <= changed:
            continue
        assert task.body is not None
        assert later.body is not None
        used = sorted(_loaded(task) | _loaded(later) | changed)
        types = tuple((name, problem.array(name).dtype) for name in used)
        bodies = task.body.statements, later.body.statements
        made = _handed(bodies, (task.loops, later.loops), types, frozenset(changed))
        if made is not None:
            yield t, made


def _is_plain(task: Task) -> bool:
    """True for a body over known loops that neither prints, asserts nor touches trees."""
    if task.body is None or not task.loops or task.domain != BOX or not task.has_known_extents:
        return False
    if task.body.trees != NO_TREES or task.logical is not None:
        return False
    every = tuple(nested_statements(task.body.statements))
    return len(every) <= _MOST_STATEMENTS and not any(
        isinstance(s, ir.Print | ir.Assert | ir.Append) for s in every
    )


def _have_equal_iterations(a: Task, b: Task) -> bool:
    extents = [[loop.extent for loop in x.loops] for x in (a, b)]
    return extents[0] == extents[1] and a.repeats == b.repeats and a.fast_math is b.fast_math


def _loaded(task: Task) -> frozenset[str]:
    assert task.body is not None
    return frozenset(s.state.name for s in task.body.sites if s.op == "load")


# --- bodies


@lru_cache(maxsize=_MOST_KEPT)
def _handed(
    bodies: tuple[Statements, Statements],
    loops: tuple[tuple[Loop, ...], tuple[Loop, ...]],
    types: tuple[tuple[str, ir.DType], ...],
    changed: frozenset[str],
) -> _Handed | None:
    """Returns both bodies with stores and loads of the values that they share; None where that saves too little."""
    first, then = bodies
    taken = {loop.name for loop in loops[1]} | set(_names(then))
    names: Names = {("loop", a.name): b.name for a, b in zip(loops[0], loops[1], strict=True)}
    apart = with_own_names(first, names, taken)
    before, behind = numbered_apart(apart, then, dict(types), changed)
    defined, own = _definitions(before), set(map(local_changed, nested_statements(behind)))
    needed = tuple(dict.fromkeys(x.name for x in _locals(behind) if x.name not in own))
    place = tuple(ir.LoopIndex(loop.name) for loop in loops[1])
    front: dict[str, ir.Stmt] = {}
    stores: list[ir.Stmt] = []
    kinds = {x.name: x.dtype for x in _locals(behind)} | {
        n: s.value.dtype for n, s in defined.items()
    }

    def deliver(name: str) -> None:
        """Puts a local of the first body in front of the second: loaded, or where that is no work, computed again."""
        if name in front:
            return
        made = defined.get(name)
        if made is not None and _is_computed_again(made.value, defined, needed, changed):
            for x in locals_read(made.value):
                deliver(x)
            front[name] = made
            return
        array, dtype = str(len(stores)), kinds[name]
        stores.append(ir.Store(array, place, ir.Local(name, dtype), ir.NOWHERE))
        front[name] = ir.SetLocal(name, ir.Load(array, place, dtype), ir.NOWHERE)

    for name in needed:
        deliver(name)
    stored = tuple(s.value.dtype for s in stores if isinstance(s, ir.Store))
    loading = without_unread((*front.values(), *behind))
    saved = _work(then) - _work(loading) + len(stores)
    if not stores or saved < _LEAST_SAVED * len(stores) or ir.DType.bool_ in stored:
        return None
    original: Names = {(kind, new): old for (kind, old), new in names.items()}
    storing = with_own_names(without_unread((*before, *stores)), original, set())
    return _Handed(storing, loading, stored, saved, _less_loaded(then, loading))


def _is_computed_again(
    value: ir.Expr,
    defined: Mapping[str, ir.SetLocal],
    needed: Collection[str],
    changed: Collection[str],
) -> bool:
    """True for an integer, or a float without operations, of locals that have one value in an iteration.

    So are few operations on locals that are `needed` themselves. A load of a `changed` array might give another value.
    """
    if any(x.array in changed for x in loads(value)):
        return False
    operands, n = locals_read(value), _n_operations(value)
    is_cheap = not value.dtype.is_float or not n
    is_near = n < _LEAST_SAVED and not loads(value) and all(x in needed for x in operands)
    return (is_cheap or is_near) and all(name in defined for name in operands)


def _definitions(body: Statements) -> dict[str, ir.SetLocal]:
    """The locals that are set once, at the top of a body, with their statements."""
    times: dict[str, int] = {}
    for s in nested_statements(body):
        times[local_changed(s)] = times.get(local_changed(s), 0) + 1
    return {s.name: s for s in body if isinstance(s, ir.SetLocal) and times[s.name] == 1}


def _locals(body: Statements) -> Iterator[ir.Local]:
    """Yields the uses of locals in a body."""
    for s in nested_statements(body):
        for e in children(s):
            yield from (x for x in walk(e) if isinstance(x, ir.Local))


def _names(body: Statements) -> Iterator[str]:
    """Yields the locals and inner loops of a body."""
    for s in nested_statements(body):
        yield s.loop if isinstance(s, ir.For) else local_changed(s)
    yield from (x.name for x in _locals(body))


def _less_loaded(before: Statements, behind: Statements) -> frozenset[str]:
    """The arrays that fewer loads name in the text `behind` than in the text `before`."""
    left = Counter(x.array for x in _loads(behind))
    return frozenset(a for a, n in Counter(x.array for x in _loads(before)).items() if n > left[a])


def _loads(body: Statements) -> Iterator[ir.Load]:
    for s in nested_statements(body):
        for e in children(s):
            yield from loads(e)


def _work(body: Statements) -> float:
    """The number of operations on floats, and of loads, in the text of a body."""
    every = (e for s in nested_statements(body) for e in children(s))
    return sum(map(_n_operations, every)) + sum(1 for _ in _loads(body))


def _n_operations(e: ir.Expr) -> float:
    """The number of operations on floats of an expression."""
    return sum(
        OPS[x.op].flops for x in walk(e) if isinstance(x, ir.Binary | ir.Unary) and x.dtype.is_float
    )


def _named(problem: Problem, t: int, u: int, x: _Handed, taken: set[str]) -> SharedValues:
    """The pair with names for its arrays, which join the `taken` ones."""
    shape = tuple(loop.extent for loop in problem.tasks[u].loops)
    arrays = tuple(
        ArrayInfo(fresh_name("shared_value", taken), dtype, shape, "temp") for dtype in x.types
    )
    names = Renaming(arrays={str(k): a.name for k, a in enumerate(arrays)})
    storing, loading = (
        _with(problem.tasks[k], tuple(map(names.apply_stmt, body)))
        for k, body in ((t, x.storing), (u, x.loading))
    )
    return SharedValues(t, u, arrays, storing, loading, x.spared)


def _with(task: Task, statements: Statements) -> Body:
    """The body of a task with other statements."""
    assert task.body is not None
    return analyse(identified(statements), task.scope, task.body.reason)
