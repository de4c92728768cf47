"""One launch as a loop tree: the planned loops, plus the phases that follow from them.

A reduction is initialised just before its outermost reduction loop and finished just after it. Where some loop that indexes the
result runs inside that reduction loop, the results of all its iterations are live at once: they are kept in memory, and
registers hold only the part that the innermost reduction loops work on. Barriers are placed where a hazard between two threads
needs one, nowhere else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ..kernels.dependence import task_reads
from ..space.backbone import INNER, MID, OUTER, Operand, Shift, written_arrays
from .plan import LoopPlan, Member, Plan, PlannedBody, PlannedNode, TaskPlan


@dataclass(eq=False)
class LoopNode:
    """A loop of the launch. `step` iterations of the source loop pass with each iteration of this one.

    Where `is_last`, only the last of them is run: what a late task has left to do.
    """

    members: tuple[Member, ...]
    extent: int
    step: int
    is_parallel: bool
    level: int
    children: list[TreeNode] = field(default_factory=list)
    before: list[Phase] = field(default_factory=list)
    head: list[Phase] = field(default_factory=list)
    after: list[Phase] = field(default_factory=list)
    is_cyclic: bool = False
    is_last: bool = False


@dataclass(eq=False)
class Late:
    """What runs for the iteration of `loop` before the present one, if there is one."""

    loop: LoopNode
    children: list[TreeNode]


@dataclass(frozen=True)
class Phase:
    """A step of a task at a place in the tree. `kind`:

    body     one register tile of the task
    init     memory accumulators take the neutral element
    reset    register accumulators take the neutral element
    flush    register accumulators are added to memory accumulators, or stored as this thread's partial result
    finish   finished values are stored
    combine  partial results of all threads are combined, finished and stored
    copy     a block of an operand is packed
    """

    kind: str
    task: int
    operand: Operand | None = None


@dataclass(frozen=True)
class Meet:
    """A barrier of all threads of the launch."""


TreeNode = LoopNode | Late | Phase | Meet


@dataclass(frozen=True)
class AccumulatorPlan:
    """Where a reduction is accumulated.

    `extents` gives, for each loop that indexes the result, how much of it is live at once: the whole loop, a tile (`MID` level
    inside the reduction) or a register tile. `owner`: "registers", "thread" (each thread its own array), "team" (one array, each
    thread its own part of it) or "partials" (an array a thread, combined afterwards).
    """

    owner: str
    extents: dict[str, int]
    levels: dict[str, int]  # OUTER: whole loop, MID: tile, INNER: register tile
    in_memory: bool
    flushes_at_body: bool


@dataclass
class Launch:
    """A launch ready to be written down."""

    roots: list[TreeNode]
    tasks: tuple[int, ...]
    is_parallel: bool
    accumulators: dict[int, AccumulatorPlan]


def build_launch(plan: Plan, roots: tuple[PlannedNode, ...]) -> Launch:
    """The loop tree of one launch, with phases and barriers."""
    builder = TreeBuilder(plan)
    tops = [builder.convert(r) for r in roots]
    is_parallel = any(_has_parallel(n) for n in tops)
    for path in list(paths(tops)):
        builder.place_phases(path)
    nodes = _unfold(tops)
    launch = Launch(nodes, tuple(builder.order), is_parallel, builder.accumulators)
    if is_parallel:
        hazards = Hazards(plan, launch)
        launch.roots = hazards.with_barriers(nodes, is_loop=False)
    for t in builder.order:
        shift = plan.tasks[t].shift
        if shift is not None:
            launch.roots = run_late(launch.roots, shift)
    return launch


def run_late(nodes: list[TreeNode], shift: Shift) -> list[TreeNode]:
    """The nodes with the consumer's loop inside the producer's, one iteration late, and its last iteration behind.

    The shared loop is one of the threads', so no barrier is in it, and both loops are children of it: the constraints see
    to that (space/constraints.py).
    """
    placed: list[TreeNode] = []
    for n in nodes:
        placed.append(n)
        if not isinstance(n, LoopNode):
            continue
        ahead = _child(n, shift.producer, shift.inside[0])
        behind = _child(n, shift.consumer, shift.inside[1])
        if ahead is None or behind is None:
            n.children = run_late(n.children, shift)
            continue
        ahead.children.insert(0, Late(n, behind.children))
        ahead.members += behind.members
        n.children.remove(behind)
        rest = replace(n, children=[replace(behind, children=list(behind.children))], is_last=True)
        placed.append(rest)
    return placed


def _child(node: LoopNode, task: int, loop: str) -> LoopNode | None:
    """The loop directly in a node that stands for a task's outer loop."""
    wanted = Member(task, loop, OUTER)
    loops = (n for n in node.children if isinstance(n, LoopNode))
    return next((n for n in loops if wanted in n.members), None)


