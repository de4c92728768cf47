"""Expressions and array elements in vectorised loops, for the statements that `LaneWriter` writes (codegen/bodies/lanes.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...kernels.analysis.uniformity import Uniformity, affine_locals, looks_up
from ...kernels.analysis.value_ranges import Ranges
from ...kernels.ir import kernel as ir
from ...kernels.ir.intervals import Range
from ...kernels.ir.kernel import DType
from ...kernels.ir.walk import nested_statements
from ...kernels.transforms.narrow_locals import ranges_of_locals
from ..plan.schedules import Lanes
from ..text import csyntax as c
from ..text.constants import constant
from ..text.types import type_name
from .body_values import BodyValues
from .emitter import Builder
from .iteration_point import row_strides
from .lanes_masks import LaneMasks
from .lanes_memory import LaneMemory
from .lanes_operations import LaneOperations
from .lanes_rows import LaneRows
from .lanes_scope import LaneScope
from .memory import Value
from .vectors import operator

I32, I64, BOOL = DType.i32, DType.i64, DType.bool_


@dataclass(frozen=True)
class LaneAddress:
    """Address of one array element per lane: lane l accesses `base + stride * l`, plus its `offsets` (i32) if present."""

    base: c.CExpr
    stride: int
    offsets: c.CExpr | None


@dataclass(frozen=True)
class _Index:
    """An index split into parts: `base` + `stride` * lane + `offsets`.

    `base`: uniform over lanes, within `reach`. `offsets`: terms that vary freely, by their last 32 bits.
    """

    base: c.CExpr
    stride: int
    offsets: tuple[c.CExpr, ...]
    reach: Range


def _keeps_apart(reach: Range, n_elements: int) -> bool:
    """True if the distance from a base within `reach` to any of `n_elements` elements surely fits into 32 bits."""
    return reach[1] <= 2**31 and n_elements - reach[0] <= 2**31


def extents_in(scope: LaneScope, body: tuple[ir.Stmt, ...]) -> dict[str, int]:
    """Returns the known extents of the loops around a body, and of those in it."""
    extents = dict(scope.extents)
    for s in nested_statements(body):
        if isinstance(s, ir.For) and isinstance(s.extent, ir.Const):
            extents[s.loop] = int(s.extent.value)
    return extents


class LaneValues:
    """Translates the expressions of a vectorised loop's body to C, under the present mask."""

    def __init__(
        self,
        w: Builder,
        scope: LaneScope,
        lanes: Lanes,
        body: tuple[ir.Stmt, ...],
        uniformity: Uniformity,
    ) -> None:
        self.w, self.scope, self.lanes, self.body = w, scope, lanes, body
        self.m = LaneMasks(w.prelude, lanes.width, lanes.vector_bytes, scope.ulp)
        self.ops = LaneOperations(self.m)
        self.memory, self.rows = LaneMemory(self.m, self.ops), LaneRows(self.m)
        self.uniformity = uniformity
        self.varies = self.uniformity.varies
        extents = extents_in(scope, body)
        self.ranges = Ranges(extents, ranges_of_locals(body, extents))
        self.mask: c.CExpr = c.Id("")
        # The mask where all lanes are live.
        self.everyone: c.CExpr = c.Call(self.m.first(), (c.number(lanes.width),))
        self.is_live = True  # whether some lane of `mask` is surely live
        self.first: c.CExpr = c.Id("")  # the index of the first lane, or its place in the order
        self.numbers: Value | None = None  # of the iterations, where they do not follow one another
        # Uniform values are written as those of scalar bodies are.
        self.scalar = BodyValues(w, scope.problem, scope.array_of, plain_indices=True)
        self.scalar.loops, self.scalar.locals = dict(scope.loops), dict(scope.locals)
        self.affine = affine_locals(body)
        self.near: Mapping[ir.Load, c.CExpr] = {}  # of the statement that is written, in registers

    def named(self, x: c.CExpr, dtype: DType, stem: str) -> c.CExpr:
        if isinstance(x, c.Id):
            return x
        name = self.w.fresh(stem)
        self.w.write(c.Declare(self.m.type(dtype), name, x, constant=True))
        return c.Id(name)

    def masks(self, op: str, a: c.CExpr, b: c.CExpr) -> c.CExpr:
        if op == "and" and a is self.everyone:
            return b
        return c.Call(self.m.mask_operation(op), (a, b))

    def negated(self, x: Value) -> Value:
        everywhere = c.Call(self.m.of_bool(), (c.Num("1"),))
        return Value(self.masks("without", everywhere, x.x), BOOL, x.lanes)

    def any(self, mask: c.CExpr) -> c.CExpr:
        return c.Call(self.m.any(), (mask,))

    def splat(self, value: Value) -> Value:
        """Returns `value` with the same element in all lanes."""
        if value.lanes:
            return value
        function = self.m.of_bool() if value.dtype is BOOL else self.ops.splat(value.dtype)
        return Value(c.Call(function, (value.x,)), value.dtype, self.lanes.width)

    def converted(self, value: Value, dtype: DType) -> Value:
        """Returns `value` converted to `dtype`, as `Builder.cast`."""
        if value.dtype is dtype:
            return value
        if not value.lanes:
            return self.w.cast(value, value.dtype, dtype)
        width = self.lanes.width
        if dtype is BOOL:
            zero = self.splat(Value(constant(0, value.dtype), value.dtype))
            call = c.Call(self.ops.compare("ne", value.dtype), (value.x, zero.x))
            return Value(call, BOOL, width)
        if value.dtype is BOOL:
            sides = [self.splat(Value(constant(n, dtype), dtype)).x for n in (1, 0)]
            return Value(c.Call(self.ops.select(dtype), (value.x, *sides)), dtype, width)
        return Value(c.Call(self.ops.convert(dtype, value.dtype), (value.x,)), dtype, width)

    def evaluate(self, e: ir.Expr) -> Value:
        """Returns the C value of an expression: a scalar if it is uniform over lanes, otherwise a vector."""
        if not self.varies(e):
            return self.w.evaluate(e, self._uniform_leaf)
        if (level := self.w.level_of(e)) > self.w.level:
            with self.w.rounding(level):
                return self.evaluate(e)
        width = self.lanes.width
        match e:
            case ir.LoopIndex(_, dtype) if self.numbers is not None:
                return self.converted(self.numbers, dtype)
            case ir.LoopIndex(_, dtype):
                first = c.CastTo(type_name(dtype, 0), self.first)
                return Value(c.Call(self.ops.iota(dtype), (first,)), dtype, width)
            case ir.Local(name):
                return self.scalar.locals[name]
            case ir.LocalElement():
                return self.local_element(e)
            case ir.Load():
                return self.load(e)
            case ir.Cast(x, dtype):
                if dtype is I32 and x.dtype is I64:
                    return Value(self.in_32_bits(x), I32, width)
                narrow = self.ranges.narrowed(x) if dtype is not BOOL else None
                return self.converted(self.evaluate(x if narrow is None else narrow), dtype)
            case ir.Bitcast(x, dtype):
                call = c.Call(self.ops.bitcast(dtype, x.dtype), (self.evaluate(x).x,))
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
        call = c.Call(self.ops.select(e.dtype), (condition.x, a.x, b.x))
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
        return Value(c.Call(self.ops.compare(op, x.dtype), (x.x, y.x)), BOOL, x.lanes)

    def logical(self, op: str, a: ir.Expr, b: ir.Expr) -> Value:
        """Returns `a op b`.

        Loads in `b` are masked: only lanes in which `a` does not decide the result make them.
        """
        x = self.splat(self.evaluate(a))
        outer, was_live = self.mask, self.is_live
        if looks_up(b):
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
        exact = self.w.exact(op, dtype)
        sign = operator(op, dtype) if exact is None else None
        if sign is not None and not self.m.is_pair(dtype):
            if not dtype.is_float:
                a, b = self.splat(a), self.splat(b)
            return Value(c.Bin(sign, a.x, b.x), dtype, width)
        a, b = self.splat(a), self.splat(b)
        call = c.Call(self.ops.operation(exact or op, dtype), (a.x, b.x))
        return Value(call, dtype, width)

    def unary(self, op: str, x: Value, dtype: DType) -> Value:
        width = self.lanes.width
        if op == "not":
            return self.negated(x)
        if op == "isnan":
            named = self.named(x.x, x.dtype, "x")
            return Value(c.Call(self.ops.compare("ne", x.dtype), (named, named)), BOOL, width)
        if op == "isinf":
            size_of = c.Call(self.ops.operation("abs", x.dtype), (x.x,))
            infinite = self.splat(Value(constant(float("inf"), x.dtype), x.dtype))
            return Value(
                c.Call(self.ops.compare("eq", x.dtype), (size_of, infinite.x)), BOOL, width
            )
        if op == "neg" and dtype.is_float and not self.m.is_pair(dtype):
            return Value(c.Un("-", x.x), dtype, width)
        return Value(c.Call(self.ops.operation(op, x.dtype), (x.x,)), dtype, width)

    def place(self, array: str, indices: tuple[ir.Expr, ...]) -> LaneAddress:
        found, n_elements = self._flat(array, indices)
        total, tile = self._total(found), self.scope.iterations.tiles.get(array)
        first = found.base if tile is None else c.minus(found.base, tile.origin)
        if total is None or _keeps_apart(found.reach, n_elements):
            return LaneAddress(first, found.stride, total)
        return LaneAddress(c.Num("0"), found.stride, self._from_nowhere(first, total))

    def flat_offsets(self, array: str, indices: tuple[ir.Expr, ...], more: int) -> c.CExpr:
        """Returns a C vector with each lane's flat index into the stored array, plus `more`."""
        found, _ = self._flat(array, indices)
        first = c.add(found.base, c.number(more))
        offsets = self.lane_offsets(LaneAddress(first, found.stride, self._total(found)))
        return offsets if first == c.Num("0") else self._from_nowhere(first, offsets)

    def _flat(self, array: str, indices: tuple[ir.Expr, ...]) -> tuple[_Index, int]:
        """Returns the flat index of an array element, and the number of elements between the array's first and last.

        The index is split into a uniform part, a stride from lane to lane and offsets that vary (`_Index`). Strides are those of
        the array's tile, if it has one.
        """
        info, tile = self.scope.problem.array(array), self.scope.iterations.tiles.get(array)
        found = _Index(c.Num("0"), 0, (), (0, 0))
        strides = row_strides(info.shape if tile is None else tile.shape)
        for index, step in zip(indices, strides, strict=True):
            x = self._split(index)
            found = self._sum(found, x if step == 1 else self._scaled(x, step))
        return found, sum(n * step for n, step in zip(info.shape, strides, strict=True))

    def _total(self, x: _Index) -> c.CExpr | None:
        total: c.CExpr | None = None
        for offset in x.offsets:
            total = offset if total is None else self._index_op("add", total, offset)
        return total

    def _from_nowhere(self, first: c.CExpr, offsets: c.CExpr) -> c.CExpr:
        base = self.splat(Value(c.CastTo(type_name(I32, 0), first), I32)).x
        return self._index_op("add", base, offsets)

    def _split(self, e: ir.Expr) -> _Index:
        """Returns index `e` in parts.

        A sum that wraps around is out of range anyway, so it need not be preserved.
        """
        if not self.varies(e):
            return _Index(self.scalar_index(e), 0, (), self.ranges.of(e))
        match e:
            case ir.LoopIndex() if self.numbers is not None:
                return _Index(c.Num("0"), 0, (self.numbers.x,), (0, 0))
            case ir.LoopIndex():
                return _Index(self.first, 1, (), self.ranges.of(e))
            case ir.Local(name) if name in self.affine:
                return self._split(self.affine[name])
            case ir.Cast(x, dtype) if x.dtype.is_index and dtype.is_index:
                if dtype.size_bytes >= x.dtype.size_bytes:
                    return self._split(x)
            case ir.Binary("add" | "sub" as op, a, b, dtype) if dtype.is_index:
                return self._sum(self._split(a), self._split(b), op == "sub")
            case ir.Binary("mul", a, ir.Const(value=int(factor)), dtype) if dtype.is_index:
                return self._scaled(self._split(a), factor)
            case ir.Binary("mul", ir.Const(value=int(factor)), b, dtype) if dtype.is_index:
                return self._scaled(self._split(b), factor)
        return _Index(c.Num("0"), 0, (self.in_32_bits(e),), (0, 0))

    def _sum(self, x: _Index, y: _Index, is_difference: bool = False) -> _Index:
        low, high = (-y.reach[1], -y.reach[0]) if is_difference else y.reach
        reach = x.reach[0] + low, x.reach[1] + high
        if not is_difference:
            both = (*x.offsets, *y.offsets)
            return _Index(c.add(x.base, y.base), x.stride + y.stride, both, reach)
        negative = [self._index_op("sub", self._whole(0), offset) for offset in y.offsets]
        both = (*x.offsets, *negative)
        return _Index(c.minus(x.base, y.base), x.stride - y.stride, both, reach)

    def _scaled(self, x: _Index, factor: int) -> _Index:
        base = x.base if x.base == c.Num("0") else c.Bin("*", x.base, c.number(factor))
        offsets = tuple(self._times(offset, factor) for offset in x.offsets)
        ends = [end * factor for end in x.reach]
        return _Index(base, x.stride * factor, offsets, (min(ends), max(ends)))

    def _whole(self, value: int) -> c.CExpr:
        return self.splat(Value(c.number(value), I32)).x

    def _times(self, x: c.CExpr, factor: int) -> c.CExpr:
        return self._index_op("mul", x, self._whole(I32.wrapped(factor)))

    def _index_op(self, op: str, a: c.CExpr, b: c.CExpr) -> c.CExpr:
        return c.Call(self.ops.operation(op, I32), (a, b))

    def in_32_bits(self, e: ir.Expr) -> c.CExpr:
        """Returns a C vector with the last 32 bits of integer expression `e`."""
        narrow = self.ranges.narrowed(e)
        if narrow is not None:
            return self.splat(self.evaluate(narrow)).x
        if isinstance(e, ir.Binary) and e.op in ("add", "sub", "mul") and e.dtype is I64:
            return self._index_op(e.op, self.in_32_bits(e.a), self.in_32_bits(e.b))
        if isinstance(e, ir.Cast) and e.dtype is I64 and e.x.dtype is DType.u32:
            e = e.x
        if isinstance(e, ir.Select) and e.dtype is I64:
            e = ir.Select(e.condition, ir.Cast(e.a, I32), ir.Cast(e.b, I32), I32)
        return self.splat(self.converted(self.evaluate(e), I32)).x

    def scalar_index(self, e: ir.Expr) -> c.CExpr:
        if looks_up(e) and not self.is_live:
            return c.CastTo("long", self.evaluate(e).x)
        return self.scalar.index(e)

    def address(self, array: str, place: LaneAddress) -> c.CExpr:
        tile = self.scope.iterations.tiles.get(array)
        held = self.scope.array_of(array) if tile is None else tile.base
        return c.Un("&", c.Index(held, place.base))

    def lane_offsets(self, place: LaneAddress) -> c.CExpr:
        """Returns a C vector with the distance of each lane's element from the address's base."""
        if place.stride == 0:
            return self._whole(0) if place.offsets is None else place.offsets
        steps: c.CExpr = c.Call(self.ops.iota(I32), (c.Num("0"),))
        if place.stride != 1:
            steps = self._times(steps, place.stride)
        return steps if place.offsets is None else self._index_op("add", steps, place.offsets)

    def load(self, e: ir.Load) -> Value:
        dtype = self.scope.problem.array(e.array).dtype
        if self.near and e in self.near:
            return Value(self.near[e], dtype, self.lanes.width)
        place = self.place(e.array, e.indices)
        at = self.address(e.array, place)
        width = self.lanes.width
        if place.offsets is None and place.stride == 1:
            return Value(self.side_by_side(at, dtype), dtype, width)
        if place.offsets is None and place.stride == 0:
            return self.uniform_load(e)
        args = (self.mask, at, self.lane_offsets(place))
        return Value(c.Call(self.memory.gather(dtype), args), dtype, width)

    def side_by_side(self, at: c.CExpr, dtype: DType) -> c.CExpr:
        """Returns a C vector of contiguous elements from address `at` on, one per lane."""
        if self.mask is self.everyone:
            return c.Call(self.memory.load_all(dtype), (at,))
        return c.Call(self.memory.load(dtype), (self.mask, at))

    def uniform_load(self, e: ir.Load) -> Value:
        """Returns the element that all lanes load.

        0 if no lane is live, since its index may then be out of range.
        """
        place = self.place(e.array, e.indices)
        dtype = self.scope.problem.array(e.array).dtype
        x: c.CExpr = c.Index(self.scope.array_of(e.array), place.base)
        if not self.is_live:
            x = c.Cond(self.any(self.mask), x, c.Num("0"))
        return Value(x, dtype)

    def elements_of(self, held: Value, index: ir.Expr) -> tuple[c.CExpr, c.CExpr]:
        """Returns the address of a local array, and C text of each lane's distance (in elements) from it.

        If the elements are vectors over lanes, they are contiguous, one vector after the other.
        """
        place = c.Un("&", c.Index(c.CastTo(f"{type_name(held.dtype, 0)} *", held.x), c.Num("0")))
        offsets = self.in_32_bits(index)
        if held.lanes:
            own = c.Call(self.ops.iota(I32), (c.Num("0"),))
            offsets = self._index_op("add", self._times(offsets, self.lanes.width), own)
        return place, offsets

    def local_element(self, e: ir.LocalElement) -> Value:
        held = self.scalar.locals[e.name]
        if self.varies(e.index):
            place, offsets = self.elements_of(held, e.index)
            call = c.Call(self.memory.gather(held.dtype), (self.mask, place, offsets))
            return Value(call, held.dtype, self.lanes.width)
        x: c.CExpr = c.Index(held.x, self.scalar_index(e.index))
        if not self.is_live and not isinstance(e.index, ir.Const):
            nothing = Value(c.Num("0"), held.dtype)
            zero = self.splat(nothing).x if held.lanes else nothing.x
            x = c.Cond(self.any(self.mask), x, zero)
        return replace(held, x=x)
