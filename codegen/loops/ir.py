"""The loop IR: one launch between the plan of a candidate and C syntax. Frozen; passes make new ones (codegen/passes).

    Launch  ::= tasks, Node*, and what the team does when it is done: Node*
    Node    ::= Loop | Late | Alone | InBlocks | Barrier | Phase
    Loop    ::= members, extent, step, level, schedule, Node*        a loop; where it packs operands, in strips
    Late    ::= the loop around it, Node*                            for the iteration of that loop before the present one
    Alone   ::= n, Node*                                             for the first n threads of those that are here
    InBlocks ::= task, Loop                                          the iterations of the loop, sorted by block: one colour of
                                                                     blocks after another, between which its threads meet
    Barrier ::=                                                      all threads of a team, or of a block of a GPU, meet
    Phase   ::= Body                                                 one register tile of a task
              | JoinedBodies                                         of several tasks with bodies of statements, as one body
              | FillSums | PrefetchSums | ResetSums | FlushSums | ReduceThreads | FinishSums | CombineSums
              | PackBlock | PackFirstBlock | OpenBlock | PackRest    blocks of operands
              | StartCopies | AwaitCopies | AdvanceCopies            blocks that travel into shared memory by themselves
              | ClearCopies | AddCopies                              of arrays that each thread updates a copy of
              | CountIterations | StartBlocks | SortIterations       a counting sort of iterations by block

What a loop's `schedule` means:

    SEQUENTIAL  every thread that is here runs all iterations
    BLOCKED     each thread of the team runs a contiguous part of them
    CYCLIC      the threads of the team take them in turn
    GUIDED      a thread takes a part of those that are left when it is done with its last one
    BALANCED    each thread runs a contiguous part, of which the rows are as much work as those of others
    GRID        each block of a GPU runs one

codegen/loops/verify.py says which trees are well formed, codegen/loops/text.py is how they are printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from math import prod

from ...kernels.analysis.domain_bounds import Cut
from ...kernels.ir.kernel import Expr, Stmt
from ...space.backbone import MID, OUTER, Operand
from ..plan.plan import LoopPlan, Member, TaskPlan

# Numbers that one thread adds up: a team is no sooner done with so few, since it has to meet first.
_FEW = 2048


class Schedule(Enum):
    """Who runs the iterations of a loop."""

    SEQUENTIAL = auto()
    BLOCKED = auto()
    CYCLIC = auto()
    GUIDED = auto()
    BALANCED = auto()
    GRID = auto()


OF_TEAMS = (Schedule.BLOCKED, Schedule.CYCLIC, Schedule.GUIDED, Schedule.BALANCED)


class Runs(Enum):
    """Who runs a launch."""

    ONE_THREAD = auto()
    TEAM = auto()  # of threads of a CPU
    GRID = auto()  # of blocks of threads of a GPU


class Tails(Enum):
    """What a loop does with register tiles that its end cuts."""

    ROWS_BEHIND = (
        auto()
    )  # they are behind the loop: a test in it would keep compilers from moving loads out of it
    ROWS_TESTED = (
        auto()
    )  # a test in the loop finds them; rows are taken one by one, still in vectors
    ELEMENTS_TESTED = auto()  # and in them each element is taken by itself


class Owner(Enum):
    """Who has the accumulators of a reduction."""

    REGISTERS = auto()
    THREAD = auto()  # each thread an array of its own
    TEAM = auto()  # one array, each thread its own part of it
    PARTIALS = auto()  # an array a thread or block, combined afterwards


# --- phases: steps of a task at a place in the tree ---


@dataclass(frozen=True)
class Body:
    """One register tile of the task."""

    task: int


@dataclass(frozen=True)
class JoinedBodies:
    """Bodies of these tasks, one after the other in each iteration of loops that they share, as the body of the first: what they
    have in common is computed once.
    """

    tasks: tuple[int, ...]
    statements: tuple[Stmt, ...]

    @property
    def task(self) -> int:
        return self.tasks[0]


@dataclass(frozen=True)
class FillSums:
    """Memory accumulators take the neutral element."""

    task: int


@dataclass(frozen=True)
class PrefetchSums:
    """Memory is asked for the memory accumulators that a register tile is added to."""

    task: int


@dataclass(frozen=True)
class ResetSums:
    """Register accumulators take the neutral element."""

    task: int


@dataclass(frozen=True)
class FlushSums:
    """Register accumulators are added to memory accumulators, or stored as partial results of this thread or block."""

    task: int


@dataclass(frozen=True)
class ReduceThreads:
    """The accumulators of the threads of a block that share a result are combined; all of them get it."""

    task: int


@dataclass(frozen=True)
class FinishSums:
    """Finished values are stored."""

    task: int


@dataclass(frozen=True)
class CombineSums:
    """Partial results of all threads are combined, finished and stored."""

    task: int


@dataclass(frozen=True)
class PackBlock:
    """A block of an operand is packed: by the threads that are here, each for itself or all together."""

    task: int
    operand: Operand


@dataclass(frozen=True)
class PackFirstBlock:
    """Before the loop from block to block of an operand that is double-buffered: its first block is packed."""

    task: int
    operand: Operand


@dataclass(frozen=True)
class OpenBlock:
    """At the head of that loop: which half of the buffer holds the present block, and what there is to pack of the next one."""

    task: int
    operand: Operand


@dataclass(frozen=True)
class PackRest:
    """At its end: the slices of the next block that are left are packed."""

    task: int
    operand: Operand


@dataclass(frozen=True)
class Copy:
    """An operand of a task of which blocks travel into shared memory, `stages` of them at a time."""

    task: int
    operand: Operand
    stages: int


@dataclass(frozen=True)
class StartCopies:
    """Before the loop from tile to tile: the copies of its first tiles start."""

    copies: tuple[Copy, ...]
    holder: Loop  # without its nodes

    @property
    def task(self) -> int:
        return self.copies[0].task


@dataclass(frozen=True)
class AwaitCopies:
    """The copies of this iteration's tile have arrived, as far as this thread made them; a barrier follows."""

    copies: tuple[Copy, ...]
    holder: Loop

    @property
    def task(self) -> int:
        return self.copies[0].task


