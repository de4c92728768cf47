"""Writer of bodies of statements in scalar C: the statements of one iteration of a task's outermost loop, in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from ...kernels.analysis.contraction import ExactRounding, rounding_of
from ...kernels.analysis.effects import arrays_written
from ...kernels.ir import kernel as ir
from ...kernels.ir.task import Problem
from ...kernels.ir.text import default_format
from ...kernels.ir.walk import loads, local_changed, locals_read, nested_statements
from ...kernels.transforms.lane_fronts import Front
from ..plan.plan import TaskPlan
from ..plan.schedules import BlockPrefetch
from ..text import csyntax as c
from ..text.cprint import expression
from ..text.types import type_name
from . import prefetch
from .body_values import BodyValues
from .emitter import Block, Builder
from .lanes import Iterations, Lanes, LaneScope, LaneWriter
from .memory import Value
from .vector_functions import ULP4

_SUMS = {"add": "+", "mul": "*"}  # what OpenMP calls the reductions that compilers may reorder


class BodyWriter:
    """Writer of the statements of a task's body as C; `write` is its entry."""

    def __init__(
        self,
        w: Builder,
        problem: Problem,
        array_of: Callable[[str], c.CExpr],
        is_shared: Callable[[ir.Update], bool] = lambda update: False,
    ) -> None:
        """`is_shared`: True for an update whose element concurrent threads may update too; it becomes atomic."""
        self.w, self.is_shared = w, is_shared
        self.v = BodyValues(w, problem, array_of)
        self.stop = ""  # the label at which an iteration ends early
        self.is_free = False  # whether sums may be reordered
        self.ulp = ULP4  # the permitted error of functions in lanes, where sums may be reordered
        self.rounding = ExactRounding(True)
        self.independent: frozenset[str] = frozenset()  # loops whose iterations may run at once
        self.scalar: frozenset[str] = frozenset()  # loops that compilers must not vectorise
        self.copies: Mapping[str, int] = {}  # how often bodies of loops are written out
        self.prefetch: BlockPrefetch | None = None  # of what later iterations touch
        self.lanes: Lanes | None = None  # the loop that runs in lanes
        self.given: Mapping[str, c.CExpr] = {}  # what locals are set to, known before
        self.ranges: Mapping[str, Lanes] = {}  # loops inside that run in lanes, by name

    def write(self, task: TaskPlan, variables: dict[tuple[int, str, int], c.CExpr]) -> None:
        """Writes a task's body for the given C variables of its loops; each iteration declares its locals anew.

        A body with assertions does nothing once an assertion of the call has failed: see FAILING in
        vectors.py.
        """
        assert task.task.body is not None
        self.v.loops = {loop: x for (t, loop, _), x in variables.items() if t == task.index}
        self.begin(task.task.body.statements, task.task.fast_math)
        self.w.write(c.Scope(self.iteration(task.task.body.statements)))
        for array in arrays_written(task.task):
            self.w.forget(array)

    def begin(self, body: tuple[ir.Stmt, ...], fast_math: bool) -> None:
        """Sets the floating-point permissions for the next body that is written.

        These are reordering of sums (with `fast_math`), and contraction of products and sums.
        """
        self.is_free, self.rounding = fast_math, rounding_of(body, fast_math)

    def iteration(self, body: tuple[ir.Stmt, ...]) -> tuple[c.CStmt, ...]:
        """Returns the C statements of one iteration of `body`, with the declarations of its locals."""
        self.w.blocks.append(Block())
        asserts = any(isinstance(s, ir.Assert) for s in nested_statements(body))
        self.stop = self.w.fresh("stop") if asserts else ""
        self.declare_locals(body)
        self.statements(body)
        written = tuple(self.w.blocks.pop().statements)
        if asserts:
            goes_on = c.If(c.Un("!", c.Id("ks_stopped")), written)
            written = (goes_on, c.Label(self.stop))
        return written

    def declare_locals(self, body: tuple[ir.Stmt, ...]) -> None:
        for s in body:
            match s:
                case ir.SetLocal(name, value):
                    self.v.declare(name, value.dtype)
                    if self.prefetch is not None:
                        prefetch.declare(self.prefetch, self.v, name)
                case ir.LocalArray(name, extent, value) if name not in self.v.locals:
                    place = c.Id(self.w.fresh(name))
                    self.v.locals[name] = Value(place, value.dtype)
                    kind = type_name(value.dtype, 0)
                    self.w.write(c.Declare(kind, place.name, None, extent))
                case ir.Update(value=value, result=name) if name:
                    self.v.declare(name, value.dtype)
                case ir.For(loop=loop) if self.lanes is not None and loop == self.lanes.loop:
                    pass  # its locals belong to the lanes
                case ir.For(loop=loop) if loop in self.ranges:
                    pass  # and these to the range
                case ir.For(body=inner) | ir.While(body=inner):
                    self.declare_locals(inner)
                case ir.If(then=then, orelse=orelse):
                    self.declare_locals(then)
                    self.declare_locals(orelse)

    def statements(self, body: tuple[ir.Stmt, ...]) -> None:
        for s in body:
            with self.w.rounding(self.rounding.level(s)):
                self.statement(s)

    def statement(self, s: ir.Stmt) -> None:
        match s:
            case ir.For(loop=loop) if self.lanes is not None and loop == self.lanes.loop:
                for made in self.in_lanes(s, c.Num("0"), self.v.evaluate(s.extent).x):
                    self.w.write(made)
            case ir.For(loop=loop) if loop in self.ranges:
                self.range_in_lanes(s, self.ranges[loop])
            case ir.For(loop, extent, inner):
                self.loop(loop, extent, inner)
            case ir.SetLocal(name) if name in self.given:
                self.w.write(c.Assign(self.v.locals[name].x, self.given[name]))
            case ir.SetLocal(name, value):
                held = self.v.locals[name]
                self.w.write(
                    c.Assign(held.x, self.w.converted(self.v.evaluate(value), held.dtype).x)
                )
                if self.prefetch is not None:
                    self.write_all(prefetch.advance(self.prefetch, self.v, name))
            case ir.UpdateLocal(name, op, value):
                self.w.write(self.v.updated(self.v.locals[name], op, self.v.evaluate(value)))
            case ir.LocalArray(name, extent, value):
                k = self.w.fresh("k")
                start = self.w.converted(self.v.evaluate(value), self.v.locals[name].dtype).x
                fill = c.Assign(c.Index(self.v.locals[name].x, c.Id(k)), start)
                self.w.write(c.For(k, c.Num("0"), c.number(extent), 1, (fill,)))
                self.w.used.discard(k)
            case ir.SetElement(name, index, value):
                place = self.v.local_element(name, index)
                self.w.write(
                    c.Assign(place.x, self.w.converted(self.v.evaluate(value), place.dtype).x)
                )
            case ir.Store(array, indices, value):
                place = self.v.element(array, indices)
                x = self.w.converted(self.v.evaluate(value), place.dtype).x
                if array in self.v.strong:
                    # A constant marks the element, and says nothing of other stores.
                    publishes = not isinstance(value, ir.Const)
                    self.w.write(self.w.memory.strong_store(self.w, place.x, x, publishes))
                else:
                    self.w.write(c.Assign(place.x, x))
            case ir.Update() if s.result or self.is_shared(s):
                self.fetch(s)
            case ir.Update(array, indices, op, value):
                self.w.write(
                    self.v.updated(self.v.element(array, indices), op, self.v.evaluate(value))
                )
            case ir.While(condition, inner):
                self.w.write(c.While(self.v.evaluate(condition).x, self.nested(inner)))
            case ir.Print(parts, _, formats):
                name, first = self.w.prelude.printing()
                self.w.write(self.printed(name, tuple(map(c.Num, first)), parts, formats))
            case ir.Assert():
                self.claim(s)
            case ir.If(condition, then, orelse):
                test = self.v.evaluate(condition).x
                self.w.write(c.If(test, self.nested(then), self.nested(orelse)))

    def write_all(self, statements: Iterable[c.CStmt]) -> None:
        for made in statements:
            self.w.write(made)

    def nested(self, body: tuple[ir.Stmt, ...]) -> tuple[c.CStmt, ...]:
        self.w.blocks.append(Block())
        self.statements(body)
        return tuple(self.w.blocks.pop().statements)

    def loop(self, loop: str, extent: ir.Expr, body: tuple[ir.Stmt, ...]) -> None:
        if isinstance(extent, ir.Const) and 1 < self.copies.get(loop, 0) == int(extent.value):
            self.write_out(loop, int(extent.value), body)
            return
        if self.prefetch is not None:
            self.write_all(prefetch.before(self.prefetch, self.v, loop))
        name = self.w.fresh(loop)
        outer = self.v.loops.get(loop)
        self.v.loops[loop] = c.Id(name)
        inner = self.nested(body)
        hi = self.v.evaluate(extent).x
        if _changes(body, extent):
            end = c.Id(self.w.fresh(f"{loop}_end"))
            self.w.write(c.Declare("long", end.name, hi, constant=True))
            hi = end
        self.w.write(self.loop_over(loop, c.For(name, c.Num("0"), hi, 1, inner), body))
        self.w.used.discard(name)
        if outer is not None:
            self.v.loops[loop] = outer

    def write_out(self, loop: str, n: int, body: tuple[ir.Stmt, ...]) -> None:
        """Writes a loop of `n` iterations fully unrolled.

        gcc 12, told to unroll the loop itself, takes the last iteration for one that seldom runs,
        and does not vectorise it. That iteration, an eighth of a leaf of 8^3 cells, then took half
        of the leaf's time.
        """
        outer = self.v.loops.get(loop)
        for k in range(n):
            self.v.loops[loop] = c.number(k)
            self.w.write(c.Scope(self.nested(body)))
        del self.v.loops[loop]
        if outer is not None:
            self.v.loops[loop] = outer

    def in_lanes(self, s: ir.For, lo: c.CExpr, hi: c.CExpr) -> tuple[c.CStmt, ...]:
        """Returns loop `s` from `lo` to `hi`, vectorised: each lane runs one iteration (codegen/bodies/lanes.py)."""
        assert self.lanes is not None
        if self.lanes.parts is None:
            return self.lane_writer(s, self.lanes).loop(lo, hi)
        first, index = self.w.fresh(s.loop), c.Id(self.w.fresh(s.loop))
        left = c.Bin("-", hi, c.Id(first))
        inner = self.in_parts(
            self.lane_scope(s), self.lanes, self.lanes.parts, (c.Id(first), left), index
        )
        self.w.used -= {first, index.name}
        return (c.For(first, lo, hi, self.lanes.width, inner),)

    def in_parts(
        self,
        scope: LaneScope,
        lanes: Lanes,
        parts: Front,
        tile: tuple[c.CExpr, c.CExpr | None],
        index: c.Id,
    ) -> tuple[c.CStmt, ...]:
        """Returns the code of at most as many iterations as lanes: the front of the body in lanes, the rest lane by lane.

        `tile`: the first iteration, or its place in the order of `scope`, and the number of iterations left; None: enough.
        `index`: the C variable that has the iteration's number in the rest. See kernels/transforms/lane_fronts.py.
        """
        first, left = tile
        around = dict(self.v.locals), self.v.loops.get(lanes.loop), self.rounding
        fed = rounding_of((*parts.front, *parts.rest), self.is_free).fed | self.rounding.fed
        self.rounding = replace(self.rounding, fed=fed)
        with self.w.scope() as made:
            kept = {name: self.kept(name, dtype, lanes.width) for name, dtype in parts.kept}
            scope = replace(scope, rounding=self.rounding, kept=kept)
            front = LaneWriter(self.w, scope, lanes, parts.front).iterations(first, left)
            self.w.write(c.Scope(front))
            lane, order = c.Id(self.w.fresh("lane")), scope.iterations.order
            for name, place in kept.items():
                self.v.locals[name] = replace(place, x=c.Index(place.x, lane))
            self.v.loops[lanes.loop] = index
            at = c.add(first, lane)
            number = at if order is None else c.Index(order, at)
            own = c.Declare("long", index.name, number, constant=True)
            whole = c.number(lanes.width)
            most = whole if left is None else c.minimum(left, whole)
            rest = (own, *self.iteration(parts.rest))
            self.w.write(c.For(lane.name, c.Num("0"), most, 1, rest))
            self.w.used.discard(lane.name)
        self.v.locals, outer, self.rounding = around
        if outer is not None:
            self.v.loops[lanes.loop] = outer
        return tuple(made.statements)

    def kept(self, name: str, dtype: ir.DType, n: int) -> Value:
        """Declares a C array of `n` values of a local."""
        place = c.Id(self.w.fresh(f"{name}_kept"))
        self.w.write(c.Declare(type_name(dtype, 0), place.name, None, n))
        return Value(place, dtype)

    def lane_writer(self, s: ir.For, lanes: Lanes) -> LaneWriter:
        """Returns the writer of the vectorised loop `s`.

        Outer locals that the loop changes are its reductions.
        """
        sums = {
            x.name: x.op
            for x in nested_statements(s.body)
            if isinstance(x, ir.UpdateLocal) and x.name in self.v.locals
        }
        return LaneWriter(self.w, replace(self.lane_scope(s), sums=sums), lanes, s.body)

    def lane_scope(self, s: ir.For) -> LaneScope:
        """Returns the inputs from around the vectorised loop `s`."""
        extents = {s.loop: int(s.extent.value)} if isinstance(s.extent, ir.Const) else {}
        return LaneScope(
            *(self.v.problem, self.v.array_of, self.v.loops, self.v.locals, extents),
            iterations=Iterations(is_shared=self.is_shared, in_any_order=self.is_free),
            ulp=self.ulp if self.is_free else None,
            rounding=self.rounding,
        )

    def range_in_lanes(self, s: ir.For, lanes: Lanes) -> None:
        """Writes a vectorised loop inside of a body (`lane_ranges` of kernels/analysis/inner_ranges.py).

        Iterations that fill all lanes come first, then the remaining ones.
        """
        n = int(s.extent.value) if isinstance(s.extent, ir.Const) else None
        if n is not None and n % lanes.width == 0:
            self.write_all(self.lane_writer(s, lanes).whole(c.Num("0"), c.number(n)))
            return
        if lanes.masks_rest:
            self.write_all(self.lane_writer(s, lanes).loop_and_rest(self.v.evaluate(s.extent).x))
            return
        end, whole = self.w.fresh(f"{s.loop}_end"), self.w.fresh(f"{s.loop}_whole")
        self.w.write(c.Declare("long", end, self.v.evaluate(s.extent).x, constant=True))
        n_whole = c.Bin("*", c.Bin("/", c.Id(end), c.number(lanes.width)), c.number(lanes.width))
        self.w.write(c.Declare("long", whole, n_whole, constant=True))
        for made in self.lane_writer(s, lanes).whole(c.Num("0"), c.Id(whole)):
            self.w.write(made)
        name, outside = self.w.fresh(s.loop), dict(self.v.locals)
        self.v.loops[s.loop] = c.Id(name)
        self.w.blocks.append(Block())
        self.declare_locals(s.body)
        self.statements(s.body)
        rest = tuple(self.w.blocks.pop().statements)
        self.v.locals = outside
        self.w.write(c.For(name, c.Id(whole), c.Id(end), 1, rest))
        self.w.used.discard(name)
        del self.v.loops[s.loop]

    def loop_over(self, loop: str, made: c.For, body: tuple[ir.Stmt, ...]) -> c.For:
        """Returns the C loop `made` with annotations for compilers: reorderable, independent or scalar iterations."""
        is_innermost = not any(isinstance(s, ir.For) for s in nested_statements(body))
        is_free = self.is_free and is_innermost
        return replace(
            made,
            in_any_order=is_free,
            sums=self.sums_of(body) if is_free else (),
            independent=is_innermost and loop in self.independent,
            is_scalar=is_innermost and loop in self.scalar,
            copies=self.copies.get(loop, 0),
        )

    def sums_of(self, body: tuple[ir.Stmt, ...]) -> tuple[tuple[str, str], ...]:
        """Returns (operator, variable) of each reduction in a loop of nothing but reductions.

        () for any other loop.
        """
        ops: dict[str, str] = {}
        for s in body:
            if not isinstance(s, ir.UpdateLocal) or s.op not in _SUMS:
                return ()
            if ops.setdefault(s.name, s.op) != s.op:
                return ()
        if any(ops.keys() & locals_read(s.value) for s in body if isinstance(s, ir.UpdateLocal)):
            return ()
        return tuple((_SUMS[op], expression(self.v.locals[name].x)) for name, op in ops.items())

    def fetch(self, s: ir.Update) -> None:
        """Writes an update that is atomic, or whose element's old value is assigned to a local.

        Index and value of the update may read the previous value of that local.
        """
        place = self.v.element(s.array, s.indices)
        value = self.w.converted(self.v.evaluate(s.value), place.dtype)
        old = self.w.fresh(f"{s.result or s.array}_old")
        is_shared = self.is_shared(s)
        found: c.CExpr = place.x
        if is_shared:
            is_together = bool(s.result) and isinstance(s.value, ir.Const)
            operation = self.w.memory.fetching(s.op, is_together)
            function = self.w.prelude.use(operation, place.dtype, 0)
            found = c.Call(function, (c.Un("&", place.x), value.x))
        if not s.result:
            self.w.write(c.Evaluate(found))
            return
        self.w.write(c.Declare(type_name(place.dtype, 0), old))
        self.w.write(c.Assign(c.Id(old), found))
        if not is_shared:
            self.w.write(self.v.updated(place, s.op, value))
        self.w.write(c.Assign(self.v.locals[s.result].x, c.Id(old)))

    def claim(self, s: ir.Assert) -> None:
        name = self.w.prelude.failing()
        said = self.printed(name, (), (f"{s.where}: {s.message}", *s.parts), s.formats)
        ends = (said, c.Goto(self.stop))
        self.w.write(c.If(c.Un("!", self.v.evaluate(s.condition).x), ends))

    def printed(
        self,
        function: str,
        first: tuple[c.CExpr, ...],
        parts: tuple[ir.Part, ...],
        formats: tuple[str, ...],
    ) -> c.CStmt:
        """Returns a call of a printf-like C function that prints `parts`; arguments `first` precede the format."""
        text, values, left = "", list[c.CExpr](), iter(formats)
        for part in parts:
            if isinstance(part, str):
                text += part.replace("%", "%%")
                continue
            value = self.v.evaluate(part)
            wanted = next(left, "") or default_format(value.dtype)
            kind, x = "double", value.x
            if not value.dtype.is_float:
                kind = "long long"
                if wanted[-1] not in "di":
                    kind, x = f"unsigned {kind}", c.CastTo(f"uint{8 * value.dtype.size_bytes}_t", x)
                wanted = f"{wanted[:-1]}ll{wanted[-1]}"
            text += f"%{wanted}"
            values.append(c.CastTo(kind, x))
        return c.Evaluate(c.Call(function, (*first, c.Text(text), *values)))


def _changes(body: tuple[ir.Stmt, ...], e: ir.Expr) -> bool:
    """True if the statements may change a local or an array element that expression `e` reads."""
    read = {x.array for x in loads(e)}, set(locals_read(e))
    return any(
        local_changed(s) in read[1] or (isinstance(s, ir.Store | ir.Update) and s.array in read[0])
        for s in nested_statements(body)
    )
