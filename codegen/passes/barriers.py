"""Barrier placement: inserts a barrier where a data hazard between two threads needs one, and nowhere else.

Phases touch the arrays and buffers that threads share. Two touches of one array are a hazard if at
least one is a write. Touches by the same thread are no hazard, since they run in the order of the
tree. `by` names the threads that make a touch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ...kernels.analysis.effects import arrays_written, task_reads
from ...space.choices import PRIVATE
from ..loops import ir as loop_ir
from ..plan.plan import Plan, TaskPlan

_ONE_THREAD = "one thread"  # of a team: it alone runs the nodes outside of parallel loops
_OWN_PART = "own part"  # of a thread: no other thread touches it
_COPIERS = "copiers"  # the threads of a block divide a copy in the same way each time


@dataclass(frozen=True)
class Touch:
    """A read or write of shared data, by the threads named in `by`.

    Touches with a common name are ordered without a barrier.
    """

    array: str
    is_write: bool
    by: frozenset[str]

    def conflicts(self, later: Touch) -> bool:
        is_hazard = self.array == later.array and (self.is_write or later.is_write)
        return is_hazard and self.by.isdisjoint(later.by)


@dataclass(frozen=True)
class ThreadScope:
    """The threads of a team or of a GPU block, as barrier placement sees them.

    `enter`: True for a loop that all threads run together, so that barriers may be inside it.
    `touches`: the touches of any other node.
    """

    enter: Callable[[loop_ir.Loop], bool]
    touches: Callable[[loop_ir.Node], Sequence[Touch]]


def place_team_barriers(launch: loop_ir.Launch, plan: Plan) -> loop_ir.Launch:
    """Inserts the barriers for a CPU's team. A launch on a single thread gets none."""
    if not launch.is_parallel:
        return launch
    return replace(launch, nodes=_placed(of_team(launch, plan), launch.nodes, is_loop=False))


def place_block_barriers(launch: loop_ir.Launch, plan: Plan) -> loop_ir.Launch:
    """Inserts the barriers for the blocks of a GPU.

    All iterations of one task are distributed to threads in the same way, so they need no barrier among themselves.
    """
    return replace(launch, nodes=_placed(of_block(launch, plan), launch.nodes, is_loop=False))


def of_team(launch: loop_ir.Launch, plan: Plan) -> ThreadScope:
    """Returns the threads of a CPU's team for barrier placement."""
    return ThreadScope(
        lambda loop: not loop.is_parallel and loop_ir.has_parallel(loop),
        lambda node: list(_team_touches(launch, plan, node)),
    )


def of_block(launch: loop_ir.Launch, plan: Plan) -> ThreadScope:
    """Returns the threads of a GPU block for barrier placement.

    Each node of a task that uses an array touches the array's place, if others lie there too.
    """
    users = [
        (launch.places[name], name, tasks)
        for name, tasks in users_in_shared(launch, plan)
        if name in launch.places
    ]

    def touches(node: loop_ir.Node) -> list[Touch]:
        found = list(block_touches(plan, node))
        if users:
            here = tasks_in(node)
            at = ((place, name) for place, name, tasks in users if tasks & here)
            found += (Touch(f"place {k}", True, frozenset([name])) for k, name in at)
        return found

    return ThreadScope(lambda loop: True, touches)


def users_in_shared(launch: loop_ir.Launch, plan: Plan) -> Iterator[tuple[str, set[int]]]:
    """Yields each array in a block's shared memory, by its name for hazards, with the tasks that use it."""
    for t in launch.tasks:
        task = plan.tasks[t]
        if task.shared:
            yield shared_name(task.task.target.array), {t, *(f.consumer for f in task.shared)}
        for operand in task.copies:
            yield copy_name(t, operand.site), {t}


def tasks_in(node: loop_ir.Node) -> set[int]:
    """Returns the tasks that have work in a node, or copies in one that is for several."""
    found: set[int] = set()
    for p in loop_ir.phases_of(node):
        found.add(p.task)
        if isinstance(p, loop_ir.StartCopies | loop_ir.AwaitCopies | loop_ir.AdvanceCopies):
            found |= {x.task for x in p.copies}
    return found


def _placed(
    threads: ThreadScope, nodes: Sequence[loop_ir.Node], is_loop: bool
) -> tuple[loop_ir.Node, ...]:
    """Returns the nodes with barriers inserted.

    With `is_loop` the list repeats: its end is followed by its beginning.
    """
    placed: list[loop_ir.Node] = []
    pending: list[Touch] = []
    for n in nodes:
        if isinstance(n, loop_ir.Loop) and threads.enter(n):
            inside = _placed(threads, n.children, is_loop=n.repeats)
            n = replace(n, children=inside)
        if _conflict(pending, _reached(threads, [n])[0]):
            placed.append(loop_ir.Barrier())
            pending = []
        placed.append(n)
        behind, has_met = _reached(threads, [n], step=-1)
        pending = behind if has_met else [*pending, *behind]
    if is_loop and _conflict(pending, _reached(threads, placed)[0]):
        placed.append(loop_ir.Barrier())
    return tuple(placed)


