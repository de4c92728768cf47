"""Reads decisions about the loop bands of tasks into a plan: tiling, loop order, launches, places of values, scatters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from functools import cmp_to_key
from typing import Any

from ...kernels.analysis.scatters import placing, scatters
from ...kernels.analysis.updated_rows import inspector
from ...kernels.ir.domain import Loop
from ...kernels.ir.kernel import For
from ...kernels.ir.on_trees import AS_IS, IF_OLD
from ...kernels.ir.task import Problem, Task
from ...kernels.ir.walk import nested_statements
from ...kernels.tasks.variants import without_additions
from ...space import choices as ch
from ...space.backbone import INNER, MID, OUTER, Backbone, Flow, Operand, build_backbone
from ...space.backbone.colourings import earlier_colouring
from ...space.catalogue import KINDS
from ...space.draft import Decisions
from ...space.engine.order import OrderNode, forest
from ...space.families.block_order import BLOCK_ORDER, BY_ROWS, ROWS_OF_A_BAND
from ...space.families.fragments import FRAGMENTS, IN_VECTORS
from ...space.families.grid_stride import A_TILE, BLOCKS_A_CORE, GRID_STRIDE
from ...space.families.packing import rows_of_layout
from ...space.families.ranges import N_VECTORS
from ...space.families.register_stages import REGISTER_STAGES, TWO
from ...space.families.rescaling import RESCALED, RESCALING
from ...space.families.row_lengths import NO_WINDOW, length_in
from ...space.families.scatter import blocks_of, tile_shape
from ...space.families.tiling import vector_width
from ...space.families.unrolling import place_of
from ...space.families.warp_tile import LINEAR, THREADS_ALONG, WARP_TILE
from ...space.families.wavefronts import sweep_of
from ...space.targets.gpu_facts import row_order
from ...space.targets.target import Target
from .plan import (
    Ahead,
    Colouring,
    LengthOrder,
    LoopPlan,
    Member,
    Plan,
    PlannedBody,
    PlannedLoop,
    PlannedNode,
    ScatterPlan,
    TaskPlan,
)
from .problem_passes import Decided, decided_problem
from .schedules import Lanes, Wave, range_lanes

_ORDERS = {name: value for value, name in enumerate(ch.ORDER)}
# Threads of a block that converts: sixteen blocks fill a multiprocessor with 2,048.
_CONVERTERS = 128
_WAVE_SIZES = (("wave_rows", 0), ("wave_columns", 1))


def read_bands(
    problem: Problem, decisions: Decisions, target: Target, backbone: Backbone | None
) -> Plan:
    """Returns the plan of a problem whose tasks are loop nests.

    `backbone`: the problem's objects, if already built.
    """
    return _Reader(problem, decisions, target, backbone or build_backbone(problem)).plan()


def read_component(
    problem: Problem,
    decisions: Decisions,
    target: Target,
    backbone: Backbone,
    component: range,
) -> Plan:
    """Returns the plan of one component (tasks connected by choices) by the decisions about it and about sparse trees.

    Tasks of other components get no launches. An empty `component` stands for the layout
    conversions.
    """
    return _Reader(problem, decisions, target, backbone).component_plan(component)


def _converting(task: Task, t: int, target: Target) -> TaskPlan:
    """Returns the plan of a layout conversion: its loop is distributed in equal parts to threads, or to blocks of a GPU."""
    in_blocks = KINDS[target.kind].mid_dims_have_threads
    n_threads = _CONVERTERS if in_blocks else 1
    loops = tuple(
        LoopPlan(x, in_blocks or target.cores > 1, n_threads, 1, False, False, is_thread=in_blocks)
        for x in task.loops
    )
    threads = tuple(x.name for x in task.loops) if in_blocks else ()
    return TaskPlan(t, task, loops, False, True, (), (), (), threads=threads)


def _unplanned(task: Task, t: int) -> TaskPlan:
    """Returns an empty plan, without loops, for a task that the component being lowered does not contain."""
    return TaskPlan(t, task, (), False, True, (), (), ())


def _alone(plan: TaskPlan) -> tuple[PlannedNode, ...]:
    """Returns the loop forest of a launch with one task that has one loop."""
    (loop,) = plan.loops
    return (PlannedLoop((Member(plan.index, loop.loop.name, OUTER),), (PlannedBody(plan.index),)),)


def _without_additions(task: Task) -> tuple[Task, Mapping[str, For]]:
    """Returns a task without the loops that add sums by cell to sparse fields, and these loops by field."""
    body = task.body
    if body is None or not body.trees.sums:
        return task, {}
    statements, adding = without_additions(body.statements, body.trees)
    return replace(task, body=replace(body, statements=statements)), adding


class _Reader:
    """Reads the decisions about one problem into task plans and loop forests."""

    def __init__(
        self, problem: Problem, decisions: Decisions, target: Target, backbone: Backbone
    ) -> None:
        self.problem, self.decisions = problem, decisions
        self.target, self.backbone = target, backbone

    def plan(self) -> Plan:
        problem = decided_problem(self.problem, Decided(self.decisions, self.target))
        n_decided = len(self.problem.tasks)
        tasks = tuple(
            self.task(task, t) if t < n_decided else _converting(task, t, self.target)
            for t, task in enumerate(problem.tasks)
        )
        launches = (
            *(_alone(tasks[t]) for t in problem.entering),
            *self.launches(tasks[:n_decided], self.backbone.components),
            *(_alone(tasks[t]) for t in problem.leaving),
        )
        return self.planned(problem, tasks, launches)

    def component_plan(self, component: range) -> Plan:
        problem = decided_problem(self.problem, Decided(self.decisions, self.target, component))
        n_decided = len(self.problem.tasks)

        def planned(task: Task, t: int) -> TaskPlan:
            if t >= n_decided:
                return _converting(task, t, self.target)
            return self.task(task, t) if t in component else _unplanned(task, t)

        tasks = tuple(planned(task, t) for t, task in enumerate(problem.tasks))
        if component:
            launches = self.launches(tasks[:n_decided], (component,))
        else:
            launches = tuple(_alone(tasks[t]) for t in (*problem.entering, *problem.leaving))
        return self.planned(problem, tasks, launches)

    def planned(
        self,
        problem: Problem,
        tasks: tuple[TaskPlan, ...],
        launches: tuple[tuple[PlannedNode, ...], ...],
    ) -> Plan:
        flows = tuple(self.table("mem_space"))
        components = self.backbone.components
        return Plan(problem, tasks, flows, launches, self.target, self.decisions, components)

    def table(self, kind: str) -> Mapping[Any, str]:
        """Returns the decided values of a kind of choice, by the object or site that has the choice."""
        return self.decisions.get(kind, {})

    def value(self, kind: str, site: Any) -> str:
        """Returns the name of the decided value; "" if `site` has no choice of this kind."""
        return self.table(kind).get(site, "")

    # --- tasks

    def task(self, task: Task, t: int) -> TaskPlan:
        def out(space: str) -> tuple[Flow, ...]:
            found = self.table("mem_space").items()
            return tuple(f for f, value in found if value == space and f.producer == t)

        staged = {
            o: value
            for o, value in self.table("staged").items()
            if isinstance(o, Operand) and o.task == t
        }
        task, adding = _without_additions(task)
        copies = tuple(o for o, value in staged.items() if _stages(o, value) != ch.DIRECT)
        rows = self.rows_in_vectors(copies)
        loops = tuple(self.loop(t, loop, set(rows.values())) for loop in task.loops)
        shared = out(ch.MEM_SPACE[ch.SHARED])
        return TaskPlan(
            index=t,
            task=task,
            loops=loops,
            is_streamed=self.value("cache", t) == ch.CACHE[ch.STREAM],
            is_stored=self.value("store", t) != ch.STORE[ch.ELIDED],
            copies=copies,
            registers=out(ch.MEM_SPACE[ch.REGISTER]),
            shared=tuple(f for f in shared if not f.is_read),
            kept=tuple(f for f in shared if f.is_read),
            prefetches=self.prefetches(t, loops, copies),
            asks_for_sums=self.value("prefetch_accumulators", t)
            == ch.PREFETCH_ACCUMULATORS[ch.SUMS_AHEAD],
            stages={o.site: _stages(o, value) for o, value in staged.items()},
            by_team=frozenset(
                o.site
                for o, value in self.table("packed_by").items()
                if o.task == t and value == ch.PACKED_BY[ch.BY_TEAM]
            ),
            layouts={o.site: value for o, value in self.table("layout").items() if o.task == t},
            fragments=self.fragments(loops, rows),
            threads=self.threads(t),
            warp_tile=self.warp_tile(t),
            loads_ahead=self.value("register_stages", t) == REGISTER_STAGES[TWO],
            band=self.band(t),
            is_atomic=self.reduces(t, ch.ATOMIC),
            by_last_block=self.reduces(t, ch.LAST_BLOCK),
            load_hints={
                array: value
                for (u, array), value in self.table("load_cache").items()
                if u == t and value != ch.LOAD_CACHE[ch.CA]
            },
            shift=next(
                (
                    s
                    for s, value in self.table("shift").items()
                    if s.consumer == t and value == ch.SHIFT[ch.LATE]
                ),
                None,
            ),
            rescaled=next(
                (
                    r
                    for r in self.backbone.rescaled
                    if r.task == t and self.value("rescaling", t) == RESCALING[RESCALED]
                ),
                None,
            ),
            ranges=self.ranges(task, t),
            scatters=self.scatters(task, t, adding),
            colouring=self.colouring(t),
            by_length=self.by_length(t),
            wave=self.wave(t),
            compaction=self.value("compaction", t) or "SERIAL",
            settling=self.value("settling", t) or "ONE_THREAD",
        )

    def reduces(self, t: int, way: int) -> bool:
        """True if blocks reduce some loop of a task in a way of `REDUCTION`."""
        reductions = self.table("reduction").items()
        return any(d.task == t and value == ch.REDUCTION[way] for d, value in reductions)

    def prefetches(
        self, t: int, loops: Sequence[LoopPlan], copies: Sequence[Operand]
    ) -> tuple[Ahead, ...]:
        """Returns the software prefetches of a task's vectorised reads from memory.

        Packed operands and values that an earlier task stored for this one are left out.
        """
        name = self.value("prefetch", t)
        how = ch.PREFETCH.index(name) if name else ch.NO_PREFETCH
        if how == ch.NO_PREFETCH:
            return ()
        tiles = {p.loop.name: p.inner for p in loops}
        vectors = {p.loop.name for p in loops if p.is_vector}
        kept = {
            f.array
            for f, value in self.table("mem_space").items()
            if f.is_read and f.consumer == t and value == ch.MEM_SPACE[ch.SHARED]
        }
        return tuple(
            Ahead(p, tiles[p.ahead], 1)
            if how == ch.NEXT
            else Ahead(p, ch.PREFETCH_ITERATIONS[how], 2)
            for p in self.backbone.prefetches
            if p.task == t and p.along in vectors and p.access.array not in kept
            if not any(o.holds(p.access) for o in copies)
        )

    def scatters(self, task: Task, t: int, adding: Mapping[str, For]) -> tuple[ScatterPlan, ...]:
        """Returns the scatters of a task but for those of one thread.

        `task`: after all passes. `adding`: the loops that add sums by cell to sparse fields, by field.
        """
        problem, methods = self.problem, self.table("scatter")
        cells = int(self.value("scatter_cells", t) or 0)
        sums = dict(task.body.trees.sums) if task.body is not None else {}
        original = problem.tasks[t]
        found = []
        for x in scatters(original, problem) if any(u == t for u, _ in methods) else ():
            how = ch.SCATTER.index(methods[t, x.array])
            if how in ch.SORTING:
                tile = tile_shape(x, cells) if how == ch.TILE else ()
                blocks, place = blocks_of(x, how, cells), placing(original, x.bases)
                whole = sums.get(x.array, ""), adding.get(x.array)
                found.append(ScatterPlan(x, how, tile, blocks, place, *whole))
            elif how != ch.SERIAL:
                found.append(ScatterPlan(x, how))
        return tuple(found)

    def colouring(self, t: int) -> Colouring | None:
        """Returns the colouring of a task's iterations; None if they have none."""
        problem, task, methods = self.problem, self.problem.tasks[t], self.table("scatter")
        greedy = ch.SCATTER[ch.GREEDY]
        found = scatters(task, problem) if any(u == t for u, _ in methods) else ()
        rows = tuple(x.rows for x in found if x.rows is not None and methods[t, x.array] == greedy)
        made = inspector(task, rows) if rows else None
        if made is None:
            return None
        is_kept = self.value("colouring", t) == IF_OLD
        maker = self.maker_of_colours(t)
        return Colouring(int(self.value("greedy_block", t)), rows, made, is_kept, maker)

    def by_length(self, t: int) -> LengthOrder | None:
        """Returns the order of a task's iterations by length; None if they follow one another."""
        window = self.value("length_window", t) or NO_WINDOW
        length = length_in(self.problem.tasks[t]) if window != NO_WINDOW else None
        if length is None:
            return None
        return LengthOrder(int(window), length, self.value("length_sort", t) == IF_OLD)

    def maker_of_colours(self, t: int) -> int:
        """Returns the task whose colouring task `t` uses."""
        component = next(c for c in self.backbone.components if t in c)
        while self.value("colouring", t) == AS_IS:
            found = earlier_colouring(self.problem, component, t)
            assert found is not None, f"task {t} has no earlier colouring"
            t = found.task
        return t

    def wave(self, t: int) -> Wave | None:
        order = self.value("waves", t) or ch.WAVES[ch.IN_ORDER]
        if order == ch.WAVES[ch.IN_ORDER]:
            return None
        sweep = sweep_of(self.problem.tasks[t])
        assert sweep is not None
        rows, columns = (int(self.value(kind, (t, k))) for kind, k in _WAVE_SIZES)
        return Wave(sweep, rows, columns, order == ch.WAVES[ch.BY_DIAGONALS])

    def ranges(self, task: Task, t: int) -> tuple[Lanes, ...]:
        """Returns the lanes of each loop inside the task's body that is vectorised along its range."""
        if task.body is None:
            return ()
        name_of, chosen = task.body.trees.name_of, self.table("ranges")
        loops = [s for s in nested_statements(task.body.statements) if isinstance(s, For)]
        how = ((s, name_of(s.loop), chosen.get((t, name_of(s.loop)), "")) for s in loops)
        return tuple(
            range_lanes(s, value, self.value("remainders", (t, place_of(task, name))), self.target)
            for s, name, value in how
            if value in N_VECTORS
        )

    def threads(self, t: int) -> tuple[str, ...]:
        """Returns a task's loops that threads of a GPU block share.

        The first one varies fastest from thread to thread.
        """
        mids = [self.backbone.dim(t, loop.name, MID) for loop in self.problem.tasks[t].loops]
        kinds = self.table("dim_kind")
        names = [d.loop.name for d in mids if kinds[d] == ch.DIM_KIND[ch.THREAD]]
        n_faster = dict.fromkeys(names, 0)
        levels = self.table("thread_level").items() if len(names) > 1 else ()
        for (d, e), level in levels:
            if d.task == t and level != ch.THREAD_LEVEL[ch.NOT_THREADS]:
                faster = e if level == ch.THREAD_LEVEL[ch.FASTER] else d
                n_faster[faster.loop.name] += 1
        return tuple(sorted(names, key=lambda name: n_faster[name]))

    def warp_tile(self, t: int) -> dict[str, int]:
        """Returns the number of threads of a warp along each loop of its rectangle; {} where threads follow their numbers."""
        for (d, e), name in self.table("warp_tile").items():
            tile = WARP_TILE.index(name)
            if d.task == t and tile != LINEAR:
                return dict(zip((d.loop.name, e.loop.name), THREADS_ALONG[tile], strict=True))
        return {}

    def rows_in_vectors(self, copies: tuple[Operand, ...]) -> dict[Operand, str]:
        """Returns the loop along the rows of each copy of which a thread reads its fragment in vectors."""
        found = {}
        for o in copies:
            if self.value("fragments", o) == FRAGMENTS[IN_VECTORS]:
                array = self.problem.array(o.access.array)
                is_transposed, _ = rows_of_layout(self.value("layout", o))
                found[o] = row_order(o, array, is_transposed=is_transposed)[-1]
        return found

    def fragments(self, loops: tuple[LoopPlan, ...], rows: dict[Operand, str]) -> dict[str, int]:
        """Returns the elements of a vector in which a thread reads its fragment of a copy, by site. `rows`: loops along rows."""
        sizes = {p.loop.name: p.inner for p in loops}
        arrays = {o: self.problem.array(o.access.array) for o in rows}
        return {
            o.site: vector_width(sizes[row], self.target.lanes(arrays[o].dtype.size_bytes))
            for o, row in rows.items()
        }

    def band(self, t: int) -> int:
        """Returns the number of rows of the grid whose blocks start column by column."""
        order = self.value("block_order", t) or BLOCK_ORDER[BY_ROWS]
        return ROWS_OF_A_BAND[BLOCK_ORDER.index(order)]

    def loop(self, t: int, loop: Loop, in_vectors: Set[str]) -> LoopPlan:
        """Returns the plan of a task's loop. `in_vectors`: loops along which threads read vectors of a copy."""
        outer, mid, inner = (
            self.backbone.dim(t, loop.name, level) for level in (OUTER, MID, INNER)
        )
        kinds, sizes = self.table("dim_kind"), self.table("size")
        stride = self.value("grid_stride", outer) or GRID_STRIDE[A_TILE]
        return LoopPlan(
            loop=loop,
            is_parallel=kinds[outer] == ch.DIM_KIND[ch.PARALLEL],
            mid=int(sizes[mid]),
            inner=int(sizes[inner]),
            is_vector=kinds[inner] == ch.DIM_KIND[ch.VECTOR],
            has_lanes=self.value("reduction", inner) == ch.REDUCTION[ch.LANES],
            schedule=self.value("schedule", outer) or ch.SCHEDULE[ch.BLOCKED],
            is_thread=kinds[mid] == ch.DIM_KIND[ch.THREAD],
            has_neighbours=loop.name in in_vectors,
            n_blocks=self.target.cores * BLOCKS_A_CORE[GRID_STRIDE.index(stride)],
        )

    # --- launches

    def launches(
        self, tasks: tuple[TaskPlan, ...], components: Sequence[range]
    ) -> tuple[tuple[PlannedNode, ...], ...]:
        backbone = self.backbone
        members = {
            d.order_id: Member(d.task, d.loop.name, d.level)
            for d in backbone.dims
            if d.order_id >= 0
        }
        bodies = {body: t for t, body in enumerate(backbone.body_ids)}
        objects: list[list[int]] = [[] for _ in tasks]
        for x, t in enumerate(backbone.order_tasks):
            objects[t].append(x)

        def convert(node: OrderNode) -> list[PlannedNode]:
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
            return -1 if self.relation(x, y) == ch.BEFORE else 1

        launches: list[tuple[PlannedNode, ...]] = []
        for component in components:
            groups = self.launches_of(component)
            groups.sort(key=cmp_to_key(in_order))
            for group in groups:
                chosen = sorted(x for t in group for x in objects[t])
                trees = forest([[self.relation(x, y) for y in chosen] for x in chosen])
                roots = (_named(tree, chosen) for tree in trees)
                launches.append(tuple(node for root in roots for node in convert(root)))
        return tuple(launches)

    def relation(self, x: int, y: int) -> int:
        """Returns the order relation of objects `x` and `y`.

        Without a choice, that of their tasks in the program.
        """
        name = self.value("order", (x, y))
        if name:
            return _ORDERS[name]
        if x == y:
            return ch.MERGED
        place = self.backbone.order_tasks
        return ch.BEFORE if place[x] < place[y] else ch.AFTER

    def launches_of(self, component: range) -> list[list[int]]:
        """Returns the tasks of each launch of a component, in increasing order.

        Launches are not in order of time.
        """
        found: dict[int, list[int]] = {}  # by the first task
        first: dict[int, int] = {}
        for t in component:
            before = range(self.backbone.neighbours[t].start, t)
            mate = next((u for u in before if self.is_same_launch(u, t)), t)
            first[t] = first.get(mate, t)
            found.setdefault(first[t], []).append(t)
        return list(found.values())

    def is_same_launch(self, t: int, u: int) -> bool:
        return self.value("fused", (min(t, u), max(t, u))) == ch.FUSED[ch.SAME_LAUNCH]


def _stages(o: Operand, value: str) -> int:
    """Returns the number of block buffers of an operand's copy: 0 if it is read in place, 2 if double-buffered."""
    return (ch.WINDOW if o.is_window else ch.STAGED).index(value)


def _named(node: OrderNode, objects: Sequence[int]) -> OrderNode:
    """Returns the order tree with numbers of objects in place of positions in `objects`."""
    children = tuple(_named(child, objects) for child in node.children)
    return OrderNode(tuple(objects[x] for x in node.objects), children)
