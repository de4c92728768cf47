"""The loop IR: one launch between the plan of a candidate and C syntax. Frozen; passes make new ones (codegen/passes).

    Launch  ::= tasks, Node*, and what the team does when it is done: Node*
    Node    ::= Loop | Late | Alone | InBlocks | Barrier | Phase
    Loop    ::= members, extent, step, level, schedule, Node*        a loop; where it packs operands, in strips
    Late    ::= the loop around it, Node*                            for the iteration of that loop before the present one
    Alone   ::= n, Node*                                             for the first n threads of those that are here
    InBlocks ::= task, Loop                                          the iterations of the loop, sorted by block: one colour of
                                                                     blocks after another; its threads synchronise in between
    Barrier ::=                                                      all threads of a team, or of a block of a GPU, synchronise
    Phase   ::= Body                                                 one register tile of a task
              | JoinedBodies                                         of several tasks with bodies of statements, as one body
              | FillSums | PrefetchSums | ResetSums | FlushSums | ReduceThreads | FinishSums | CombineSums
              | AdvanceSums | RescaleSums                      of sums that share the loop of their maximum
              | PackBlock | PackFirstBlock | OpenBlock | PackRest    blocks of operands
              | StartCopies | AwaitCopies | AdvanceCopies            asynchronous copies of blocks into shared memory
              | ClearCopies | AddCopies                              of arrays that each thread updates a copy of
              | CountIterations | StartBlocks | SortIterations       a counting sort of iterations by block

Values of a loop's `schedule`:

    SEQUENTIAL  every thread that is here runs all iterations
    BLOCKED     each thread of the team runs a contiguous part of them
    CYCLIC      the threads of the team take them in turn
    GUIDED      each thread takes a part of the remaining ones whenever it has finished its last part
    BALANCED    each thread runs a contiguous part, whose rows are as much work as those of other parts
    GRID        each block of a GPU runs one of them

codegen/loops/verify.py defines well-formed trees, codegen/loops/text.py prints them.
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

# Numbers that one thread adds up: a team is no faster with so few, since it has to synchronise first.
_FEW = 2048


class Schedule(Enum):
    """Schedules of a loop: the threads or blocks that run its iterations."""

    SEQUENTIAL = auto()
    BLOCKED = auto()
    CYCLIC = auto()
    GUIDED = auto()
    BALANCED = auto()
    GRID = auto()


OF_TEAMS = (Schedule.BLOCKED, Schedule.CYCLIC, Schedule.GUIDED, Schedule.BALANCED)


class Runs(Enum):
    """Executors of a launch."""

    ONE_THREAD = auto()
    TEAM = auto()  # of threads of a CPU
    GRID = auto()  # of blocks of threads of a GPU


class Tails(Enum):
    """Treatments of register tiles that the end of a loop cuts."""

    ROWS_BEHIND = (
        auto()
    )  # they are behind the loop: a test in it would keep compilers from moving loads out of it
    ROWS_TESTED = (
        auto()
    )  # a test in the loop finds them; rows are taken one by one, still in vectors
    ELEMENTS_TESTED = auto()  # and in them each element is taken by itself


class Owner(Enum):
    """Owners of the accumulators of a reduction."""

    REGISTERS = auto()
    THREAD = auto()  # each thread an array of its own
    TEAM = auto()  # one array, each thread its own part of it
    PARTIALS = auto()  # an array a thread or block, combined afterwards


# --- phases: steps of a task at a place in the tree ---


@dataclass(frozen=True)
class TileBody:
    """Computes one register tile of the task."""

    task: int


@dataclass(frozen=True)
class JoinedBodies:
    """Computes the bodies of these tasks, one after the other in each iteration of loops that they share, as the body of the first.

    Common values are computed once.
    """

    tasks: tuple[int, ...]
    statements: tuple[Stmt, ...]

    @property
    def task(self) -> int:
        return self.tasks[0]


@dataclass(frozen=True)
class FillSums:
    """Sets memory accumulators to the neutral element."""

    task: int


@dataclass(frozen=True)
class PrefetchSums:
    """Prefetches the memory accumulators that a register tile is added to."""

    task: int


@dataclass(frozen=True)
class ResetSums:
    """Sets register accumulators to the neutral element."""

    task: int


@dataclass(frozen=True)
class FlushSums:
    """Adds register accumulators to memory accumulators, or stores them as partial results of this thread or block."""

    task: int


@dataclass(frozen=True)
class ReduceThreads:
    """Combines the accumulators of the threads of a block that share a result; all of them get it."""

    task: int


@dataclass(frozen=True)
class FinishSums:
    """Stores finished values."""

    task: int


@dataclass(frozen=True)
class AdvanceSums:
    """Finishes the result so far, by which other tasks rescale their sums."""

    task: int


@dataclass(frozen=True)
class RescaleSums:
    """Corrects the sums so far, since the result that their terms read has changed."""

    task: int


@dataclass(frozen=True)
class CombineSums:
    """Combines, finishes and stores the partial results of all threads."""

    task: int


@dataclass(frozen=True)
class PackBlock:
    """Packs a block of an operand: by the present threads, each for itself or all together."""

    task: int
    operand: Operand


@dataclass(frozen=True)
class PackFirstBlock:
    """Packs the first block of a double-buffered operand, before the loop from block to block."""

    task: int
    operand: Operand


@dataclass(frozen=True)
class OpenBlock:
    """Determines, at the head of that loop, the half of the buffer with the present block, and the part of the next one to pack."""

    task: int
    operand: Operand


@dataclass(frozen=True)
class PackRest:
    """Packs the remaining slices of the next block, at the end of that loop."""

    task: int
    operand: Operand


@dataclass(frozen=True)
class Copy:
    """An operand of a task whose blocks are copied into shared memory asynchronously, `stages` of them at a time."""

    task: int
    operand: Operand
    stages: int


@dataclass(frozen=True)
class StartCopies:
    """Starts the copies of the first tiles, before the loop from tile to tile."""

    copies: tuple[Copy, ...]
    holder: Loop  # without its nodes

    @property
    def task(self) -> int:
        return self.copies[0].task


@dataclass(frozen=True)
class AwaitCopies:
    """Waits for the copies of this iteration's tile, as far as this thread made them; a barrier follows."""

    copies: tuple[Copy, ...]
    holder: Loop

    @property
    def task(self) -> int:
        return self.copies[0].task


