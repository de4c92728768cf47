"""Plan of a complete candidate as plain records: loops and options of each task, a forest of merged loops per launch.

codegen/plan/reading.py makes plans. Nothing is chosen here and no code is shaped yet; codegen/passes/nests.py turns the forests
into the loop IR.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from ...kernels.analysis.scatters import Placing, Scatter
from ...kernels.analysis.updated_rows import Inspector, UpdatedRows
from ...kernels.ir.access import Access, access_of, index_loops
from ...kernels.ir.domain import Loop
from ...kernels.ir.kernel import Expr, For
from ...kernels.ir.repeats import Repeat, repeats_of
from ...kernels.ir.task import Problem, Task
from ...kernels.ir.walk import loads
from ...space.backbone import Dim, Flow, Operand, Prefetch, Rescaled, Shift
from ...space.draft import Decisions, SequencePart
from ...space.families.scatter import ArrayBlocks
from ...space.targets.target import Target
from .nest_plan import Step
from .schedules import Lanes, Wave

# What a choice is about; a task is its number, a place in its body has a name.
Site = int | Dim | Operand | Flow | SequencePart | tuple[int, str]


@dataclass(frozen=True)
class LoopPlan:
    """Tiling of one loop of one task.

    An outer step covers `tile` iterations, a mid step `inner` iterations (the register tile); a
    tile has `mid` mid steps.
    """

    loop: Loop
    is_parallel: bool
    mid: int  # steps; 1: the mid dim is absent
    inner: int  # iterations; 1: the inner dim is absent
    is_vector: bool
    has_lanes: bool  # inner copies reduce into accumulators of their own
    schedule: str = "BLOCKED"  # of a dim that is shared out, a value of SCHEDULE
    is_thread: bool = False  # the mid dim is shared out to the threads of a block: `mid` of them
    has_neighbours: bool = False  # copies of a thread are neighbours, also where threads share it
    n_blocks: int = 0  # of a dim of the grid: blocks that take its tiles in turn; 0: a block a tile

    @property
    def is_blocked(self) -> bool:
        """True if each thread runs one contiguous part, and all parts have equal length."""
        return self.schedule == "BLOCKED"

    @property
    def tile(self) -> int:
        return self.mid * self.inner

    @property
    def spread(self) -> int:
        """Distance between consecutive copies of a register tile, in vectors or elements.

        It is the number of threads along a loop that threads of a GPU block share, else 1. It is 1, too, where copies of a
        thread are neighbours.
        """
        return self.mid if self.is_thread and not self.has_neighbours else 1

    @property
    def reach(self) -> int:
        """Number of iterations covered from one index of the innermost loop: a register tile of each thread that shares it."""
        return self.inner * (self.mid if self.is_thread else 1)

    @property
    def divides(self) -> bool:
        """True if the loop's extent is a multiple of its register tile, so all register tiles are full."""
        return self.loop.extent % self.reach == 0

    @property
    def has_mid_loop(self) -> bool:
        return self.mid > 1 and not self.is_thread


@dataclass(frozen=True)
class Ahead:
    """A read with software prefetch.

    `iterations`: prefetch distance in iterations of `prefetch`'s loop. `cache`: level, 1 or 2.
    """

    prefetch: Prefetch
    iterations: int
    cache: int

    @property
    def words(self) -> str:
        return f"{self.iterations} iterations ahead" + ", into the first cache" * (self.cache == 1)


@dataclass(frozen=True)
class ScatterPlan:
    """Decided method of a scatter (updates of elements that iterations share).

    `blocks`: blocks by which iterations are sorted, if they are. `placing`: statements that compute
    an iteration's block. `sums`: the array of the sums by cell of a sparse field, of which tiles are parts; `adding`: the loops
    that add it to the field.
    """

    scatter: Scatter
    how: int  # a value of SCATTER, not SERIAL
    tile: tuple[int, ...] = ()  # elements along each axis of a thread's tile
    blocks: ArrayBlocks | None = None
    placing: Placing | None = None
    sums: str = ""
    adding: For | None = None

    @property
    def array(self) -> str:
        return self.scatter.array

    @property
    def tiled(self) -> str:
        """Name of the array that the task's statements update in a tile."""
        return self.sums or self.array

    @property
    def arrays_read(self) -> tuple[str, ...]:
        """Names of the arrays from which the sort computes the iterations' blocks."""
        assert self.placing is not None
        return self.placing.arrays_read(self.scatter.bases)


