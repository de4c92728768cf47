"""Dependences between tasks, and for each the pairs of loops that, when fused, keep it within one iteration."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from ..analysis.conflicts import apart, in_any_step
from ..analysis.effects import Effects, commuting, covers, effects, written_sets
from ..ir.access import AccessSet, State
from ..ir.affine import Affine, combine, without
from ..ir.domain import Loop
from ..ir.task import Problem, Task

Kind = Literal["flow", "anti", "output"]
Mapped = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Dependence:
    """Dependence: task `source` must run before task `sink`, because both access `array` and one writes it.

    Both are numbers of tasks of the problem, source < sink.
    `mapped` are pairs (loop of source, loop of sink) of equal extent. Every conflicting pair of accesses has distance 0 along them:
    with both fused into one loop, the dependence stays within one iteration.
    """

    source: int
    sink: int
    array: str
    kind: Kind
    mapped: Mapped


@dataclass(frozen=True)
class SharedRead:
    """Read that two tasks may share: both load `array` at one index if the loop pairs of `mapped` are fused.

    `first` < `second` are numbers of tasks. No task from `first` to `second` writes the array.
    """

    first: int
    second: int
    array: str
    mapped: Mapped


def dependences(problem: Problem) -> tuple[Dependence, ...]:
    """Returns all dependences of program order.

    A dependence is left out if a task between overwrites the elements: its own dependences imply it.
    """
    every = [effects(task) for task in problem.tasks]
    touching: dict[State, list[int]] = {}
    conflicts = _Conflicts()
    reads = [
        conflicts.numbered(task, e.reads) for task, e in zip(problem.tasks, every, strict=True)
    ]
    writes = [
        conflicts.numbered(task, written_sets(e))
        for task, e in zip(problem.tasks, every, strict=True)
    ]
    updated = [commuting(task) for task in problem.tasks]
    for k in range(len(every)):
        for state in {**reads[k], **writes[k]}:
            touching.setdefault(state, []).append(k)
    found: list[tuple[tuple[int, int, int], Dependence]] = []
    for source in range(len(problem.tasks)):
        uses: tuple[tuple[Kind, dict[State, int], list[dict[State, int]]], ...] = (
            ("flow", writes[source], reads),
            ("anti", reads[source], writes),
            ("output", writes[source], writes),
        )
        for rank, (kind, before, after) in enumerate(uses):
            for state, here in before.items():
                shape = problem.array(state.name).shape
                later = touching[state][bisect_right(touching[state], source) :]
                touched = conflicts.sets(here)
                for sink in _until_covered(state, touched, shape, later, every):
                    if updated[source].get(state, 0) == updated[sink].get(state, 1):
                        continue
                    there = after[sink].get(state)
                    mapped = conflicts.between(here, there) if there is not None else None
                    if mapped is not None:
                        dep = Dependence(source, sink, state.name, kind, mapped)
                        found.append(((source, sink, rank), dep))
    # A stable sort: for one pair and kind, arrays stay in the order of the source.
    return tuple(d for _, d in sorted(found, key=lambda pair: pair[0]))


def written_over(problem: Problem) -> frozenset[int]:
    """Returns numbers of the tasks without visible results after the sequence.

    For each state that they write, one write of a later task covers all of their writes. Arrays that end repeats are seen before.
    """
    every = [effects(task) for task in problem.tasks]
    found = set[int]()
    for t, e in enumerate(every):
        sets = _by_state(written_sets(e))
        if sets and all(
            state.name not in problem.ending
            and any(
                other == state
                and overwrites
                and all(covers(over, x, problem.array(state.name).shape) for x in written)
                for later in every[t + 1 :]
                for other, over, overwrites in later.writes
            )
            for state, written in sets.items()
        ):
            found.add(t)
    return frozenset(found)


def carried_flows(problem: Problem) -> tuple[Dependence, ...]:
    """Returns flow dependences between iterations of a time loop (repeat).

    The sink reads, in the next iteration, a value of the source that was not overwritten.
    The source may be the sink, or come after it in the program.
    """
    every = [effects(task) for task in problem.tasks]
    steady = list(map(_steady, every))
    found: dict[tuple[int, int, str], Dependence] = {}
    for r in problem.repeats:
        for source in r.members:
            loops = problem.tasks[source].loops
            for state, here in _by_state(written_sets(every[source])).items():
                shape = problem.array(state.name).shape
                rest = range(source + 1, r.stop)
                later = _until_covered(state, here, shape, [*rest, *r.members], steady)
                for n, sink in enumerate(later):
                    there = _by_state(every[sink].reads).get(state)
                    if n < len(rest) or there is None:
                        continue
                    there = tuple(map(in_any_step, there))
                    mapped = _conflict(loops, here, problem.tasks[sink].loops, there)
                    if mapped is not None:
                        dep = Dependence(source, sink, state.name, "flow", mapped)
                        found.setdefault((source, sink, state.name), dep)
    return tuple(found[key] for key in sorted(found))


def shared_reads(problem: Problem, within: int | None = None) -> tuple[SharedRead, ...]:
    """Returns the loads that two tasks could share, one entry for each consistent way of fusing loops.

    `within`: only pairs of tasks whose numbers differ by less than this.
    """
    found: list[SharedRead] = []
    n_tasks = len(problem.tasks)
    every = [effects(task) for task in problem.tasks]
    reads = [
        _by_state(
            tuple((state, x) for state, x in e.reads if all(i.affine is not None for i in x.index))
        )
        for e in every
    ]
    for first, u in enumerate(problem.tasks):
        written = {state for state, _, _ in every[first].writes}
        last = n_tasks if within is None else min(n_tasks, first + within)
        for second in range(first + 1, last):
            v = problem.tasks[second]
            written |= {state for state, _, _ in every[second].writes}
            for state in (x for x in reads[first] if x in reads[second] and x not in written):
                for a, b in product(reads[first][state], reads[second][state]):
                    mapped = _identity(u, v, a, b)
                    if mapped:
                        found.append(SharedRead(first, second, state.name, mapped))
    return tuple(dict.fromkeys(found))


def is_kept_apart(
    a: int, b: int, ordered: Set[tuple[int, int]], joined: Set[tuple[int, int]]
) -> bool:
    """True if tasks `a` and `b` can share no loop because a third task must run between them.

    The third task would be in that loop, but can share no loop with `a` or with `b`.
    `ordered`: pairs of tasks with a dependence. `joined`: pairs with loops that may be one.
    """
    ways = ({(a, w), (w, b)} for w in range(a + 1, b))
    return any(pairs <= ordered and not pairs <= joined for pairs in ways)


_Sets = tuple[AccessSet, ...]
_Loops = tuple[Loop, ...]


def _by_state(sets: tuple[tuple[State, AccessSet], ...]) -> dict[State, _Sets]:
    """Returns the distinct access sets of each state."""
    found: dict[State, dict[AccessSet, None]] = {}
    for state, x in sets:
        found.setdefault(state, {})[x] = None
    return {state: tuple(of) for state, of in found.items()}


class _Conflicts:
    """Cache of conflicts between access sets of one state.

    Equal sets have one number, since long programs repeat few tasks.
    """

    def __init__(self) -> None:
        self.numbers: dict[tuple[_Loops, _Sets], int] = {}
        self.by_number: list[tuple[_Loops, _Sets]] = []
        self.known: dict[tuple[int, int], Mapped | None] = {}

    def numbered(self, task: Task, sets: tuple[tuple[State, AccessSet], ...]) -> dict[State, int]:
        """Returns for each state the number of the access sets by which a task accesses it."""
        found = {}
        for state, of in _by_state(sets).items():
            key = task.loops, of
            found[state] = self.numbers.setdefault(key, len(self.numbers))
            if found[state] == len(self.by_number):
                self.by_number.append(key)
        return found

    def sets(self, number: int) -> _Sets:
        return self.by_number[number][1]

    def between(self, before: int, after: int) -> Mapped | None:
        """Returns the pairs of loops that keep all conflicts in one iteration; None if there is no conflict.

        `before` and `after`: numbers of access sets of two tasks.
        """
        key = before, after
        if key not in self.known:
            self.known[key] = _conflict(*self.by_number[before], *self.by_number[after])
        return self.known[key]


def _conflict(loops_u: _Loops, before: _Sets, loops_v: _Loops, after: _Sets) -> Mapped | None:
    pairs = [(a, b) for a, b in product(before, after) if not apart(a, b)]
    if not pairs:
        return None
    return tuple(
        (p.name, c.name)
        for p, c in product(loops_u, loops_v)
        if p.extent == c.extent and all(_follows(p, c, a, b) for a, b in pairs)
    )


def _follows(p: Loop, c: Loop, a: AccessSet, b: AccessSet) -> bool:
    """True if accesses of one element have equal indices of loops p and c, by one axis: `k*p + m` and `k*c + m`."""
    steps = {loop.name for loop in a.loops if loop.is_step and loop in b.loops}
    return (
        p in a.loops
        and c in b.loops
        and any(
            x.affine is not None
            and y.affine is not None
            and x.divisor == y.divisor == 1
            and x.through == y.through
            and (
                _is_tied(p, c, x.affine, y.affine, steps)
                or (bool(x.through) and _is_same_digit(p, c, (x.affine, a), (y.affine, b)))
            )
            for x, y in zip(a.index, b.index, strict=True)
        )
    )


def _is_tied(p: Loop, c: Loop, x: Affine, y: Affine, steps: set[str]) -> bool:
    """True if the indices `x` and `y` are `k*p` and `k*c`, plus the same constant, which may depend on the step."""
    k = x.coefficient(p.name)
    rest = combine([(1, x), (-k, Affine(0, ((p.name, 1),)))])
    other = combine([(1, y), (-k, Affine(0, ((c.name, 1),)))])
    return k != 0 and rest == other and {n for n, _ in rest.terms} <= steps


def _is_same_digit(
    p: Loop, c: Loop, before: tuple[Affine, AccessSet], after: tuple[Affine, AccessSet]
) -> bool:
    """True if p and c are the leading digits, of equal weight, of two mixed-radix numbers.

    The other digits sum up to less than the weight.
    """
    weights = []
    for loop, (x, accessed) in ((p, before), (c, after)):
        extents = {inner.name: inner.extent for inner in accessed.loops}
        by_loop = dict(x.terms)
        rest = [k * (extents[n] - 1) for n, k in x.terms if n != loop.name and n in extents]
        is_number = all(k > 0 and n in extents for n, k in x.terms)
        if not is_number or loop.name not in by_loop or sum(rest) >= by_loop[loop.name]:
            return False
        if x.const < 0 or x.const + sum(rest) >= by_loop[loop.name]:
            return False
        weights.append(by_loop[loop.name])
    return weights[0] == weights[1]


def _identity(u: Task, v: Task, a: AccessSet, b: AccessSet) -> Mapped:
    """Returns the loop pairs under which access sets `a` and `b` have one index map; () if there are none."""
    extents_u = {loop.name: loop.extent for loop in u.loops}
    extents_v = {loop.name: loop.extent for loop in v.loops}
    steps = {loop.name for loop in u.steps if loop in v.steps}
    found: dict[str, str] = {}
    for axis_u, axis_v in zip(a.index, b.index, strict=True):
        x, y = axis_u.affine, axis_v.affine
        if x is None or y is None or axis_u.divisor != axis_v.divisor:
            return ()
        by_step = {n for n, _ in x.terms} & {n for n, _ in y.terms} & steps
        if any(x.coefficient(n) != y.coefficient(n) for n in by_step):
            return ()
        x, y = without(x, by_step), without(y, by_step)
        if x.const != y.const or len(x.terms) != len(y.terms) or axis_u.through != axis_v.through:
            return ()
        by_coefficient = {k: name for name, k in y.terms}
        for name, k in x.terms:
            other = by_coefficient.get(k)
            if len(by_coefficient) != len(y.terms) or other is None:
                return ()
            if name not in extents_u or other not in extents_v:
                return ()  # a loop inside a body
            if extents_u[name] != extents_v[other] or found.setdefault(name, other) != other:
                return ()
    return tuple(sorted(found.items())) if len(set(found.values())) == len(found) else ()


def _steady(e: Effects) -> Effects:
    """Returns effects in which no write at elements that depend on the step is a sure overwrite.

    Such a write does not overwrite the writes of earlier steps.
    """

    def is_steady(x: AccessSet) -> bool:
        return not x.moves and all(a.affine is not None for a in x.index)

    return replace(e, writes=tuple((s, x, sure and is_steady(x)) for s, x, sure in e.writes))


def _until_covered(
    state: State, touched: _Sets, shape: tuple[int, ...], later: list[int], every: list[Effects]
) -> Iterator[int]:
    """Yields the tasks of `later`, up to the first with one write that covers all access sets `touched`.

    The own dependences of that task order all tasks behind it.
    """
    for k in later:
        yield k
        for other, written, overwrites in every[k].writes:
            if other == state and overwrites and all(covers(written, x, shape) for x in touched):
                return
