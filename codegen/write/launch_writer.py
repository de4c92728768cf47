"""Writes one launch: loop IR to C syntax.

Partial tiles: if register tiles do not divide a loop, the body of the loop at which they start is
written twice. One version has full tiles (unrolled, in vectors), the other the remainder. The
remainder takes rows one by one, still in vectors; if vectors are partial, one element at a time.
Inside a version for rows only loops of vectors are written twice, inside one for elements none. One
version suffices if all operands along a loop are packed, and accumulators in memory are padded to
whole tiles or accept the existing part of one (`AccumulatorPlan.padded`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from math import gcd

from ...kernels.analysis.contraction import rounding_of
from ...kernels.analysis.effects import arrays_written
from ...kernels.ir.kernel import DType
from ...kernels.tasks.lane_parts import parts_in
from ...kernels.transforms.lane_fronts import Front
from ...space.backbone import OUTER
from ...space.families.batch_layout import BATCH_LAYOUT, INTERLEAVED
from ...space.families.gathers import GATHERS, TRANSPOSED
from ...space.families.lane_parts import FRONT, LANE_PARTS
from ...space.families.row_stores import IN_ROWS, ROW_STORES
from ...space.families.schedule import rows_of
from ...space.targets.target import LINE_BYTES
from ..bodies.body_values import TilePlace
from ..bodies.lanes import Lanes, LaneScope, LaneWriter
from ..bodies.vector_functions import permitted_ulp
from ..bodies.wavefront_sweeps import wavefront
from ..loops import ir as loop_ir
from ..passes.packing import iterations
from ..plan.plan import LoopPlan, Member, TaskPlan
from ..text import csyntax as c
from . import coloured_blocks, sorted_blocks
from .compaction import compacted
from .context import Context
from .domain_cuts import Part, parts, shared_part
from .dynamic_ranges import counted_range, n_iterations
from .emission import Emission
from .guards import GuardWriter
from .last_tiles import at_the_end, may_compute_twice
from .leaf_rows import copies_in, prefetch_in
from .outlining import has_loop, is_closed, outlined
from .partial_tiles import Over
from .planned_values import Values
from .register_rotation import carrying
from .scatter import array_updated, body_writer, iterations_of
from .strips import length_of
from .thread_ranges import balanced, guided
from .threads import Statements, Threads


class LaunchWriter:
    """Writer of the loop IR nodes of one launch."""

    def __init__(
        self,
        scene: Emission,
        values: Values,
        threads: Threads,
        name: str = "",
    ) -> None:
        """`name`: name of the launch's C function, and prefix of its outlined functions.

        Without a name no body is outlined.
        """
        self.scene, self.values, self.threads, self.name = scene, values, threads, name
        self.closed: list[c.Function] = []
        self.may_outline = bool(name)

    def children(self, nodes: Sequence[loop_ir.Node], ctx: Context) -> None:
        for n in nodes:
            self.node(n, ctx)

    def alone(self, node: loop_ir.Alone, ctx: Context) -> None:
        """Writes nodes that only the first `n_threads` threads of a team run.

        Register tiles that these nodes fill are declared for all threads, since later nodes may
        read them.
        """
        self.scene.hoisted = []
        with self.scene.w.scope() as body:
            self.children(node.children, replace(ctx, is_team=False))
        hoisted, self.scene.hoisted = self.scene.hoisted, None
        for declaration in hoisted:
            self.scene.w.write(declaration)
        self.scene.w.write(c.If(self.threads.is_among(node.n_threads), tuple(body.statements)))

    def node(self, node: loop_ir.Node, ctx: Context) -> None:
        if self.may_outline and is_closed(self.scene, node):
            self.outline(node, ctx)
            return
        match node:
            case loop_ir.Barrier():
                self.scene.w.write(c.Barrier())
            case loop_ir.GridBarrier():
                self.threads.meet_grid()
            case loop_ir.Loop():
                self.loop(node, ctx)
            case loop_ir.Late():
                self.late(node, ctx)
            case loop_ir.Alone():
                self.alone(node, ctx)
            case loop_ir.InBlocks():
                self.in_blocks(node, ctx)
            case _:
                self.phase(node, self.scene.plan.tasks[node.task], ctx)

    def phase(self, phase: loop_ir.Phase, task: TaskPlan, ctx: Context) -> None:
        match phase:
            case loop_ir.TileBody():
                self.body(task, ctx)
            case loop_ir.JoinedBodies():
                self.joined(phase, task, ctx)
            case _:
                self.threads.phase(phase, task, ctx)

    def outline(self, node: loop_ir.Node, ctx: Context) -> None:
        """Writes a node that holds only non-affine (closed) bodies as a call of a function of its own.

        A body without a loop stays in place: no compiler flag would change it.
        """
        self.may_outline = False
        with self.scene.w.scope() as body:
            self.node(node, ctx)
        self.may_outline = True
        is_free = all(self.scene.plan.tasks[p.task].task.fast_math for p in loop_ir.phases_of(node))
        statements = tuple(
            replace(s, in_any_order=is_free and not has_loop(s.body)) if isinstance(s, c.For) else s
            for s in body.statements
        )
        if not has_loop(statements):
            for statement in statements:
                self.scene.w.write(statement)
            return
        self.scene.w.write(self.closed_call(statements, ctx.variables.values()))

    def in_blocks(self, node: loop_ir.InBlocks, ctx: Context) -> None:
        """Writes iterations block by block; the work of one block is a function."""
        scene, task = self.scene, self.scene.plan.tasks[node.task]
        (loop,) = node.children
        assert isinstance(loop, loop_ir.Loop)
        at = sorted_blocks.places(scene, loop)
        variables = {(m.task, m.loop, m.level): at.iteration for m in loop.members}
        inside = replace(
            ctx,
            variables={**ctx.variables, **variables},
            is_team=False,
            ends={(m.task, m.loop): at.end for m in loop.members},
        )
        self.may_outline = False
        with scene.w.scope() as body:
            self.children(loop.children, inside)
        self.may_outline = bool(self.name)
        around = (*ctx.variables.values(), at.block, at.begin, at.end)
        if task.colouring is not None:
            whole = coloured_blocks.one_block(task, at, tuple(body.statements))
            call = self.closed_call(whole, around)
            scene.w.write(coloured_blocks.in_colours(scene, task, at, call))
        else:
            whole = sorted_blocks.one_block(scene, task, at, tuple(body.statements))
            call = self.closed_call(whole, around)
            scene.w.write(sorted_blocks.in_colours(scene, task, at, call, loop.is_parallel))
        for array in arrays_written(task.task):
            scene.w.forget(array)

    def closed_call(self, statements: Statements, around: Iterable[c.CExpr]) -> c.RunClosed:
        """Returns the call of an outlined function with these statements.

        `around`: variables of the loops around.
        """
        name = f"{self.name}_closed_{len(self.closed)}"
        function, call = outlined(name, statements, self.scene, around)
        same = [f for f in self.closed if replace(f, name=name) == function]
        if same:  # of whole register tiles of what is around it, and of cut ones
            call = replace(call, function=same[0].name)
        else:
            self.closed.append(function)
        return call

    def block(self, node: loop_ir.Loop, ctx: Context) -> None:
        """Writes a loop whose iterations are blocks of the grid: declares this block's index, then writes the loop's body."""
        first, w = node.members[0], self.scene.w
        number = self.threads.block_along(node)
        name = w.fresh(first.loop if node.step == 1 else f"{first.loop}{node.level}")
        w.multiples[name] = node.step
        start = c.linear(((number, node.step),), 0)
        w.write(c.Declare(self.threads.index_type, name, start, constant=True))
        variable = c.Id(name)
        bound = {(m.task, m.loop, m.level): variable for m in node.members}
        versions = self.versions(node, variable, replace(ctx, variables={**ctx.variables, **bound}))
        for statement in self.tested(node, variable, *versions):
            w.write(statement)

    def loop(self, node: loop_ir.Loop, ctx: Context) -> None:
        if node.schedule is loop_ir.Schedule.GRID:
            self.block(node, ctx)
            return
        n = n_iterations(self.scene, node)
        if node.schedule is loop_ir.Schedule.GUIDED:
            self.guided(node, n, ctx)
            return
        if node.schedule is loop_ir.Schedule.GRID_STRIDE:
            first = c.linear(((self.threads.block_along(node), node.step),), 0)
            self.loop_over(node, Part(first, n, ctx))
            self.forget_results(node)
            return
        if node.ends:
            self.loop_over(node, Part(*counted_range(self.scene, node, n), ctx))
            return
        lo, hi = self.loop_range(node, ctx)
        is_part = node.within is not None and node.schedule is loop_ir.Schedule.BLOCKED
        key = (node.extent, node.step)
        with self.scene.sharing(key, (lo, hi)) if is_part else nullcontext():
            for part in parts(self.scene, node, lo, hi, ctx):
                self.loop_over(node, part)
        self.forget_results(node)

    def forget_results(self, node: loop_ir.Loop) -> None:
        """Forgets loaded elements of the arrays that a loop has stored to."""
        for m in node.members:
            if not self.scene.plan.tasks[m.task].task.is_reduction:
                self.scene.w.forget(self.scene.plan.tasks[m.task].task.target.array)

    def guided(self, node: loop_ir.Loop, n: c.CExpr, ctx: Context) -> None:
        """Writes a dynamically scheduled loop: over parts taken from a counter of the team, around a loop over each part."""
        scene, w = self.scene, self.scene.w
        counter = scene.buffer("next", DType.i64, LINE_BYTES // DType.i64.size_bytes, False)
        scene.counters.append(counter)
        names = w.fresh("part"), w.fresh("part_end")
        w.multiples[names[0]] = node.step
        opening, goes_on, advance = guided(scene.prelude, c.Id(counter.name), n, node.step, names)
        with w.scope() as body:
            self.loop_over(node, Part(c.Id(names[0]), c.Id(names[1]), ctx))
        for statement in opening:
            w.write(statement)
        w.write(c.While(goes_on, (*body.statements, advance)))

    def loop_over(self, node: loop_ir.Loop, part: Part) -> None:
        """Writes a loop over one part of its range."""
        lo, hi, ctx = part.lo, part.hi, part.ctx
        first = node.members[0]
        stem = first.loop if node.step == 1 else f"{first.loop}{node.level}"
        name = self.scene.w.fresh(stem)
        variable = c.Id(name)
        self.scene.w.multiples[name] = gcd(self.scene.w.multiple_of(lo), node.step)
        bound = {(m.task, m.loop, m.level): variable for m in node.members}
        inside = replace(
            ctx, variables={**ctx.variables, **bound}, is_team=ctx.is_team and not node.is_parallel
        )
        with carrying(self.scene, node, lo) as before:
            whole, rest = self.versions(node, variable, inside, may_be_cut=part.may_be_cut)
        for statement in before:
            self.scene.w.write(statement)
        self.scene.w.used.discard(name)
        if rest and node.tails is loop_ir.Tails.ROWS_BEHIND:
            for statement in self.apart(name, lo, hi, node, whole, rest, ctx):
                self.scene.w.write(statement)
            return
        body = self.tested(node, variable, whole, rest)
        loops = self.in_strips(name, lo, hi, node, body, ctx)
        if node.is_last:
            loops = (c.If(c.Bin("<", *self.whole_range(node)), loops),)
        for statement in loops:
            self.scene.w.write(statement)

    def late(self, node: loop_ir.Late, ctx: Context) -> None:
        """Writes retimed nodes: they run for the loop's iteration before the present one.

        The tile of that iteration was full, or it would have been the last.
        """
        shared = node.loop
        first, _ = self.whole_range(shared)
        keys = [(m.task, m.loop, OUTER) for m in shared.members]
        now = ctx.variables[keys[0]]
        name = self.scene.w.fresh(f"{keys[0][1]}_before")
        earlier = c.Bin("-", now, self.stride(shared))
        self.scene.w.multiples[name] = self.scene.w.multiple_of(earlier)
        inside = replace(
            ctx,
            variables={**ctx.variables, **dict.fromkeys(keys, c.Id(name))},
            status={**ctx.status, **{(task, loop): True for task, loop, _ in keys}},
        )
        with self.scene.w.scope() as body:
            self.children(node.children, inside)
        self.scene.w.used.discard(name)
        before = c.Declare("long", name, earlier, constant=True)
        self.scene.w.write(c.If(c.Bin(">", now, first), (before, *body.statements)))

    def tested(
        self, node: loop_ir.Loop, variable: c.CExpr, whole: Statements, rest: Statements
    ) -> Statements:
        """Returns an `if` that runs `whole` for full tiles, else `rest`; only `whole` if `rest` is empty."""
        if not rest:
            return whole
        end = c.linear(((variable, 1),), self.span(node))
        return (c.If(c.Bin("<=", end, c.number(node.extent)), whole, rest),)

    def apart(
        self,
        name: str,
        lo: c.CExpr,
        hi: c.CExpr,
        node: loop_ir.Loop,
        whole: Statements,
        rest: Statements,
        ctx: Context,
    ) -> Statements:
        """Returns a loop over full register tiles, followed by the code for the partial tile.

        A test inside the loop would prevent compilers from moving loads out of it.
        """
        length = length_of(lo, hi)
        begin = c.Declare("long", name, c.Id(name), constant=True)
        if length is not None:
            n_whole = length // node.step * node.step
            last = c.add(lo, c.number(n_whole))
            behind = (c.Scope((replace(begin, init=last), *rest)),)
            loops = self.in_strips(name, lo, last, node, whole, ctx) if n_whole else ()
            return (*loops, *(behind if n_whole < length else ()))
        steps = c.Bin("/", c.Bin("-", hi, lo), c.number(node.step))
        end = self.scene.w.fresh(f"{name}_whole")
        self.scene.w.used.discard(end)
        last = c.add(lo, c.Bin("*", steps, c.number(node.step)))
        test = c.If(c.Bin("<", c.Id(end), hi), (replace(begin, init=c.Id(end)), *rest))
        loops = self.in_strips(name, lo, c.Id(end), node, whole, ctx)
        return (c.Scope((c.Declare("long", end, last, constant=True), *loops, test)),)

    def in_strips(
        self,
        name: str,
        lo: c.CExpr,
        hi: c.CExpr,
        node: loop_ir.Loop,
        body: Statements,
        ctx: Context,
    ) -> Statements:
        """Returns the loop around `body`.

        If operand slices are packed meanwhile, the loop is split in strips.
        Each slice is packed before a strip (a few iterations of the loop).
        """
        if node.strips is None:
            step = node.step if node.loads_ahead else self.stride(node)
            loop = c.For(name, lo, hi, step, body)
            return self.threads.ahead(node, loop) if node.loads_ahead else (loop,)
        assert not (node.is_parallel or node.is_last)
        w, length = self.scene.w, node.step * node.strips.length
        n_strips = -(-iterations(self.scene.plan, node) // node.strips.length)
        strip = w.fresh(f"{name}_strip")
        with w.scope() as head:
            self.threads.at_strip(node.strips, n_strips, ctx)
        w.used.discard(strip)
        if n_strips == 1:
            return (*head.statements, c.For(name, lo, hi, node.step, body))
        whole, end = length_of(lo, hi), c.linear(((c.Id(strip), 1),), length)
        if whole is None or whole % length:
            end = c.minimum(end, hi)
        inside = c.For(name, c.Id(strip), end, node.step, body)
        return (c.For(strip, lo, hi, length, (*head.statements, inside)),)

    def span(self, node: loop_ir.Loop) -> int:
        """Number of iterations that the longest register tile at a loop needs, among tiles that may be partial."""
        return max(p.reach for m, p in self.tiles_at(node) if self.may_be_cut(m, p))

    def tiles_at(self, node: loop_ir.Loop) -> list[tuple[Member, LoopPlan]]:
        """Returns the (member, loop plan) pairs whose register tiles start at a loop of the tree."""
        tasks = self.scene.plan.tasks
        plans = ((m, loop_ir.last_loop_plan(node, tasks, m)) for m in node.members)
        return [(m, p) for m, p in plans if p is not None and p.reach > 1]

    def may_be_cut(self, member: Member, p: LoopPlan) -> bool:
        """True if the loop may end inside a register tile, and the tile is not computed whole anyway."""
        sums = self.scene.launch.accumulators.get(member.task)
        is_padded = sums is not None and p.loop.name in sums.padded
        return not (p.divides or is_padded)

    def versions(
        self, node: loop_ir.Loop, variable: c.CExpr, ctx: Context, *, may_be_cut: bool = True
    ) -> tuple[Statements, Statements]:
        """Returns two versions of a loop's body: for full register tiles that start at the loop, and for partial ones.

        The second version is empty if no tile can be partial, or if one version serves both.
        """
        starting = self.tiles_at(node)
        cut = [(m, p) for m, p in starting if may_be_cut and self.may_be_cut(m, p)]
        has_vectors = any(p.is_vector for _, p in cut)
        is_by_elements = has_vectors or node.tails is loop_ir.Tails.ELEMENTS_TESTED
        status = {**ctx.status, **{(m.task, m.loop): True for m, _ in starting}}
        whole = replace(ctx, status=status)
        rest = replace(
            ctx,
            status={**status, **{(m.task, m.loop): False for m, _ in cut}},
            by_rows=True,
            is_slow=ctx.is_slow or is_by_elements,
        )
        if not cut:
            return self.version(node, variable, whole), ()
        if ctx.is_slow or (ctx.by_rows and not is_by_elements):
            return self.version(node, variable, rest), ()
        return self.version(node, variable, whole), self.version(node, variable, rest)

    def version(self, node: loop_ir.Loop, variable: c.CExpr, ctx: Context) -> Statements:
        """Returns the body of a loop at index `variable`; `ctx` says which register tiles are full."""
        with (
            self.scene.w.scope() as body,
            self.threads.inside(node, variable, ctx) as (begun, inside),
        ):
            body.statements.extend(begun)
            self.children(node.children, inside)
        return tuple(body.statements)

    def whole_range(self, node: loop_ir.Loop) -> tuple[c.CExpr, c.CExpr]:
        """Returns begin and end of a parallel loop for one thread.

        These are the ends of the thread's contiguous part; for a cyclic loop, the thread's first
        step and the loop's extent.
        """
        if node.is_cyclic:
            return c.Bin("*", c.Id("tid"), c.number(node.step)), c.number(node.extent)
        return self.scene.partition(node.extent, node.step)

    @staticmethod
    def stride(node: loop_ir.Loop) -> c.CExpr:
        """Returns the distance from one iteration of a thread or block to its next, as a C expression."""
        if node.schedule is loop_ir.Schedule.GRID_STRIDE:
            return c.number(node.n_blocks * node.step)
        step = c.number(node.step)
        return c.Bin("*", c.Id("n_threads"), step) if node.is_cyclic else step

    def loop_range(self, node: loop_ir.Loop, ctx: Context) -> tuple[c.CExpr, c.CExpr]:
        if node.is_last:
            lo, hi = self.whole_range(node)
            stride = self.stride(node)
            steps = c.Bin("/", c.Bin("-", c.Bin("-", hi, lo), c.Num("1")), stride)
            return c.Bin("+", lo, c.Bin("*", steps, stride)), hi
        if node.schedule is loop_ir.Schedule.BALANCED:
            return self.balanced(node)
        if node.is_parallel and node.within is not None:
            return shared_part(self.scene, node, ctx)
        if node.is_parallel:
            return self.whole_range(node)
        if node.level == OUTER:
            return c.Num("0"), c.number(node.extent)
        first = node.members[0]
        p = self.scene.plan.tasks[first.task].loop(first.loop)
        start = ctx.variables[first.task, first.loop, OUTER]
        return start, self.scene.tile_end(p, start)

    def balanced(self, node: loop_ir.Loop) -> tuple[c.CExpr, c.CExpr]:
        """Returns begin and end of this thread's range of a loop over rows, such that all threads have about equal work."""
        scene = self.scene
        rows = rows_of(scene.plan.tasks[node.members[0].task].task)
        assert rows is not None
        dtype = scene.plan.problem.array(rows.array).dtype
        array, extent = scene.global_array(rows.array), c.number(node.extent)
        ends = balanced(scene.prelude, array, dtype, rows, extent, node.step)
        names = [c.Id(scene.w.fresh(stem)) for stem in ("row_begin", "row_end")]
        scene.w.multiples[names[0].name] = node.step
        for name, x in zip(names, ends, strict=True):
            scene.w.write(c.Declare("long", name.name, x, constant=True))
        return names[0], names[1]

    def body(self, task: TaskPlan, ctx: Context) -> None:
        if not task.task.is_structured:
            self.statements(task, ctx)
            return
        if task.task.is_reduction:
            self.threads.update(task, ctx)
            return
        if task.task.is_guarded and task.index not in ctx.inside:
            GuardWriter(self.scene, self.values).write(task, ctx)
            return
        if not (task.is_stored or task.shared or task.registers):
            return  # its readers' loops are empty
        if not task.task.is_guarded and may_compute_twice(self.scene, task):
            _, ctx = at_the_end(self.scene, task, ctx) or (None, ctx)
        self.values.begin_value(task, list(task.loops), ctx)
        assert task.task.value is not None
        with Over(self.scene, task, list(task.loops), ctx) as inner:
            for point in self.scene.points(task, list(task.loops), inner):
                value = self.values.value(task, task.task.value, point, inner)
                self.values.put(task, point, value, inner)

    def joined(self, phase: loop_ir.JoinedBodies, first: TaskPlan, ctx: Context) -> None:
        """Writes the bodies of several tasks as one body: that of task `first`."""
        assert first.task.body is not None
        body = replace(first.task.body, statements=phase.statements)
        self.statements(replace(first, task=replace(first.task, body=body)), ctx, phase.tasks)
        for t in phase.tasks:
            for array in arrays_written(self.scene.plan.tasks[t].task):
                self.scene.w.forget(array)

    def statements(self, task: TaskPlan, ctx: Context, tasks: Sequence[int] = ()) -> None:
        """Writes a body of statements for one iteration (at the start of each register tile), or for one vector.

        `tasks`: all tasks whose bodies are joined in it.
        """
        if task.vector is not None:
            self.in_lanes(task, task.vector, ctx)
            return
        with Over(self.scene, task, list(task.loops), ctx) as inner:
            variables = {k: x for k, x in inner.variables.items() if k[0] != task.index}
            for p in task.loops:
                variables[task.index, p.loop.name, OUTER] = self.scene.start(task, p, inner)
            writer = body_writer(self.scene, task, variables, self.windows(task, inner))
            writer.ranges = {x.loop: x for x in task.ranges}
            writer.copies = copies_in(self.scene.plan, task, tasks or (task.index,))
            writer.prefetch = prefetch_in(self.scene.plan, task, tasks or (task.index,))
            if task.compaction != "SERIAL":
                body = task.task.body
                assert body is not None
                for statement in compacted(
                    self.scene, body.statements, in_order=task.compaction == "TWO_PASS"
                ):
                    self.scene.w.write(statement)
                return
            if task.wave is None:
                writer.write(task, variables)
                return
            assert task.task.body is not None
            writer.begin(task.task.body.statements, task.task.fast_math)
            for statement in wavefront(self.scene.w, writer.v, task.wave, writer.iteration):
                self.scene.w.write(statement)
            for array in arrays_written(task.task):
                self.scene.w.forget(array)

    def windows(self, task: TaskPlan, ctx: Context) -> dict[str, TilePlace]:
        """Returns the halo blocks from which a task's statements read, by array."""
        operands = self.values.operands
        return {o.access.array: operands.tile(task, o, ctx) for o in task.copies}

    def in_parts(
        self,
        task: TaskPlan,
        lanes: Lanes,
        parts: Front,
        around: LaneScope,
        tile: tuple[c.CExpr, c.CExpr | None],
        ctx: Context,
    ) -> tuple[c.CStmt, ...]:
        """Returns a vector of iterations whose front runs in lanes, and whose rest runs lane by lane."""
        index = c.Id(self.scene.w.fresh(lanes.loop))
        variables = {
            (task.index, loop, OUTER): x for loop, x in (*around.loops.items(), (lanes.loop, index))
        }
        writer = body_writer(self.scene, task, variables, self.windows(task, ctx))
        writer.ranges = {x.loop: x for x in task.ranges}
        writer.v.loops = dict(around.loops)
        assert task.task.body is not None
        writer.begin(task.task.body.statements, task.task.fast_math)
        written = writer.in_parts(around, lanes, parts, tile, index)
        self.scene.w.used.discard(index.name)
        return written

    def in_lanes(self, task: TaskPlan, p: LoopPlan, ctx: Context) -> None:
        """Writes a vector of iterations of loop `p`: as many as lanes, or the remaining ones under a mask."""
        assert task.task.body is not None
        scene = self.scene
        starts = {q.loop.name: scene.start(task, q, ctx) for q in task.loops}
        first = starts.pop(p.loop.name)
        body = task.task.body.statements
        choice = scene.plan.choice
        in_blocks = choice("batch_layout", task.index) == BATCH_LAYOUT[INTERLEAVED]
        around = LaneScope(
            scene.plan.problem,
            partial(array_updated, scene, task),
            starts,
            {},
            {q.loop.name: q.loop.extent for q in task.loops},
            iterations=replace(
                iterations_of(scene, task, self.windows(task, ctx)),
                loads_rows=in_blocks or choice("gathers", task.index) == GATHERS[TRANSPOSED],
                stores_rows=in_blocks or choice("row_stores", task.index) == ROW_STORES[IN_ROWS],
            ),
            ulp=permitted_ulp(scene.plan, task),
            rounding=rounding_of(body, task.task.fast_math),
        )
        lanes = Lanes(p.loop.name, p.inner, scene.target.vector_bytes)
        end = ctx.ends.get((task.index, p.loop.name))
        left: c.CExpr | None = c.Bin("-", scene.tile_end(p, first) if end is None else end, first)
        if end is None and ctx.status.get((task.index, p.loop.name)):
            left = None  # a whole tile: no lane is without an iteration
        if choice("lane_parts", task.index) == LANE_PARTS[FRONT]:
            parts = parts_in(scene.plan.problem, task.task)
            written = self.in_parts(task, lanes, parts, around, (first, left), ctx)
        else:
            written = LaneWriter(scene.w, around, lanes, body).iterations(first, left)
        scene.w.write(c.Scope(written))
        for array in arrays_written(task.task):
            scene.w.forget(array)