def _conflict(before: Sequence[Touch], behind: Sequence[Touch]) -> bool:
    return any(a.conflicts(b) for a in before for b in behind)


def _reached(
    threads: ThreadScope, nodes: Sequence[loop_ir.Node], step: int = 1
) -> tuple[list[Touch], bool]:
    """Returns the touches up to the first barrier, and True if there is a barrier.

    `step`: 1 to search from the front, -1 from the back. Each loop counts as run at least once.
    """
    found: list[Touch] = []
    for n in nodes[::step]:
        if isinstance(n, loop_ir.Barrier | loop_ir.GridBarrier):
            return found, True
        if isinstance(n, loop_ir.Loop) and threads.enter(n):
            inside, has_met = _reached(threads, n.children, step)
            found += inside
            if has_met:
                return found, True
        else:
            found += threads.touches(n)
    return found, False


# --- touches of nodes ---


def _team_touches(launch: loop_ir.Launch, plan: Plan, node: loop_ir.Node) -> Iterator[Touch]:
    """Yields a node's touches of data that a team shares: arrays, blocks packed together, accumulators of the team."""
    alone = frozenset([_ONE_THREAD]) if _is_serial(plan, node) else frozenset[str]()
    on_chip = {(f.consumer, f.array) for t in plan.tasks for f in (*t.registers, *t.shared)}
    for p in loop_ir.phases_of(node):
        task = plan.tasks[p.task]
        match p:
            case (
                loop_ir.PackBlock(t, o)
                | loop_ir.PackFirstBlock(t, o)
                | loop_ir.OpenBlock(t, o)
                | loop_ir.PackRest(t, o)
            ):
                # No thread's own part: any thread may pack any of it.
                yield Touch(o.access.array, False, alone)
                if o.site in task.by_team:
                    yield Touch(block_name(t, o.site), True, alone)
                continue
            case (
                loop_ir.CountIterations()
                | loop_ir.StartBlocks()
                | loop_ir.SortIterations()
                | loop_ir.FindRows()
                | loop_ir.ColourBlocks()
                | loop_ir.SortByLength()
                | loop_ir.ClearCopies()
                | loop_ir.AddCopies()
            ):
                yield from _scatter_touches(p, task, alone)
                continue
            case loop_ir.TileBody(t):
                for site in task.by_team:
                    yield Touch(block_name(t, site), False, alone)
                yield from _scatter_touches(p, task, alone)
        for array in _reads(p, task):
            if (p.task, array) not in on_chip:
                yield Touch(array, False, alone)
        for array in _writes(p, task):
            yield Touch(array, True, alone)
        sums = launch.accumulators.get(p.task)
        if sums is not None and sums.owner in (loop_ir.Owner.TEAM, loop_ir.Owner.PARTIALS):
            by = alone if isinstance(p, loop_ir.CombineSums) else alone | {_OWN_PART}
            is_read = isinstance(p, loop_ir.FinishSums | loop_ir.CombineSums)
            yield Touch(accumulator_name(p.task), not is_read, by)


def _scatter_touches(p: loop_ir.Phase, task: TaskPlan, alone: frozenset[str]) -> Iterator[Touch]:
    """Yields the further touches of a scatter phase: data of the sort or the colouring, and private copies.

    A body updates only the copies of its own thread.
    """
    own, t = alone | {_OWN_PART}, task.index
    match p:
        case loop_ir.CountIterations():
            assert task.sort is not None
            for array in task.sort.arrays_read:
                yield Touch(array, False, alone)
            yield Touch(counts_name(t), True, own)
        case loop_ir.StartBlocks():
            yield Touch(counts_name(t), True, frozenset([_ONE_THREAD]))
            yield Touch(order_name(t), True, frozenset([_ONE_THREAD]))
        case loop_ir.SortIterations():
            yield Touch(counts_name(t), True, own)
            yield Touch(order_name(t), True, own)
        case loop_ir.FindRows():
            assert task.colouring is not None
            for array in task.colouring.inspector.arrays_read:
                yield Touch(array, False, alone)
            yield Touch(rows_name(t), True, own)
        case loop_ir.ColourBlocks():
            yield Touch(rows_name(t), False, frozenset([_ONE_THREAD]))
            yield Touch(order_name(t), True, frozenset([_ONE_THREAD]))
        case loop_ir.SortByLength():
            assert task.by_length is not None
            for array in task.by_length.arrays_read:
                yield Touch(array, False, alone)
            yield Touch(order_name(t), True, own)
        case loop_ir.TileBody() if task.colouring is not None:
            yield Touch(order_name(task.colouring.maker), False, alone)
        case loop_ir.TileBody() if task.sort is not None or task.by_length is not None:
            yield Touch(order_name(t), False, alone)
    if any(x.how == PRIVATE for x in task.scatters):
        match p:
            case loop_ir.ClearCopies() | loop_ir.TileBody():
                yield Touch(copies_name(t), True, own)
            case loop_ir.AddCopies():
                yield Touch(copies_name(t), False, alone)
                for x in task.scatters:
                    if x.how == PRIVATE:
                        yield Touch(x.array, True, alone | {_OWN_PART})


