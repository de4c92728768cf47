"""The loop IR: one launch between the plan of a candidate and C syntax.

Its nodes are frozen; passes make new ones (codegen/passes).

    Launch  ::= tasks, Node*, and what the team does when it is done: Node*
    Node    ::= Loop | Late | Alone | InBlocks | Barrier | GridBarrier | Phase
    Loop    ::= members, extent, step, level, schedule, Node*        a loop; where it packs operands, in strips
    Late    ::= the loop around it, Node*                            for the iteration of that loop before the present one
    Alone   ::= n, Node*                                             for the first n threads of those that are here
    InBlocks ::= task, Loop                                          the iterations of the loop, sorted by block: one colour of
                                                                     blocks after another; its threads synchronise in between
    Barrier ::=                                                      all threads of a team, or of a block of a GPU, synchronise
    GridBarrier ::=                                                  all threads of all blocks of a grid synchronise
    Phase   ::= Body                                                 one register tile of a task
              | JoinedBodies                                         of several tasks with bodies of statements, as one body
              | FillSums | PrefetchSums | ResetSums | FlushSums | ReduceThreads | FinishSums | CombineSums
              | AdvanceSums | RescaleSums                      of sums that share the loop of their maximum
              | PackBlock | PackFirstBlock | OpenBlock | PackRest    blocks of operands
              | StartCopies | AwaitCopies | AdvanceCopies            asynchronous copies of blocks into shared memory
              | ClearCopies | AddCopies                              of arrays that each thread updates a copy of
              | CountIterations | StartBlocks | SortIterations       a counting sort of iterations by block
              | FindRows | ColourBlocks                              a greedy colouring of blocks of iterations
              | SortByLength                                         an order of iterations with loops of various lengths

Values of a loop's `schedule`:

    SEQUENTIAL  every thread that is here runs all iterations
    BLOCKED     each thread of the team runs a contiguous part of them
    CYCLIC      the threads of the team take them in turn
    GUIDED      each thread takes a part of the remaining ones whenever it has finished its last part
    BALANCED    each thread runs a contiguous part, whose rows are as much work as those of other parts
    GRID        each block of a GPU runs one of them
    GRID_STRIDE the blocks of a GPU take them in turn

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
    """Distribution of a loop's iterations to threads or blocks."""

    SEQUENTIAL = auto()
    BLOCKED = auto()
    CYCLIC = auto()
    GUIDED = auto()
    BALANCED = auto()
    GRID = auto()
    GRID_STRIDE = auto()


OF_TEAMS = (Schedule.BLOCKED, Schedule.CYCLIC, Schedule.GUIDED, Schedule.BALANCED)


class Runs(Enum):
    """Executors of a launch: one thread, a team, or a grid."""

    ONE_THREAD = auto()
    TEAM = auto()  # of threads of a CPU
    GRID = auto()  # of blocks of threads of a GPU


class Tails(Enum):
    """Treatments of a partial register tile at the end of a loop: code behind the loop, or tests inside it."""

    ROWS_BEHIND = (
        auto()
    )  # they are behind the loop: a test in it would keep compilers from moving loads out of it
    ROWS_TESTED = (
        auto()
    )  # a test in the loop finds them; rows are taken one by one, still in vectors
    ELEMENTS_TESTED = auto()  # and in them each element is taken by itself


class Owner(Enum):
    """Owners of a reduction's accumulators: registers, each thread, the team, or partial results of threads or blocks."""

    REGISTERS = auto()
    THREAD = auto()  # each thread an array of its own
    TEAM = auto()  # one array, each thread its own part of it
    PARTIALS = auto()  # an array a thread or block, combined afterwards


# --- phases: steps of a task at a place in the tree ---


@dataclass(frozen=True)
class TileBody:
    """Phase: computes one register tile of a task."""

    task: int


@dataclass(frozen=True)
class JoinedBodies:
    """Phase: runs the bodies of several tasks, in their order, in each iteration of shared loops, as one body.

    The loops are those of the first task. Values that the bodies have in common are computed once.
    """

    tasks: tuple[int, ...]
    statements: tuple[Stmt, ...]

    @property
    def task(self) -> int:
        return self.tasks[0]


@dataclass(frozen=True)
class FillSums:
    """Phase: sets a task's accumulators in memory to the neutral element."""

    task: int


