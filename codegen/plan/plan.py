"""Plan of a complete candidate in plain records: loops and options of each task, a forest of merged loops for each launch.

codegen/plan/reading.py makes plans. Nothing is chosen here and no code is shaped yet; codegen/passes/nests.py turns the forests
into the loop IR.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from ...kernels.analysis.scatters import Placing, Scatter
from ...kernels.ir.access import Access, access_of, index_loops
from ...kernels.ir.domain import Loop
from ...kernels.ir.repeats import Repeat, repeats_of
from ...kernels.ir.task import Problem, Task
from ...kernels.ir.walk import loads
from ...space.backbone import Dim, Flow, Operand, Prefetch, Rescaled, Shift
from ...space.draft import Decisions, TreePart
from ...space.families.scatter import ArrayBlocks
from ...space.targets.target import Target
from .nest_plan import Step
from .schedules import Wave

# What a choice is about; a task is its number, a place in its body has a name.
Site = int | Dim | Operand | Flow | TreePart | tuple[int, str]


@dataclass(frozen=True)
class LoopPlan:
    """Tiling of one loop of one task: `tile` iterations an outer step, `inner` iterations a mid step."""

    loop: Loop
    is_parallel: bool
    mid: int  # steps; 1: the mid dim is absent
    inner: int  # iterations; 1: the inner dim is absent
    is_vector: bool
    has_lanes: bool  # inner copies reduce into accumulators of their own
    schedule: str = "BLOCKED"  # of a dim that is shared out, a value of SCHEDULE
    is_thread: bool = False  # the mid dim is shared out to the threads of a block: `mid` of them

    @property
    def is_blocked(self) -> bool:
        """True if each thread runs one part of equal length."""
        return self.schedule == "BLOCKED"

    @property
    def tile(self) -> int:
        return self.mid * self.inner

    @property
    def spread(self) -> int:
        """The copy stride of a register tile, in vectors or elements: the number of threads between two copies, else 1."""
        return self.mid if self.is_thread else 1

    @property
    def reach(self) -> int:
        """The tile extent: iterations that begin at one index of the innermost loop. They fill a register tile, or one of each
        thread.
        """
        return self.inner * self.spread

    @property
    def divides(self) -> bool:
        """True if every register tile of this loop is full."""
        return self.loop.extent % self.reach == 0

    @property
    def has_mid_loop(self) -> bool:
        return self.mid > 1 and not self.is_thread


@dataclass(frozen=True)
class Ahead:
    """A read whose lines are prefetched: the prefetch distance in iterations of the loop of `prefetch`, and the cache, 1 or 2."""

    prefetch: Prefetch
    iterations: int
    cache: int

    @property
    def words(self) -> str:
        return f"{self.iterations} iterations ahead" + ", into the first cache" * (self.cache == 1)


@dataclass(frozen=True)
class ScatterPlan:
    """Method of a scatter's updates. Iterations are sorted by `blocks`, where it has any; `placing` gives their computation."""

    scatter: Scatter
    how: int  # a value of SCATTER, not SERIAL
    tile: tuple[int, ...] = ()  # elements along each axis of a thread's tile
    blocks: ArrayBlocks | None = None
    placing: Placing | None = None

    @property
    def array(self) -> str:
        return self.scatter.array

    @property
    def arrays_read(self) -> tuple[str, ...]:
        """The arrays that the sort of iterations reads."""
        assert self.placing is not None
        values = (
            *self.placing.conditions,
            *self.scatter.bases,
            *(s.value for s in self.placing.statements),
        )
        return tuple(dict.fromkeys(x.array for e in values for x in loads(e)))


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
    threads: tuple[str, ...] = ()  # loops shared out to threads, those of neighbours first
    is_atomic: bool = False  # blocks reduce into one result
    load_hints: dict[str, str] = field(default_factory=dict)  # by array: how its loads use caches
    shift: Shift | None = None  # where it runs one iteration late
    rescaled: Rescaled | None = None  # where its sums share the loop of results in their terms
    scatters: tuple[ScatterPlan, ...] = ()  # but for those of one thread
    wave: Wave | None = None  # of a sweep that does not run in order
    compaction: str = "SERIAL"  # of a task that makes a list, a value of COMPACTION
    ranges: dict[str, int] = field(
        default_factory=dict
    )  # lanes of the loops in its body that run in them
    steps: tuple[Step, ...] = ()  # of a standalone kernel: its statements, with their plans

    def loop(self, name: str) -> LoopPlan:
        return next(p for p in self.loops if p.loop.name == name)

    def copy_of(self, access: Access) -> Operand | None:
        """Returns the operand in whose blocks the task reads an access; None if there is none."""
        return next((o for o in self.copies if o.holds(access)), None)

    @property
    def sort(self) -> ScatterPlan | None:
        """The scatter by whose blocks iterations are sorted; None if they are not sorted."""
        return next((x for x in self.scatters if x.blocks is not None), None)

    @property
    def vector(self) -> LoopPlan | None:
        return next((p for p in self.loops if p.is_vector), None)

    @property
    def partials(self) -> bool:
        """True if threads or blocks reduce into partial results of their own."""
        return self.is_split and not self.is_atomic

    @property
    def is_split(self) -> bool:
        """True if a reduction is distributed to threads or blocks."""
        return any(p.is_parallel and p.loop.is_reduction for p in self.loops)

    @property
    def is_parallel(self) -> bool:
        return any(p.is_parallel for p in self.loops)

    @property
    def is_of_team(self) -> bool:
        """True if all threads of a team run the task's body together, and synchronise in it."""
        return self.wave is not None or self.compaction != "SERIAL"

    @property
    def activates(self) -> bool:
        """True if the task's body may activate cells."""
        return self.task.body is not None and self.task.body.trees.activates

    @property
    def states(self) -> frozenset[str]:
        """The states of trees that threads of the task change at once, by atomic updates."""
        body = self.task.body
        return body.trees.shared if body is not None and self.is_parallel else frozenset()

    @property
    def n_threads(self) -> int:
        """The number of threads of a block that share this task."""
        return prod(p.mid for p in self.loops if p.is_thread)

    @property
    def has_tree(self) -> bool:
        """True if the threads of a block reduce together."""
        return any(p.is_thread and p.loop.is_reduction for p in self.loops)