@dataclass(frozen=True)
class AdvanceCopies:
    """The copies of the last tile for which there is room start: behind the barrier nobody uses what was there."""

    copies: tuple[Copy, ...]
    holder: Loop

    @property
    def task(self) -> int:
        return self.copies[0].task


@dataclass(frozen=True)
class ClearCopies:
    """A thread's copies of the arrays that a task scatters to take the neutral element."""

    task: int


@dataclass(frozen=True)
class AddCopies:
    """The copies of all threads are combined with the arrays, of which each thread takes a part."""

    task: int


@dataclass(frozen=True)
class CountIterations:
    """Each thread finds the blocks of its part of the iterations, and counts them."""

    task: int


@dataclass(frozen=True)
class StartBlocks:
    """One thread adds the counts up to where each block begins, and each thread's part of it."""

    task: int


@dataclass(frozen=True)
class SortIterations:
    """Each thread puts its part of the iterations to their blocks."""

    task: int


SumPhase = (
    FillSums | PrefetchSums | ResetSums | FlushSums | ReduceThreads | FinishSums | CombineSums
)
PackPhase = PackBlock | PackFirstBlock | OpenBlock | PackRest
CopyPhase = StartCopies | AwaitCopies | AdvanceCopies
ScatterPhase = ClearCopies | AddCopies | CountIterations | StartBlocks | SortIterations
Phase = Body | JoinedBodies | SumPhase | PackPhase | CopyPhase | ScatterPhase


# --- nodes ---


@dataclass(frozen=True)
class Strips:
    """A loop runs in strips of `length` iterations, and packs a slice of each of these operands of tasks at the head of each."""

    length: int
    packs: tuple[tuple[int, Operand], ...]


@dataclass(frozen=True)
class Within:
    """A loop leaves out what lies wholly outside of cuts of its one task, whose other loops are around it or take all values.

    Where `splits`, all loops of the task's branch have begun: where no iteration of a register tile is outside, none is tested.
    """

    cuts: tuple[Cut, ...]
    splits: tuple[Cut, ...] = ()


@dataclass(frozen=True)
class Loop:
    """A loop of the launch. `step` iterations of the source loop pass with each iteration of this one.

    Where there are `ends`, it ends at the largest of these values, which a run computes before it begins, or at `extent`.
    Where `is_last`, only the last of them is run: what a late task has left to do. `unit`: of a BLOCKED loop, the iterations of the
    source loop that threads are given multiples of.
    """

    members: tuple[Member, ...]
    extent: int
    step: int
    level: int
    children: tuple[Node, ...] = ()
    schedule: Schedule = Schedule.SEQUENTIAL
    is_last: bool = False
    strips: Strips | None = None
    tails: Tails = Tails.ROWS_TESTED
    unit: int = 0
    within: Within | None = None
    ends: tuple[Expr, ...] = ()

    @property
    def is_parallel(self) -> bool:
        return self.schedule is not Schedule.SEQUENTIAL

    @property
    def is_cyclic(self) -> bool:
        return self.schedule is Schedule.CYCLIC


@dataclass(frozen=True)
class Late:
    """What runs for the iteration of `loop` (without its nodes) before the present one, if there is one."""

    loop: Loop
    children: tuple[Node, ...]


@dataclass(frozen=True)
class Alone:
    """What the first `n_threads` of the threads that are here run, while the others go on to what is behind it."""

    n_threads: int
    children: tuple[Node, ...]


@dataclass(frozen=True)
class InBlocks:
    """The iterations of a task's loop, its only child, block by block as they were sorted; as many at once as the loop steps over.

    Blocks of one colour are shared out by what is in them, and worked on before those of the next: the threads meet in between.
    A block's tiles, where there are any, are cleared before its iterations and added to their arrays behind them.
    """

    task: int
    n_colours: int
    children: tuple[Node, ...]


