"""What a run of a sequence on given arguments shows of its bodies: how often each block of statements runs, and how many elements
and lines of cache of each array a task surely touches there.

`counting` makes a recording that counts while it runs; whoever runs recordings runs it, and `read_profile` reads the counts.
Values that nobody uses do not count (kernels/ir/needed.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ir.effects import arrays_read, arrays_written
from ..ir.kernel import (
    ArrayParam,
    Binary,
    Compare,
    Const,
    DType,
    Expr,
    For,
    If,
    Load,
    Local,
    LocalElement,
    Location,
    SetLocal,
    Stmt,
    Store,
    Update,
    While,
)
from ..ir.needed import Needed, blocks_of, needed, set_in
from ..ir.sure_accesses import touched_at, wholly_known
from ..ir.task import ArrayInfo, Problem, Task
from ..ir.walk import children, coerced, nested_statements, walk, with_blocks
from ..language.record import Recording
from .as_kernels import recording_of, task_statements
from .decided import followed

LINE_BYTES = 64  # of what is counted as lines
MOST_PLACES = 64  # in a task at which elements are counted: compilers take their time for each
MOST_COUNTED = 1 << 60
MOST_ELEMENTS = 1 << 24  # of an array: two numbers of 32 bits are kept for each
_COUNTS, _STEP, _NOW, _AT = "profile@counts", "profile@step", "profile@now", "profile@at"
_SEEN, _DIRTY = "seen", "dirty"


@dataclass(frozen=True)
class Touched:
    """Of an array what a task touches in one run on average: elements and lines that it reads before it writes them, and that it
    writes.
    """

    array: str
    read_elements: float = 0.0
    read_lines: float = 0.0
    written_elements: float = 0.0
    written_lines: float = 0.0


@dataclass(frozen=True)
class TaskProfile:
    """How often each block of a task's body runs in one run of the task on average (numbered as in `blocks_of`), and what it
    touches.
    """

    task: str
    entered: tuple[float, ...]
    touched: tuple[Touched, ...] = ()


@dataclass(frozen=True)
class Profile:
    """What was counted of the tasks of a problem whose values decide what they do; for these arguments only."""

    tasks: tuple[TaskProfile, ...]

    @property
    def key(self) -> str:
        """Equal for equal counts."""
        return hashlib.blake2b(repr(self).encode(), digest_size=8).hexdigest()

    def keyed(self, key: str) -> str:
        """The key of something that this profile is part of, as long as its key without it."""
        joined = hashlib.blake2b(f"{key} {self.key}".encode(), digest_size=32).hexdigest()
        return joined[: len(key)]

    def why_wrong(self, problem: Problem) -> str:
        """What a profile of the problem cannot hold, in words; "" where nothing is wrong."""
        arrays, tasks = {a.name for a in problem.arrays}, {t.name: t for t in problem.tasks}
        for known in self.tasks:
            task = tasks.get(known.task)
            task = None if task is None else followed(task)
            if task is None or task.body is None:
                return f"there is no task {known.task} in which values decide"
            if len(known.entered) != len(blocks_of(task.body.statements)):
                return f"the body of {known.task} has another number of blocks"
            if any(x.array not in arrays for x in known.touched):
                return f"{known.task} touches an array that is none of the sequence"
            counts = (c for x in known.touched for c in (x.read_elements, x.read_lines))
            more = (c for x in known.touched for c in (x.written_elements, x.written_lines))
            if not all(0 <= c < MOST_COUNTED for c in (*known.entered, *counts, *more)):
                return f"a count of {known.task} is none"
        return ""

    def of(self, task: Task) -> TaskProfile | None:
        """What is known of a task."""
        return next((t for t in self.tasks if t.task == task.name), None)


def is_open_question(task: Task) -> bool:
    """Whether values decide how often something in a task runs, or what it touches; `task` is `followed`."""
    return task.body is not None and (
        any(block.times is None for block in blocks_of(task.body.statements))
        or any(axis.plain is None for site in task.body.sites for axis in site.index)
    )


def changing(problem: Problem) -> frozenset[str]:
    """Arrays that may hold something else in the next call of the sequence on the same arguments."""
    found = {a.name for a in problem.arrays if a.role == "inout"}
    grows = True
    while grows:
        more = {
            name
            for task in problem.tasks
            if found & set(arrays_read(task))
            for name in arrays_written(task)
        }
        grows = not more <= found
        found |= more
    return frozenset(found)


def deciding(task: Task) -> frozenset[str]:
    """Arrays whose values say where a task's body goes, or what it touches."""
    assert task.body is not None
    changes = set_in(task.body.statements)
    left: list[Expr] = []
    for s in nested_statements(task.body.statements):
        match s:
            case If() | While():
                left.append(s.condition)
            case For():
                left.append(s.extent)
            case Store() | Update():
                left += s.indices
        every = (x for e in children(s) for x in walk(e))
        left += (i for x in every if isinstance(x, Load) for i in x.indices)
    found: set[str] = set()
    seen: set[str] = set()
    while left:
        for x in walk(left.pop()):
            if isinstance(x, Load):
                found.add(x.array)
            if isinstance(x, Local | LocalElement) and x.name not in seen:
                seen.add(x.name)
                left += (e for s in changes.get(x.name, ()) for e in children(s))
                found |= {s.array for s in changes.get(x.name, ()) if isinstance(s, Update)}
    return frozenset(found)


