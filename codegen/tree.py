"""The loop tree of one launch: what its nodes are, and what can be asked of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from ..space.backbone import MID, OUTER, Operand
from .plan import LoopPlan, Member, TaskPlan

if TYPE_CHECKING:
    from .pipeline import Pipeline

# Numbers that one thread adds up: a team is no sooner done with so few, since it has to meet first.
_FEW = 2048


@dataclass(eq=False)
class LoopNode:
    """A loop of the launch. `step` iterations of the source loop pass with each iteration of this one.

    Where `is_last`, only the last of them is run: what a late task has left to do. Where it `packs` operands of tasks ahead
    (codegen/pipeline.py), it runs in strips of `strip` iterations, and does so at the head of each.
    """

    members: tuple[Member, ...]
    extent: int
    step: int
    is_parallel: bool
    level: int
    children: list[TreeNode] = field(default_factory=list)
    before: list[Phase] = field(default_factory=list)
    head: list[Phase] = field(default_factory=list)
    tail: list[Phase] = field(default_factory=list)
    after: list[Phase] = field(default_factory=list)
    is_cyclic: bool = False
    is_last: bool = False
    packs: list[tuple[int, Operand]] = field(default_factory=list)
    strip: int = 0


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
    ask      memory is asked for the memory accumulators that a register tile is added to
    reset    register accumulators take the neutral element
    flush    register accumulators are added to memory accumulators, or stored as this thread's partial result
    finish   finished values are stored
    combine  partial results of all threads are combined, finished and stored
    copy     a block of an operand is packed

    and of an operand that is packed ahead (see codegen/pipeline.py):

    first block  before the loop from block to block
    stage        at its head: which half of the buffer holds the present block, and what there is to pack
    rest         at the end: the slices that are left
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
    thread its own part of it) or "partials" (an array a thread, `n_partials` in all, combined afterwards). Those
    `in_result` are the elements of the result itself, and finished as they are. Of the loops that it `overhangs` register tiles are
    computed whole, though the accumulators have no room for what lies beyond their ends: it is left out when they are flushed.
    """

    owner: str
    extents: dict[str, int]
    levels: dict[str, int]  # OUTER: whole loop, MID: tile, INNER: register tile
    in_memory: bool
    flushes_at_body: bool
    n_partials: int = 1
    in_result: bool = False
    overhangs: frozenset[str] = frozenset()

    @property
    def has_room(self) -> bool:
        """Whether its array has room for whole register tiles, of which the last may reach beyond the end of a loop."""
        return self.owner == "thread" and not self.in_result

    @property
    def is_small(self) -> bool:
        """Whether one thread combines partial results: sharing them out costs more."""
        return self.n_partials * prod(self.extents.values()) < _FEW


@dataclass
class Launch:
    """A launch ready to be written down."""

    roots: list[TreeNode]
    tasks: tuple[int, ...]
    is_parallel: bool
    accumulators: dict[int, AccumulatorPlan]
    pipelines: dict[tuple[int, str], Pipeline] = field(default_factory=dict)  # by task and array
    # What one thread does when the team is done.
    after: list[TreeNode] = field(default_factory=list)


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


def has_parallel(node: TreeNode) -> bool:
    return isinstance(node, LoopNode) and (
        node.is_parallel or any(has_parallel(c) for c in node.children)
    )


def phases_of(node: TreeNode) -> Iterator[Phase]:
    if isinstance(node, Phase):
        yield node
    elif isinstance(node, LoopNode):
        for c in node.children:
            yield from phases_of(c)


def last_loop_plan(node: LoopNode, tasks: tuple[TaskPlan, ...], member: Member) -> LoopPlan | None:
    """The loop plan of a member if `node` is its innermost loop, so that register tiles start at its index."""
    p = tasks[member.task].loop(member.loop)
    innermost = MID if p.has_mid_loop else OUTER
    return p if node.level == innermost else None
