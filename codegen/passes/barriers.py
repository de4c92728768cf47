"""Barriers of a launch: placed where a hazard between two threads needs one, nowhere else.

Every array and buffer that threads share is touched by phases. Two touches of the same one, of which one writes, are a hazard,
unless both are made by the same thread in the order of the tree: `by` names who makes a touch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ...kernels.analysis.effects import arrays_written, task_reads
from ...space.choices import PRIVATE
from ..loops.ir import (
    AddCopies,
    AdvanceCopies,
    AwaitCopies,
    Barrier,
    Body,
    ClearCopies,
    CombineSums,
    CountIterations,
    FinishSums,
    InBlocks,
    Launch,
    Loop,
    Node,
    OpenBlock,
    Owner,
    PackBlock,
    PackFirstBlock,
    PackRest,
    Phase,
    SortIterations,
    StartBlocks,
    StartCopies,
    has_parallel,
    phases_of,
)
from ..plan.plan import Plan, TaskPlan

_ONE_THREAD = "one thread"  # of a team: it alone runs what is in no parallel loop
_OWN_PART = "own part"  # of a thread: no other thread touches it
_COPIERS = "copiers"  # what a block copies, its threads copy in the same way each time


@dataclass(frozen=True)
class Touch:
    """A read or write of what threads share. Two of them with a name in `by` in common are in order without a barrier."""

    array: str
    is_write: bool
    by: frozenset[str]

    def conflicts(self, later: Touch) -> bool:
        is_hazard = self.array == later.array and (self.is_write or later.is_write)
        return is_hazard and self.by.isdisjoint(later.by)


@dataclass(frozen=True)
class Threads:
    """Which loops all threads go through together, so that barriers may stand in them, and what a node in no such loop touches."""

    enter: Callable[[Loop], bool]
    touches: Callable[[Node], Sequence[Touch]]


def place_team_barriers(launch: Launch, plan: Plan) -> Launch:
    """Barriers of a team of a CPU. A thread alone needs none."""
    if not launch.is_parallel:
        return launch
    return replace(launch, nodes=_placed(of_team(launch, plan), launch.nodes, is_loop=False))


def place_block_barriers(launch: Launch, plan: Plan) -> Launch:
    """Barriers of the blocks of a GPU. The iterations of one task are shared out to threads in one way: they never have to wait."""
    return replace(launch, nodes=_placed(of_block(plan), launch.nodes, is_loop=False))


def of_team(launch: Launch, plan: Plan) -> Threads:
    """The threads of a CPU's team."""
    return Threads(
        lambda loop: not loop.is_parallel and has_parallel(loop),
        lambda node: list(_team_touches(launch, plan, node)),
    )


def of_block(plan: Plan) -> Threads:
    """The threads of a block of a GPU."""
    return Threads(lambda loop: True, lambda node: list(_block_touches(plan, node)))


def _placed(threads: Threads, nodes: Sequence[Node], is_loop: bool) -> tuple[Node, ...]:
    """The nodes with barriers; `is_loop`: the end of the list is followed by its beginning."""
    placed: list[Node] = []
    pending: list[Touch] = []
    for n in nodes:
        if isinstance(n, Loop) and threads.enter(n):
            inside = _placed(threads, n.children, is_loop=not n.is_parallel)
            n = replace(n, children=inside)
        if _conflict(pending, _reached(threads, [n])[0]):
            placed.append(Barrier())
            pending = []
        placed.append(n)
        behind, has_met = _reached(threads, [n], step=-1)
        pending = behind if has_met else [*pending, *behind]
    if is_loop and _conflict(pending, _reached(threads, placed)[0]):
        placed.append(Barrier())
    return tuple(placed)


def _conflict(before: Sequence[Touch], behind: Sequence[Touch]) -> bool:
    return any(a.conflicts(b) for a in before for b in behind)


def _reached(threads: Threads, nodes: Sequence[Node], step: int = 1) -> tuple[list[Touch], bool]:
    """What is touched up to the first barrier, from the front or the back, and whether there is one.

    Each loop runs at least once.
    """
    found: list[Touch] = []
    for n in nodes[::step]:
        if isinstance(n, Barrier):
            return found, True
        if isinstance(n, Loop) and threads.enter(n):
            inside, has_met = _reached(threads, n.children, step)
            found += inside
            if has_met:
                return found, True
        else:
            found += threads.touches(n)
    return found, False


# --- what is touched ---


def _team_touches(launch: Launch, plan: Plan, node: Node) -> Iterator[Touch]:
    """What the threads of a team share: arrays, blocks that they pack together, and sums of the team."""
    alone = frozenset([_ONE_THREAD]) if _is_serial(plan, node) else frozenset[str]()
    on_chip = {(f.consumer, f.array) for t in plan.tasks for f in (*t.registers, *t.shared)}
    for p in phases_of(node):
        task = plan.tasks[p.task]
        match p:
            case PackBlock(t, o) | PackFirstBlock(t, o) | OpenBlock(t, o) | PackRest(t, o):
                # No thread's own part: any thread may pack any of it.
                yield Touch(o.access.array, False, alone)
                if o.site in task.by_team:
                    yield Touch(block_name(t, o.site), True, alone)
                continue
            case CountIterations() | StartBlocks() | SortIterations() | ClearCopies() | AddCopies():
                yield from _scatter_touches(p, task, alone)
                continue
            case Body(t):
                for site in task.by_team:
                    yield Touch(block_name(t, site), False, alone)
                yield from _scatter_touches(p, task, alone)
        for array in _reads(p, task):
            if (p.task, array) not in on_chip:
                yield Touch(array, False, alone)
        for array in _writes(p, task):
            yield Touch(array, True, alone)
        sums = launch.accumulators.get(p.task)
        if sums is not None and sums.owner in (Owner.TEAM, Owner.PARTIALS):
            by = alone if isinstance(p, CombineSums) else alone | {_OWN_PART}
            is_read = isinstance(p, FinishSums | CombineSums)
            yield Touch(accumulator_name(p.task), not is_read, by)


