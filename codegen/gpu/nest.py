"""One launch of a GPU as a loop tree: blocks around everything, phases of reductions beside their loops, barriers of a block.

Every node is run by all threads of the block or by as many as its task has; which of them touch the same array decides where they
have to meet. Loops over blocks are kept as nodes that bind an index instead of running through it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ...kernels.ir.effects import task_reads
from ...space.backbone import OUTER, Operand, written_arrays
from ..barriers import BarrierPlacer, Touches
from ..nest import TreeBuilder
from ..plan import LoopPlan, Plan, PlannedNode, TaskPlan
from ..tree import AccumulatorPlan, Launch, LoopNode, Meet, Phase, TreeNode, loop_of, paths

COPIER = -1  # as the task of what a block copies into shared memory


@dataclass(frozen=True)
class Transfer(Phase):
    """A phase of copies that travel ahead of a loop from tile to tile, all of `copies` together: (task, operand, stages). `kind`:

    fill     before the loop, the copies of its first tiles start
    arrive   the copies of this iteration's tile have arrived, as far as this thread made them; a barrier follows
    next     the copies of the last tile for which there is room start: behind the barrier nobody uses what was there
    """

    copies: tuple[tuple[int, Operand, int], ...] = ()
    holder: LoopNode | None = None


def build_grid(plan: Plan, roots: tuple[PlannedNode, ...]) -> Launch:
    """The loop tree of one launch, with phases and barriers. `is_parallel` says that all threads of a block run it."""
    builder = _GridBuilder(plan)
    tops = [builder.convert(r) for r in roots]
    for path in list(paths(tops)):
        builder.place_phases(path)
    nodes = builder.unfold(tops)
    launch = Launch(nodes, tuple(builder.order), True, builder.accumulators)
    launch.roots = _Meetings(plan).with_barriers(nodes, is_loop=False)
    return launch


def blocks_along(p: LoopPlan) -> int:
    """How many blocks share out a loop."""
    return -(-p.loop.extent // p.tile)


def partial_blocks(task: TaskPlan) -> int:
    """How many partial results the blocks leave of each element."""
    reduced = [p for p in task.loops if p.is_parallel and p.loop.is_reduction]
    return prod(map(blocks_along, reduced)) if task.partials else 1


class _GridBuilder(TreeBuilder):
    """Places the phases of reductions: accumulators are always in registers.

    reset    before the loops that are reduced, or just before the body
    tree     after them: the threads of the block reduce together
    finish   then finished values are stored, or
    flush    the block's partial results, which a launch of their own combines, or which are added to one result of all blocks
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.around: dict[int, tuple[list[Phase], list[Phase]]] = {}
        self.travelling: dict[LoopNode, list[tuple[int, Operand, int]]] = {}

    def place_copies(self, nodes: list[LoopNode], k: int, t: int, operand: Operand) -> None:
        stages = self.plan.tasks[t].stages[operand.access.array]
        self.travelling.setdefault(nodes[k], []).append((t, operand, stages))

    def place_reduction(self, nodes: list[LoopNode], task: TaskPlan) -> None:
        t = task.index
        reduced = [
            n for n in nodes if not n.is_parallel and task.loop(loop_of(n, t)).loop.is_reduction
        ]
        after = [Phase("tree", t)] if task.has_tree else []
        after.append(Phase("flush" if task.is_split else "finish", t))
        if reduced:
            reduced[0].before.append(Phase("reset", t))
            reduced[0].after += after
        else:
            self.around[t] = ([Phase("reset", t)], after)
        free = [p for p in task.loops if not p.loop.is_reduction]
        self.accumulators[t] = AccumulatorPlan(
            owner="partials" if task.is_split else "registers",
            extents={p.loop.name: p.loop.extent for p in free},
            levels={p.loop.name: OUTER for p in free},
            in_memory=False,
            flushes_at_body=False,
        )

    def unfold(self, nodes: list[TreeNode]) -> list[TreeNode]:
        """Moves the phases noted at each loop, and around each body, into the lists of children."""
        unfolded: list[TreeNode] = []
        for n in nodes:
            if isinstance(n, LoopNode):
                fill, head = self.transfers(n)
                n.children = [*head, *n.head, *self.unfold(n.children)]
                unfolded += [*fill, *n.before, n, *n.after]
            elif isinstance(n, Phase):
                before, after = self.around.get(n.task, ([], []))
                unfolded += [*before, n, *after]
        return unfolded

    def transfers(self, n: LoopNode) -> tuple[list[TreeNode], list[TreeNode]]:
        """What starts copies before a loop and at its head."""
        if n not in self.travelling:
            return [], []
        copies = tuple(self.travelling[n])
        fill, arrive, following = (
            Transfer(kind, copies[0][0], None, copies, n) for kind in ("fill", "arrive", "next")
        )
        return [fill], [arrive, Meet(), following]


