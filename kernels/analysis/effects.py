"""Effects of tasks: the states (array versions) that a task reads and writes, and the touched elements.

All order between tasks follows from effects.
An affine task (one assignment) has the same effects as a body of one statement. Operands of a reduction's `finish` are read after
the loops that are reduced over, and its result is written there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from ..ir.access import (
    ALWAYS,
    Access,
    AccessSet,
    Guard,
    Region,
    State,
    access_of,
    hull,
    is_dense,
    maps_of,
    whole,
)
from ..ir.affine import drop_unit_loops, index_range
from ..ir.body import access_at, guard_where, loads_of
from ..ir.domain import BOX, Domain, Loop
from ..ir.kernel import Expr, ReduceOp, Update
from ..ir.per_object import per_object
from ..ir.task import Problem, Task
from ..ir.walk import loads, nested_statements
from .conflicts import in_conflict, meet_in


@dataclass(frozen=True)
class Effects:
    """Effects of a task: `reads` are pairs (state, access set), `writes` triples (state, access set, flag).

    The flag is True if the task surely overwrites all elements of the set. States of the masks, lists and allocators of sparse
    fields have names by kernels/sparse/states.py.
    """

    reads: tuple[tuple[State, AccessSet], ...]
    writes: tuple[tuple[State, AccessSet, bool], ...]


@per_object
def effects(task: Task) -> Effects:
    """Returns the effects of a task, without duplicates, reads and writes in program order."""
    if task.body is None:
        parts = (task.condition, task.value, task.finish)
        return _of_assignment(parts, task.target, task.scope, task.domain)
    sites = task.body.sites
    sets = {
        s.number: AccessSet(task.domain, (*task.scope, *s.loops), s.index, s.guard) for s in sites
    }
    return Effects(
        tuple(dict.fromkeys((s.state, sets[s.number]) for s in sites if s.reads)),
        tuple(
            dict.fromkeys((s.state, sets[s.number], s.guard.is_exact) for s in sites if s.writes)
        ),
    )


_Parts = tuple[Expr | None, Expr | None, Expr | None]  # condition, value, finish


@lru_cache(maxsize=1 << 12)  # long programs are made of few different tasks
def _of_assignment(
    parts: _Parts, target: Access, every: tuple[Loop, ...], domain: Domain
) -> Effects:
    outer = tuple(loop for loop in every if not loop.is_reduction)
    condition = parts[0]
    wanted = ALWAYS if condition is None else guard_where(condition, every)
    reads = []
    for value, loops in zip(parts, (every, every, outer), strict=True):
        for s in loads_of(value, loops) if value is not None else ():
            guard = s.guard if value is condition else _both(wanted, s.guard)
            reads.append((s.state, AccessSet(domain, loops, s.index, guard)))
    written = AccessSet(domain, outer, maps_of(target.axes), wanted)
    state = State("value", target.array)
    if condition is not None:
        # A blend stores what an element held where the condition does not hold: that nobody else may write meanwhile. Who reads
        # it sees no change.
        reads.append((state, replace(written, guard=Guard(is_exact=False))))
    return Effects(tuple(dict.fromkeys(reads)), ((state, written, condition is None),))


def _both(a: Guard, b: Guard) -> Guard:
    """Returns the conjunction of two guards: the iterations in which both hold."""
    if a == ALWAYS or b == ALWAYS:
        return b if a == ALWAYS else a
    bounds, residues = (*a.bounds, *b.bounds), (*a.residues, *b.residues)
    data = tuple(sorted({*a.data, *b.data}))
    return Guard(bounds, residues, data, a.is_exact and b.is_exact)


def commuting(task: Task) -> dict[State, ReduceOp]:
    """Returns states that a task accesses only by updates with one operation, each with its operation.

    No statement uses the old values. Several iterations of each loop may update one element, so one thread makes all updates.
    If sums may be reassociated, two tasks that update such a state need no order.
    """
    if task.body is None or not task.fast_math:
        return {}
    body = task.body
    updates = [s for s in nested_statements(body.statements) if isinstance(s, Update)]
    asked = {s.array for s in updates if s.result}
    found: dict[State, set[ReduceOp | None]] = {}
    for site in body.sites:
        found.setdefault(site.state, set()).add(site.operator)
    sets = effects(task).reads if any(len(ops) == 1 for ops in found.values()) else ()
    return {
        state: op
        for state, ops in found.items()
        if len(ops) == 1 and state.name not in asked
        for op in ops
        if op is not None
        and all(
            meet_in(x, x, (loop,)) for other, x in sets if other == state for loop in task.loops
        )
    }


def written_sets(e: Effects) -> tuple[tuple[State, AccessSet], ...]:
    """Returns the pairs of state and access set that effects write, without the flag for sure overwriting."""
    return tuple(dict.fromkeys((state, x) for state, x, _ in e.writes))


@lru_cache(maxsize=1 << 14)  # long programs are made of few different tasks
def covers(a: AccessSet, b: AccessSet, shape: tuple[int, ...]) -> bool:
    """True if access set `a` is proved to contain access set `b`; False without a proof.

    Both are of one array of this shape.
    There is a proof for boxes, and for equal index maps over equal loops under equal guards that do not depend on values.
    """
    is_plain = all(x.affine is not None and not x.through for x in a.index) and a.domain == BOX
    if a == b and is_plain and a.guard.is_exact:
        return True
    return region_of(a, shape).covers(region_of(b, shape))


def region_of(x: AccessSet, shape: tuple[int, ...]) -> Region:
    """Returns a bounding box of an access set of an array of this shape, over all steps of repeats.

    An axis whose index is not affine counts as the whole axis.
    """
    lengths = {loop.name: loop.extent for loop in x.loops}
    steps = {loop.name for loop in x.loops if loop.is_step}
    is_exact = x.guard == ALWAYS and x.domain == BOX and all(loop.is_known for loop in x.loops)
    bounds, seen = [], set[str]()
    for axis, n in zip(x.index, shape, strict=True):
        known = None if axis.through else axis.affine
        if known is None or any(name not in lengths for name, _ in known.terms):
            bounds.append((0, n - 1))
            is_exact = False
            continue
        affine = drop_unit_loops(known, lengths)
        low, high = (v // axis.divisor for v in index_range(affine, lengths))
        bounds.append((max(low, 0), min(high, n - 1)) if axis.divisor > 1 else (low, high))
        names = {name for name, _ in affine.terms}
        is_exact = (
            is_exact
            and axis.divisor == 1
            and is_dense(affine, lengths)
            and not (names & (seen | steps))
        )
        seen |= names
    return Region(tuple(bounds), is_exact)


def are_independent(task: Task, loop: Loop, safe: frozenset[str] = frozenset()) -> bool:
    """True if no two iterations of a task's loop conflict: none touches an element that another one writes.

    `safe`: arrays that are not tested, since their conflicts do no harm.
    Of a nest of a body the proof for all of its iterations counts, too: there the indices of outer loops are equal.
    """
    found = effects(task)
    is_nest = task.body is not None and len(task.loops) > 1
    return _are_independent(found, (loop,), safe) or (
        is_nest and _are_independent(found, task.loops, safe)
    )


@lru_cache(maxsize=1 << 12)
def _are_independent(found: Effects, loops: tuple[Loop, ...], safe: frozenset[str]) -> bool:
    accesses = [(state, x, False) for state, x in found.reads]
    accesses += [(state, x, True) for state, x, _ in found.writes]
    return safe.issuperset(in_conflict(accesses, loops))


@per_object
def task_reads(task: Task) -> tuple[tuple[Access, bool], ...]:
    """Returns each distinct read of a task: the access, and True if `finish` reads it after the reduction."""
    if task.body is not None:
        return tuple(
            dict.fromkeys((access_at(s, task.loops), False) for s in task.body.sites if s.reads)
        )
    return _reads_of((task.condition, task.value, task.finish), task.target)


@lru_cache(maxsize=1 << 12)
def _reads_of(parts: _Parts, target: Access) -> tuple[tuple[Access, bool], ...]:
    condition, value, finish = (tuple(loads(x)) if x is not None else () for x in parts)
    pairs = [(access_of(x), False) for x in (*condition, *value)]
    pairs += [(access_of(x), True) for x in finish]
    if parts[0] is not None:  # what is not assigned to is kept
        pairs.append((target, False))
    return tuple(dict.fromkeys(pairs))


@per_object
def task_writes(task: Task) -> tuple[Access, ...]:
    """Returns the distinct writes of a task: several for a body, exactly one for an affine task."""
    if task.body is not None:
        return tuple(dict.fromkeys(access_at(s, task.loops) for s in task.body.sites if s.writes))
    return (task.target,)


@per_object
def arrays_read(task: Task) -> tuple[str, ...]:
    """Returns the names of the arrays that a task reads, without duplicates."""
    return tuple(dict.fromkeys(access.array for access, _ in task_reads(task)))


@per_object
def arrays_written(task: Task) -> tuple[str, ...]:
    """Returns the names of the arrays that a task writes, without duplicates."""
    return tuple(dict.fromkeys(access.array for access in task_writes(task)))


def written_region(task: Task, array: str, shape: tuple[int, ...]) -> Region | None:
    """Returns the box of elements of `array` that the task writes, exact or inexact; None if it writes none.

    Exact: the task surely writes each element. Inexact: it may write some of them.
    The box of a body is never exact. Keys of problems rely on that: an array that a body fills is no plain output.
    """
    state = State("value", array)
    found = hull([region_of(x, shape) for s, x, _ in effects(task).writes if s == state])
    return found if found is None or task.is_structured else replace(found, is_exact=False)


def read_region(task: Task, array: str, shape: tuple[int, ...]) -> Region | None:
    """Returns a bounding box of the elements of `array` that the task reads; None if it reads none."""
    state = State("value", array)
    return hull([region_of(x, shape) for s, x in effects(task).reads if s == state])


def overwrites_all(task: Task, problem: Problem, array: str) -> bool:
    """True if the task surely writes every element of `array` of the problem. It may read the array as well."""
    return overwrites(task, array, problem.array(array).shape)


def overwrites(task: Task, array: str, shape: tuple[int, ...]) -> bool:
    """True if the task surely writes every element of `array`, which has this shape."""
    written = written_region(task, array, shape)
    return written is not None and written.covers(whole(shape))