def _is_serial(plan: Plan, node: loop_ir.Node) -> bool:
    """True if one thread of a team runs the node alone; the node is in no parallel loop."""
    match node:
        case loop_ir.Loop():
            return not loop_ir.has_parallel(node)
        case loop_ir.TileBody(task):
            return not plan.tasks[task].is_of_team
        case loop_ir.StartBlocks() | loop_ir.ColourBlocks():
            return True
        case loop_ir.InBlocks():
            return not loop_ir.has_parallel(node)
        case loop_ir.Barrier():
            return False
        case _:
            return all(not plan.tasks[p.task].is_parallel for p in loop_ir.phases_of(node))


def block_touches(plan: Plan, node: loop_ir.Node) -> Iterator[Touch]:
    """Yields a node's touches of data that a GPU block shares: arrays, and values and operand blocks in shared memory."""
    on_chip = {
        (f.consumer, f.array): kind
        for t in plan.tasks
        for kind, flows in (("register", t.registers), ("shared", t.shared))
        for f in flows
    }
    for p in loop_ir.phases_of(node):
        task, by = plan.tasks[p.task], frozenset([str(p.task)])
        match p:
            case loop_ir.StartCopies(copies) | loop_ir.AdvanceCopies(copies):
                for x in copies:
                    array, mine = x.operand.access.array, frozenset([str(x.task)])
                    yield Touch(array, False, mine)
                    if isinstance(p, loop_ir.StartCopies):
                        block = copy_name(x.task, x.operand.site)
                        yield Touch(block, True, frozenset([_COPIERS]))
                continue
            case loop_ir.AwaitCopies():
                continue
            case loop_ir.PackBlock(t, o):
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
        if task.shared and (isinstance(p, loop_ir.FinishSums) or _is_map(p, task)):
            yield Touch(shared_name(task.task.target.array), True, by)


def _is_map(p: loop_ir.Phase, task: TaskPlan) -> bool:
    """True if a phase stores the final values of its task: the body of a task that is no reduction."""
    return isinstance(p, loop_ir.TileBody) and not task.task.is_reduction


def _reads(p: loop_ir.Phase, task: TaskPlan) -> Iterator[str]:
    """Yields the arrays of the sequence that a phase reads: as a body, or as the finish of a reduction."""
    in_finish = isinstance(p, loop_ir.FinishSums | loop_ir.CombineSums)
    if isinstance(p, loop_ir.TileBody) or in_finish:
        yield from dict.fromkeys(a.array for a, late in task_reads(task.task) if late == in_finish)


def _places(p: loop_ir.Phase, task: TaskPlan, array: str) -> Iterable[str]:
    """Returns the names of the data that a phase reads for an array: the array itself, or operand blocks with its elements."""
    if not isinstance(p, loop_ir.TileBody):
        return (array,)
    reads = (a for a, late in task_reads(task.task) if a.array == array and not late)
    held = (task.copy_of(access) for access in reads)
    return dict.fromkeys(array if o is None else copy_name(task.index, o.site) for o in held)


def _writes(p: loop_ir.Phase, task: TaskPlan) -> Iterator[str]:
    """Yields the arrays of the sequence that a phase writes."""
    if isinstance(p, loop_ir.FinishSums | loop_ir.CombineSums) or _is_map(p, task):
        if not task.task.is_structured:
            yield from sorted(arrays_written(task.task))
        elif task.is_stored:
            yield task.task.target.array


# Names among the touched arrays; no array of a sequence has such a name.


def accumulator_name(task: int) -> str:
    return f"accumulators of task {task}"


def block_name(task: int, site: str) -> str:
    """Returns the name, for hazards, of an operand's block that all threads of a team pack."""
    return f"block of {site} of task {task}"


def counts_name(task: int) -> str:
    """Returns the name, for hazards, of the counts of iterations per thread and block."""
    return f"counts of task {task}"


def order_name(task: int) -> str:
    """Returns the name, for hazards, of a task's sorted iterations or blocks, with the start of each block or colour."""
    return f"order of task {task}"


def rows_name(task: int) -> str:
    """Returns the name, for hazards, of the rows that iterations update."""
    return f"rows of task {task}"


def copies_name(task: int) -> str:
    """Returns the name, for hazards, of the private copies of the arrays that a task scatters to."""
    return f"copies of task {task}"


def shared_name(array: str) -> str:
    """Returns the name, for hazards, of a value in shared memory."""
    return f"shared value of {array}"


def copy_name(task: int, site: str) -> str:
    """Returns the name, for hazards, of an operand's block in shared memory."""
    return f"copy of {site} for task {task}"