@dataclass(frozen=True)
class PrefetchSums:
    """Phase: prefetches the accumulators in memory to which a register tile will be added."""

    task: int


@dataclass(frozen=True)
class ResetSums:
    """Phase: sets a task's register accumulators to the neutral element."""

    task: int


@dataclass(frozen=True)
class FlushSums:
    """Phase: adds register accumulators to those in memory, or stores them as partial results of this thread or block."""

    task: int


@dataclass(frozen=True)
class ReduceThreads:
    """Phase: combines the accumulators of the threads of a GPU block that share a result.

    Each of them gets the total.
    """

    task: int


@dataclass(frozen=True)
class FinishSums:
    """Phase: applies the reduction's finish to complete accumulators, and stores the results."""

    task: int


@dataclass(frozen=True)
class AdvanceSums:
    """Phase: computes the running result, on which rescaled sums of other tasks depend, from the terms so far."""

    task: int


@dataclass(frozen=True)
class RescaleSums:
    """Phase: corrects a task's sums so far, as the running result in their terms has changed."""

    task: int


@dataclass(frozen=True)
class CombineSums:
    """Phase: combines the partial results of all threads, applies the reduction's finish, and stores the results."""

    task: int


@dataclass(frozen=True)
class PackBlock:
    """Phase: packs a block of an operand; each present thread packs its own, or all pack one together."""

    task: int
    operand: Operand


@dataclass(frozen=True)
class PackFirstBlock:
    """Phase: packs the first block of a double-buffered operand, before the loop over its blocks."""

    task: int
    operand: Operand


@dataclass(frozen=True)
class OpenBlock:
    """Phase: at the head of the loop over blocks, selects the buffer half of the current block.

    It also determines the part of the next block to pack.
    """

    task: int
    operand: Operand


@dataclass(frozen=True)
class PackRest:
    """Phase: at the end of the loop over blocks, packs the remaining slices of the next block."""

    task: int
    operand: Operand


@dataclass(frozen=True)
class Copy:
    """Asynchronous copies of an operand's blocks to shared memory.

    `stages`: number of blocks in shared memory at a time.
    """

    task: int
    operand: Operand
    stages: int


@dataclass(frozen=True)
class StartCopies:
    """Phase: starts the copies of the first tiles, before the loop over tiles."""

    copies: tuple[Copy, ...]
    holder: Loop  # without its nodes

    @property
    def task(self) -> int:
        return self.copies[0].task


@dataclass(frozen=True)
class AwaitCopies:
    """Phase: waits for this thread's copies of the current tile; a barrier for the others' copies follows."""

    copies: tuple[Copy, ...]
    holder: Loop

    @property
    def task(self) -> int:
        return self.copies[0].task


@dataclass(frozen=True)
class AdvanceCopies:
    """Phase: starts the copies of the latest tile that has a stage.

    After the barrier no thread reads its old contents.
    """

    copies: tuple[Copy, ...]
    holder: Loop

    @property
    def task(self) -> int:
        return self.copies[0].task


@dataclass(frozen=True)
class ClearCopies:
    """Phase: sets a thread's private copies of the arrays that a task scatters to, to the neutral element."""

    task: int


@dataclass(frozen=True)
class AddCopies:
    """Phase: adds the private copies of all threads to their arrays; each thread adds a part of the elements."""

    task: int


@dataclass(frozen=True)
class CountIterations:
    """Phase: each thread computes the blocks of its part of the iterations, and counts the iterations per block."""

    task: int


@dataclass(frozen=True)
class StartBlocks:
    """Phase: one thread computes, by prefix sums of the counts, where each block, and each thread's part of it, begins."""

    task: int


@dataclass(frozen=True)
class SortIterations:
    """Phase: each thread writes its part of the iterations to their blocks."""

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


@dataclass(frozen=True)
class FindRows:
    """Phase: each thread computes the rows of arrays that its part of the iterations updates."""

    task: int


@dataclass(frozen=True)
class ColourBlocks:
    """Phase: one thread colours blocks of iterations, so that no two of one colour update one row, and orders them by colour."""

    task: int


@dataclass(frozen=True)
class SortByLength:
    """Phase: each thread sorts the iterations of its windows by the length of their inner loops."""

    task: int