@dataclass(frozen=True)
class Member:
    """One loop level in a merged loop: a loop of a task, at a level."""

    task: int
    loop: str
    level: int


@dataclass(frozen=True)
class PlannedLoop:
    """Merged loop levels with their children in order. Absent levels are left out."""

    members: tuple[Member, ...]
    children: tuple[PlannedNode, ...]


@dataclass(frozen=True)
class PlannedBody:
    task: int


PlannedNode = PlannedLoop | PlannedBody


@dataclass(frozen=True)
class Plan:
    """The plan of a complete candidate: `launches` are lists of root nodes, in the order in which they run."""

    problem: Problem
    tasks: tuple[TaskPlan, ...]
    flows: tuple[Flow, ...]  # of values and of inputs read again
    launches: tuple[tuple[PlannedNode, ...], ...]
    target: Target
    choices: Decisions = field(default_factory=dict)
    components: tuple[range, ...] = ()  # tasks that choices connect; () where that is unknown

    @property
    def cores(self) -> int:
        """The number of cores of the target."""
        return self.target.cores

    @property
    def is_standalone(self) -> bool:
        """True for a standalone kernel: its loops are in the body of one task."""
        return bool(self.choices.get("nests"))

    def choice(self, kind: str, site: Site) -> str:
        """Returns the value of a choice by its name; "" where the site has none."""
        return self.choices.get(kind, {}).get(site, "")

    def places(self, kind: str, task: int) -> list[tuple[str, str]]:
        """Returns the places in a task's body that have a choice, by name, each with the name of its value."""
        sites = self.choices.get(kind, {}).items()
        return [
            (site[1], value) for site, value in sites if isinstance(site, tuple) and site[0] == task
        ]

    def of_trees(self, kind: str) -> Iterator[tuple[TreePart, str]]:
        """Yields the parts of trees that differ from the program in a choice, each with the name of its value."""
        for site, value in self.choices.get(kind, {}).items():
            if isinstance(site, TreePart):
                yield site, value

    def rescaled_by(self, task: int) -> list[TaskPlan]:
        """Returns the tasks that correct their sums whenever the result of a task changes."""
        return [t for t in self.tasks if t.rescaled is not None and task in t.rescaled.bases]

    def component_of(self, task: int) -> int:
        """Returns the component of a task, where there are several; -1 for a conversion, and where there is one."""
        if len(self.components) < 2:
            return -1
        return next((k for k, tasks in enumerate(self.components) if task in tasks), -1)

    @property
    def repeats(self) -> tuple[Repeat, ...]:
        """The runs of launches that are repeated, outer ones first."""
        first = (next(t for root in roots for t in tasks_of(root)) for roots in self.launches)
        return repeats_of([self.problem.tasks[t].repeats for t in first])

    def is_read_from_blocks(self, task: TaskPlan, loop: str) -> bool:
        """True if all reads of a task along a loop are packed, in blocks that have room for whole register tiles.

        Floating-point numbers only: an integer division by arbitrary contents of that room could fault.
        """
        assert task.task.value is not None
        every = map(access_of, loads(task.task.value))
        along = [access for access in every if loop in index_loops(access)]
        return task.task.dtype.is_float and all(
            task.copy_of(x) is not None and self.problem.array(x.array).dtype.is_float
            for x in along
        )


def tasks_of(node: PlannedNode) -> list[int]:
    """Returns the tasks whose bodies are in a node, in order."""
    if isinstance(node, PlannedBody):
        return [node.task]
    return [t for c in node.children for t in tasks_of(c)]
