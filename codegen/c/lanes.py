"""Runs iterations of a loop in lanes: one vector instruction for several of them, each with branches and indices of its own.

After ISPC (Pharr, Mark, ispc: A SPMD Compiler for High-Performance CPU Programming, InPar 2012). What is uniform stays scalar;
what varies is a vector with an element a lane. A mask says which lanes are live: a branch narrows it for its block, which is
skipped where no lane is left, and a while loop goes on as long as one is. Elements side by side are loaded and stored as vectors,
others gathered and scattered; updates of elements that lanes may share are made lane by lane. Each lane computes what the scalar
loop computes, in the same order, but for sums that may be reordered, and functions of vectors of libmvec (4 ulp) where `fast_math`
allows them.

To write a loop: ask `refusal` whether it can be done; then `LaneWriter(...).loop(lo, hi)` gives the statements of the whole loop,
or `.iterations(first, n)` those of one vector of iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ...kernels.ir import kernel as ir
from ...kernels.ir.kernel import DType
from ...kernels.ir.task import Problem
from ...kernels.ir.walk import blocks, children, local_changed, nested_statements, size, walk
from . import csyntax as c
from .block import Block, Writer
from .constants import constant, neutral
from .lanes_helpers import LaneHelpers
from .lanes_uniform import Ranges, Uniformity
from .memory import Value
from .point import row_strides
from .vectors import operator, type_name

I32, I64, BOOL = DType.i32, DType.i64, DType.bool_
# A branch of so many operations is done by all lanes rather than asked for: compilers then find what it has in common with others.
_FEW_NODES = 256
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


@dataclass(frozen=True)
class Lanes:
    """The loop `loop` runs `width` iterations at once, on vectors of `vector_bytes`."""

    loop: str
    width: int
    vector_bytes: int


@dataclass(frozen=True)
class LaneScope:
    """What is known around a loop that runs in lanes.

    `array_of`: the C expression of an array's first element. `loops`, `locals`: the values of loop indices and locals from outside,
    which are uniform; `extents` are the lengths of loops, the one in lanes too, where they are constants. `sums`: locals from
    outside that the loop reduces into and does not read. `is_shared`: updates that are atomic.
    """

    problem: Problem
    array_of: Callable[[str], c.CExpr]
    loops: Mapping[str, c.CExpr]
    locals: Mapping[str, Value]
    extents: Mapping[str, int]
    sums: Mapping[str, ir.ReduceOp] = field(default_factory=dict)
    is_shared: Callable[[ir.Update], bool] = lambda update: False
    fast_math: bool = True


def refusal(body: tuple[ir.Stmt, ...], problem: Problem) -> str:
    """Why a body cannot run in lanes, as the end of a sentence; "" where it can, if its iterations are independent."""
    arrays = set[str]()
    for s in nested_statements(body):
        if isinstance(s, ir.Print | ir.Assert):
            return "it prints" if isinstance(s, ir.Print) else "it asserts"
        if isinstance(s, ir.LocalArray) and s.value.dtype is BOOL:
            return "it has local arrays of bools"
        if isinstance(s, ir.Store | ir.Update):
            arrays.add(s.array)
        for e in children(s):
            for x in walk(e):
                if isinstance(x, ir.LocalElement):
                    return "it has a local array"
                if x.dtype is DType.f16:
                    return "it computes in halves"
                if isinstance(x, ir.Load):
                    arrays.add(x.array)
    for name in sorted(arrays):
        info = problem.array(name)
        if info.dtype in (DType.f16, BOOL):
            return f"{name} has elements of {info.dtype.name}"
        n = 1
        for extent in info.shape:
            n *= extent
        if n >= 2**31:
            return f"{name} has more elements than indices of 32 bits"
    return ""


@dataclass(frozen=True)
class _Place:
    """An element a lane: `base` of the first lane, then `stride` apart, and `offsets` (i32) more, where there are any."""

    base: c.CExpr
    stride: int
    offsets: c.CExpr | None


class LaneWriter:
    """Writes the loop of `lanes` with this body. Its own locals begin as 0 in each iteration."""

    def __init__(
        self, w: Writer, scope: LaneScope, lanes: Lanes, body: tuple[ir.Stmt, ...]
    ) -> None:
        from .bodies import BodyWriter

        self.w, self.scope, self.lanes, self.body = w, scope, lanes, body
        self.h = LaneHelpers(w.prelude, lanes.width, lanes.vector_bytes, not scope.fast_math)
        self.uniformity = Uniformity(lanes.loop, body, frozenset(scope.sums))
        self.varies = self.uniformity.varies
        extents = dict(scope.extents)
        for s in nested_statements(body):
            if isinstance(s, ir.For) and isinstance(s.extent, ir.Const):
                extents[s.loop] = int(s.extent.value)
        self.ranges = Ranges(extents)
        self.mask: c.CExpr = c.Id("")
        self.is_live = True  # whether some lane of `mask` is surely live
        self.first: c.CExpr = c.Id("")  # the index of the first lane
        # Uniform values are written as those of scalar bodies are.
        self.scalar = BodyWriter(w, scope.problem, scope.array_of, scope.is_shared)
        self.scalar.is_free, self.scalar.plain_indices = scope.fast_math, True
        self.scalar.loops, self.scalar.locals = dict(scope.loops), dict(scope.locals)
        self.affine = self._affine_locals()

    def _affine_locals(self) -> dict[str, ir.Expr]:
        """Locals of the top level that are set once, to functions of loop indices alone."""
        changed = [local_changed(s) for s in nested_statements(self.body)]
        found: dict[str, ir.Expr] = {}
        for s in self.body:
            if (
                isinstance(s, ir.SetLocal)
                and changed.count(s.name) == 1
                and s.value.dtype.is_index
                and all(
                    isinstance(x, ir.LoopIndex | ir.Const | ir.Cast | ir.Binary)
                    for x in walk(s.value)
                )
                and all(x.dtype.is_index for x in walk(s.value))
            ):
                found[s.name] = s.value
        return found

    # --- the loop

    def loop(self, lo: c.CExpr, hi: c.CExpr) -> tuple[c.CStmt, ...]:
        """The iterations from lo to hi, and what they sum up."""
        width = self.lanes.width
        self.w.blocks.append(Block())
        partial = self._begin_sums()
        first = self.w.fresh(self.lanes.loop)
        left = c.Bin("-", hi, c.Id(first))
        inner = self.iterations(c.Id(first), left)
        self.w.write(c.For(first, lo, hi, width, inner))
        self.w.used.discard(first)
        self._end_sums(partial)
        return tuple(self.w.blocks.pop().statements)

    def iterations(self, first: c.CExpr, n: c.CExpr) -> tuple[c.CStmt, ...]:
        """The iterations first, first + 1 and so on, n of them and at most one a lane; n is at least 1."""
        self.w.blocks.append(Block())
        self.first = first
        self.mask = self.named(c.Call(self.h.first(), (n,)), BOOL, "live")
        self.is_live = True
        self.declare(self.body)
        self.statements(self.body)
        return tuple(self.w.blocks.pop().statements)

    def _begin_sums(self) -> dict[str, Value]:
        """Each lane begins its own sum; what they add up to comes to the local afterwards."""
        outer = {name: self.scope.locals[name] for name in self.scope.sums}
        for name, op in self.scope.sums.items():
            dtype = outer[name].dtype
            place = self.w.fresh(f"{name}_lanes")
            start = self.splat(Value(neutral(op, dtype), dtype))
            self.w.write(c.Declare(self.h.type(dtype), place, start.x))
            self.scalar.locals[name] = Value(c.Id(place), dtype, self.lanes.width)
        return outer

    def _end_sums(self, outer: Mapping[str, Value]) -> None:
        for name, op in self.scope.sums.items():
            of_lanes, place = self.scalar.locals[name], outer[name]
            folded = c.Call(self.h.fold(op, place.dtype), (of_lanes.x,))
            self.scalar.update(place, op, Value(folded, place.dtype))

    def declare(self, body: tuple[ir.Stmt, ...]) -> None:
        for s in body:
            name = local_changed(s)
            if isinstance(s, ir.LocalArray) and name not in self.scalar.locals:
                self.declare_array(s)
            elif name and name not in self.scalar.locals:
                self.declare_local(name, self._dtype_of(s))
            for block in blocks(s):
                self.declare(block)

    def _dtype_of(self, s: ir.Stmt) -> DType:
        if isinstance(s, ir.Update):
            return self.scope.problem.array(s.array).dtype
        assert isinstance(s, ir.SetLocal | ir.UpdateLocal | ir.LocalArray)
        return s.value.dtype

    def declare_local(self, name: str, dtype: DType) -> None:
        if name not in self.uniformity.varying:
            self.scalar.declare_local(name, dtype)
            return
        place = self.w.fresh(name)
        kind = self.h.type(dtype)
        zero = self.splat(Value(c.Num("0"), dtype)).x
        self.scalar.locals[name] = Value(c.Id(place), dtype, self.lanes.width)
        self.w.write(c.Declare(kind, place, zero))

    def declare_array(self, s: ir.LocalArray) -> None:
        dtype, place = s.value.dtype, self.w.fresh(s.name)
        is_varying = s.name in self.uniformity.varying
        kind = self.h.type(dtype) if is_varying else type_name(dtype, 0)
        self.scalar.locals[s.name] = Value(c.Id(place), dtype, self.lanes.width * is_varying)
        self.w.write(c.Declare(kind, place, None, s.extent))

    def named(self, x: c.CExpr, dtype: DType, stem: str) -> c.CExpr:
        if isinstance(x, c.Id):
            return x
        name = self.w.fresh(stem)
        self.w.write(c.Declare(self.h.type(dtype), name, x, constant=True))
        return c.Id(name)

    # --- statements

    def statements(self, body: tuple[ir.Stmt, ...]) -> None:
        for s in body:
            match s:
                case ir.SetLocal(name, value):
                    self.set(s, name, value)
                case ir.UpdateLocal(name, op, value):
                    self.update_local(s, name, op, value)
                case ir.LocalArray():
                    self.begin_array(s)
                case ir.SetElement():
                    self.set_element(s)
                case ir.Store():
                    self.store(s)
                case ir.Update():
                    self.update(s)
                case ir.If():
                    self.branch(s)
                case ir.While():
                    self.loop_while(s)
                case ir.For():
                    self.inner_loop(s)
                case _:
                    raise AssertionError(s)

    def nested(self, body: tuple[ir.Stmt, ...]) -> tuple[c.CStmt, ...]:
        self.w.blocks.append(Block())
        self.statements(body)
        return tuple(self.w.blocks.pop().statements)

    def set(self, s: ir.Stmt, name: str, value: ir.Expr) -> None:
        held = self.scalar.locals[name]
        self.assign(s, held, self.converted(self.evaluate(value), held.dtype))

    def update_local(self, s: ir.Stmt, name: str, op: ir.ReduceOp, value: ir.Expr) -> None:
        held = self.scalar.locals[name]
        if not held.lanes:
            self.scalar.update(held, op, self.evaluate(value))
            return
        new = self.converted(self.evaluate(value), held.dtype)
        self.assign(s, held, self.binary(op, held, new, held.dtype))

    def assign(self, s: ir.Stmt, place: Value, value: Value) -> None:
        if not place.lanes:
            self.w.write(c.Assign(place.x, value.x))
            return
        x = self.splat(value).x
        if not self.uniformity.is_whole(s):
            x = c.Call(self.h.select(place.dtype), (self.mask, x, place.x))
        self.w.write(c.Assign(place.x, x))

    def begin_array(self, s: ir.LocalArray) -> None:
        held, k = self.scalar.locals[s.name], self.w.fresh("k")
        start = self.converted(self.evaluate(s.value), held.dtype)
        self.w.blocks.append(Block())
        self.assign(s, replace(held, x=c.Index(held.x, c.Id(k))), start)
        fill = tuple(self.w.blocks.pop().statements)
        self.w.write(c.For(k, c.Num("0"), c.number(s.extent), 1, fill))
        self.w.used.discard(k)

    def set_element(self, s: ir.SetElement) -> None:
        held = self.scalar.locals[s.name]
        value = self.converted(self.evaluate(s.value), held.dtype)
        if not self.varies(s.index):
            at = c.Index(held.x, self.scalar_index(s.index))
            self.assign(s, replace(held, x=at), value)
            return
        place, offsets = self.elements_of(held, s.index)
        args = (place, self.mask, offsets, self.splat(value).x)
        self.w.write(c.Evaluate(c.Call(self.h.scatter(held.dtype), args)))

    def elements_of(self, held: Value, index: ir.Expr) -> tuple[c.CExpr, c.CExpr]:
        """Where a local array begins, and how far from there each lane's element is. Vectors of lanes lie one behind the other."""
        place = c.Un("&", c.Index(c.CastTo(f"{type_name(held.dtype, 0)} *", held.x), c.Num("0")))
        offsets = self.in_32_bits(index)
        if held.lanes:
            own = c.Call(self.h.iota(I32), (c.Num("0"),))
            offsets = self._index_op("add", self._times(offsets, self.lanes.width), own)
        return place, offsets

    def local_element(self, e: ir.LocalElement) -> Value:
        held = self.scalar.locals[e.name]
        if self.varies(e.index):
            place, offsets = self.elements_of(held, e.index)
            call = c.Call(self.h.gather(held.dtype), (self.mask, place, offsets))
            return Value(call, held.dtype, self.lanes.width)
        x: c.CExpr = c.Index(held.x, self.scalar_index(e.index))
        if not self.is_live and not isinstance(e.index, ir.Const):
            nothing = Value(c.Num("0"), held.dtype)
            zero = self.splat(nothing).x if held.lanes else nothing.x
            x = c.Cond(self.any(self.mask), x, zero)
        return replace(held, x=x)

    def branch(self, s: ir.If) -> None:
        if not self.varies(s.condition):
            test = self.evaluate(s.condition).x
            self.w.write(c.If(test, self.nested(s.then), self.nested(s.orelse)))
            return
        outer, was_live = self.mask, self.is_live
        condition = self.evaluate(s.condition).x
        then = self.named(self.masks("and", outer, condition), BOOL, "then")
        self.masked(s.then, then)
        if s.orelse:
            self.masked(s.orelse, self.named(self.masks("without", outer, then), BOOL, "other"))
        self.mask, self.is_live = outer, was_live

    def masked(self, body: tuple[ir.Stmt, ...], mask: c.CExpr) -> None:
        """The statements for the lanes of a mask; skipped where there are none, if that pays or only then nothing goes wrong."""
        self.mask = mask
        if not body:
            return
        if _is_cheap(body):
            self.is_live = False
            self.statements(body)
            return
        self.is_live = True
        self.w.write(c.If(self.any(mask), self.nested(body)))

    def masks(self, op: str, a: c.CExpr, b: c.CExpr) -> c.CExpr:
        return c.Call(self.h.mask_operation(op), (a, b))

    def negated(self, x: Value) -> Value:
        everywhere = c.Call(self.h.of_bool(), (c.Num("1"),))
        return Value(self.masks("without", everywhere, x.x), BOOL, x.lanes)

    def any(self, mask: c.CExpr) -> c.CExpr:
        return c.Call(self.h.any(), (mask,))

    def loop_while(self, s: ir.While) -> None:
        if not self.varies(s.condition):
            self.w.write(c.While(self.evaluate(s.condition).x, self.nested(s.body)))
            return
        outer, was_live = self.mask, self.is_live
        live = c.Id(self.w.fresh("live"))
        start = self.masks("and", outer, self.evaluate(s.condition).x)
        self.w.write(c.Declare(self.h.mask, live.name, start))
        self.mask, self.is_live = live, True
        self.w.blocks.append(Block())
        self.statements(s.body)
        goes_on = self.masks("and", live, self.evaluate(s.condition).x)
        self.w.write(c.Assign(live, goes_on))
        inner = tuple(self.w.blocks.pop().statements)
        self.w.write(c.While(self.any(live), inner))
        self.mask, self.is_live = outer, was_live

    def inner_loop(self, s: ir.For) -> None:
        """All lanes are in the same iteration, as long as theirs last."""
        index = c.Id(self.w.fresh(s.loop))
        around = self.scalar.loops.get(s.loop)
        self.scalar.loops[s.loop] = index
        if not self.varies(s.extent):
            end = c.Id(self.w.fresh(f"{s.loop}_end"))
            hi = self.evaluate(s.extent).x
            self.w.write(c.Declare("long", end.name, hi, constant=True))
            self.w.write(c.For(index.name, c.Num("0"), end, 1, self.nested(s.body)))
        else:
            self._varying_loop(s, index)
        self.w.used.discard(index.name)
        if around is not None:
            self.scalar.loops[s.loop] = around

    def _varying_loop(self, s: ir.For, index: c.Id) -> None:
        outer, was_live = self.mask, self.is_live
        extent = self.evaluate(s.extent)
        end = self.named(extent.x, extent.dtype, f"{s.loop}_end")
        live = c.Id(self.w.fresh("live"))

        def left(at: c.CExpr) -> c.CExpr:
            here = self.splat(Value(c.CastTo(type_name(extent.dtype, 0), at), extent.dtype))
            return c.Call(self.h.compare("lt", extent.dtype), (here.x, end))

        self.w.write(c.Declare(self.h.mask, live.name, self.masks("and", outer, left(c.Num("0")))))
        self.w.write(c.Declare("long", index.name, c.Num("0")))
        self.mask, self.is_live = live, True
        self.w.blocks.append(Block())
        self.statements(s.body)
        self.w.write(c.Assign(index, c.Num("1"), "+"))
        self.w.write(c.Assign(live, self.masks("and", live, left(index))))
        inner = tuple(self.w.blocks.pop().statements)
        self.w.write(c.While(self.any(live), inner))
        self.mask, self.is_live = outer, was_live

    # --- memory

    def place(self, array: str, indices: tuple[ir.Expr, ...]) -> _Place:
        info = self.scope.problem.array(array)
        base: c.CExpr = c.Num("0")
        stride, offsets = 0, list[c.CExpr]()
        for index, step in zip(indices, row_strides(info.shape), strict=True):
            u, k, more = self._split(index)
            base = c.add(base, u if step == 1 or u == c.Num("0") else c.Bin("*", u, c.number(step)))
            stride += k * step
            for x in more:
                offsets.append(x if step == 1 else self._times(x, step))
        total: c.CExpr | None = None
        for x in offsets:
            total = x if total is None else self._index_op("add", total, x)
        return _Place(base, stride, total)

    def _split(self, e: ir.Expr) -> tuple[c.CExpr, int, list[c.CExpr]]:
        """An index as what is uniform, a multiple of the lane's number, and what else varies, in 32 bits.

        Sums that wrap around are no index of any array, and of arrays with less than 2^31 elements the last 32 bits are enough.
        """
        zero = c.Num("0")
        if not self.varies(e):
            return self.scalar_index(e), 0, []
        match e:
            case ir.LoopIndex():
                return self.first, 1, []
            case ir.Local(name) if name in self.affine:
                return self._split(self.affine[name])
            case ir.Cast(x, dtype) if x.dtype.is_index and dtype.is_index:
                if dtype.size_bytes >= x.dtype.size_bytes:
                    return self._split(x)
            case ir.Binary("add" | "sub" as op, a, b, dtype) if dtype.is_index:
                (u, k, more), (v, n, others) = self._split(a), self._split(b)
                if op == "add":
                    return c.add(u, v), k + n, [*more, *others]
                negative = [self._index_op("sub", self._whole(0), x) for x in others]
                return c.minus(u, v), k - n, [*more, *negative]
            case ir.Binary("mul", a, ir.Const(value=int(factor)), dtype) if dtype.is_index:
                return self._scaled(self._split(a), factor)
            case ir.Binary("mul", ir.Const(value=int(factor)), b, dtype) if dtype.is_index:
                return self._scaled(self._split(b), factor)
        return zero, 0, [self.in_32_bits(e)]

    def _scaled(
        self, x: tuple[c.CExpr, int, list[c.CExpr]], factor: int
    ) -> tuple[c.CExpr, int, list[c.CExpr]]:
        u, k, more = x
        return c.Bin("*", u, c.number(factor)), k * factor, [self._times(m, factor) for m in more]

    def _whole(self, value: int) -> c.CExpr:
        return self.splat(Value(c.number(value), I32)).x

    def _times(self, x: c.CExpr, factor: int) -> c.CExpr:
        return self._index_op("mul", x, self._whole(I32.wrapped(factor)))

    def _index_op(self, op: str, a: c.CExpr, b: c.CExpr) -> c.CExpr:
        return c.Call(self.h.operation(op, I32), (a, b))

    def in_32_bits(self, e: ir.Expr) -> c.CExpr:
        """The last 32 bits of an integer that varies."""
        narrow = self.ranges.narrowed(e)
        if narrow is not None:
            return self.evaluate(narrow).x
        if isinstance(e, ir.Binary) and e.op in ("add", "sub", "mul") and e.dtype is I64:
            return self._index_op(e.op, self.in_32_bits(e.a), self.in_32_bits(e.b))
        found = self.evaluate(e)
        return self.converted(self.splat(found), I32).x

    def scalar_index(self, e: ir.Expr) -> c.CExpr:
        if _looks_up(e) and not self.is_live:
            return c.CastTo("long", self.evaluate(e).x)
        return self.scalar.index(e)

    def address(self, array: str, place: _Place) -> c.CExpr:
        return c.Un("&", c.Index(self.scope.array_of(array), place.base))

    def lane_offsets(self, place: _Place) -> c.CExpr:
        """How far each lane's element is from the first one's base."""
        if place.stride == 0:
            return self._whole(0) if place.offsets is None else place.offsets
        steps: c.CExpr = c.Call(self.h.iota(I32), (c.Num("0"),))
        if place.stride != 1:
            steps = self._times(steps, place.stride)
        return steps if place.offsets is None else self._index_op("add", steps, place.offsets)

    def load(self, e: ir.Load) -> Value:
        place = self.place(e.array, e.indices)
        dtype = self.scope.problem.array(e.array).dtype
        at = self.address(e.array, place)
        width = self.lanes.width
        if place.offsets is None and place.stride == 1:
            return Value(c.Call(self.h.load(dtype), (self.mask, at)), dtype, width)
        if place.offsets is None and place.stride == 0:
            return self.uniform_load(e)
        args = (self.mask, at, self.lane_offsets(place))
        return Value(c.Call(self.h.gather(dtype), args), dtype, width)

    def uniform_load(self, e: ir.Load) -> Value:
        """An element for all lanes; 0 where none is live, whose index may be outside of the array."""
        place = self.place(e.array, e.indices)
        dtype = self.scope.problem.array(e.array).dtype
        x: c.CExpr = c.Index(self.scope.array_of(e.array), place.base)
        if not self.is_live:
            x = c.Cond(self.any(self.mask), x, c.Num("0"))
        return Value(x, dtype)

    def store(self, s: ir.Store) -> None:
        dtype = self.scope.problem.array(s.array).dtype
        value = self.splat(self.converted(self.evaluate(s.value), dtype)).x
        self.put(s.array, self.place(s.array, s.indices), value, dtype)

    def put(self, array: str, place: _Place, x: c.CExpr, dtype: DType) -> None:
        at = self.address(array, place)
        if place.offsets is None and place.stride == 1:
            call = c.Call(self.h.store(dtype), (at, self.mask, x))
        else:
            args = (at, self.mask, self.lane_offsets(place), x)
            call = c.Call(self.h.scatter(dtype), args)
        self.w.write(c.Evaluate(call))

    def update(self, s: ir.Update) -> None:
        """Lanes with elements of their own update them at once, others one after the other."""
        dtype = self.scope.problem.array(s.array).dtype
        place = self.place(s.array, s.indices)
        value = self.splat(self.converted(self.evaluate(s.value), dtype)).x
        atomic = self.scope.is_shared(s)
        at = self.address(s.array, place)
        if place.offsets is None and place.stride != 0 and not atomic:
            if place.stride == 1:
                old = c.Call(self.h.load(dtype), (self.mask, at))
            else:
                args = (self.mask, at, self.lane_offsets(place))
                old = c.Call(self.h.gather(dtype), args)
            held = Value(self.named(old, dtype, f"{s.array}_old"), dtype, self.lanes.width)
            new = self.binary(s.op, held, Value(value, dtype, self.lanes.width), dtype)
            self.put(s.array, place, new.x, dtype)
            if s.result:
                self.assign(s, self.scalar.locals[s.result], held)
            return
        function = self.h.update(s.op, dtype, atomic)
        call = c.Call(function, (at, self.mask, self.lane_offsets(place), value))
        if not s.result:
            self.w.write(c.Evaluate(call))
            return
        old_name = self.w.fresh(f"{s.result}_old")
        self.w.write(c.Declare(self.h.type(dtype), old_name))
        self.w.write(c.Assign(c.Id(old_name), call))
        found = Value(c.Id(old_name), dtype, self.lanes.width)
        self.assign(s, self.scalar.locals[s.result], found)

    # --- values

    def splat(self, value: Value) -> Value:
        """The value in all lanes."""
        if value.lanes:
            return value
        function = self.h.of_bool() if value.dtype is BOOL else self.h.splat(value.dtype)
        return Value(c.Call(function, (value.x,)), value.dtype, self.lanes.width)

    def converted(self, value: Value, dtype: DType) -> Value:
        """The value in another type, as `Writer.cast`."""
        if value.dtype is dtype:
            return value
        if not value.lanes:
            return self.w.cast(value, value.dtype, dtype)
        width = self.lanes.width
        if dtype is BOOL:
            zero = self.splat(Value(constant(0, value.dtype), value.dtype))
            call = c.Call(self.h.compare("ne", value.dtype), (value.x, zero.x))
            return Value(call, BOOL, width)
        if value.dtype is BOOL:
            sides = [self.splat(Value(constant(n, dtype), dtype)).x for n in (1, 0)]
            return Value(c.Call(self.h.select(dtype), (value.x, *sides)), dtype, width)
        return Value(c.Call(self.h.convert(dtype, value.dtype), (value.x,)), dtype, width)

    def evaluate(self, e: ir.Expr) -> Value:
        """The value of an expression: scalar where it is uniform."""
        if not self.varies(e):
            return self.w.evaluate(e, self._uniform_leaf)
        width = self.lanes.width
        match e:
            case ir.LoopIndex(_, dtype):
                first = c.CastTo(type_name(dtype, 0), self.first)
                return Value(c.Call(self.h.iota(dtype), (first,)), dtype, width)
            case ir.Local(name):
                return self.scalar.locals[name]
            case ir.LocalElement():
                return self.local_element(e)
            case ir.Load():
                return self.load(e)
            case ir.Cast(x, dtype):
                narrow = self.ranges.narrowed(x) if dtype is not BOOL else None
                return self.converted(self.evaluate(x if narrow is None else narrow), dtype)
            case ir.Bitcast(x, dtype):
                call = c.Call(self.h.bitcast(dtype, x.dtype), (self.evaluate(x).x,))
                return Value(call, dtype, width)
            case ir.Select():
                return self.select(e)
            case ir.Compare(op, a, b):
                return self.compare(op, a, b)
            case ir.Binary("and" | "or" as op, a, b):
                return self.logical(op, a, b)
            case ir.Binary(op, a, b, dtype):
                return self.arithmetic(op, a, b, dtype)
            case ir.Unary(op, x, dtype):
                return self.unary(op, self.evaluate(x), dtype)
        raise AssertionError(e)

    def _uniform_leaf(self, e: ir.Expr) -> Value:
        if isinstance(e, ir.Load):
            return self.uniform_load(e)
        if isinstance(e, ir.LocalElement):
            return self.local_element(e)
        return self.scalar.evaluate(e)

    def select(self, e: ir.Select) -> Value:
        a, b = self.evaluate(e.a), self.evaluate(e.b)
        condition = self.evaluate(e.condition)
        a, b = self.splat(a), self.splat(b)
        if not condition.lanes:
            return Value(c.Cond(condition.x, a.x, b.x), e.dtype, self.lanes.width)
        call = c.Call(self.h.select(e.dtype), (condition.x, a.x, b.x))
        return Value(call, e.dtype, self.lanes.width)

    def compare(self, op: str, a: ir.Expr, b: ir.Expr) -> Value:
        left, right = self.ranges.narrowed(a), self.ranges.narrowed(b)
        if left is not None and right is not None:
            a, b = left, right
        x, y = self.splat(self.evaluate(a)), self.splat(self.evaluate(b))
        if x.dtype is BOOL:
            assert op in ("eq", "ne")
            differ = Value(self.masks("xor", x.x, y.x), BOOL, x.lanes)
            return differ if op == "ne" else self.negated(differ)
        return Value(c.Call(self.h.compare(op, x.dtype), (x.x, y.x)), BOOL, x.lanes)

    def logical(self, op: str, a: ir.Expr, b: ir.Expr) -> Value:
        """The second operand is only looked at where the first one does not decide."""
        x = self.splat(self.evaluate(a))
        outer, was_live = self.mask, self.is_live
        if _looks_up(b):
            first = Value(self.named(x.x, BOOL, "first"), BOOL, x.lanes)
            asked = self.masks("and" if op == "and" else "without", outer, first.x)
            self.mask = self.named(asked, BOOL, "asked")
            self.is_live, x = False, first
        y = self.splat(self.evaluate(b))
        self.mask, self.is_live = outer, was_live
        return Value(self.masks(op, x.x, y.x), BOOL, x.lanes)

    def arithmetic(self, op: str, a: ir.Expr, b: ir.Expr, dtype: DType) -> Value:
        if dtype in (I32, I64) and isinstance(b, ir.Const) and op in ("floordiv", "mod"):
            d = int(b.value)
            if d > 0 and d & (d - 1) == 0:  # shifts and ends of numbers round down, too
                by = d.bit_length() - 1 if op == "floordiv" else d - 1
                amount = Value(constant(by, dtype), dtype)
                return self.binary(
                    "shr" if op == "floordiv" else "bit_and", self.evaluate(a), amount, dtype
                )
        return self.binary(op, self.evaluate(a), self.evaluate(b), dtype)

    def binary(self, op: str, a: Value, b: Value, dtype: DType) -> Value:
        width = self.lanes.width
        sign = operator(op, dtype)
        if sign is not None and not self.h.is_pair(dtype):
            if not dtype.is_float:
                a, b = self.splat(a), self.splat(b)
            return Value(c.Bin(sign, a.x, b.x), dtype, width)
        a, b = self.splat(a), self.splat(b)
        return Value(c.Call(self.h.operation(op, dtype), (a.x, b.x)), dtype, width)

    def unary(self, op: str, x: Value, dtype: DType) -> Value:
        width = self.lanes.width
        if op == "not":
            return self.negated(x)
        if op == "isnan":
            named = self.named(x.x, x.dtype, "x")
            return Value(c.Call(self.h.compare("ne", x.dtype), (named, named)), BOOL, width)
        if op == "isinf":
            size_of = c.Call(self.h.operation("abs", x.dtype), (x.x,))
            infinite = self.splat(Value(constant(float("inf"), x.dtype), x.dtype))
            return Value(c.Call(self.h.compare("eq", x.dtype), (size_of, infinite.x)), BOOL, width)
        if op == "neg" and dtype.is_float and not self.h.is_pair(dtype):
            return Value(c.Un("-", x.x), dtype, width)
        return Value(c.Call(self.h.operation(op, x.dtype), (x.x,)), dtype, width)


def _looks_up(e: ir.Expr) -> bool:
    """Whether an expression has indices that may be outside in lanes that are not live."""
    return any(
        isinstance(x, ir.Load)
        or (isinstance(x, ir.LocalElement) and not isinstance(x.index, ir.Const))
        for x in walk(e)
    )


def _is_cheap(body: tuple[ir.Stmt, ...]) -> bool:
    """Whether a block is done for lanes that need it not sooner than it is asked whether any does. Nothing in it may go wrong."""
    nodes = 0
    for s in nested_statements(body):
        if not isinstance(s, ir.SetLocal | ir.UpdateLocal | ir.Store | ir.If):
            return False
        for e in children(s):
            if _looks_up(e):
                return False
            nodes += size(e)
    return nodes <= _FEW_NODES