ScatterPhase = (
    ClearCopies
    | AddCopies
    | CountIterations
    | StartBlocks
    | SortIterations
    | FindRows
    | ColourBlocks
)
Phase = TileBody | JoinedBodies | SumPhase | PackPhase | CopyPhase | ScatterPhase | SortByLength


# --- nodes ---


@dataclass(frozen=True)
class Strips:
    """Strips of a loop, of `length` iterations each.

    Before each strip, a slice of each operand in `packs` is packed.
    """

    length: int
    packs: tuple[tuple[int, Operand], ...]


@dataclass(frozen=True)
class Within:
    """Iteration-domain constraints (cuts) of a loop: it leaves out iterations wholly outside of its task's cuts.

    In a cut the task's other loops have a value (outer loops) or take all values (inner loops).
    `splits`: cuts whose loops have all begun at this loop. Where no iteration of a register tile
    can violate a cut, the tile is computed without tests.
    """

    cuts: tuple[Cut, ...]
    splits: tuple[Cut, ...] = ()


@dataclass(frozen=True)
class Loop:
    """A loop of a launch. Each of its iterations covers `step` iterations of the source loop.

    `ends`: values computed at run time; the loop ends at the greatest of them, at `extent` at the
    latest.
    `is_last`: only the last iteration runs, for the rest of a retimed task.
    `unit`: of a BLOCKED loop: each thread gets a multiple of so many iterations of the source loop.
    `n_blocks`: of a GRID_STRIDE loop: number of blocks that take its iterations in turn.
    `band`: of a GRID loop around another: number of its iterations whose blocks start column by
    column, a column for each iteration of the other.
    `loads_ahead`: of a loop around nothing but a register tile of a sum: each iteration loads
    operands of the next one.
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
    n_blocks: int = 0
    band: int = 1
    loads_ahead: bool = False

    @property
    def is_parallel(self) -> bool:
        return self.schedule is not Schedule.SEQUENTIAL

    @property
    def is_cyclic(self) -> bool:
        return self.schedule is Schedule.CYCLIC

    @property
    def repeats(self) -> bool:
        """True if a thread that reaches the loop may run several iterations: it is no loop of a block a tile."""
        return self.schedule is not Schedule.GRID


@dataclass(frozen=True)
class Late:
    """Nodes that run for the previous iteration of `loop` (given without its children), if there is one."""

    loop: Loop
    children: tuple[Node, ...]


@dataclass(frozen=True)
class Alone:
    """Nodes that only the first `n_threads` of the present threads run; the other threads skip them."""

    n_threads: int
    children: tuple[Node, ...]


@dataclass(frozen=True)
class InBlocks:
    """A loop of a task, its only child, that runs its iterations block by block.

    It runs as many iterations at once as the child's step. Blocks of one colour are distributed by
    their numbers of iterations, and run before those of the next colour, with a barrier in between.
    A block's tiles, if it has any, are cleared before its iterations and added to their arrays
    behind them. `n_colours`: 0 if it is found when the sequence runs.
    """

    task: int
    n_colours: int
    children: tuple[Node, ...]


@dataclass(frozen=True)
class Barrier:
    """All threads of a team, or of a block of a GPU, synchronise."""


@dataclass(frozen=True)
class GridBarrier:
    """All threads of all blocks of a grid synchronise; behind it each finds what others have stored before.

    No block ends before the last one begins, so all blocks of the launch must be resident at once.
    """


Node = Loop | Late | Alone | InBlocks | Barrier | GridBarrier | Phase


# --- other parts of a launch ---


@dataclass(frozen=True)
class AccumulatorPlan:
    """Placement of a reduction's accumulators.

    `extents`: for each loop that indexes the result, the number of iterations whose accumulators
    are live at once: the whole loop, a tile (`MID` level inside the reduction) or a register tile.
    `n_partials`: number of arrays of partial results.
    `in_result`: accumulators are the elements of the result itself, without a finish.
    `padded`: loops of which a partial register tile is computed whole.
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
        """True if the accumulators' array is padded: a last register tile may exceed the end of a loop."""
        return self.owner is Owner.THREAD and not self.in_result

    @property
    def overhangs(self) -> frozenset[str]:
        """Loops whose partial register tile is computed whole, although the accumulators' array is not padded.

        The flush leaves out elements beyond the ends of these loops.
        """
        return frozenset() if self.has_room else self.padded

    @property
    def is_small(self) -> bool:
        """True if one thread combines the partial results: distributing so few costs more."""
        return self.n_partials * prod(self.extents.values()) < _FEW


