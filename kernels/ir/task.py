"""Tasks: what the calls of a kernel sequence split into, in the normal form that the space, the bound and the lowering work on.

A *structured* task is one perfect loop band around one assignment

    target[..] = finish(init-free reduction over the reduction loops of value)      op is a ReduceOp
    target[..] = value                                                              op is None
    target[..] = value where condition                                              op is None

with known extents and affine accesses; where a condition does not hold, the target keeps what it held. Any other has a *body*:
statements under its outermost loop (kernels/ir/body.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from .access import ALWAYS, Access, Guard
from .arrays import ArrayInfo
from .body import Body, guard_where
from .domain import BOX, Domain, Loop
from .kernel import NOWHERE, DType, Expr, Load, Location, LoopIndex, Param, ReduceOp
from .repeats import Repeat, repeats_of
from .walk import children, nested_statements, walk


@dataclass(frozen=True)
class Task:
    """One unit of execution.

    `name` is unique in the sequence, for people (`gemv0`, `gemv1.s`). `loops` are in source order, outermost first. For a
    structured task `value` may load arrays at affine indices; `finish` (reductions only) gives the stored value in terms of
    `Accumulator` and of loads indexed by the non-reduction loops; what the target held before takes part only through `finish`.
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

    @property
    def n_runs(self) -> int:
        """How often a call of the sequence runs it."""
        return prod(loop.extent for loop in self.repeats)

    @cached_property
    def steps(self) -> tuple[Loop, ...]:
        """Those of `repeats` whose index stands in it."""
        if not self.repeats:
            return ()
        used = _indices(self)
        return tuple(loop for loop in self.repeats if loop.name in used)

    @cached_property
    def lane_bytes(self) -> int:
        """The bytes of the numbers that fill its vectors: of those that it stores, or where these are small of the widest that it
        computes with. So bytes that are added up in 16 bits come half a register at a time.
        """
        computed = self.numbers() if self.dtype.size_bytes < 4 else ()
        return max((self.dtype.size_bytes, *(x.dtype.size_bytes for x in computed)))

    def numbers(self) -> Iterator[Expr]:
        """All that a structured task computes lane by lane: the indices of loads are not."""
        for e in (self.condition, self.value, self.finish):
            yield from () if e is None else _numbers(e)

    @property
    def scope(self) -> tuple[Loop, ...]:
        """The loops whose indices may stand in it: steps, then its own."""
        return (*self.steps, *self.loops)

    @property
    def is_structured(self) -> bool:
        """Whether it is one assignment over a band, and not a body of statements."""
        return self.body is None

    @property
    def is_guarded(self) -> bool:
        """Whether it is an assignment that happens in some iterations only."""
        return self.condition is not None

    @property
    def guard(self) -> Guard:
        """The iterations in which it assigns."""
        return ALWAYS if self.condition is None else guard_where(self.condition, self.loops)

    @property
    def has_known_extents(self) -> bool:
        """Whether each loop runs exactly as often as it says."""
        return all(loop.is_known for loop in self.loops)

    @property
    def is_reduction(self) -> bool:
        return self.op is not None


@dataclass(frozen=True)
class Slots:
    """How many elements of fields in a pool are in use: slots that were ever taken, of `unit` elements each.

    `counters` is the array that says so in `row`; `may_grow`: whether the sequence takes further ones.
    """

    counters: str
    row: int
    unit: int
    may_grow: bool


@dataclass(frozen=True)
class Leaves:
    """Fields of one type in the leaves of a tree: arrays whose last axis numbers the same cells, others their components.

    `slots` is None where all cells are in use; inactive cells read the first `n_shared` cells, which nobody writes.
    A leaf has cells of these `extents`, the last axis fastest; () where each cell is by itself.
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
    """A list of active cells whose records may be places of cells while a sequence runs: `array` has the item of each and its
    coordinates. As many are in use as `counters` says in `row` and `column`.

    The place of a cell is its number in `shape`, rows first. `item` is what it has, by the local `place`.
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
    """The directory of a hash node: `array` has the key of the cell at each place, from 1 to `n_cells`, 0 where there is none.

    `at` has the place of each slot in its first row; "" where the sequence does not name it. `slots` says how many are in use.
    """

    array: str
    n_cells: int
    at: str = ""
    slots: Slots | None = None


@dataclass(frozen=True)
class Table:
    """The table in which a sequence looks cells of a node up: the array that has the slot of each entry, 0: none.

    Of a pointer node each cell has an entry; of a hash node cells have those that their `keys` are at.
    """

    name: str
    array: str
    is_written: bool  # by the sequence
    keys: Keys | None = None


@dataclass(frozen=True)
class TreeParts:
    """What of trees of sparse fields may lie in another way while a sequence runs."""

    leaves: tuple[Leaves, ...] = ()
    lists: tuple[ListRecords, ...] = ()  # of active cells
    tables: tuple[Table, ...] = ()
    shared: tuple[tuple[str, int], ...] = ()
    """Arrays with first elements of each row that inactive cells share and nobody writes, and how many these are."""
    structure: frozenset[str] = frozenset()  # arrays that say which cells are active, and where

    def n_shared(self, array: str) -> int:
        return dict(self.shared).get(array, 0)


@dataclass(frozen=True)
class Problem:
    """A recorded kernel sequence, normalised: what the space is built from. Depends on nothing about the machine.

    `tasks` are in program order. `key` is a stable hash over everything that decides the computation (not over names of
    files or of the sequence). `formula` is prose for people.
    """

    name: str
    arrays: tuple[ArrayInfo, ...]
    scalars: tuple[Param, ...]
    tasks: tuple[Task, ...]
    key: str
    formula: str = ""
    parts: TreeParts = TreeParts()

    def array(self, name: str) -> ArrayInfo:
        return next(a for a in self.arrays if a.name == name)

    @cached_property
    def repeats(self) -> tuple[Repeat, ...]:
        """Runs of tasks that run several times, outer ones first."""
        return repeats_of([t.repeats for t in self.tasks])


def extents(task: Task) -> dict[str, int]:
    """Loop name -> extent in one run: steps of repeats have one value there."""
    return {loop.name: 1 if loop.is_step else loop.extent for loop in task.scope}


def _numbers(e: Expr) -> Iterator[Expr]:
    """The nodes of an expression but for the indices of its loads."""
    yield e
    for x in () if isinstance(e, Load) else children(e):
        yield from _numbers(x)


def _indices(task: Task) -> frozenset[str]:
    """Loops whose index stands in what a task does."""
    found = {name for axis in task.target.axes if axis is not None for name, _ in axis.terms}
    of_task = [x for x in (task.condition, task.value, task.finish) if x is not None]
    statements = nested_statements(task.body.statements) if task.body is not None else ()
    for e in (*of_task, *(e for s in statements for e in children(s))):
        found |= {x.loop for x in walk(e) if isinstance(x, LoopIndex)}
    return frozenset(found)