@dataclass(frozen=True)
class Barrier:
    """All threads of the launch, or of a block of a GPU, meet."""


Node = Loop | Late | Alone | InBlocks | Barrier | Phase


# --- what a launch knows besides ---


@dataclass(frozen=True)
class AccumulatorPlan:
    """Where a reduction is accumulated.

    `extents` gives, for each loop that indexes the result, how much of it is live at once: the whole loop, a tile (`MID` level
    inside the reduction) or a register tile. There are `n_partials` arrays of partial results. Those `in_result` are elements of
    the result itself, and finished as they are. Of `padded` loops the register tile that the end cuts is computed whole.
    """

    owner: Owner
    extents: dict[str, int]
    levels: dict[str, int]  # OUTER: whole loop, MID: tile, INNER: register tile
    in_memory: bool
    flushes_at_body: bool
    n_partials: int = 1
    in_result: bool = False
    padded: frozenset[str] = frozenset()

    @property
    def has_room(self) -> bool:
        """Whether its array has room for whole register tiles, of which the last may reach beyond the end of a loop."""
        return self.owner is Owner.THREAD and not self.in_result

    @property
    def overhangs(self) -> frozenset[str]:
        """The padded loops beyond whose ends the array has no room: what lies there is left out when it is flushed."""
        return frozenset() if self.has_room else self.padded

    @property
    def is_small(self) -> bool:
        """Whether one thread combines partial results: sharing them out costs more."""
        return self.n_partials * prod(self.extents.values()) < _FEW


@dataclass(frozen=True)
class Lines:
    """Lines of a slice along one loop: so many, a number of iterations apart."""

    count: int
    apart: int


@dataclass(frozen=True)
class InStrips:
    """The lines of a slice and for which cache they are asked, and the iterations of the innermost loop in a strip."""

    across: Lines
    along: Lines
    cache: int
    strip: int


@dataclass(frozen=True)
class DoubleBuffer:
    """An operand of two loops of which the next block is packed while the present one is used, a block for each iteration of the
    outer dim of `holder`.

    A block has `chunks` slices for each register tile of `across`; each has `chunk` iterations of `along`. `in_strips` is None
    where there is no loop around an innermost one: then the next block is packed when the present one has been used.
    """

    holder: str
    across: str
    along: str
    chunk: int
    chunks: int
    in_strips: InStrips | None


@dataclass(frozen=True)
class Launch:
    """One launch; `after`: what one thread does when its team is done."""

    tasks: tuple[int, ...]  # in the order of their bodies
    nodes: tuple[Node, ...]
    after: tuple[Node, ...] = ()
    runs: Runs = Runs.ONE_THREAD
    accumulators: Mapping[int, AccumulatorPlan] = field(default_factory=dict)
    buffers: Mapping[tuple[int, str], DoubleBuffer] = field(default_factory=dict)  # task, site

    @property
    def is_parallel(self) -> bool:
        return self.runs is not Runs.ONE_THREAD


# --- questions ---


def loop_of(loop: Loop, task: int) -> str:
    """The loop of a task that a node stands for; "" where it is none of the task's."""
    return next((m.loop for m in loop.members if m.task == task), "")


def paths(nodes: Sequence[Node], above: tuple[Loop, ...] = ()) -> Iterator[tuple[list[Loop], int]]:
    """Each body with the loops around it, outermost first."""
    for n in nodes:
        match n:
            case Loop():
                yield from paths(n.children, (*above, n))
            case Body(task):
                yield list(above), task
            case JoinedBodies(tasks):
                for task in tasks:
                    yield list(above), task
            case Late(_, children) | Alone(_, children) | InBlocks(_, _, children):
                yield from paths(children, above)


def loops_in(nodes: Sequence[Node]) -> Iterator[Loop]:
    """All loops, outer ones before inner ones, but not what is late: that stands a second time in a loop of its own."""
    for n in nodes:
        if isinstance(n, Loop):
            yield n
        if isinstance(n, Loop | Alone | InBlocks):
            yield from loops_in(n.children)


def has_parallel(node: Node) -> bool:
    if isinstance(node, InBlocks):
        return any(map(has_parallel, node.children))
    return isinstance(node, Loop) and (node.is_parallel or any(map(has_parallel, node.children)))


def phases_of(node: Node) -> Iterator[Phase]:
    """The phases in a node, in order."""
    match node:
        case Loop() | Late() | Alone() | InBlocks():
            for c in node.children:
                yield from phases_of(c)
        case Barrier():
            pass
        case _:
            yield node


def last_loop_plan(loop: Loop, tasks: tuple[TaskPlan, ...], member: Member) -> LoopPlan | None:
    """The loop plan of a member if `loop` is its innermost loop, so that register tiles start at its index."""
    p = tasks[member.task].loop(member.loop)
    innermost = MID if p.has_mid_loop else OUTER
    return p if loop.level == innermost else None