@dataclass(frozen=True)
class Lines:
    """Cache lines of a slice along one loop: `count` lines, each `apart` iterations behind the previous one."""

    count: int
    apart: int


@dataclass(frozen=True)
class InStrips:
    """Prefetch of a slice, strip by strip: its cache lines along both loops, and the target `cache` (level).

    `strip`: iterations of the innermost loop in a strip.
    """

    across: Lines
    along: Lines
    cache: int
    strip: int


@dataclass(frozen=True)
class DoubleBuffer:
    """Double buffer of an operand indexed by two loops: the next block is packed while the current one is read.

    There is a block for each iteration of the outer level of `holder`. It has `chunks` slices for
    each register tile of `across`; each slice has `chunk` iterations of `along`. `in_strips` is
    None if no loop is around an innermost loop. The next block is then packed after the last use of
    the current one.
    """

    holder: str
    across: str
    along: str
    chunk: int
    chunks: int
    in_strips: InStrips | None


@dataclass(frozen=True)
class Launch:
    """One launch: tasks and loop nodes; `after`: nodes that one thread runs after the team has ended.

    `places`: of arrays in shared memory that are never alive together, the place where they lie, by
    the names that they have in barrier placement.
    """

    tasks: tuple[int, ...]  # in the order of their bodies
    nodes: tuple[Node, ...]
    after: tuple[Node, ...] = ()
    runs: Runs = Runs.ONE_THREAD
    accumulators: Mapping[int, AccumulatorPlan] = field(default_factory=dict)
    buffers: Mapping[tuple[int, str], DoubleBuffer] = field(default_factory=dict)  # task, site
    places: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_parallel(self) -> bool:
        return self.runs is not Runs.ONE_THREAD

    @property
    def stays(self) -> bool:
        """True if blocks of a grid wait for each other, so that all of them stay until the last one is done."""
        return any(isinstance(n, GridBarrier) for n in self.nodes)


# --- questions ---


def loop_of(loop: Loop, task: int) -> str:
    """Returns the name of that loop of the task of which node `loop` is a level.

    It returns "" if the node has no member of the task.
    """
    return next((m.loop for m in loop.members if m.task == task), "")


def paths(nodes: Sequence[Node], above: tuple[Loop, ...] = ()) -> Iterator[tuple[list[Loop], int]]:
    """Yields (loops around the body, outermost first; task of the body) for each body in the nodes."""
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
    """Yields all loops, outer before inner ones, but not those in `Late` nodes, which occur again as loops of their own."""
    for n in nodes:
        if isinstance(n, Loop):
            yield n
        if isinstance(n, Loop | Alone | InBlocks):
            yield from loops_in(n.children)


def grid_nests(nodes: Sequence[Node]) -> Iterator[tuple[Loop, ...]]:
    """Yields the loops of the grid, outermost first, of each nest that blocks share; nests run one after the other."""
    for n in nodes:
        if isinstance(n, Loop) and n.is_parallel:
            yield tuple(x for x in loops_in([n]) if x.is_parallel)


def blocks_of(loop: Loop) -> int:
    """Number of blocks along a loop of the grid."""
    return loop.n_blocks or -(-loop.extent // loop.step)


def has_parallel(node: Node) -> bool:
    if isinstance(node, InBlocks):
        return any(map(has_parallel, node.children))
    return isinstance(node, Loop) and (node.is_parallel or any(map(has_parallel, node.children)))


def phases_of(node: Node) -> Iterator[Phase]:
    """Yields the phases in a node, in order of execution."""
    match node:
        case Loop() | Late() | Alone() | InBlocks():
            for c in node.children:
                yield from phases_of(c)
        case Barrier() | GridBarrier():
            pass
        case _:
            yield node


def last_loop_plan(loop: Loop, tasks: tuple[TaskPlan, ...], member: Member) -> LoopPlan | None:
    """Returns the loop plan of `member` if `loop` is its innermost level, at whose index register tiles start.

    For an outer level it returns None.
    """
    p = tasks[member.task].loop(member.loop)
    innermost = MID if p.has_mid_loop else OUTER
    return p if loop.level == innermost else None
