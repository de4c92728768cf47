"""One launch as a loop tree: the planned loops, plus the phases that follow from them.

A reduction is initialised just before its outermost reduction loop and finished just after it. Where some loop that indexes the
result runs inside that reduction loop, the results of all its iterations are live at once: they are kept in memory, and
registers hold only the part that the innermost reduction loops work on.
"""

from __future__ import annotations

from dataclasses import replace

from ..kernels.ir.access import flat_strides
from ..kernels.ir.effects import task_reads
from ..kernels.ir.kernel import Accumulator
from ..kernels.ir.walk import loads
from ..space.backbone import INNER, MID, OUTER, Operand, Shift, written_arrays
from .barriers import Hazards
from .pipeline import Pipeline, pipeline
from .plan import Member, Plan, PlannedBody, PlannedNode, TaskPlan
from .tree import (
    AccumulatorPlan,
    Late,
    Launch,
    LoopNode,
    Meet,
    Phase,
    TreeNode,
    has_parallel,
    loop_of,
    paths,
)


def build_launch(plan: Plan, roots: tuple[PlannedNode, ...]) -> Launch:
    """The loop tree of one launch, with phases and barriers."""
    builder = TreeBuilder(plan)
    tops = [builder.convert(r) for r in roots]
    is_parallel = any(has_parallel(n) for n in tops)
    for path in list(paths(tops)):
        builder.place_phases(path)
    nodes = _unfold(tops)
    launch = Launch(
        nodes, tuple(builder.order), is_parallel, builder.accumulators, builder.pipelines
    )
    if is_parallel:
        hazards = Hazards(plan, launch)
        launch.roots = hazards.with_barriers(nodes, is_loop=False)
    for t in builder.order:
        shift = plan.tasks[t].shift
        if shift is not None:
            launch.roots = run_late(launch.roots, shift)
    _move_behind_team(plan, launch)
    return launch


def _move_behind_team(plan: Plan, launch: Launch) -> None:
    """Small combinations at the end need no barrier of their own: the end of the team is one."""
    k = len(launch.roots)
    while k and _is_small_combination(plan, launch, launch.roots[k - 1]):
        k -= 1
    if launch.is_parallel and 0 < k < len(launch.roots) and isinstance(launch.roots[k - 1], Meet):
        launch.roots, launch.after = launch.roots[: k - 1], launch.roots[k:]


def _is_small_combination(plan: Plan, launch: Launch, node: TreeNode) -> bool:
    """Whether one thread combines partial results."""
    if not isinstance(node, Phase) or node.kind != "combine":
        return False
    finish = plan.tasks[node.task].task.finish
    reads = {x.array for x in loads(finish)} if finish is not None else set()
    held = {
        f.array
        for t in plan.tasks
        for flows in (t.registers, t.shared, t.kept)
        for f in flows
        if f.consumer == node.task
    }
    assert not reads & held, "what a team holds is gone where all its partial results are"
    return launch.accumulators[node.task].is_small


def run_late(nodes: list[TreeNode], shift: Shift) -> list[TreeNode]:
    """The nodes with the consumer's loop inside the producer's, one iteration late, and its last iteration behind.

    The shared loop is one of the threads', so no barrier is in it, and both loops are children of it: the constraints see
    to that (space/shifts.py).
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
        self.pipelines: dict[tuple[int, str], Pipeline] = {}

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
            k = max(
                k
                for k, n in enumerate(nodes)
                if loop_of(n, t) in operand.loops and n.level == OUTER
            )
            if task.stages[operand.access.array] == 1:
                nodes[k].head.append(Phase("copy", t, operand))
            else:
                self.place_copies(nodes, k, t, operand)
        if task.task.is_reduction:
            self.place_reduction(nodes, task)

    def place_copies(self, nodes: list[LoopNode], k: int, t: int, operand: Operand) -> None:
        """Notes the steps of an operand that is packed ahead, a block for each iteration of loop `k` of those around the body."""
        made = pipeline(self.plan, nodes, k, t, operand)
        self.pipelines[t, operand.access.array] = made
        nodes[k].before.append(Phase("first block", t, operand))
        nodes[k].head.append(Phase("stage", t, operand))
        if made.in_strips is not None:
            last = nodes[-1]
            last.packs.append((t, operand))
            last.strip = min(last.strip or made.in_strips.strip, made.in_strips.strip)
        nodes[k].tail.append(Phase("rest", t, operand))

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
            if in_memory and task.asks_for_sums:
                nodes[inner_reduced[0]].before.append(Phase("ask", t))
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
        made = AccumulatorPlan(
            owner,
            extents,
            levels,
            in_memory,
            not inner_reduced,
            self.plan.cores if owner == "partials" else 1,
        )
        made = replace(made, in_result=self.is_in_result(task, owner, levels))
        self.accumulators[t] = replace(made, overhangs=self.overhangs(task, made))

    def overhangs(self, task: TaskPlan, plan: AccumulatorPlan) -> frozenset[str]:
        """Loops of the result that end inside a register tile which may be computed whole: all that they index is packed, in blocks
        that have room for it, and what is computed of elements that nobody packed is not flushed.
        """
        if plan.has_room or not plan.in_memory or plan.flushes_at_body:
            return frozenset()
        return frozenset(
            p.loop.name
            for p in task.loops
            if not (p.loop.is_reduction or p.divides)
            and plan.levels[p.loop.name] != INNER
            and self.plan.is_read_from_blocks(task, p.loop.name)
        )

    def is_in_result(self, task: TaskPlan, owner: str, levels: dict[str, int]) -> bool:
        """Whether results are summed up where they are stored.

        So they are where they lie there as they would in an array of their own, which needs no room beyond the end of a loop, and
        where nothing else looks at the array meanwhile.
        """
        target = task.task.target
        array = self.plan.problem.array(target.array)
        strides = flat_strides(target, array)
        free = [p for p in task.loops if not p.loop.is_reduction]
        along = min(free, key=lambda p: abs(strides.get(p.loop.name, 0)), default=None)
        if along is None or strides.get(along.loop.name) != 1 or levels[along.loop.name] != OUTER:
            return False
        has_room = owner == "team" or (owner == "thread" and all(p.divides for p in free))
        is_plain = isinstance(task.task.finish, Accumulator) and array.dtype is task.task.dtype
        is_only_stored = task.is_stored and not (task.registers or task.shared)
        if not (has_room and is_plain and is_only_stored):
            return False
        touched = {a.array for a, _ in task_reads(task.task)}
        for t in set(self.order) - {task.index}:
            other = self.plan.tasks[t].task
            touched |= {a.array for a, _ in task_reads(other)} | written_arrays(other)
        return target.array not in touched

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


def _unfold(nodes: list[TreeNode]) -> list[TreeNode]:
    """Moves the phases noted at each loop into the lists of children."""
    unfolded: list[TreeNode] = []
    for n in nodes:
        if isinstance(n, LoopNode):
            n.children = [*n.head, *_unfold(n.children), *n.tail]
            # Partial results first: they are what the barrier before the combinations waits for.
            after = sorted(n.after, key=lambda p: p.kind == "combine")
            unfolded += [*n.before, n, *after]
        else:
            unfolded.append(n)
    return unfolded