class TreeBuilder:
    """Converts planned loops, and notes at each loop the phases that belong beside it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.order: list[int] = []
        self.accumulators: dict[int, AccumulatorPlan] = {}

    def convert(self, node: PlannedNode) -> TreeNode:
        if isinstance(node, PlannedBody):
            self.order.append(node.task)
            return Phase("body", node.task)
        first = node.members[0]
        loop = self.plan.tasks[first.task].loop(first.loop)
        step = loop.tile if first.level == OUTER else loop.inner
        parallel = loop.is_parallel and first.level == OUTER
        cyclic = parallel and loop.is_cyclic
        made = LoopNode(
            node.members, loop.loop.extent, step, parallel, first.level, is_cyclic=cyclic
        )
        made.children = [self.convert(c) for c in node.children]
        return made

    def place_phases(self, path: tuple[list[LoopNode], int]) -> None:
        nodes, t = path
        task = self.plan.tasks[t]
        for operand in task.copies:
            holders = [n for n in nodes if loop_of(n, t) in operand.loops and n.level == OUTER]
            self.place_copy(holders[-1], t, operand)
        if task.task.is_reduction:
            self.place_reduction(nodes, task)

    def place_copy(self, holder: LoopNode, t: int, operand: Operand) -> None:
        """Notes a copy at the loop for each of whose tiles it is made."""
        holder.head.append(Phase("copy", t, operand))

    def place_reduction(self, nodes: list[LoopNode], task: TaskPlan) -> None:
        t = task.index
        reduced = [k for k, n in enumerate(nodes) if task.loop(loop_of(n, t)).loop.is_reduction]
        r = reduced[0]
        free_inside = [k for k in range(r, len(nodes)) if k not in reduced]
        levels = self.accumulator_levels(nodes, task, r)
        in_memory = bool(free_inside)
        inner_reduced = [k for k in reduced if not free_inside or k > free_inside[-1]]
        if in_memory and not task.task.fast_math:
            inner_reduced = []  # sums of parts, added up in registers, would be another order
        if in_memory:
            nodes[r].before.append(Phase("init", t))
        if inner_reduced:
            nodes[inner_reduced[0]].before.append(Phase("reset", t))
            if in_memory or task.partials:
                nodes[inner_reduced[0]].after.append(Phase("flush", t))
        nodes[r].after.append(Phase("combine" if task.partials else "finish", t))
        parallel_inside = any(nodes[k].is_parallel for k in free_inside)
        owner = (
            "partials"
            if task.partials
            else "team"
            if parallel_inside
            else "thread"
            if in_memory
            else "registers"
        )
        extents = {
            p.loop.name: {OUTER: p.loop.extent, MID: p.tile, INNER: p.inner}[levels[p.loop.name]]
            for p in task.loops
            if not p.loop.is_reduction
        }
        self.accumulators[t] = AccumulatorPlan(owner, extents, levels, in_memory, not inner_reduced)

    @staticmethod
    def accumulator_levels(nodes: list[LoopNode], task: TaskPlan, r: int) -> dict[str, int]:
        """Per loop of the result, the outermost of its levels that runs inside the reduction."""
        levels = {}
        for p in task.loops:
            if p.loop.is_reduction:
                continue
            inside = [n.level for n in nodes[r:] if loop_of(n, task.index) == p.loop.name]
            levels[p.loop.name] = min(inside, default=INNER)
        return levels


def loop_of(node: LoopNode, task: int) -> str:
    """The loop of a task that a node stands for; "" where it is none of the task's."""
    return next((m.loop for m in node.members if m.task == task), "")


def paths(
    nodes: list[TreeNode], above: tuple[LoopNode, ...] = ()
) -> Iterator[tuple[list[LoopNode], int]]:
    """Each body with the loops around it, outermost first."""
    for n in nodes:
        if isinstance(n, LoopNode):
            yield from paths(n.children, (*above, n))
        elif isinstance(n, Phase):
            yield list(above), n.task


def _unfold(nodes: list[TreeNode]) -> list[TreeNode]:
    """Moves the phases noted at each loop into the lists of children."""
    unfolded: list[TreeNode] = []
    for n in nodes:
        if isinstance(n, LoopNode):
            n.children = [*n.head, *_unfold(n.children)]
            # Partial results first: they are what the barrier before the combinations waits for.
            after = sorted(n.after, key=lambda p: p.kind == "combine")
            unfolded += [*n.before, n, *after]
        else:
            unfolded.append(n)
    return unfolded


def _has_parallel(node: TreeNode) -> bool:
    return isinstance(node, LoopNode) and (
        node.is_parallel or any(_has_parallel(c) for c in node.children)
    )


@dataclass(frozen=True)
class Footprint:
    """What a node reads and writes in memory that threads share; `own` names arrays of which each thread uses its own part."""

    reads: frozenset[str]
    writes: frozenset[str]
    own: frozenset[str]
    is_serial: bool

    def conflicts(self, later: Footprint) -> bool:
        if self.is_serial and later.is_serial:
            return False
        names = (self.writes & (later.reads | later.writes)) | (self.reads & later.writes)
        return bool(names - (self.own & later.own))


class Touches(Protocol):
    """What a node touches."""

    def conflicts(self, later: Any, /) -> bool:
        """Whether threads have to meet before a node that touches `later`."""


