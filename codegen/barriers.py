"""Barriers of a launch: placed where a hazard between two threads needs one, nowhere else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

from ..kernels.ir.effects import task_reads
from ..space.backbone import written_arrays
from .plan import Plan
from .tree import Launch, LoopNode, Meet, Phase, TreeNode, has_parallel, phases_of


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
        return pending if self.ends_with_meeting(node) else [*pending, self.footprint(node)]

    def ends_with_meeting(self, node: TreeNode) -> bool:
        """Whether all threads have met when they leave a loop."""
        if not (isinstance(node, LoopNode) and self.enters(node)):
            return False
        last = node.children[-1]
        return isinstance(last, Meet) or self.ends_with_meeting(last)


class Hazards(BarrierPlacer):
    """Finds where the threads of a team must meet, and which nodes one thread alone runs."""

    def __init__(self, plan: Plan, launch: Launch) -> None:
        self.plan, self.launch = plan, launch
        self.on_chip = {
            (f.consumer, f.array) for task in plan.tasks for f in (*task.registers, *task.shared)
        }

    def enters(self, node: LoopNode) -> bool:
        return not node.is_parallel and has_parallel(node)

    def footprint(self, node: TreeNode) -> Footprint:
        phases = list(phases_of(node))
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
            # No thread's own part: any thread may pack any of it.
            reads.add(p.operand.access.array)
            if p.operand.access.array in task.by_team:
                writes.add(block_name(p.task, p.operand.access.array))
        if p.kind == "body":
            reads |= {block_name(p.task, array) for array in task.by_team}
        if p.kind == "body" or in_finish:
            wanted = {a.array for a, late in task_reads(task.task) if late == in_finish}
            reads |= {a for a in wanted if (p.task, a) not in self.on_chip}
        if in_finish or (p.kind == "body" and is_map):
            if not task.task.is_structured:
                writes |= written_arrays(task.task)
            elif task.is_stored:
                writes.add(task.task.target.array)
        acc = self.launch.accumulators.get(p.task)
        if acc is not None and acc.owner in ("team", "partials") and p.operand is None:
            name = accumulator_name(p.task)
            (reads if in_finish else writes).add(name)
            if p.kind != "combine":
                own.add(name)

    def is_serial(self, node: TreeNode) -> bool:
        """Whether one thread alone runs a node that is in no parallel loop."""
        if isinstance(node, LoopNode):
            return not has_parallel(node)
        if isinstance(node, Phase):
            task = self.plan.tasks[node.task]
            return node.kind == "body" or not task.is_parallel
        return False


def accumulator_name(task: int) -> str:
    """Name of a task's accumulators among the arrays of hazards; no array of a sequence has such a name."""
    return f"accumulators of task {task}"


def block_name(task: int, array: str) -> str:
    """Name of the block of an operand that all threads pack, among the arrays of hazards."""
    return f"block of {array} of task {task}"