@dataclass(frozen=True)
class Colouring:
    """Blocks of `n_iterations` consecutive iterations of a task, coloured greedily by the rows of arrays that they update.

    `inspector`: finds an iteration's rows. `is_kept`: later calls use the colouring while rows are the same.
    `maker`: the task that colours the blocks; an earlier one, if this task uses its colouring.
    """

    n_iterations: int
    rows: tuple[UpdatedRows, ...]
    inspector: Inspector
    is_kept: bool
    maker: int

    @property
    def n_rows(self) -> int:
        """Number of rows of all arrays."""
        return sum(x.n_rows for x in self.rows)

    @property
    def rows_per_iteration(self) -> int:
        """Greatest number of rows that an iteration updates."""
        return sum(x.most for x in self.rows)


@dataclass(frozen=True)
class LengthOrder:
    """Order of a task's iterations by length, within windows of `window` consecutive ones.

    `length`: of an iteration, in terms of the task's loop. `is_kept`: later calls use the order while lengths are the same.
    """

    window: int
    length: Expr
    is_kept: bool

    @property
    def arrays_read(self) -> tuple[str, ...]:
        """Names of the arrays that hold the lengths."""
        return tuple(dict.fromkeys(x.array for x in loads(self.length)))


@dataclass(frozen=True)
class TaskPlan:
    index: int
    task: Task
    loops: tuple[LoopPlan, ...]
    is_streamed: bool
    is_stored: bool  # False: every reader takes the value on chip
    copies: tuple[Operand, ...]
    registers: tuple[Flow, ...]  # flows out of this task through registers
    shared: tuple[Flow, ...]  # flows out of this task through a thread's own array
    kept: tuple[
        Flow, ...
    ] = ()  # values that it read and stores in a thread's own array for other tasks
    prefetches: tuple[Ahead, ...] = ()
    asks_for_sums: bool = False
    stages: dict[str, int] = field(default_factory=dict)  # blocks of each operand, by its site
    by_team: frozenset[str] = frozenset()  # sites of copies that all threads of a CPU share
    layouts: dict[str, str] = field(default_factory=dict)  # of copies, by site
    fragments: dict[str, int] = field(
        default_factory=dict
    )  # of copies read in vectors: elements, by site
    threads: tuple[str, ...] = ()  # loops shared out to threads, those of neighbours first
    # Threads of a warp along the first two of these loops, where it is a rectangle.
    warp_tile: dict[str, int] = field(default_factory=dict)
    loads_ahead: bool = False  # operands of the next step of a sum, while one computes
    band: int = 1  # rows of the grid whose blocks start column by column
    is_atomic: bool = False  # blocks reduce into one result
    by_last_block: bool = False  # which combines the partial results that the others have left
    load_hints: dict[str, str] = field(default_factory=dict)  # by array: how its loads use caches
    shift: Shift | None = None  # where it runs one iteration late
    rescaled: Rescaled | None = None  # where its sums share the loop of results in their terms
    scatters: tuple[ScatterPlan, ...] = ()  # but for those of one thread
    colouring: Colouring | None = None  # of iterations that run colour by colour
    by_length: LengthOrder | None = None  # of iterations in lanes that do not follow one another
    wave: Wave | None = None  # of a sweep that does not run in order
    compaction: str = "SERIAL"  # of a task that makes a list, a value of COMPACTION
    settling: str = "ONE_THREAD"  # of a task that reclaims pools, a value of SETTLE
    ranges: tuple[Lanes, ...] = ()  # of the loops in its body that run in lanes
    steps: tuple[Step, ...] = ()  # of a standalone kernel: its statements, with their plans

    def loop(self, name: str) -> LoopPlan:
        return next(p for p in self.loops if p.loop.name == name)

    def copy_of(self, access: Access) -> Operand | None:
        """Returns the operand (packed block) from which the task reads an access; None if it reads from memory."""
        return next((o for o in self.copies if o.holds(access)), None)

    @property
    def colours(self) -> bool:
        """True if the task colours blocks of iterations itself."""
        return self.colouring is not None and self.colouring.maker == self.index

    @property
    def sort(self) -> ScatterPlan | None:
        """The scatter by whose blocks the task's iterations are sorted; None if they are not sorted."""
        return next((x for x in self.scatters if x.blocks is not None), None)

    @property
    def vector(self) -> LoopPlan | None:
        return next((p for p in self.loops if p.is_vector), None)

    @property
    def partials(self) -> bool:
        """True if each thread or block reduces into a partial result of its own."""
        return self.is_split and not self.is_atomic

    @property
    def is_split(self) -> bool:
        """True if the iterations of a reduction are distributed to several threads or blocks."""
        return any(p.is_parallel and p.loop.is_reduction for p in self.loops)

    @property
    def is_parallel(self) -> bool:
        return any(p.is_parallel for p in self.loops)

    @property
    def is_of_team(self) -> bool:
        """True if all threads of a team run the task's body together, with barriers inside it."""
        return self.wave is not None or self.compaction != "SERIAL"

    @property
    def is_of_grid(self) -> bool:
        """True if kernels of the task alone share its body out to blocks."""
        return self.compaction != "SERIAL" or self.settling != "ONE_THREAD"

    @property
    def activates(self) -> bool:
        """True if the task's body may activate cells of a sparse field."""
        return self.task.body is not None and self.task.body.trees.activates

    @property
    def states(self) -> frozenset[str]:
        """Arrays of a sparse tree's state that several threads of the task may update, by atomic operations."""
        body, is_shared = self.task.body, self.is_parallel or bool(self.threads)
        return body.trees.shared if body is not None and is_shared else frozenset()

    @property
    def n_threads(self) -> int:
        """Number of threads of a GPU block that share this task."""
        return prod(p.mid for p in self.loops if p.is_thread)

    @property
    def has_tree(self) -> bool:
        """True if the threads of a GPU block combine a reduction in a tree."""
        return any(p.is_thread and p.loop.is_reduction for p in self.loops)