@dataclass(frozen=True)
class AdvanceCopies:
    """Starts the copies of the last tile for which there is room. Behind the barrier no thread uses the old contents."""

    copies: tuple[Copy, ...]
    holder: Loop

    @property
    def task(self) -> int:
        return self.copies[0].task


@dataclass(frozen=True)
class ClearCopies:
    """Sets a thread's copies of the arrays that a task scatters to, to the neutral element."""

    task: int


@dataclass(frozen=True)
class AddCopies:
    """Combines the copies of all threads with the arrays, of which each thread takes a part."""

    task: int


@dataclass(frozen=True)
class CountIterations:
    """Each thread determines the blocks of its part of the iterations, and counts them."""

    task: int


@dataclass(frozen=True)
class StartBlocks:
    """One thread adds the counts up to the begin of each block, and of each thread's part of it."""

    task: int


@dataclass(frozen=True)
class SortIterations:
    """Each thread sorts its part of the iterations into their blocks."""

    task: int


SumPhase = (
    FillSums
    | PrefetchSums
    | ResetSums
    | FlushSums
    | ReduceThreads
    | FinishSums
    | CombineSums
    | AdvanceSums
    | RescaleSums
)
PackPhase = PackBlock | PackFirstBlock | OpenBlock | PackRest
CopyPhase = StartCopies | AwaitCopies | AdvanceCopies
ScatterPhase = ClearCopies | AddCopies | CountIterations | StartBlocks | SortIterations
Phase = TileBody | JoinedBodies | SumPhase | PackPhase | CopyPhase | ScatterPhase


# --- nodes ---


@dataclass(frozen=True)
class Strips:
    """Strips of a loop: `length` iterations each. At the head of a strip, a slice of each of these operands of tasks is packed."""

    length: int
    packs: tuple[tuple[int, Operand], ...]


@dataclass(frozen=True)
class Within:
    """Iteration-domain constraints of a loop: it leaves out iterations wholly outside of the cuts of its one task. The other loops
    of the task are around it or take all values.

    This loop decides `splits`: all of their loops have begun. A register tile without an iteration outside of any constraint is
    computed without tests.
    """

    cuts: tuple[Cut, ...]
    splits: tuple[Cut, ...] = ()