Touch = tuple[str, int]  # an array, and the task that touches it


@dataclass(frozen=True)
class _Footprint:
    """What a node reads and writes in memory that the threads of a block share."""

    reads: frozenset[Touch]
    writes: frozenset[Touch]

    def conflicts(self, later: _Footprint) -> bool:
        """Whether some thread may have to wait; the iterations of one task never have to."""
        return _meet(self.writes, later.reads | later.writes) or _meet(self.reads, later.writes)


def _meet(some: frozenset[Touch], others: frozenset[Touch]) -> bool:
    return any(a == b and t != u for a, t in some for b, u in others)


class _Meetings(BarrierPlacer):
    """Finds where the threads of a block have to meet."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        flows = [
            (f, kind)
            for t in plan.tasks
            for kind, fs in (("register", t.registers), ("shared", t.shared))
            for f in fs
        ]
        self.on_chip = {(f.consumer, f.array): kind for f, kind in flows}

    def enters(self, node: LoopNode) -> bool:
        return True

    def before_meeting(self, nodes: list[TreeNode]) -> list[Touches]:
        return self.touched(nodes)[0]

    def since_meeting(self, pending: list[Touches], node: TreeNode) -> list[Touches]:
        backwards, has_met = self.touched([node], step=-1)
        return backwards if has_met else [*pending, *backwards]

    def touched(self, nodes: list[TreeNode], step: int = 1) -> tuple[list[Touches], bool]:
        """What is touched up to the first barrier, from the front or the back, and whether there is one.

        Each loop runs at least once.
        """
        found: list[Touches] = []
        for n in nodes[::step]:
            if isinstance(n, Meet):
                return found, True
            if not isinstance(n, LoopNode):
                found.append(self.footprint(n))
                continue
            inside, has_met = self.touched(n.children, step)
            found += inside
            if has_met:
                return found, True
        return found, False

    def footprint(self, node: TreeNode) -> _Footprint:
        reads: set[Touch] = set()
        writes: set[Touch] = set()
        self.add(node, reads, writes)
        return _Footprint(frozenset(reads), frozenset(writes))

    def add(self, node: TreeNode, reads: set[Touch], writes: set[Touch]) -> None:
        if isinstance(node, LoopNode):
            for n in node.children:
                self.add(n, reads, writes)
        elif isinstance(node, Phase):
            self.add_phase(node, reads, writes)

    def add_phase(self, p: Phase, reads: set[Touch], writes: set[Touch]) -> None:
        task = self.plan.tasks[p.task]
        if isinstance(p, Transfer):
            if p.kind != "arrive":
                reads |= {(o.access.array, t) for t, o, _ in p.copies}
            if p.kind == "fill":
                writes |= {(copy_name(t, o.access.array), COPIER) for t, o, _ in p.copies}
            return
        if p.operand is not None:
            reads.add((p.operand.access.array, p.task))
            writes.add((copy_name(p.task, p.operand.access.array), COPIER))
            return
        in_finish = p.kind == "finish"
        if p.kind == "body" or in_finish:
            copied = {o.access.array for o in task.copies}
            for access, late in task_reads(task.task):
                kind = self.on_chip.get((p.task, access.array))
                if late != in_finish or kind == "register":
                    continue
                if kind == "shared":
                    reads.add((shared_name(access.array), p.task))
                elif access.array in copied and not late:
                    reads.add((copy_name(p.task, access.array), p.task))
                else:
                    reads.add((access.array, p.task))
        if in_finish or (p.kind == "body" and not task.task.is_reduction):
            if not task.task.is_structured:
                writes |= {(a, p.task) for a in written_arrays(task.task)}
            elif task.is_stored:
                writes.add((task.task.target.array, p.task))
            if task.shared:
                writes.add((shared_name(task.task.target.array), p.task))


def shared_name(array: str) -> str:
    """Name of a value in shared memory among the arrays of hazards; no array of a sequence has such a name."""
    return f"shared value of {array}"


def copy_name(task: int, array: str) -> str:
    return f"copy of {array} for task {task}"
