"""Instrumented execution: counts the runs of blocks and accesses on given arguments, for a profile.

`counting` makes a recording with counters. Any executor of recordings runs it, and `Counting.read` reads the counts. Timed calls
come after others. So the counts of a task hold only if all the values that decide its path are after the call as they were before
(recurrence.py): then every later call takes the same path. Other counts are estimates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..analysis.effects import arrays_written
from ..analysis.must_execute import Needed, blocks_of, needed, set_in
from ..analysis.sure_accesses import touched_at, wholly_known
from ..frontend.recorder import Recording
from ..ir import kernel as ir
from ..ir.arrays import ArrayInfo
from ..ir.task import Problem, Task
from ..ir.walk import children, coerced, loads, nested_statements, walk, with_blocks
from ..sparse.recorded import UsedTree
from .as_kernels import recording_of, task_statements
from .guarded_bodies import followed
from .profile import LINE_BYTES, Profile, TaskProfile, Touched
from .recurrence import Recurrence

MOST_PLACES = 64  # counted accesses of a task: each costs compile time
MOST_ELEMENTS = 1 << 24  # of an array: two numbers of 32 bits are kept for each
_MIXING = ("bit_and", "bit_or", "bit_xor")
_COUNTS, _STEP, _NOW, _AT = "profile@counts", "profile@step", "profile@now", "profile@at"
_SEEN, _DIRTY = "seen", "dirty"


def is_open_question(task: Task) -> bool:
    """True if data decide how often a statement of a task runs, or which elements it accesses.

    Precondition: the task is a result of `followed`.
    """
    return task.body is not None and (
        any(block.times is None for block in blocks_of(task.body.statements))
        or any(axis.plain is None for site in task.body.sites for axis in site.index)
    )


def deciding(task: Task, into: frozenset[str] = frozenset()) -> frozenset[str]:
    """Returns the arrays whose values decide the control flow of a task, or which elements it accesses.

    Arrays that decide the values it writes to arrays of `into` are among them.
    """
    task = followed(task)
    if task.body is None:
        parts = [task.condition, *((task.value, task.finish) if task.target.array in into else ())]
        return frozenset(x.array for e in parts if e is not None for x in loads(e))
    changes = set_in(task.body.statements)
    left: list[ir.Expr] = []
    for s in nested_statements(task.body.statements):
        match s:
            case ir.If() | ir.While():
                left.append(s.condition)
            case ir.For():
                left.append(s.extent)
            case ir.Store() | ir.Update():
                left += s.indices
                left += (s.value,) if s.array in into else ()
        every = (x for e in children(s) for x in walk(e))
        left += (i for x in every if isinstance(x, ir.Load) for i in x.indices)
    found: set[str] = set()
    seen: set[str] = set()
    while left:
        for x in walk(left.pop()):
            if isinstance(x, ir.Load):
                found.add(x.array)
            if isinstance(x, ir.Local | ir.LocalElement) and x.name not in seen:
                seen.add(x.name)
                left += (e for s in changes.get(x.name, ()) for e in children(s))
                found |= {s.array for s in changes.get(x.name, ()) if isinstance(s, ir.Update)}
    return frozenset(found)


class _Steering:
    """Data flow of a problem to the control flow of its tasks: by array, the arrays that decide its values."""

    def __init__(self, problem: Problem) -> None:
        self._kept = frozenset(a.name for a in problem.arrays if a.role == "inout")
        self._sources: dict[str, frozenset[str]] = {}
        for task in problem.tasks:
            for array in arrays_written(task):
                before = self._sources.get(array, frozenset())
                self._sources[array] = before | deciding(task, frozenset((array,)))

    def of(self, task: Task) -> frozenset[str]:
        """Returns arrays that outlive a call and decide control flow and accesses of a task in the next call.

        They do so directly or by values computed from them.
        """
        found = set[str]()
        left = list(deciding(task))
        while left:
            array = left.pop()
            if array not in found:
                found.add(array)
                left += self._sources.get(array, ())
        return self._kept & found


@dataclass
class Counters:
    """Counters of a task: elements of an `array` of its own, so that equal tasks have equal kernels.

    The first `n_blocks` count executions of its blocks, the next one runs of the task. `touched`: for each array whose accesses are
    counted, the first of its four counters.
    """

    array: str
    n_blocks: int
    touched: dict[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.n_blocks + 1 + 4 * len(self.touched)

    def touch(self, array: str) -> None:
        """Adds the four counters of an array."""
        self.touched[array] = self.size


@dataclass(frozen=True)
class Counting:
    """Recording with counters, and the meaning of each counter. `trees`: those of the sequence, by which calls are compared."""

    problem: Problem
    recording: Recording
    counted: Mapping[str, Counters]  # by task
    trees: tuple[UsedTree, ...] = ()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Returns the additional arrays of the recording (counters and markers), filled with zeros."""
        known = {a.name for a in self.problem.arrays}
        return {
            a.name: np.zeros(a.shape, a.dtype.numpy)
            for a in self.recording.arrays
            if a.name not in known
        }

    def read(
        self, before: Mapping[str, NDArray[Any]], found: Mapping[str, NDArray[Any]]
    ) -> Profile:
        """Returns the profile, from the contents of all arrays before (`before`) and after (`found`) a run."""
        made = []
        recurrence = Recurrence(self.trees, before, found)
        stays: dict[str, bool] = {}
        for task in self.problem.tasks:
            of = self.counted.get(task.name)
            if of is None:
                continue
            n_runs = max(1, int(found[of.array][of.n_blocks]))
            counts = [float(x) / n_runs for x in found[of.array]]
            touched = tuple(self._surely(a, counts[k : k + 4]) for a, k in of.touched.items())
            entered = tuple(counts[: of.n_blocks])
            steers = self._steering.of(task)
            for name in steers - stays.keys():
                stays[name] = recurrence.holds(self.problem.array(name))
            holds = all(stays[name] for name in steers)
            made.append(TaskProfile(task.name, entered, touched, holds))
        return Profile(tuple(made))

    @cached_property
    def _steering(self) -> _Steering:
        return _Steering(self.problem)

    def _surely(self, array: str, counts: Sequence[float]) -> Touched:
        """Returns the counts of accesses to an array that hold for every layout of the fields of trees.

        Arrays of trees count no cache lines: layouts may be transformed, and slots are others in each call.
        """
        read, read_lines, written, written_lines = counts
        is_of_tree = any(array == name for used in self.trees for _, name in used.sections)
        if is_of_tree or any(array in x.arrays for x in self.problem.parts.leaves):
            read_lines = written_lines = 0.0
        return Touched(array, read, read_lines, written, written_lines)