@dataclass(frozen=True)
class Loop:
    """A loop of the launch. Each iteration of it covers `step` iterations of the source loop.

    With `ends`, it ends at the largest of these values, which a run computes before it begins, and at `extent` at the latest. With
    `is_last`, only its last iteration runs, for the rest of a retimed task. `unit`, of a BLOCKED loop: threads get multiples of so
    many iterations of the source loop.
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
    """Nodes that run for the previous iteration of `loop` (given without its nodes), if there is one."""

    loop: Loop
    children: tuple[Node, ...]


@dataclass(frozen=True)
class Alone:
    """Nodes that only the first `n_threads` of the present threads run. The others continue behind it."""

    n_threads: int
    children: tuple[Node, ...]


@dataclass(frozen=True)
class InBlocks:
    """A sorted loop: runs the iterations of a task's loop, its only child, block by block in sorted order, and as many at once as
    the loop's step.

    Blocks of one colour are distributed by their contents, and run before those of the next. The threads synchronise in between. A
    block's tiles, if it has any, are cleared before its iterations and added to their arrays behind them.
    """

    task: int
    n_colours: int
    children: tuple[Node, ...]


@dataclass(frozen=True)
class Barrier:
    """All threads of the launch, or of a block of a GPU, synchronise."""


Node = Loop | Late | Alone | InBlocks | Barrier | Phase


# --- other parts of a launch ---


@dataclass(frozen=True)
class AccumulatorPlan:
    """Placement of a reduction's accumulators.

    `extents` gives, for each loop that indexes the result, the part that is live at once. It is the whole loop, a tile (`MID` level
    inside the reduction) or a register tile. There are `n_partials` arrays of partial results. With `in_result`, accumulators are
    elements of the result itself, and finished as they are. For `padded` loops the register tile that the end cuts is computed
    whole.
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
        """True if the array has room for whole register tiles. The last of them may reach beyond the end of a loop."""
        return self.owner is Owner.THREAD and not self.in_result

    @property
    def overhangs(self) -> frozenset[str]:
        """The padded loops beyond whose ends the array has no room. The flush leaves out elements there."""
        return frozenset() if self.has_room else self.padded

    @property
    def is_small(self) -> bool:
        """True if one thread combines partial results: distributing them costs more."""
        return self.n_partials * prod(self.extents.values()) < _FEW


@dataclass(frozen=True)
class Lines:
    """Cache lines of a slice along one loop: `count` lines, `apart` iterations from one to the next."""

    count: int
    apart: int


@dataclass(frozen=True)
class InStrips:
    """Lines of a slice, the cache that they are prefetched into, and the iterations of the innermost loop in a strip."""

    across: Lines
    along: Lines
    cache: int
    strip: int


@dataclass(frozen=True)
class DoubleBuffer:
    """Double buffer of an operand of two loops: the next block is packed while the present one is used. There is a block for each
    iteration of the outer level of `holder`.

    A block has `chunks` slices for each register tile of `across`; each has `chunk` iterations of `along`. `in_strips` is None if
    there is no loop around an innermost one. The next block is then packed after the present one has been used.
    """

    holder: str
    across: str
    along: str
    chunk: int
    chunks: int
    in_strips: InStrips | None


@dataclass(frozen=True)
class Launch:
    """One launch. `after`: nodes that one thread runs after the team has ended."""

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
    """Returns the loop of a task that a node stands for; "" if it is none of the task's."""
    return next((m.loop for m in loop.members if m.task == task), "")


def paths(nodes: Sequence[Node], above: tuple[Loop, ...] = ()) -> Iterator[tuple[list[Loop], int]]:
    """Yields the loops around each body, outermost first, with the task of the body."""
    for n in nodes:
        match n:
            case Loop():
                yield from paths(n.children, (*above, n))
            case TileBody(task):
                yield list(above), task
            case JoinedBodies(tasks):
                for task in tasks:
                    yield list(above), task
            case Late(_, children) | Alone(_, children) | InBlocks(_, _, children):
                yield from paths(children, above)


def loops_in(nodes: Sequence[Node]) -> Iterator[Loop]:
    """Yields all loops, outer ones before inner ones, except retimed ones (`Late`): these occur again in a loop of their own."""
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
    """Yields the phases in a node, in order."""
    match node:
        case Loop() | Late() | Alone() | InBlocks():
            for c in node.children:
                yield from phases_of(c)
        case Barrier():
            pass
        case _:
            yield node


def last_loop_plan(loop: Loop, tasks: tuple[TaskPlan, ...], member: Member) -> LoopPlan | None:
    """Returns the loop plan of a member if `loop` is its innermost loop, so that register tiles start at its index; else None."""
    p = tasks[member.task].loop(member.loop)
    innermost = MID if p.has_mid_loop else OUTER
    return p if loop.level == innermost else None
