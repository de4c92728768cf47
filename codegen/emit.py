"""Writes one launch down: loop tree to C syntax.

Partial tiles: where register tiles do not divide a loop, the body of the loop at whose index they start is written twice, with full
tiles (unrolled, in vectors) and, in the other branch of a test, one element at a time. A branch inside the second version is
not doubled again, so there are as many versions as there are such loops, plus one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

from ..kernels import ir
from ..kernels.accesses import access_of
from ..kernels.ir import DType
from ..kernels.tasks import Access, ArrayInfo
from ..space.backbone import INNER, MID, OUTER, Flow, Operand
from ..space.target import Target
from . import csyntax as c
from .block import Block, Value, Writer, constant
from .nest import Launch, LoopNode, Meet, TreeNode, last_loop_plan
from .opaque import OpaqueWriter
from .plan import LoopPlan, Plan, TaskPlan
from .point import LoopIndexAt, Point, affine_at, row_strides
from .storage import (
    AccumulatorLayout,
    Buffer,
    CopyLayout,
    SharedLayout,
    Tile,
    Workspace,
    merged_levels,
)
from .vectors import Prelude, type_name

COMBINE_ALONE = (
    256  # partial results of fewer elements are combined by one thread: sharing them out costs more
)
UNROLLED_THREADS = 8  # up to so many partial results are added in one expression

NEUTRAL: dict[str, float] = {"add": 0.0, "mul": 1.0, "min": float("inf"), "max": float("-inf")}


def neutral(op: str, dtype: DType) -> c.CExpr:
    """The neutral element of a reduction."""
    if dtype.is_float:
        return constant(NEUTRAL[op], dtype)
    if op in ("add", "mul"):
        return c.number(int(NEUTRAL[op]))
    bits = dtype.size_bytes * 8
    return c.Id(f"INT{bits}_MAX" if op == "min" else f"INT{bits}_MIN")


@dataclass(frozen=True)
class Context:
    """What holds at a place of the tree.

    `variables` are the loop variables in force by (task, loop, level); `status` tells of each loop with register tiles whether they
    are full here. `is_slow`: inside a partial-tile version. `is_team`: all threads of the launch run this place.
    """

    variables: dict[tuple[int, str, int], c.CExpr] = field(default_factory=dict)
    status: dict[tuple[int, str], bool] = field(default_factory=dict)
    is_slow: bool = False
    is_team: bool = False


class LaunchWriter:
    """Writes one launch; see `write`."""

    def __init__(
        self,
        plan: Plan,
        launch: Launch,
        target: Target,
        workspace: Workspace,
        prelude: Prelude,
        names: Mapping[str, str],
    ) -> None:
        """`names`: the identifiers of arrays and scalars (see codegen/names.py)."""
        self.plan, self.launch, self.target = plan, launch, target
        self.workspace, self.prelude = workspace, prelude
        self.w = Writer(prelude, names)
        self.tiles: dict[tuple[int, str], Tile] = {}  # (task, "acc" or "value")
        self.shared: dict[int, tuple[Buffer, SharedLayout]] = {}
        self.copies: dict[tuple[int, str], tuple[Buffer, CopyLayout]] = {}
        self.accumulators: dict[int, tuple[Buffer, AccumulatorLayout]] = {}
        self.opened: list[Buffer] = []
        self.hoisted: list[c.CStmt] | None = None
        self.partitions: dict[tuple[int, int], tuple[c.CExpr, c.CExpr]] = {}
        self.merged: dict[tuple[Flow, str], int] = merged_levels(plan, self.matches())
        self.flow_of = {
            (f.consumer, f.array): (f, kind)
            for t in plan.tasks
            for kind, flows in (("register", t.registers), ("shared", t.shared))
            for f in flows
        }

    def write(self) -> tuple[c.CStmt, ...]:
        """The body of the launch's function, and through the workspace the memory that it needs."""
        for t in self.launch.tasks:
            self.allocate(self.plan.tasks[t])
        context = Context(is_team=self.launch.is_parallel)
        with self.w.scope() as body:
            self.children(self.launch.roots, context)
        opening = [self.open_buffer(b) for b in self.opened]
        return (*opening, *self.partition_declarations(), *body.statements)

    def matches(self) -> dict[tuple[int, str, int], set[tuple[int, str, int]]]:
        """For each dim, the dims merged with it."""
        found: dict[tuple[int, str, int], set[tuple[int, str, int]]] = {}

        def visit(nodes: list[TreeNode]) -> None:
            for n in nodes:
                if isinstance(n, LoopNode):
                    keys = {(m.task, m.loop, m.level) for m in n.members}
                    for key in keys:
                        found[key] = keys - {key}
                    visit(n.children)

        visit(self.launch.roots)
        return found

    # --- storage ---

    def allocate(self, task: TaskPlan) -> None:
        """Buffers of a task: memory accumulators, packed operands, its value where readers take it from a thread's own array."""
        t = task.index
        array = self.plan.problem.array(task.task.target.array)
        acc = self.launch.accumulators.get(t)
        if acc is not None and acc.owner != "registers":
            layout = AccumulatorLayout.of(task, acc, array)
            private = acc.owner in ("thread", "partials") and self.launch.is_parallel
            buffer = self.buffer(f"{array.name}_sum", task.task.dtype, layout.n_elements, private)
            self.accumulators[t] = (buffer, layout)
        if task.shared:
            shared = SharedLayout.of(task, array, self.merged)
            buffer = self.buffer(
                f"{array.name}_row", array.dtype, shared.n_elements, self.launch.is_parallel
            )
            self.shared[t] = (buffer, shared)
        for operand in task.copies:
            source = self.plan.problem.array(operand.access.array)
            packed = CopyLayout.of(task, operand, self.nest_order(task, operand))
            buffer = self.buffer(
                f"{source.name}_packed", source.dtype, packed.n_elements, self.launch.is_parallel
            )
            self.copies[t, source.name] = (buffer, packed)

    def buffer(self, stem: str, dtype: DType, n_elements: int, is_private: bool) -> Buffer:
        buffer = self.workspace.allocate(self.w.fresh(stem), dtype, n_elements, is_private)
        self.opened.append(buffer)
        return buffer

    def open_buffer(self, b: Buffer) -> c.CStmt:
        place = c.number(b.offset_bytes)
        if b.is_private:
            place = c.linear(((c.Id("tid"), b.stride_bytes),), b.offset_bytes)
        # Partial results are read by other threads too, through the workspace: their pointer may not claim to be the only one.
        partial = any(
            b is held and self.launch.accumulators[t].owner == "partials"
            for t, (held, _) in self.accumulators.items()
        )
        kind = type_name(b.dtype, 0)
        start = c.CastTo(f"{kind} *", c.Bin("+", c.Id("workspace"), place))
        return c.Declare(f"{kind} *{'' if partial else 'restrict '}", b.name, start)

    def nest_order(self, task: TaskPlan, operand: Operand) -> tuple[str, ...]:
        """Loops of an operand in the order in which their mid dims are nested, then the others."""
        order: list[str] = []

        def visit(nodes: list[TreeNode]) -> None:
            for n in nodes:
                if isinstance(n, LoopNode):
                    own = [m.loop for m in n.members if m.task == task.index and m.level == MID]
                    order.extend(own)
                    visit(n.children)

        visit(self.launch.roots)
        mids = [name for name in order if name in operand.loops]
        return (*mids, *(name for name in operand.loops if name not in mids))

    # --- the tree ---

    def children(self, nodes: list[TreeNode], ctx: Context) -> None:
        """Nodes in order; where all threads are here, runs of nodes that one thread does alone are put under a test."""
        k = 0
        while k < len(nodes):
            if not (ctx.is_team and self.is_alone(nodes[k])):
                self.node(nodes[k], ctx)
                k += 1
                continue
            end = k
            while end < len(nodes) and self.is_alone(nodes[end]):
                end += 1
            self.alone(nodes[k:end], ctx)
            k = end

    def alone(self, nodes: list[TreeNode], ctx: Context) -> None:
        """One thread runs these; register tiles they leave behind are declared for all, since others may follow."""
        self.hoisted = []
        with self.w.scope() as body:
            for n in nodes:
                self.node(n, replace(ctx, is_team=False))
        hoisted, self.hoisted = self.hoisted, None
        for declaration in hoisted:
            self.w.write(declaration)
        self.w.write(c.If(c.Bin("==", c.Id("tid"), c.Num("0")), tuple(body.statements)))

    def is_alone(self, node: TreeNode) -> bool:
        if isinstance(node, Meet):
            return False
        if isinstance(node, LoopNode):
            return not node.is_parallel and all(self.is_alone(x) for x in node.children)
        task = self.plan.tasks[node.task]
        if node.kind == "combine":
            return self.accumulators[node.task][1].n_elements < COMBINE_ALONE
        return node.kind == "body" or not task.is_parallel

    def node(self, node: TreeNode, ctx: Context) -> None:
        if isinstance(node, Meet):
            self.w.write(c.Barrier())
        elif isinstance(node, LoopNode):
            self.loop(node, ctx)
        else:
            task = self.plan.tasks[node.task]
            match node.kind:
                case "body":
                    self.body(task, ctx)
                case "init":
                    self.fill(task, ctx)
                case "reset":
                    self.reset(task, ctx)
                case "flush":
                    self.flush(task, ctx)
                case "finish":
                    self.finish(task, ctx)
                case "combine":
                    self.combine(task, ctx)
                case "copy":
                    assert node.operand is not None
                    self.copy(task, node.operand, ctx)

    def loop(self, node: LoopNode, ctx: Context) -> None:
        lo, hi = self.loop_range(node, ctx)
        first = node.members[0]
        stem = first.loop if node.step == 1 else f"{first.loop}{node.level}"
        name = self.w.fresh(stem)
        variable = c.Id(name)
        bound = {(m.task, m.loop, m.level): variable for m in node.members}
        inside = replace(
            ctx, variables={**ctx.variables, **bound}, is_team=ctx.is_team and not node.is_parallel
        )
        with self.w.scope() as body:
            self.tiles_begin(node, variable, inside)
        self.w.used.discard(name)
        self.w.write(c.For(name, lo, hi, node.step, tuple(body.statements)))
        for m in node.members:
            if not self.plan.tasks[m.task].task.is_reduction:
                self.w.forget(self.plan.tasks[m.task].task.target.array)

    def tiles_begin(self, node: LoopNode, variable: c.CExpr, ctx: Context) -> None:
        """The body of a loop: twice, where register tiles start here that may be partial."""
        status = dict(ctx.status)
        partial: list[tuple[int, str]] = []
        span = 1
        for m in node.members:
            p = last_loop_plan(node, self.plan.tasks, m)
            if p is None or p.inner == 1:
                continue
            status[m.task, m.loop] = p.divides
            if not p.divides:
                partial.append((m.task, m.loop))
                span = p.inner
        full = replace(ctx, status={**status, **dict.fromkeys(partial, True)})
        if not partial:
            self.children(node.children, full)
            return
        slow = replace(ctx, status={**status, **dict.fromkeys(partial, False)}, is_slow=True)
        if ctx.is_slow:
            self.children(node.children, slow)
            return
        whole = c.Bin("<=", c.linear(((variable, 1),), span), c.number(node.extent))
        with self.w.scope() as fast_body:
            self.children(node.children, full)
        with self.w.scope() as slow_body:
            self.children(node.children, slow)
        self.w.write(c.If(whole, tuple(fast_body.statements), tuple(slow_body.statements)))

    def loop_range(self, node: LoopNode, ctx: Context) -> tuple[c.CExpr, c.CExpr]:
        if node.is_parallel:
            return self.partition(node.extent, node.step)
        if node.level == OUTER:
            return c.Num("0"), c.number(node.extent)
        first = node.members[0]
        p = self.plan.tasks[first.task].loop(first.loop)
        start = ctx.variables[first.task, first.loop, OUTER]
        return start, self.end_of(start, p.tile, node.extent)

    @staticmethod
    def end_of(start: c.CExpr, tile: int, extent: int) -> c.CExpr:
        """Where a tile that begins at `start` ends."""
        if tile >= extent:
            return c.number(extent)
        end = c.linear(((start, 1),), tile)
        return end if extent % tile == 0 else c.minimum(end, c.number(extent))

    def partition(self, extent: int, step: int) -> tuple[c.CExpr, c.CExpr]:
        """The part of a parallel loop that this thread runs: a contiguous block of whole tiles."""
        key = (extent, step)
        if key not in self.partitions:
            suffix = "" if not self.partitions else f"_{len(self.partitions)}"
            self.partitions[key] = (
                c.Id(self.w.fresh(f"begin{suffix}")),
                c.Id(self.w.fresh(f"end{suffix}")),
            )
        return self.partitions[key]

    def partition_declarations(self) -> Iterator[c.CStmt]:
        for (extent, step), (begin, end) in self.partitions.items():
            n_tiles = -(-extent // step)
            for name, who in ((begin, c.Id("tid")), (end, c.Bin("+", c.Id("tid"), c.Num("1")))):
                tile = c.Bin("/", c.Bin("*", c.number(n_tiles), who), c.Id("n_threads"))
                place: c.CExpr = c.Bin("*", tile, c.number(step)) if step > 1 else tile
                if name is end and extent % step:
                    place = c.minimum(place, c.number(extent))
                assert isinstance(name, c.Id)
                yield c.Declare("long", name.name, place, constant=True)

    # --- points ---

    def start(self, task: TaskPlan, p: LoopPlan, ctx: Context) -> c.CExpr:
        """The index at which the register tile of a loop starts."""
        level = MID if p.mid > 1 else OUTER
        return ctx.variables[task.index, p.loop.name, level]

    def is_full(self, task: TaskPlan, p: LoopPlan, ctx: Context) -> bool:
        """Whether the register tile of a loop is written with full copies at this place."""
        return p.inner == 1 or ctx.status.get(
            (task.index, p.loop.name), not ctx.is_slow or p.divides
        )

    def lanes(self, task: TaskPlan) -> int:
        return self.target.lanes(task.task.dtype.size_bytes)

    def points(self, task: TaskPlan, loops: list[LoopPlan], ctx: Context) -> Iterator[Point]:
        """Runs through the register tiles of `loops`, inside `for` loops over those that are partial; see `slow_loops`."""
        base: dict[str, LoopIndexAt] = {}
        indices: dict[str, c.CExpr] = {}
        grids: list[list[tuple[str, LoopIndexAt, int]]] = []
        for p in sorted(loops, key=lambda p: p.is_vector):
            name, start = p.loop.name, self.start(task, p, ctx)
            if not self.is_full(task, p, ctx):
                variable = ctx.variables[task.index, name, INNER]
                base[name] = LoopIndexAt(variable)
                indices[name] = c.Bin("-", variable, start)
            elif p.is_vector:
                n = self.lanes(task)
                grids.append([(name, LoopIndexAt(start, k * n, n), k) for k in range(p.inner // n)])
            else:
                grids.append([(name, LoopIndexAt(start, k), k) for k in range(p.inner)])
        for cell in product(*grids):
            at = {name: index for name, index, _ in cell}
            yield Point({**base, **at}, {name: k for name, _, k in cell}, indices)

    def slow_loops(
        self, task: TaskPlan, loops: list[LoopPlan], ctx: Context
    ) -> tuple[list[tuple[str, c.CExpr, c.CExpr]], Context]:
        """The `for` loops over partial register tiles, and the context inside them."""
        made = []
        variables = dict(ctx.variables)
        for p in loops:
            if self.is_full(task, p, ctx):
                continue
            start = self.start(task, p, ctx)
            name = self.w.fresh(p.loop.name)
            made.append((name, start, self.end_of_partial(start, p)))
            variables[task.index, p.loop.name, INNER] = c.Id(name)
        return made, replace(ctx, variables=variables)

    @staticmethod
    def end_of_partial(start: c.CExpr, p: LoopPlan) -> c.CExpr:
        return c.minimum(c.linear(((start, 1),), p.inner), c.number(p.loop.extent))

    def over(self, task: TaskPlan, loops: list[LoopPlan], ctx: Context) -> _Over:
        """A context manager: the scope inside the partial-tile loops of `loops`."""
        return _Over(self, task, loops, ctx)

    # --- phases: the body ---

    def body(self, task: TaskPlan, ctx: Context) -> None:
        if task.task.opaque is not None:
            OpaqueWriter(self.w, self.plan.problem, self.global_array).write(task, ctx.variables)
            return
        if task.task.is_reduction:
            self.update(task, ctx)
            return
        self.begin_value(task, list(task.loops), ctx)
        assert task.task.value is not None
        with self.over(task, list(task.loops), ctx) as inner:
            for point in self.points(task, list(task.loops), inner):
                value = self.value(task, task.task.value, point, inner)
                self.put(task, point, value, inner)

    def update(self, task: TaskPlan, ctx: Context) -> None:
        """Adds one register tile of a reduction to its accumulators."""
        plan = self.launch.accumulators[task.index]
        if plan.flushes_at_body:
            self.update_memory(task, ctx)
            return
        tile = self.tiles[task.index, "acc"]
        assert task.task.op is not None and task.task.value is not None
        with self.over(task, list(task.loops), ctx) as inner:
            for point in self.points(task, list(task.loops), inner):
                value = self.value(task, task.task.value, point, inner)
                accumulator = Value(tile.ref(point.copies, point.indices), tile.dtype, tile.lanes)
                if tile.lanes and not point.lanes():
                    # A partial tile of the reduction goes to the first lane: the lanes are added up at the end.
                    accumulator = Value(c.Index(accumulator.x, c.Num("0")), tile.dtype)
                self.accumulate(accumulator, task.task.op, value)

    def accumulate(self, accumulator: Value, op: str, value: Value) -> None:
        if op in ("add", "mul"):
            self.w.write(c.Assign(accumulator.x, value.x, "+" if op == "add" else "*"))
        else:
            self.w.write(c.Assign(accumulator.x, self.w.combine(op, accumulator, value).x))

    def update_memory(self, task: TaskPlan, ctx: Context) -> None:
        """No reduction loop is inside the loops of the result: each register tile goes to memory at once."""
        assert task.task.op is not None and task.task.value is not None
        with self.over(task, list(task.loops), ctx) as inner:
            sums: dict[str, tuple[Point, Value]] = {}
            for point in self.points(task, list(task.loops), inner):
                value = self.value(task, task.task.value, point, inner)
                vector = point.vector_loop
                lanes_free = vector is not None and not task.loop(vector).loop.is_reduction
                if lanes_free:
                    value = self.w.splat(value, point.lanes())
                elif point.lanes():
                    value = self.fold(task.task.op, self.w.splat(value, point.lanes()))
                free = {p.loop.name for p in task.loops if not p.loop.is_reduction}
                key = str(sorted((k, v) for k, v in point.copies.items() if k in free))
                if key in sums:
                    value = self.w.combine(task.task.op, sums[key][1], value)
                sums[key] = (point if lanes_free else point.first_lane(), self.w.name(value, "sum"))
            for point, value in sums.values():
                self.add_to_memory(task, point, value, inner)

    def fold(self, op: str, value: Value) -> Value:
        """All lanes of a vector in one scalar."""
        return Value(
            c.Call(self.prelude.use(f"fold_{op}", value.dtype, value.lanes), (value.x,)),
            value.dtype,
        )

    # --- phases: accumulators ---

    def reset(self, task: TaskPlan, ctx: Context) -> None:
        """Register accumulators, one per copy of the result, and one per copy of reduction dims that keep theirs apart."""
        assert task.task.op is not None
        vector = task.vector
        lanes = self.lanes(task) if vector is not None and self.is_full(task, vector, ctx) else 0
        full, slow = [], []
        for p in task.loops:
            name = p.loop.name
            copies = p.inner // self.lanes(task) if p.is_vector else p.inner
            if p.loop.is_reduction:
                if p.has_lanes and self.is_full(task, p, ctx):
                    full.append((name, copies))
            elif self.is_full(task, p, ctx):
                full.append((name, copies))
            else:
                slow.append((name, p.inner))
        stem = f"{task.task.target.array}_acc"
        tile = Tile(self.w.fresh_family(stem), task.task.dtype, lanes, tuple(full), tuple(slow))
        self.tiles[task.index, "acc"] = tile
        start = neutral(task.task.op, task.task.dtype)
        first = self.w.splat(Value(start, task.task.dtype), lanes).x
        self.declare(tile, first)

    def declare(self, tile: Tile, first: c.CExpr | None) -> None:
        """Declares a register tile, with a first value where one is given."""
        kind = type_name(tile.dtype, tile.lanes)
        if tile.lanes:
            self.prelude.vector_type(tile.dtype, tile.lanes)
        for name in tile.members():
            self.w.used.add(name)
            extent = tile.array_extent
            if self.hoisted is not None:
                zero = c.Literal(kind, (c.Num("0"),)) if tile.lanes or extent else c.Num("0")
                self.hoisted.append(c.Declare(kind, name, None if extent else zero, extent))
                if first is not None and extent is None:
                    self.w.write(c.Assign(c.Id(name), first))
            else:
                self.w.write(c.Declare(kind, name, first if extent is None else None, extent))
            if first is not None and extent is not None:
                k = self.w.fresh("k")
                self.w.used.discard(k)
                fill = c.Assign(c.Index(c.Id(name), c.Id(k)), first)
                self.w.write(c.For(k, c.Num("0"), c.number(extent), 1, (fill,)))

    def total(self, task: TaskPlan, point: Point) -> Value:
        """The register accumulators at a point of the result, with the copies of reduction dims combined."""
        tile = self.tiles[task.index, "acc"]
        assert task.task.op is not None
        reduced = [(p.loop.name) for p in task.loops if p.loop.is_reduction]
        apart = [[(name, k) for k in range(n)] for name, n in tile.full if name in reduced]
        total: Value | None = None
        for cell in product(*apart):
            x = Value(
                tile.ref({**point.copies, **dict(cell)}, point.indices), tile.dtype, tile.lanes
            )
            total = x if total is None else self.w.combine(task.task.op, total, x)
        assert total is not None
        vector = task.vector
        if tile.lanes and vector is not None and vector.loop.is_reduction:
            total = self.fold(task.task.op, total)
        return total

    def free_loops(self, task: TaskPlan) -> list[LoopPlan]:
        return [p for p in task.loops if not p.loop.is_reduction]

    def flush(self, task: TaskPlan, ctx: Context) -> None:
        plan = self.launch.accumulators[task.index]
        free = self.free_loops(task)
        with self.over(task, free, ctx) as inner:
            for point in self.points(task, free, inner):
                total = self.w.name(self.total(task, point), f"{task.task.target.array}_total")
                if plan.in_memory:
                    self.add_to_memory(task, point, total, inner)
                else:
                    buffer, _ = self.accumulators[task.index]
                    index = self.accumulator_index(task, point, inner)
                    self.w.store(
                        buffer.name, c.Id(buffer.name), index, total, buffer.dtype, stream=False
                    )
        if not plan.in_memory and task.partials:
            self.fill_missing(task)

    def add_to_memory(self, task: TaskPlan, point: Point, value: Value, ctx: Context) -> None:
        buffer, _ = self.accumulators[task.index]
        index = self.accumulator_index(task, point, ctx)
        assert task.task.op is not None
        old = self.w.load(buffer.name, c.Id(buffer.name), index, buffer.dtype, value.lanes, 1)
        new = self.w.combine(task.task.op, old, value)
        self.w.store(buffer.name, c.Id(buffer.name), index, new, buffer.dtype, stream=False)

    def accumulator_index(self, task: TaskPlan, point: Point, ctx: Context) -> c.CExpr:
        """Where the memory accumulator of a point lies: relative to the tile, for loops of which a tile is live at once."""
        _, layout = self.accumulators[task.index]
        plan = self.launch.accumulators[task.index]
        terms: dict[c.CExpr, int] = {}
        const = 0
        for name, stride in layout.strides.items():
            at = point.index[name]
            const += stride * at.offset
            if at.variable is not None:
                terms[at.variable] = terms.get(at.variable, 0) + stride
            level = plan.levels[name]
            if level != OUTER:
                p = task.loop(name)
                start = (
                    ctx.variables[task.index, name, OUTER]
                    if level == MID
                    else self.start(task, p, ctx)
                )
                terms[start] = terms.get(start, 0) - stride
        return c.linear(tuple(sorted(terms.items(), key=lambda i: -abs(i[1]))), const)

    def fill(self, task: TaskPlan, ctx: Context) -> None:
        """Memory accumulators take the neutral element, over what of them is live here."""
        assert task.task.op is not None
        buffer, _ = self.accumulators[task.index]
        if task.partials:
            k = self.w.fresh("k")
            self.w.used.discard(k)
            zero = c.Assign(
                c.Index(c.Id(buffer.name), c.Id(k)), neutral(task.task.op, buffer.dtype)
            )
            self.w.write(c.For(k, c.Num("0"), c.number(buffer.n_elements), 1, (zero,), simd=True))
            self.fill_missing(task)
            return
        with self.flat(task, ctx) as (point, inner):
            index = self.accumulator_index(task, point, inner)
            self.w.write(
                c.Assign(c.Index(c.Id(buffer.name), index), neutral(task.task.op, buffer.dtype))
            )

    def fill_missing(self, task: TaskPlan) -> None:
        """Partial results of threads that the system did not give: the combination reads those of the whole planned team."""
        assert task.task.op is not None
        buffer, _ = self.accumulators[task.index]
        slot, k = self.w.fresh("slot"), self.w.fresh("k")
        self.w.used -= {slot, k}
        kind = type_name(buffer.dtype, 0)
        place = c.linear(((c.Id(slot), buffer.stride_bytes),), buffer.offset_bytes)
        part = c.CastTo(f"{kind} *", c.Bin("+", c.Id("workspace"), place))
        zero = c.Assign(c.Index(part, c.Id(k)), neutral(task.task.op, buffer.dtype))
        each = c.For(k, c.Num("0"), c.number(buffer.n_elements), 1, (zero,))
        first = c.Bin("+", c.Id("tid"), c.Id("n_threads"))
        loop = c.For(slot, first, c.number(self.target.cores), 1, (each,))
        self.w.write(loop)

    # --- phases: finished values ---

    def finish(self, task: TaskPlan, ctx: Context) -> None:
        plan = self.launch.accumulators[task.index]
        if plan.in_memory:
            buffer, _ = self.accumulators[task.index]
            with self.flat(task, ctx) as (point, inner):
                index = self.accumulator_index(task, point, inner)
                total = Value(c.Index(c.Id(buffer.name), index), buffer.dtype)
                self.put(task, point, self.finished(task, point, total, inner), inner)
            self.w.forget(task.task.target.array)
            return
        free = self.free_loops(task)
        self.begin_value(task, free, ctx)
        with self.over(task, free, ctx) as inner:
            for point in self.points(task, free, inner):
                total = self.w.name(self.total(task, point), f"{task.task.target.array}_total")
                self.put(task, point, self.finished(task, point, total, inner), inner)

    def finished(self, task: TaskPlan, point: Point, total: Value, ctx: Context) -> Value:
        finish = task.task.finish
        return total if finish is None else self.value(task, finish, point, ctx, total)

    def combine(self, task: TaskPlan, ctx: Context) -> None:
        """Partial results of all threads, added element by element and finished."""
        assert task.task.op is not None
        buffer, _ = self.accumulators[task.index]
        shared_out = ctx.is_team
        with self.flat(task, ctx, share=shared_out) as (point, inner):
            index = self.accumulator_index(task, point, inner)
            parts = [self.slot(buffer, c.number(s), index) for s in range(self.target.cores)]
            total = parts[0]
            if len(parts) <= UNROLLED_THREADS:
                for part in parts[1:]:
                    total = self.w.combine(task.task.op, total, part)
            else:
                total = self.sum_of_slots(task, buffer, index)
            self.put(task, point, self.finished(task, point, total, inner), inner)
        self.w.forget(task.task.target.array)

    def slot(self, buffer: Buffer, number: c.CExpr, index: c.CExpr) -> Value:
        kind = type_name(buffer.dtype, 0)
        place = c.linear(((number, buffer.stride_bytes),), buffer.offset_bytes)
        if isinstance(number, c.Num):
            place = c.number(int(number.text) * buffer.stride_bytes + buffer.offset_bytes)
        part = c.CastTo(f"{kind} *", c.Bin("+", c.Id("workspace"), place))
        return Value(c.Index(part, index), buffer.dtype)

    def sum_of_slots(self, task: TaskPlan, buffer: Buffer, index: c.CExpr) -> Value:
        assert task.task.op is not None
        total, slot = self.w.fresh("total"), self.w.fresh("slot")
        self.w.used -= {total, slot}
        self.w.write(
            c.Declare(type_name(buffer.dtype, 0), total, neutral(task.task.op, buffer.dtype))
        )
        added = self.w.combine(
            task.task.op, Value(c.Id(total), buffer.dtype), self.slot(buffer, c.Id(slot), index)
        )
        self.w.write(
            c.For(
                slot, c.Num("0"), c.number(self.target.cores), 1, (c.Assign(c.Id(total), added.x),)
            )
        )
        return Value(c.Id(total), buffer.dtype)

    def flat(self, task: TaskPlan, ctx: Context, share: bool = False) -> _Flat:
        """A context manager: element-wise loops over what of a reduction's result is live here."""
        return _Flat(self, task, ctx, share)

    # --- values ---

    def begin_value(self, task: TaskPlan, loops: list[LoopPlan], ctx: Context) -> None:
        """Prepares the register tile in which readers find this task's value."""
        if not task.registers:
            return
        array = self.plan.problem.array(task.task.target.array)
        vector = next((p for p in loops if p.is_vector), None)
        lanes = self.lanes(task) if vector is not None and self.is_full(task, vector, ctx) else 0
        full, slow = [], []
        for p in loops:
            copies = p.inner // self.lanes(task) if p.is_vector else p.inner
            if self.is_full(task, p, ctx):
                full.append((p.loop.name, copies))
            else:
                slow.append((p.loop.name, p.inner))
        tile = Tile(
            self.w.fresh_family(f"{array.name}_value"), array.dtype, lanes, tuple(full), tuple(slow)
        )
        self.tiles[task.index, "value"] = tile
        self.declare(tile, None)

    def put(self, task: TaskPlan, point: Point, value: Value, ctx: Context) -> None:
        """Stores a finished value wherever readers look for it."""
        array = self.plan.problem.array(task.task.target.array)
        value = self.w.converted(value, array.dtype)
        value = self.w.splat(value, point.lanes())
        if task.registers:
            tile = self.tiles[task.index, "value"]
            place = tile.ref(point.copies, point.indices)
            self.w.write(c.Assign(place, value.x))
            if not tile.slow:
                value = Value(place, array.dtype, value.lanes)
        if task.shared:
            buffer, layout = self.shared[task.index]
            index, _ = self.shared_index(task, task, task.task.target, layout, point, ctx)
            self.w.store(buffer.name, c.Id(buffer.name), index, value, array.dtype, stream=False)
        if task.is_stored:
            index, _ = affine_at(task.task.target.axes, row_strides(array.shape), point)
            self.w.store(
                array.name,
                self.global_array(array.name),
                index,
                value,
                array.dtype,
                task.is_streamed,
            )

    def value(
        self, task: TaskPlan, e: ir.Expr, point: Point, ctx: Context, total: Value | None = None
    ) -> Value:
        def leaf(x: ir.Expr) -> Value:
            if isinstance(x, ir.Load):
                return self.read(task, x, point, ctx)
            if isinstance(x, ir.LoopIndex):
                return self.loop_index(point.index[x.loop], x.dtype)
            assert isinstance(x, ir.Accumulator) and total is not None, x
            return total

        return self.w.evaluate(e, leaf)

    def loop_index(self, at: LoopIndexAt, dtype: DType) -> Value:
        first = at.expression()
        if not at.lanes:
            return Value(c.CastTo(type_name(dtype, 0), first), dtype)
        return Value(c.Call(self.prelude.use("iota", dtype, at.lanes), (first,)), dtype, at.lanes)

    def read(self, task: TaskPlan, load: ir.Load, point: Point, ctx: Context) -> Value:
        """A load: from the register tile or array of its producer, from the packed copy, or from memory."""
        access = access_of(load)
        array = self.plan.problem.array(load.array)
        found = self.flow_of.get((task.index, load.array))
        if found is not None and found[1] == "register":
            return self.read_register(found[0], array, point)
        lanes = point.lanes()
        if found is not None:
            producer = self.plan.tasks[found[0].producer]
            buffer, layout = self.shared[producer.index]
            index, stride = self.shared_index(task, producer, access, layout, point, ctx)
            return self.w.load(buffer.name, c.Id(buffer.name), index, array.dtype, lanes, stride)
        if (task.index, load.array) in self.copies:
            packed, copied = self.copies[task.index, load.array]
            index, stride = self.copy_index(task, copied, point, ctx)
            return self.w.load(packed.name, c.Id(packed.name), index, array.dtype, lanes, stride)
        index, stride = affine_at(access.axes, row_strides(array.shape), point)
        return self.w.load(
            array.name, self.global_array(array.name), index, array.dtype, lanes, stride
        )

    def read_register(self, flow: Flow, array: ArrayInfo, point: Point) -> Value:
        tile = self.tiles[flow.producer, "value"]
        names = dict(flow.pairs)
        copies = {p: point.copies[q] for p, q in names.items() if q in point.copies}
        indices = {p: point.indices[q] for p, q in names.items() if q in point.indices}
        return Value(tile.ref(copies, indices), array.dtype, tile.lanes)

    def shared_index(
        self,
        reader: TaskPlan,
        producer: TaskPlan,
        access: Access,
        layout: SharedLayout,
        point: Point,
        ctx: Context,
    ) -> tuple[c.CExpr, int]:
        """The place of an element in its producer's own array, and the stride from lane to lane."""
        index, stride = affine_at(access.axes, layout.strides, point)
        terms: list[tuple[c.CExpr, int]] = [(index, 1)]
        const = 0
        for axis, level, step in zip(
            producer.task.target.axes, layout.levels, layout.strides, strict=True
        ):
            if level is None:
                continue
            assert axis is not None
            const -= axis.const * step
            loop = axis.terms[0][0]
            start = self.level_start(producer, loop, level, ctx, reader)
            terms.append((start, -step))
        merged: dict[c.CExpr, int] = {}
        flat, base_const = _flatten(index)
        for x, k in flat:
            merged[x] = merged.get(x, 0) + k
        for x, k in terms[1:]:
            merged[x] = merged.get(x, 0) + k
        return c.linear(tuple(merged.items()), base_const + const), stride

    def level_start(
        self, producer: TaskPlan, loop: str, level: int, ctx: Context, reader: TaskPlan
    ) -> c.CExpr:
        """The variable that a producer's own array is relative to; readers know it under their own loop's name."""
        wanted = OUTER if level == OUTER or producer.loop(loop).mid == 1 else MID
        own = ctx.variables.get((producer.index, loop, wanted))
        assert own is not None, "a merged loop binds its variable for all of its members"
        return own

    def copy_index(
        self, task: TaskPlan, layout: CopyLayout, point: Point, ctx: Context
    ) -> tuple[c.CExpr, int]:
        """The place of an element in a packed block, and the stride from lane to lane."""
        terms: dict[c.CExpr, int] = {}
        const, lane_stride = 0, 0
        for name in layout.order:
            p, at = task.loop(name), point.index[name]
            tile, outer = self.start(task, p, ctx), ctx.variables[task.index, name, OUTER]
            if p.mid > 1:
                terms[tile] = terms.get(tile, 0) + layout.outer_strides[name]
                terms[outer] = terms.get(outer, 0) - layout.outer_strides[name]
            inner = layout.inner_strides[name]
            const += at.offset * inner
            if at.variable is not None and at.variable != tile:
                terms[at.variable] = terms.get(at.variable, 0) + inner
                terms[tile] = terms.get(tile, 0) - inner
            if at.lanes:
                lane_stride = inner
        return c.linear(tuple(sorted(terms.items(), key=lambda i: -abs(i[1]))), const), lane_stride

    def copy(self, task: TaskPlan, operand: Operand, ctx: Context) -> None:
        """Packs the block of one outer tile: mid steps, then register tiles, element by element."""
        buffer, layout = self.copies[task.index, operand.access.array]
        array = self.plan.problem.array(operand.access.array)
        variables = dict(ctx.variables)
        headers: list[tuple[str, c.CExpr, c.CExpr, int]] = []
        for name in layout.order:
            p = task.loop(name)
            if p.mid > 1:
                outer = variables[task.index, name, OUTER]
                mid = self.w.fresh(f"{name}1")
                headers.append((mid, outer, self.end_of(outer, p.tile, p.loop.extent), p.inner))
                variables[task.index, name, MID] = c.Id(mid)
        index: dict[str, LoopIndexAt] = {}
        for name in layout.inner_order:
            p = task.loop(name)
            start = variables[task.index, name, MID if p.mid > 1 else OUTER]
            element = self.w.fresh(name)
            end = self.end_of(start, p.inner, p.loop.extent)
            headers.append((element, start, end, 1))
            index[name] = LoopIndexAt(c.Id(element))
        inner = replace(ctx, variables=variables)
        point = Point(index)
        here, _ = self.copy_index(task, layout, point, inner)
        there, _ = affine_at(operand.access.axes, row_strides(array.shape), point)
        source = c.Index(self.global_array(array.name), there)
        body: tuple[c.CStmt, ...] = (c.Assign(c.Index(c.Id(buffer.name), here), source),)
        for name, lo, hi, step in reversed(headers):
            body = (c.For(name, lo, hi, step, body),)
            self.w.used.discard(name)
        self.w.write(body[0])
        self.w.forget(buffer.name)

    def global_array(self, name: str) -> c.CExpr:
        return c.Id(self.w.names[name])


class _Over:
    """Scope inside `for` loops over the partial register tiles of `loops`; with none, the scope that is open."""

    def __init__(
        self, writer: LaunchWriter, task: TaskPlan, loops: list[LoopPlan], ctx: Context
    ) -> None:
        self.writer = writer
        self.headers, self.context = writer.slow_loops(task, loops, ctx)
        self.array = task.task.target.array

    def __enter__(self) -> Context:
        if self.headers:
            self.writer.w.blocks.append(Block())
        return self.context

    def __exit__(self, *_: object) -> None:
        w = self.writer.w
        if not self.headers:
            return
        body = tuple(w.blocks.pop().statements)
        for name, lo, hi in reversed(self.headers):
            body = (c.For(name, lo, hi, 1, body),)
            w.used.discard(name)
        w.write(body[0])
        w.forget(self.array)


class _Flat:
    """Element-wise loops over the live part of a reduction's result, outermost axis first; `share`: among all threads."""

    def __init__(self, writer: LaunchWriter, task: TaskPlan, ctx: Context, share: bool) -> None:
        self.writer, self.task = writer, task
        plan = writer.launch.accumulators[task.index]
        layout = writer.accumulators[task.index][1]
        self.context = ctx
        self.headers: list[tuple[str, c.CExpr, c.CExpr]] = []
        index: dict[str, LoopIndexAt] = {}
        loops = sorted(plan.extents, key=lambda name: -layout.strides[name])
        widest = max(loops, key=lambda name: plan.extents[name]) if loops and share else None
        for name in loops:
            lo, hi = self.live_range(task.loop(name), plan.levels[name], ctx)
            if name == widest and layout.n_elements >= COMBINE_ALONE:
                lo, hi = self.own_part(lo, hi)
            variable = writer.w.fresh(name)
            self.headers.append((variable, lo, hi))
            index[name] = LoopIndexAt(c.Id(variable))
        self.point = Point(index)

    def live_range(self, p: LoopPlan, level: int, ctx: Context) -> tuple[c.CExpr, c.CExpr]:
        w, t, extent = self.writer, self.task.index, p.loop.extent
        if level == OUTER:
            if p.is_parallel and self.writer.launch.is_parallel:
                return w.partition(extent, p.tile)
            return c.Num("0"), c.number(extent)
        if level == MID:
            start = ctx.variables[t, p.loop.name, OUTER]
            return start, w.end_of(start, p.tile, extent)
        start = w.start(self.task, p, ctx)
        return start, w.end_of(start, p.inner, extent)

    @staticmethod
    def own_part(lo: c.CExpr, hi: c.CExpr) -> tuple[c.CExpr, c.CExpr]:
        length = hi if lo == c.Num("0") else c.Bin("-", hi, lo)
        begin = c.Bin("/", c.Bin("*", length, c.Id("tid")), c.Id("n_threads"))
        end = c.Bin("/", c.Bin("*", length, c.Bin("+", c.Id("tid"), c.Num("1"))), c.Id("n_threads"))
        return c.add(lo, begin), c.add(lo, end)

    def __enter__(self) -> tuple[Point, Context]:
        self.writer.w.blocks.append(Block())
        return self.point, self.context

    def __exit__(self, *_: object) -> None:
        w = self.writer.w
        body = tuple(w.blocks.pop().statements)
        if not self.headers:
            w.write(c.Scope(body))
            return
        for k, (name, lo, hi) in enumerate(reversed(self.headers)):
            body = (c.For(name, lo, hi, 1, body, simd=k == 0),)
            w.used.discard(name)
        w.write(body[0])


def _flatten(x: c.CExpr) -> tuple[list[tuple[c.CExpr, int]], int]:
    """Undoes `csyntax.linear`: terms with coefficients, and the constant."""
    match x:
        case c.Num(text):
            return [], int(text)
        case c.Un("-", inner):
            terms, const = _flatten(inner)
            return [(t, -k) for t, k in terms], -const
        case c.Bin("+", a, b):
            left, right = _flatten(a), _flatten(b)
            return left[0] + right[0], left[1] + right[1]
        case c.Bin("-", a, b):
            left, right = _flatten(a), _flatten(c.Un("-", b))
            return left[0] + right[0], left[1] + right[1]
        case c.Bin("*", a, c.Num(text)):
            return [(a, int(text))], 0
    return [(x, 1)], 0