def counting(problem: Problem, trees: Iterable[UsedTree] = ()) -> Counting | None:
    """Returns a recording of the problem's tasks with counters; None if no task depends on data.

    A task depends on data if these decide its control flow, or the elements that it accesses. `trees`: those whose states may
    recur with other slots.
    """
    made = _Made(problem)
    bodies = [
        made.task(task) if is_open_question(task) else task_statements(task)
        for task in map(followed, problem.tasks)
    ]
    if not made.counted:
        return None
    counts = [ir.ArrayParam(x.array, ir.DType.i64, (x.size,)) for x in made.counted.values()]
    more = [*counts, ir.ArrayParam(_STEP, ir.DType.i64, (1,)), *made.marks]
    return Counting(problem, recording_of(problem, bodies, more), made.counted, tuple(trees))


@dataclass(frozen=True)
class _Place:
    """Must-execute access of a task: block and position of the statement, write or read, array and indices."""

    block: int
    place: int
    writes: bool
    array: str
    indices: tuple[ir.Expr, ...]


class _Made:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.counted: dict[str, Counters] = {}
        self.marked: dict[str, ArrayInfo] = {}

    @property
    def marks(self) -> Iterator[ir.ArrayParam]:
        """Marker arrays of each counted array: the number of the run that last accessed each element or line."""
        for a in self.marked.values():
            n = int(np.prod(a.shape, dtype=np.int64))
            n_lines = -(-n * a.dtype.size_bytes // LINE_BYTES)
            for what in (_SEEN, _DIRTY):
                yield ir.ArrayParam(_mark(what, a.name), ir.DType.i32, (max(n, 1),))
                yield ir.ArrayParam(_mark(what, a.name, "lines"), ir.DType.i32, (max(n_lines, 1),))

    def task(self, task: Task) -> tuple[ir.Stmt, ...]:
        assert task.body is not None
        blocks = blocks_of(task.body.statements)
        counters = Counters(f"{_COUNTS}.{task.name}", len(blocks))
        self.counted[task.name] = counters
        places = self.places(task, needed(task.body.statements))
        for array in dict.fromkeys(x.array for x in places):
            counters.touch(array)
            self.marked[array] = self.problem.array(array)
        writer = _Writer(self, counters, task.where, places)
        counted = writer.block(task.body.statements)
        begin: tuple[ir.Stmt, ...] = (
            writer.count(counters.n_blocks),
            ir.Update(_STEP, (_const(0),), "add", _const(1), task.where),
            ir.SetLocal(_NOW, ir.Load(_STEP, (_const(0),), ir.DType.i64), task.where),
        )
        return begin + task_statements(
            replace(task, body=replace(task.body, statements=counted), condition=None)
        )

    def scanned(self, task: Task) -> frozenset[str]:
        """Returns the arrays through which a task searches for active cells, if it makes a list of these.

        All ways to make the list look at the same elements of them.
        """
        if task.body is None or not task.body.trees.lists:
            return frozenset()
        masks = {x.array for x in self.problem.parts.states if x.kind == "mask"}
        return frozenset(masks.difference(arrays_written(task)))

    def places(self, task: Task, found: tuple[Needed, ...]) -> list[_Place]:
        """Returns the must-execute accesses of a task.

        Arrays with too many such accesses, or elements, are left out as a whole: reads before a write need all of them.
        """
        of: dict[str, list[_Place]] = {}
        assert task.body is not None
        mixed = _mixed(task.body.statements)
        left_out = self.problem.parts.structure - self.scanned(task)
        for n in found:
            is_mixed = isinstance(n.statement, ir.SetLocal) and n.statement.name in mixed
            for array, indices, writes in touched_at(n) if not n.late and not is_mixed else ():
                if array in left_out:
                    continue  # variants of lists, activations and tables access other elements
                of.setdefault(array, []).append(_Place(n.block, n.place, writes, array, indices))
        known_anyhow = wholly_known(task)
        left = MOST_PLACES
        made = []
        known = {a.name: a for a in self.problem.arrays}
        for array, places in of.items():
            if array in known_anyhow:
                continue
            info = known[array]
            is_small = np.prod(info.shape, dtype=np.float64) <= MOST_ELEMENTS
            if len(places) <= left and is_small and info.dtype is not ir.DType.f16:
                made += places
                left -= len(places)
        return made


@dataclass
class _Writer:
    """Writer of a task's body with counters."""

    made: _Made
    counters: Counters
    where: ir.Location
    places: list[_Place]
    n_blocks: int = 0
    n_places: int = 0

    def block(self, statements: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
        number = self.n_blocks
        self.n_blocks += 1
        made: list[ir.Stmt] = [self.count(number), *self.touches(number, -1)]
        for k, s in enumerate(statements):
            made += self.touches(number, k)
            made.append(with_blocks(s, self.block))
        return tuple(made)

    def touches(self, block: int, place: int) -> Iterator[ir.Stmt]:
        for x in self.places:
            if (x.block, x.place) == (block, place):
                yield from self.touch(x)

    def touch(self, x: _Place) -> Iterator[ir.Stmt]:
        info, where = self.made.marked[x.array], self.where
        first = self.counters.touched[x.array] + 2 * x.writes
        flat: ir.Expr = _const(0)
        for i, n in zip(x.indices, info.shape, strict=True):
            flat = _of(_of(flat, "mul", n), "add", coerced(i, ir.DType.i64))
        self.n_places += 1
        name = f"{_AT}{self.n_places}"
        at = ir.Local(name, ir.DType.i64)
        line = _of(_of(at, "mul", info.dtype.size_bytes), "floordiv", LINE_BYTES)
        yield ir.SetLocal(name, flat, where)
        of_line = self.marking(x, "lines", line, first + 1, ())
        made = self.marking(x, "", at, first, (of_line,))
        n_shared = self.made.problem.parts.n_shared(x.array)
        if n_shared:  # elements that inactive cells share are zero, and need not be read
            own = ir.Compare("ge", coerced(x.indices[-1], ir.DType.i64), _const(n_shared))
            made = ir.If(own, (made,), (), where)
        yield made

    def marking(
        self, x: _Place, unit: str, at: ir.Expr, counter: int, more: tuple[ir.Stmt, ...]
    ) -> ir.Stmt:
        """Returns the statement that counts and marks an element or cache line at its first access in this run.

        `more`: statements that run at that access, too.
        """
        now, where = ir.Local(_NOW, ir.DType.i64), self.where
        mark = _mark(_DIRTY if x.writes else _SEEN, x.array, unit)
        held = coerced(ir.Load(mark, (at,), ir.DType.i32), ir.DType.i64)
        marks: list[ir.Stmt] = [ir.Store(mark, (at,), coerced(now, ir.DType.i32), where)]
        if x.writes:
            marks.append(
                ir.Store(_mark(_SEEN, x.array, unit), (at,), coerced(now, ir.DType.i32), where)
            )
        return ir.If(ir.Compare("ne", held, now), (*marks, self.count(counter), *more), (), where)

    def count(self, counter: int) -> ir.Stmt:
        """Returns the statement that adds 1 to a counter."""
        return ir.Update(self.counters.array, (_const(counter),), "add", _const(1), self.where)


def _mixed(body: tuple[ir.Stmt, ...]) -> frozenset[str]:
    """Returns locals that are used only by bit operations.

    Such code reads a row of a leaf beyond its end (sparse/neighbour_cells.py); another variant may not access these elements.
    """
    mixed, plain = set[str](), set[str]()
    for s in nested_statements(body):
        plain |= {e.name for e in children(s) if isinstance(e, ir.Local)}
        for e in (x for part in children(s) for x in walk(part)):
            is_mixing = isinstance(e, ir.Bitcast) or (isinstance(e, ir.Binary) and e.op in _MIXING)
            names = {x.name for x in children(e) if isinstance(x, ir.Local)}
            (mixed if is_mixing else plain).update(names)
    return frozenset(mixed - plain)


def _mark(what: str, array: str, unit: str = "") -> str:
    return f"profile@{what}{unit}.{array}"


def _const(value: int) -> ir.Const:
    return ir.Const(value, ir.DType.i64)


def _of(a: ir.Expr, op: Any, b: ir.Expr | int) -> ir.Expr:
    return ir.Binary(op, a, _const(b) if isinstance(b, int) else b, ir.DType.i64)