@dataclass(frozen=True)
class Counting:
    """A recording that counts, and what its counts are of."""

    problem: Problem
    recording: Recording
    counters: Mapping[str, tuple[int, ...]]  # of a task, of its blocks
    touched: Mapping[tuple[str, str], int]  # task and array: the first of four counters
    n_counters: int

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What the recording needs beside the arrays of the sequence."""
        known = {a.name for a in self.problem.arrays}
        return {
            a.name: np.zeros(a.shape, a.dtype.numpy)
            for a in self.recording.arrays
            if a.name not in known
        }

    def read(self, found: Mapping[str, NDArray[Any]]) -> Profile:
        """The profile, of what the arrays hold after a run."""
        counts = found[_COUNTS]
        made = []
        for task in self.problem.tasks:
            if task.name not in self.counters:
                continue
            n = float(task.n_runs)
            of = {a: k for (t, a), k in self.touched.items() if t == task.name}
            touched = tuple(
                Touched(a, *(float(counts[k + i]) / n for i in range(4))) for a, k in of.items()
            )
            entered = tuple(float(counts[k]) / n for k in self.counters[task.name])
            made.append(TaskProfile(task.name, entered, touched))
        return Profile(tuple(made))


def counting(problem: Problem) -> Counting | None:
    """A recording of the problem's tasks that counts; None where values decide nothing that counts.

    Of tasks whose way is decided by what a call leaves for the next one nothing is counted: measured are later calls, too.
    """
    made, later = _Made(problem), changing(problem)
    bodies = [
        made.task(task)
        if is_open_question(task) and not deciding(task) & later
        else task_statements(task)
        for task in map(followed, problem.tasks)
    ]
    if not made.counters:
        return None
    size = (max(1, made.n_counters),)
    more = [ArrayParam(_COUNTS, DType.i64, size), ArrayParam(_STEP, DType.i64, (1,)), *made.marks]
    return Counting(
        problem,
        recording_of(problem, bodies, more),
        made.counters,
        made.touched,
        made.n_counters,
    )


@dataclass(frozen=True)
class _Place:
    """Where a task surely touches an element: block and place of the statement, whether it is written, array and indices."""

    block: int
    place: int
    writes: bool
    array: str
    indices: tuple[Expr, ...]


class _Made:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.counters: dict[str, tuple[int, ...]] = {}
        self.touched: dict[tuple[str, str], int] = {}
        self.n_counters = 0
        self.marked: dict[str, ArrayInfo] = {}

    @property
    def marks(self) -> Iterator[ArrayParam]:
        """For each array that is looked at, when an element or line was last touched."""
        for a in self.marked.values():
            n = int(np.prod(a.shape, dtype=np.int64))
            n_lines = -(-n * a.dtype.size_bytes // LINE_BYTES)
            for what in (_SEEN, _DIRTY):
                yield ArrayParam(_mark(what, a.name), DType.i32, (max(n, 1),))
                yield ArrayParam(_mark(what, a.name, "lines"), DType.i32, (max(n_lines, 1),))

    def task(self, task: Task) -> tuple[Stmt, ...]:
        assert task.body is not None
        blocks = blocks_of(task.body.statements)
        self.counters[task.name] = tuple(range(self.n_counters, self.n_counters + len(blocks)))
        self.n_counters += len(blocks)
        places = self.places(task, needed(task.body.statements))
        for array in dict.fromkeys(x.array for x in places):
            self.touched[task.name, array] = self.n_counters
            self.n_counters += 4
            self.marked[array] = self.problem.array(array)
        writer = _Writer(self, task, places)
        counted = writer.block(task.body.statements)
        begin: tuple[Stmt, ...] = (
            Update(_STEP, (_const(0),), "add", _const(1), task.where),
            SetLocal(_NOW, Load(_STEP, (_const(0),), DType.i64), task.where),
        )
        return begin + task_statements(
            replace(task, body=replace(task.body, statements=counted), condition=None)
        )

    def places(self, task: Task, found: tuple[Needed, ...]) -> list[_Place]:
        """Where a task surely touches elements: the statement by its number, whether it writes, array and indices.

        Of arrays with too many such places, or elements, none: what is read before it is written is known of all or of none.
        """
        of: dict[str, list[_Place]] = {}
        for n in found:
            for array, indices, writes in touched_at(n) if not n.late else ():
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
            if len(places) <= left and is_small and info.dtype is not DType.f16:
                made += places
                left -= len(places)
        return made


@dataclass
class _Writer:
    """Writes a body with counters."""

    made: _Made
    task: Task
    places: list[_Place]
    n_blocks: int = 0
    n_places: int = 0

    def block(self, statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        number = self.n_blocks
        self.n_blocks += 1
        counter = self.made.counters[self.task.name][number]
        made: list[Stmt] = [_count(counter, self.task.where), *self.touches(number, -1)]
        for k, s in enumerate(statements):
            made += self.touches(number, k)
            made.append(with_blocks(s, self.block))
        return tuple(made)

    def touches(self, block: int, place: int) -> Iterator[Stmt]:
        for x in self.places:
            if (x.block, x.place) == (block, place):
                yield from self.touch(x)

    def touch(self, x: _Place) -> Iterator[Stmt]:
        info, where = self.made.marked[x.array], self.task.where
        first = self.made.touched[self.task.name, x.array] + 2 * x.writes
        flat: Expr = _const(0)
        for i, n in zip(x.indices, info.shape, strict=True):
            flat = _of(_of(flat, "mul", n), "add", coerced(i, DType.i64))
        self.n_places += 1
        name = f"{_AT}{self.n_places}"
        at = Local(name, DType.i64)
        line = _of(_of(at, "mul", info.dtype.size_bytes), "floordiv", LINE_BYTES)
        yield SetLocal(name, flat, where)
        of_line = self.marking(x, "lines", line, first + 1, ())
        yield self.marking(x, "", at, first, (of_line,))

    def marking(self, x: _Place, unit: str, at: Expr, counter: int, more: tuple[Stmt, ...]) -> Stmt:
        """Where an element or line was not yet touched in this run, it is counted and marked."""
        now, where = Local(_NOW, DType.i64), self.task.where
        mark = _mark(_DIRTY if x.writes else _SEEN, x.array, unit)
        held = coerced(Load(mark, (at,), DType.i32), DType.i64)
        marks: list[Stmt] = [Store(mark, (at,), coerced(now, DType.i32), where)]
        if x.writes:
            marks.append(Store(_mark(_SEEN, x.array, unit), (at,), coerced(now, DType.i32), where))
        return If(Compare("ne", held, now), (*marks, _count(counter, where), *more), (), where)


def _mark(what: str, array: str, unit: str = "") -> str:
    return f"profile@{what}{unit}.{array}"


def _const(value: int) -> Const:
    return Const(value, DType.i64)


def _of(a: Expr, op: Any, b: Expr | int) -> Expr:
    return Binary(op, a, _const(b) if isinstance(b, int) else b, DType.i64)


def _count(counter: int, where: Location) -> Stmt:
    return Update(_COUNTS, (_const(counter),), "add", _const(1), where)
