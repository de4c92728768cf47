"""Tasks: units of execution of a kernel sequence, in the normal form that space, bound and lowering use.

A *structured* task is one perfect loop band around one assignment

    target[..] = finish(init-free reduction over the reduction loops of value)      op is a ReduceOp
    target[..] = value                                                              op is None
    target[..] = value where condition                                              op is None

with known extents and affine accesses; where a condition does not hold, the target keeps its value. Any other task has a *body*:
statements under its outermost loop (kernels/ir/body.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Literal

from .access import ALWAYS, Access, Guard, State, StateKind
from .arrays import ArrayInfo
from .body import Body, guard_where
from .domain import BOX, Domain, Loop
from .kernel import NOWHERE, DType, Expr, Load, Location, LoopIndex, Param, ReduceOp
from .logical import LogicalLoop
from .repeats import Repeat, least_steps, repeats_of
from .walk import children, nested_statements, walk


@dataclass(frozen=True)
class Task:
    """Task: one unit of execution.

    `name` is unique in the sequence, for people (`gemv0`, `gemv1.s`). `loops` are in source order, outermost first. For a
    structured task `value` may load arrays at affine indices. `finish` (reductions only) gives the stored value in terms of
    `Accumulator` and of loads indexed by the non-reduction loops. The target's old value takes part only through `finish`.
    """

    name: str
    kernel: str
    loops: tuple[Loop, ...]
    target: Access
    dtype: DType  # of the accumulator and of what is stored
    value: Expr | None
    op: ReduceOp | None = None
    finish: Expr | None = None
    domain: Domain = BOX
    body: Body | None = None
    fast_math: bool = True
    where: Location = field(default=NOWHERE, compare=False)  # of the assignment
    condition: Expr | None = None  # of an assignment that does not happen in all iterations
    repeats: tuple[
        Loop, ...
    ] = ()  # around the task, outermost first: the program runs one step after the other
    logical: LogicalLoop | None = field(default=None, compare=False)  # of a loop on sparse fields

    @property
    def n_runs(self) -> int:
        """Number of runs of the task in a call of the sequence; the least one where arrays end repeats."""
        return prod(least_steps(loop.extent, loop.until) for loop in self.repeats)

    @cached_property
    def steps(self) -> tuple[Loop, ...]:
        """The step loops of `repeats` whose index occurs in the task."""
        if not self.repeats:
            return ()
        used = _indices(self)
        return tuple(loop for loop in self.repeats if loop.name in used)

    @cached_property
    def lane_bytes(self) -> int:
        """Element size in bytes that determines the vector length.

        It is that of the stored type. For stored types of less than 4 bytes it is that of the widest computed type. So bytes that
        are added up in 16 bits are computed half a register at a time.
        """
        computed = self.numbers() if self.dtype.size_bytes < 4 else ()
        return max((self.dtype.size_bytes, *(x.dtype.size_bytes for x in computed)))

    def numbers(self) -> Iterator[Expr]:
        """Yields all expressions that an affine task computes lane by lane, without the indices of loads."""
        for e in (self.condition, self.value, self.finish):
            yield from () if e is None else _numbers(e)

    @property
    def scope(self) -> tuple[Loop, ...]:
        """The loops whose indices may occur in the task: step loops of repeats, then its own loops."""
        return (*self.steps, *self.loops)

    @property
    def is_structured(self) -> bool:
        """True if the task is affine: one assignment over a band of loops. False if it has a body of statements."""
        return self.body is None

    @property
    def is_guarded(self) -> bool:
        """True if the task is an assignment that happens in some iterations only."""
        return self.condition is not None

    @property
    def guard(self) -> Guard:
        """The guard of the assignment: the iterations in which the task stores."""
        return ALWAYS if self.condition is None else guard_where(self.condition, self.loops)

    @property
    def has_known_extents(self) -> bool:
        """True if the number of iterations of each loop is known before the run."""
        return all(loop.is_known for loop in self.loops)

    @property
    def is_reduction(self) -> bool:
        return self.op is not None


@dataclass(frozen=True)
class Slots:
    """Source of the number of pool elements in use: slots that were ever taken, of `unit` elements each.

    The number of slots is an element of the array `counters`, in its row `row`. `may_grow`: the sequence may take further slots.
    """

    counters: str
    row: int
    unit: int
    may_grow: bool


@dataclass(frozen=True)
class Leaves:
    """Fields of one type in the leaves of a tree.

    `arrays`: one for each field; the last axis numbers the cells, other axes the components. `slots`: source of the number of cells
    in use, None if all are. Inactive cells read the first `n_shared` cells, which are never written. `extents`: the number of cells
    of a leaf along each axis, the last axis fastest; () if each cell is stored by itself.
    """

    name: str
    arrays: tuple[str, ...]
    dtype: DType
    slots: Slots | None
    is_written: bool  # some of them, by the sequence
    n_shared: int = 0
    extents: tuple[int, ...] = ()
    n_components: int = 1


@dataclass(frozen=True)
class ListRecords:
    """Layout of a list of active cells, whose records may become one number a cell while a sequence runs.

    `array` has the item and the coordinates of each cell. The number of records is in `row` and `column` of `counters`. The number
    of a cell (`place`) is its row-major number in `shape`. `item`: the cell's item as an expression of the local `place`.
    """

    name: str
    array: str
    counters: str
    row: int
    column: int
    shape: tuple[int, ...]
    item: Expr
    is_written: bool  # by the sequence


@dataclass(frozen=True)
class Keys:
    """Hash directory of a node: `array` has the key of a cell at each entry, from 1 to `n_cells`, or 0.

    `at`: the array whose first row has the entry of each slot; "" if the sequence does not use it. `slots`: source of the number of
    slots in use.
    """

    array: str
    n_cells: int
    at: str = ""
    slots: Slots | None = None


@dataclass(frozen=True)
class SlotTable:
    """Slot table, by which a sequence looks up cells of a node: `array` has the slot of each entry, 0 for none.

    In a pointer node each cell has an entry. In a hash node a cell has the entry of its key in `keys`.
    """

    name: str
    array: str
    is_written: bool  # by the sequence
    keys: Keys | None = None


@dataclass(frozen=True)
class NodeState:
    """Array that holds one state of a node: mask, list, allocator, or the counters of its tree.

    `counters` have a row for each node, and their `node` is the number of these rows.
    """

    array: str
    kind: StateKind | Literal["counters"]
    tree: str
    node: int

    @property
    def name(self) -> str:
        """The name of the node."""
        return f"{self.tree}.{self.node}"

    def __contains__(self, state: State) -> bool:
        """True if the array may hold elements of the state."""
        if self.kind == "counters":
            return state.kind != "value" and state.name.split(".")[0] == self.tree
        return state == State(self.kind, self.name)


@dataclass(frozen=True)
class TreeParts:
    """Arrays of a sequence's sparse trees by role: leaves, lists of cells, slot tables, node states, shared first cells.

    Their data layout may be transformed while the sequence runs.
    """

    leaves: tuple[Leaves, ...] = ()
    lists: tuple[ListRecords, ...] = ()  # of active cells
    tables: tuple[SlotTable, ...] = ()
    shared: tuple[tuple[str, int], ...] = ()
    """Arrays in which inactive cells share the first elements of each row, which are never written, and the number of these."""
    states: tuple[NodeState, ...] = ()  # arrays that say which cells are active, and where

    @cached_property
    def structure(self) -> frozenset[str]:
        """Names of the arrays that encode which cells are active, and their positions in memory."""
        return frozenset(x.array for x in self.states)

    def n_shared(self, array: str) -> int:
        return dict(self.shared).get(array, 0)


@dataclass(frozen=True)
class WholeCall:
    """Call of a sequence as it is written: a task without loops, whose body is all statements of the kernel.

    `independent`: loops that the user declared parallel, by their names before they were made unique.
    """

    task: Task
    independent: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unsplit:
    """Sequence whose calls are not split into tasks. `arrays`: those of the problem, with the temporaries that the calls use."""

    arrays: tuple[ArrayInfo, ...]
    calls: tuple[WholeCall, ...]


@dataclass(frozen=True)
class Problem:
    """Problem: a recorded kernel sequence in normal form, from which the space is built.

    It is independent of the machine.
    `tasks` are in program order. `key` is a stable hash over everything that decides the computation, without names of files and of
    the sequence. `formula` is prose for people. `entering` and `leaving`: numbers of tasks behind those of the sequence that
    convert parts of trees. They run first and last, one after the other. `unsplit`: the sequence without any splitting of calls
    into tasks; None where the tasks are the calls, or where it has no such form.
    """

    name: str
    arrays: tuple[ArrayInfo, ...]
    scalars: tuple[Param, ...]
    tasks: tuple[Task, ...]
    key: str
    formula: str = ""
    parts: TreeParts = TreeParts()
    entering: tuple[int, ...] = ()
    leaving: tuple[int, ...] = ()
    unsplit: Unsplit | None = None

    def array(self, name: str) -> ArrayInfo:
        return next(a for a in self.arrays if a.name == name)

    def converting(
        self, tasks: Sequence[Task], arrays: Sequence[ArrayInfo], added: Sequence[tuple[Task, bool]]
    ) -> Problem:
        """Returns the problem with `tasks` and `arrays` instead of its own, and with more conversion tasks.

        `added`: the conversions, each with True if it runs when the sequence ends. They run before the present ones.
        """
        numbers = [(len(tasks) + k, is_last) for k, (_, is_last) in enumerate(added)]
        return replace(
            self,
            arrays=tuple(arrays),
            tasks=(*tasks, *(task for task, _ in added)),
            entering=(*(t for t, is_last in numbers if not is_last), *self.entering),
            leaving=(*(t for t, is_last in numbers if is_last), *self.leaving),
        )

    @cached_property
    def ending(self) -> frozenset[str]:
        """Names of the arrays that end repeats: each step of these shows its value to what runs the sequence."""
        return frozenset(r.until for r in self.repeats if r.until)

    @cached_property
    def repeats(self) -> tuple[Repeat, ...]:
        """The repeats of the sequence: groups of tasks that run several times in a row, outer ones first."""
        return repeats_of([t.repeats for t in self.tasks])


def extents(task: Task) -> dict[str, int]:
    """Returns the number of iterations of each loop in one run of the task, by name: 1 for step loops."""
    return {loop.name: 1 if loop.is_step else loop.extent for loop in task.scope}


def _numbers(e: Expr) -> Iterator[Expr]:
    """Yields the nodes of an expression without the indices of its loads."""
    yield e
    for x in () if isinstance(e, Load) else children(e):
        yield from _numbers(x)


def _indices(task: Task) -> frozenset[str]:
    """Returns names of the loops whose index occurs in a task."""
    found = {name for axis in task.target.axes if axis is not None for name, _ in axis.terms}
    of_task = [x for x in (task.condition, task.value, task.finish) if x is not None]
    statements = nested_statements(task.body.statements) if task.body is not None else ()
    for e in (*of_task, *(e for s in statements for e in children(s))):
        found |= {x.loop for x in walk(e) if isinstance(x, LoopIndex)}
    return frozenset(found)
