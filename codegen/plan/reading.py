"""Reads complete candidates into plans (plan.py): all decisions, by the task or place that has them. Nothing is chosen here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key

from ...kernels.analysis.inner_ranges import widest
from ...kernels.analysis.scatters import placing, scatters
from ...kernels.ir.domain import Loop
from ...kernels.ir.kernel import For
from ...kernels.ir.task import Task
from ...kernels.ir.walk import nested_statements
from ...space import choices as ch
from ...space.backbone import INNER, MID, OUTER, Flow, Operand
from ...space.build import KINDS
from ...space.candidate import Candidate
from ...space.draft import AS_IT_IS
from ...space.engine.order import Node, forest
from ...space.families.scatter import blocks_of, tile_shape
from ...space.families.wavefronts import sweep_of
from ...space.targets.target import Target
from .plan import (
    Ahead,
    LoopPlan,
    Member,
    Plan,
    PlannedBody,
    PlannedLoop,
    PlannedNode,
    ScatterPlan,
    Site,
    TaskPlan,
)
from .problem_passes import Decided, decided_problem
from .schedules import Wave

# Threads of a block that converts: sixteen blocks fill a multiprocessor with 2,048.
_CONVERTERS = 128


def read_plan(candidate: Candidate) -> Plan:
    """Returns the plan of a complete candidate; an incomplete one is a bug of the caller."""
    assert candidate.is_complete, "only a complete candidate can be lowered"
    space, choices = candidate.space, _choices(candidate)
    problem = decided_problem(space.problem, Decided(choices, space.target))
    n_decided = len(space.problem.tasks)
    tasks = tuple(
        _task_plan(candidate, task, t) if t < n_decided else _converting(task, t, space.target)
        for t, task in enumerate(problem.tasks)
    )
    launches = (
        *(_alone(tasks[t]) for t in problem.entering),
        *_launches(candidate, tasks[:n_decided]),
        *(_alone(tasks[t]) for t in problem.leaving),
    )
    flows = tuple(space.variables.mem_space)
    return Plan(problem, tasks, flows, launches, space.target.cores, choices)


def _converting(task: Task, t: int, target: Target) -> TaskPlan:
    """Returns the plan of a conversion: threads share its loop in equal parts, or blocks of threads."""
    in_blocks = KINDS[target.kind].mid_dims_have_threads
    n_threads = _CONVERTERS if in_blocks else 1
    loops = tuple(
        LoopPlan(x, in_blocks or target.cores > 1, n_threads, 1, False, False, is_thread=in_blocks)
        for x in task.loops
    )
    threads = tuple(x.name for x in task.loops) if in_blocks else ()
    return TaskPlan(t, task, loops, False, True, (), (), (), threads=threads)


def _alone(plan: TaskPlan) -> tuple[PlannedNode, ...]:
    """Returns a launch of one task with one loop."""
    (loop,) = plan.loops
    return (PlannedLoop((Member(plan.index, loop.loop.name, OUTER),), (PlannedBody(plan.index),)),)


def _choices(candidate: Candidate) -> dict[str, dict[Site, str]]:
    v, found = candidate.space.variables, dict[str, dict[Site, str]]()
    for table in (v.of_tasks, v.of_dims, v.of_operands, v.of_flows, v.of_places, v.of_trees):
        for kind, sites in table.items():
            for site, var in sites.items():
                value = candidate.value(var)
                if table is not v.of_trees or value != AS_IT_IS:
                    found.setdefault(kind, {})[site] = candidate.space.choices[var].values[value]
    return found


def _prefetches(
    candidate: Candidate, t: int, loops: Sequence[LoopPlan], copies: Sequence[Operand]
) -> tuple[Ahead, ...]:
    """Returns the prefetches of vectorised reads from memory, except of packed operands and of values that an earlier task stored
    for it.
    """
    space = candidate.space
    how = candidate.value(space.variables.prefetch[t]) if t in space.variables.prefetch else None
    if how in (None, ch.NO_PREFETCH):
        return ()
    tiles = {p.loop.name: p.inner for p in loops}
    vectors = {p.loop.name for p in loops if p.is_vector}
    kept = {
        f.array
        for f, var in space.variables.mem_space.items()
        if f.is_read and f.consumer == t and candidate.value(var) == ch.SHARED
    }
    return tuple(
        Ahead(p, tiles[p.ahead], 1) if how == ch.NEXT else Ahead(p, ch.PREFETCH_ITERATIONS[how], 2)
        for p in space.backbone.prefetches
        if p.task == t and p.along in vectors and p.access.array not in kept
        if not any(o.holds(p.access) for o in copies)
    )


def _task_plan(candidate: Candidate, task: Task, t: int) -> TaskPlan:
    space = candidate.space
    v = space.variables

    def out(space_value: int) -> tuple[Flow, ...]:
        found = (f for f, var in v.mem_space.items() if candidate.value(var) == space_value)
        return tuple(f for f in found if f.producer == t)

    by_team = frozenset(
        o.site for o, x in v.packed_by.items() if o.task == t and candidate.value(x) == ch.BY_TEAM
    )
    loops = tuple(_loop_plan(candidate, t, loop) for loop in task.loops)
    copies = tuple(
        o for o, var in v.staged.items() if o.task == t and candidate.value(var) != ch.DIRECT
    )
    return TaskPlan(
        index=t,
        task=task,
        loops=loops,
        is_streamed=t in v.cache and candidate.value(v.cache[t]) == ch.STREAM,
        is_stored=t not in v.store or candidate.value(v.store[t]) == ch.KEEP,
        copies=copies,
        registers=out(ch.REGISTER),
        shared=tuple(f for f in out(ch.SHARED) if not f.is_read),
        kept=tuple(f for f in out(ch.SHARED) if f.is_read),
        prefetches=_prefetches(candidate, t, loops, copies),
        asks_for_sums=t in v.prefetch_accumulators
        and candidate.value(v.prefetch_accumulators[t]) == ch.SUMS_AHEAD,
        stages={o.site: candidate.value(x) for o, x in v.staged.items() if o.task == t},
        by_team=by_team,
        layouts={
            o.site: ch.LAYOUT[candidate.value(var)] for o, var in v.layout.items() if o.task == t
        },
        threads=_threads(candidate, t),
        is_atomic=any(
            d.task == t and candidate.value(var) == ch.ATOMIC for d, var in v.reduction.items()
        ),
        load_hints={
            array: ch.LOAD_CACHE[candidate.value(var)]
            for (u, array), var in v.load_cache.items()
            if u == t and candidate.value(var) != ch.CA
        },
        shift=next(
            (s for s, x in v.shift.items() if s.consumer == t and candidate.value(x) == ch.LATE),
            None,
        ),
        ranges=_ranges(candidate, t),
        scatters=_scatters(candidate, t),
        wave=_wave(candidate, t),
        compaction=_compaction(candidate, t),
    )


def _scatters(candidate: Candidate, t: int) -> tuple[ScatterPlan, ...]:
    space = candidate.space
    v, problem, task = space.variables, space.problem, space.problem.tasks[t]
    cells = 0
    if t in v.scatter_cells:
        chosen = v.scatter_cells[t]
        cells = int(space.choices[chosen].values[candidate.value(chosen)])
    found = []
    for x in scatters(task, problem) if any(u == t for u, _ in v.scatter) else ():
        how, array = candidate.value(v.scatter[t, x.array]), problem.array(x.array)
        if how in ch.SORTING:
            tile = tile_shape(x, array, cells) if how == ch.TILE else ()
            blocks = blocks_of(x, array, how, cells)
            found.append(ScatterPlan(x, how, tile, blocks, placing(task, x.bases)))
        elif how != ch.SERIAL:
            found.append(ScatterPlan(x, how))
    return tuple(found)


def _compaction(candidate: Candidate, t: int) -> str:
    chosen = candidate.space.variables.of_tasks["compaction"].get(t)
    if chosen is None:
        return "SERIAL"
    return candidate.space.choices[chosen].values[candidate.value(chosen)]


def _wave(candidate: Candidate, t: int) -> Wave | None:
    space, v = candidate.space, candidate.space.variables
    order = candidate.value(v.waves[t]) if t in v.waves else ch.IN_ORDER
    if order == ch.IN_ORDER:
        return None
    sweep = sweep_of(space.problem.tasks[t])
    assert sweep is not None
    chosen = (v.wave_sizes[t, k] for k in range(2))
    rows, columns = (int(space.choices[x].values[candidate.value(x)]) for x in chosen)
    return Wave(sweep, rows, columns, order == ch.BY_DIAGONALS)


def _ranges(candidate: Candidate, t: int) -> dict[str, int]:
    v, body = candidate.space.variables.ranges, candidate.space.problem.tasks[t].body
    return {
        s.loop: candidate.space.target.lanes(widest(s.body))
        for s in (nested_statements(body.statements) if body is not None else ())
        if isinstance(s, For) and (t, s.loop) in v and candidate.value(v[t, s.loop]) == ch.ALONG
    }


def _threads(candidate: Candidate, t: int) -> tuple[str, ...]:
    """Returns the loops of a task that are distributed to threads, in the order in which they vary from thread to thread."""
    space = candidate.space
    mids = [space.backbone.dim(t, loop.name, MID) for loop in space.problem.tasks[t].loops]
    names = [d.loop.name for d in mids if candidate.value(space.variables.kind[d]) == ch.THREAD]
    n_faster = dict.fromkeys(names, 0)
    for (d, e), var in space.variables.thread_level.items():
        if d.task == t and (level := candidate.value(var)) != ch.NOT_THREADS:
            n_faster[e.loop.name if level == ch.FASTER else d.loop.name] += 1
    return tuple(sorted(names, key=lambda name: n_faster[name]))


def _loop_plan(candidate: Candidate, t: int, loop: Loop) -> LoopPlan:
    space = candidate.space
    v = space.variables
    outer, mid, inner = (space.backbone.dim(t, loop.name, level) for level in (OUTER, MID, INNER))
    return LoopPlan(
        loop=loop,
        is_parallel=candidate.value(v.kind[outer]) == ch.PARALLEL,
        mid=v.universe[mid][candidate.value(v.size[mid])],
        inner=v.universe[inner][candidate.value(v.size[inner])],
        is_vector=candidate.value(v.kind[inner]) == ch.VECTOR,
        has_lanes=inner in v.reduction and candidate.value(v.reduction[inner]) == ch.LANES,
        schedule=ch.SCHEDULE[candidate.value(v.schedule[outer])]
        if outer in v.schedule
        else "BLOCKED",
        is_thread=candidate.value(v.kind[mid]) == ch.THREAD,
    )


def _launches(
    candidate: Candidate, tasks: tuple[TaskPlan, ...]
) -> tuple[tuple[PlannedNode, ...], ...]:
    space = candidate.space
    backbone = space.backbone
    values = candidate.assignment()
    members = {
        d.order_id: Member(d.task, d.loop.name, d.level) for d in backbone.dims if d.order_id >= 0
    }
    bodies = {body: t for t, body in enumerate(backbone.body_ids)}
    objects: list[list[int]] = [[] for _ in tasks]
    for x, t in enumerate(backbone.order_tasks):
        objects[t].append(x)

    def convert(node: Node) -> list[PlannedNode]:
        if node.objects[0] in bodies:
            return [PlannedBody(bodies[node.objects[0]])]
        children = [c for child in node.children for c in convert(child)]
        here = tuple(members[o] for o in node.objects)
        first = here[0]
        if first.level == MID and not tasks[first.task].loop(first.loop).has_mid_loop:
            return children
        return [PlannedLoop(here, tuple(children))]

    def in_order(g: list[int], h: list[int]) -> int:
        x, y = backbone.body_ids[g[0]], backbone.body_ids[h[0]]
        return -1 if space.model.relation(values, x, y) == ch.BEFORE else 1

    launches: list[tuple[PlannedNode, ...]] = []
    for component in backbone.components:
        groups = _launches_of(candidate, component)
        groups.sort(key=cmp_to_key(in_order))
        for group in groups:
            chosen = sorted(x for t in group for x in objects[t])
            trees = forest(space.model.relation_matrix(values, chosen))
            roots = (_named(tree, chosen) for tree in trees)
            launches.append(tuple(node for root in roots for node in convert(root)))
    return tuple(launches)


def _launches_of(candidate: Candidate, component: range) -> list[list[int]]:
    """Returns the tasks of each launch of a component, increasing. The launches are in no order of time."""
    backbone = candidate.space.backbone
    found: dict[int, list[int]] = {}  # by the first task
    first: dict[int, int] = {}
    for t in component:
        before = range(backbone.neighbours[t].start, t)
        mate = next((u for u in before if _same_launch(candidate, u, t)), t)
        first[t] = first.get(mate, t)
        found.setdefault(first[t], []).append(t)
    return list(found.values())


def _named(node: Node, objects: Sequence[int]) -> Node:
    """Returns the same tree with each number replaced by its object."""
    children = tuple(_named(child, objects) for child in node.children)
    return Node(tuple(objects[x] for x in node.objects), children)


def _same_launch(candidate: Candidate, t: int, u: int) -> bool:
    return candidate.value(candidate.space.variables.fused[min(t, u), max(t, u)]) == ch.SAME_LAUNCH