def _scatter_touches(p: Phase, task: TaskPlan, alone: frozenset[str]) -> Iterator[Touch]:
    """What a sort of iterations, or what is done to copies, touches besides; a body updates the copies of its thread."""
    own, t = alone | {_OWN_PART}, task.index
    match p:
        case CountIterations():
            assert task.sort is not None
            for array in task.sort.arrays_read:
                yield Touch(array, False, alone)
            yield Touch(counts_name(t), True, own)
        case StartBlocks():
            yield Touch(counts_name(t), True, frozenset([_ONE_THREAD]))
            yield Touch(order_name(t), True, frozenset([_ONE_THREAD]))
        case SortIterations():
            yield Touch(counts_name(t), True, own)
            yield Touch(order_name(t), True, own)
        case Body() if task.sort is not None:
            yield Touch(order_name(t), False, alone)
    if any(x.how == PRIVATE for x in task.scatters):
        match p:
            case ClearCopies() | Body():
                yield Touch(copies_name(t), True, own)
            case AddCopies():
                yield Touch(copies_name(t), False, alone)
                for x in task.scatters:
                    if x.how == PRIVATE:
                        yield Touch(x.array, True, alone | {_OWN_PART})


def _is_serial(plan: Plan, node: Node) -> bool:
    """Whether one thread of a team alone runs a node that is in no parallel loop."""
    match node:
        case Loop():
            return not has_parallel(node)
        case Body(task):
            return not plan.tasks[task].is_of_team
        case StartBlocks():
            return True
        case InBlocks():
            return not has_parallel(node)
        case Barrier():
            return False
        case _:
            return all(not plan.tasks[p.task].is_parallel for p in phases_of(node))


def _block_touches(plan: Plan, node: Node) -> Iterator[Touch]:
    """What the threads of a block of a GPU share: arrays, values in shared memory and blocks of operands there."""
    on_chip = {
        (f.consumer, f.array): kind
        for t in plan.tasks
        for kind, flows in (("register", t.registers), ("shared", t.shared))
        for f in flows
    }
    for p in phases_of(node):
        task, by = plan.tasks[p.task], frozenset([str(p.task)])
        match p:
            case StartCopies(copies) | AdvanceCopies(copies):
                for x in copies:
                    array, mine = x.operand.access.array, frozenset([str(x.task)])
                    yield Touch(array, False, mine)
                    if isinstance(p, StartCopies):
                        block = copy_name(x.task, x.operand.site)
                        yield Touch(block, True, frozenset([_COPIERS]))
                continue
            case AwaitCopies():
                continue
            case PackBlock(t, o):
                yield Touch(o.access.array, False, by)
                yield Touch(copy_name(t, o.site), True, frozenset([_COPIERS]))
                continue
        for array in _reads(p, task):
            kind = on_chip.get((p.task, array))
            if kind == "shared":
                yield Touch(shared_name(array), False, by)
            elif kind is None:
                for place in _places(p, task, array):
                    yield Touch(place, False, by)
        stored = list(_writes(p, task))
        for array in stored:
            yield Touch(array, True, by)
        if task.shared and (isinstance(p, FinishSums) or _is_map(p, task)):
            yield Touch(shared_name(task.task.target.array), True, by)


def _is_map(p: Phase, task: TaskPlan) -> bool:
    """Whether a phase computes what its task stores."""
    return isinstance(p, Body) and not task.task.is_reduction


def _reads(p: Phase, task: TaskPlan) -> Iterator[str]:
    """The arrays of the sequence that a body, or what finishes a reduction, reads."""
    in_finish = isinstance(p, FinishSums | CombineSums)
    if isinstance(p, Body) or in_finish:
        yield from dict.fromkeys(a.array for a, late in task_reads(task.task) if late == in_finish)


def _places(p: Phase, task: TaskPlan, array: str) -> Iterable[str]:
    """Where a phase reads an array: in memory, and in blocks of the operands that hold its accesses."""
    if not isinstance(p, Body):
        return (array,)
    reads = (a for a, late in task_reads(task.task) if a.array == array and not late)
    held = (task.copy_of(access) for access in reads)
    return dict.fromkeys(array if o is None else copy_name(task.index, o.site) for o in held)


def _writes(p: Phase, task: TaskPlan) -> Iterator[str]:
    """The arrays of the sequence that it writes."""
    if isinstance(p, FinishSums | CombineSums) or _is_map(p, task):
        if not task.task.is_structured:
            yield from sorted(arrays_written(task.task))
        elif task.is_stored:
            yield task.task.target.array


# Names among the touched arrays; no array of a sequence has such a name.


def accumulator_name(task: int) -> str:
    return f"accumulators of task {task}"


def block_name(task: int, site: str) -> str:
    """Of the block of an operand that all threads of a team pack."""
    return f"block of {site} of task {task}"


def counts_name(task: int) -> str:
    """Of how many iterations of each thread are in each block."""
    return f"counts of task {task}"


def order_name(task: int) -> str:
    """Of the iterations of a task in the order of their blocks, and where each block begins."""
    return f"order of task {task}"


def copies_name(task: int) -> str:
    """Of what each thread of a team has of the arrays that a task scatters to."""
    return f"copies of task {task}"


def shared_name(array: str) -> str:
    """Of a value in the shared memory of a block."""
    return f"shared value of {array}"


def copy_name(task: int, site: str) -> str:
    """Of a block of an operand in shared memory."""
    return f"copy of {site} for task {task}"