class BarrierPlacer(ABC):
    """Puts barriers between nodes that conflict; what a node touches, and where all threads go, the kinds of targets say."""

    @abstractmethod
    def footprint(self, node: TreeNode) -> Touches:
        """What a node touches of what threads share."""

    @abstractmethod
    def enters(self, node: LoopNode) -> bool:
        """Whether all threads that meet go through the loop together, so that barriers may stand in it."""

    def with_barriers(self, nodes: list[TreeNode], is_loop: bool) -> list[TreeNode]:
        """The nodes with barriers; `is_loop`: the end of the list is followed by its beginning."""
        placed: list[TreeNode] = []
        pending: list[Touches] = []
        for n in nodes:
            if isinstance(n, Meet):
                placed.append(n)
                pending = []
                continue
            if isinstance(n, LoopNode) and self.enters(n):
                n.children = self.with_barriers(n.children, is_loop=not n.is_parallel)
            if any(p.conflicts(h) for p in pending for h in self.before_meeting([n])):
                placed.append(Meet())
                pending = []
            placed.append(n)
            pending = self.since_meeting(pending, n)
        if is_loop:
            heads = self.before_meeting(placed)
            if any(p.conflicts(h) for p in pending for h in heads):
                placed.append(Meet())
        return placed

    def before_meeting(self, nodes: list[TreeNode]) -> list[Touches]:
        """What is touched before the first barrier of a list with barriers."""
        first = nodes.index(Meet()) if Meet() in nodes else len(nodes)
        return [self.footprint(n) for n in nodes[:first]]

    def since_meeting(self, pending: list[Touches], node: TreeNode) -> list[Touches]:
        """What is touched after the last barrier, when `pending` was before a node."""
        # A loop that ends with a barrier leaves nobody behind: it runs at least once.
        if isinstance(node, LoopNode) and self.enters(node) and node.children[-1:] == [Meet()]:
            return pending
        return [*pending, self.footprint(node)]


class Hazards(BarrierPlacer):
    """Finds where the threads of a team must meet, and which nodes one thread alone runs."""

    def __init__(self, plan: Plan, launch: Launch) -> None:
        self.plan, self.launch = plan, launch
        self.on_chip = {
            (f.consumer, f.array) for task in plan.tasks for f in (*task.registers, *task.shared)
        }

    def enters(self, node: LoopNode) -> bool:
        return not node.is_parallel and _has_parallel(node)

    def footprint(self, node: TreeNode) -> Footprint:
        phases = list(_phases(node))
        reads: set[str] = set()
        writes: set[str] = set()
        own: set[str] = set()
        for p in phases:
            self.add_phase(p, reads, writes, own)
        # A part is a thread's own only where nobody in the node looks at the others' parts.
        crossed = {accumulator_name(p.task) for p in phases if p.kind == "combine"}
        return Footprint(
            frozenset(reads), frozenset(writes), frozenset(own - crossed), self.is_serial(node)
        )

    def add_phase(self, p: Phase, reads: set[str], writes: set[str], own: set[str]) -> None:
        task = self.plan.tasks[p.task]
        in_finish = p.kind in ("finish", "combine")
        is_map = not task.task.is_reduction
        if p.operand is not None:
            reads.add(p.operand.access.array)  # each thread packs the whole block
        if p.kind == "body" or in_finish:
            wanted = {a.array for a, late in task_reads(task.task) if late == in_finish}
            reads |= {a for a in wanted if (p.task, a) not in self.on_chip}
        if in_finish or (p.kind == "body" and is_map):
            if task.task.opaque is not None:
                writes |= written_arrays(task.task)
            elif task.is_stored:
                writes.add(task.task.target.array)
        acc = self.launch.accumulators.get(p.task)
        if acc is not None and acc.owner in ("team", "partials") and p.kind != "copy":
            name = accumulator_name(p.task)
            (reads if in_finish else writes).add(name)
            if p.kind != "combine":
                own.add(name)

    def is_serial(self, node: TreeNode) -> bool:
        """Whether one thread alone runs a node that is in no parallel loop."""
        if isinstance(node, LoopNode):
            return not _has_parallel(node)
        if isinstance(node, Phase):
            task = self.plan.tasks[node.task]
            return node.kind == "body" or not task.is_parallel
        return False


def _phases(node: TreeNode) -> Iterator[Phase]:
    if isinstance(node, Phase):
        yield node
    elif isinstance(node, LoopNode):
        for c in node.children:
            yield from _phases(c)


def accumulator_name(task: int) -> str:
    """Name of a task's accumulators among the arrays of hazards; no array of a sequence has such a name."""
    return f"accumulators of task {task}"


def last_loop_plan(node: LoopNode, tasks: tuple[TaskPlan, ...], member: Member) -> LoopPlan | None:
    """The loop plan of a member if `node` is its innermost loop, so that register tiles start at its index."""
    p = tasks[member.task].loop(member.loop)
    innermost = MID if p.has_mid_loop else OUTER
    return p if node.level == innermost else None