@dataclass(frozen=True)
class Member:
    """One level (outer or mid) of a task's loop, as a member of a merged loop."""

    task: int
    loop: str
    level: int


@dataclass(frozen=True)
class PlannedLoop:
    """A loop of the forest: merged loop levels (`members`), and its children in order.

    Absent levels are left out.
    """

    members: tuple[Member, ...]
    children: tuple[PlannedNode, ...]


@dataclass(frozen=True)
class PlannedBody:
    task: int


PlannedNode = PlannedLoop | PlannedBody


@dataclass(frozen=True)
class Plan:
    """Plan of a complete candidate.

    `launches`: for each launch in order of execution, the root nodes of its loop forest.
    """

    problem: Problem
    tasks: tuple[TaskPlan, ...]
    flows: tuple[Flow, ...]  # of values and of inputs read again
    launches: tuple[tuple[PlannedNode, ...], ...]
    target: Target
    choices: Decisions = field(default_factory=dict)
    components: tuple[range, ...] = ()  # tasks that choices connect; () where that is unknown

    @property
    def cores(self) -> int:
        """Number of cores of the target."""
        return self.target.cores

    @property
    def is_standalone(self) -> bool:
        """True for a standalone kernel, and for calls that are not split: tasks whose loops are inside their bodies."""
        return bool(self.choices.get("nests"))

    def stays(self, task: int) -> bool:
        """True if all blocks of the task's launch are resident, and may synchronise."""
        return self.choice("team", task) == "WHOLE_GRID"

    def choice(self, kind: str, site: Site) -> str:
        """Returns the name of the decided value of a choice; "" if `site` has no choice of this kind."""
        return self.choices.get(kind, {}).get(site, "")

    def places(self, kind: str, task: int) -> list[tuple[str, str]]:
        """Returns (name of the place, name of the value) for each place in a task's body with a choice of this kind."""
        sites = self.choices.get(kind, {}).items()
        return [
            (site[1], value) for site, value in sites if isinstance(site, tuple) and site[0] == task
        ]

    def of_trees(self, kind: str) -> Iterator[tuple[SequencePart, str]]:
        """Yields (part of a sparse tree, name of the value) for each decided choice of this kind."""
        for site, value in self.choices.get(kind, {}).items():
            if isinstance(site, SequencePart):
                yield site, value

    def rescaled_by(self, task: int) -> list[TaskPlan]:
        """Returns the rescaled tasks, which correct their sums whenever the running result of task `task` changes."""
        return [t for t in self.tasks if t.rescaled is not None and task in t.rescaled.bases]

    def component_of(self, task: int) -> int:
        """Returns the component of a task; -1 for a conversion, and if the plan has only one component."""
        if len(self.components) < 2:
            return -1
        return next((k for k, tasks in enumerate(self.components) if task in tasks), -1)

    @property
    def repeats(self) -> tuple[Repeat, ...]:
        """Repeated runs of consecutive launches, outer ones first."""
        first = (next(t for root in roots for t in tasks_of(root)) for roots in self.launches)
        return repeats_of([self.problem.tasks[t].repeats for t in first])

    def is_read_from_blocks(self, task: TaskPlan, loop: str) -> bool:
        """True if all of a task's operands along a loop are packed, in blocks padded to whole register tiles.

        False for tasks that are not floating-point: an integer division by arbitrary padding could
        fault.
        """
        assert task.task.value is not None
        every = map(access_of, loads(task.task.value))
        along = [access for access in every if loop in index_loops(access)]
        return task.task.dtype.is_float and all(
            task.copy_of(x) is not None and self.problem.array(x.array).dtype.is_float
            for x in along
        )


def tasks_of(node: PlannedNode) -> list[int]:
    """Returns the tasks whose bodies are inside a node, in order of execution."""
    if isinstance(node, PlannedBody):
        return [node.task]
    return [t for c in node.children for t in tasks_of(c)]
