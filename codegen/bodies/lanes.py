"""SPMD vectorisation of a loop: lanes run several iterations at once, each with branches and indices of its own.

After ISPC (Pharr, Mark, ispc: A SPMD Compiler for High-Performance CPU Programming, InPar 2012). Uniform values stay scalar;
varying values are vectors with an element a lane. A mask marks the live lanes. A branch narrows it for its block, which is skipped
if no lane is left; a while loop runs as long as one is. Contiguous elements are loaded and stored as vectors, others gathered and
scattered; updates of elements that lanes may share are made lane by lane. Each lane computes the same as the scalar loop, in the
same order. `fast_math` permits two differences: sums may be reordered, and functions may be those of vectors
(codegen/bodies/vector_functions.py).

To write a loop: `refusal` of kernels/analysis/vectorisable.py tests if it is possible. `LaneWriter(...).loop(lo, hi)` gives the
statements of the whole loop, `.whole(lo, hi)` those of iterations that fill all lanes, `.iterations(first, n)` those of one vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...kernels.analysis.uniformity import Uniformity, looks_up
from ...kernels.analysis.write_rows import (
    Write,
    WriteRow,
    is_free,
    operator_of,
    write_rows,
    written_out,
)
from ...kernels.ir import kernel as ir
from ...kernels.ir.kernel import DType
from ...kernels.ir.walk import blocks, children, identified, local_changed, nested_statements, size
from ...kernels.transforms.narrow_locals import with_narrow_locals
from ..plan.schedules import Lanes
from ..text import csyntax as c
from ..text.constants import neutral
from ..text.types import type_name
from .emitter import Block, Builder
from .lanes_neighbours import NearLoads
from .lanes_scope import Iterations, LaneScope
from .lanes_values import BOOL, LaneAddress, LaneValues, extents_in
from .memory import Value

__all__ = ["Iterations", "LaneScope", "LaneWriter", "Lanes"]
# A branch of so many operations runs in all lanes without a test. Compilers then find what it has in common with others.
_FEW_NODES = 256


class LaneWriter:
    """Writes the loop of `lanes` vectorised: `width` iterations at once.

    Locals of its body begin as 0 in each iteration.
    """

    def __init__(
        self, w: Builder, scope: LaneScope, lanes: Lanes, body: tuple[ir.Stmt, ...]
    ) -> None:
        body = identified(body)
        uniformity = Uniformity(lanes.loop, body, frozenset(scope.sums))
        # What is kept is read whole behind.
        own = uniformity.varying - scope.sums.keys() - scope.kept.keys()
        narrow = with_narrow_locals(body, extents_in(scope, body), own)
        self.w, self.scope, self.lanes, self.body = w, scope, lanes, narrow
        self.v = LaneValues(w, scope, lanes, narrow, uniformity)
        self._is_free = is_free(narrow)

    def loop(self, lo: c.CExpr, hi: c.CExpr) -> tuple[c.CStmt, ...]:
        """Returns the iterations from `lo` to `hi`, masked where they do not fill all lanes, and the final sums."""
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

    def iterations(self, first: c.CExpr, n: c.CExpr | None) -> tuple[c.CStmt, ...]:
        """Returns the code of at most `width` iterations at once, from `first` on.

        `n`: their number, at least 1; None: as many as lanes.
        """
        self.w.blocks.append(Block())
        self.v.first, self.v.mask = first, self.v.everyone
        if n is not None:
            self.v.mask = self.v.named(c.Call(self.v.m.first(), (n,)), BOOL, "live")
        return self._each()

    def _each(self) -> tuple[c.CStmt, ...]:
        """Returns the code of the body for the lanes of the present mask; lane k runs iteration `first` + k."""
        order = self.scope.iterations.order
        if order is not None:
            at = c.Un("&", c.Index(order, self.v.first))
            call = c.Call(self.v.memory.load(DType.i32), (self.v.mask, at))
            numbers = self.v.named(call, DType.i32, self.lanes.loop)
            self.v.numbers = Value(numbers, DType.i32, self.lanes.width)
        self.v.is_live = True
        self.declare(self.body)
        self.statements(self.body)
        self._keep()
        return tuple(self.w.blocks.pop().statements)

    def _keep(self) -> None:
        """Writes the values that locals have at last to the arrays of `scope.kept`."""
        for name, place in self.scope.kept.items():
            x = self.v.splat(self.v.converted(self.v.scalar.locals[name], place.dtype))
            at = c.Un("&", c.Index(place.x, c.Num("0")))
            self.w.write(c.Evaluate(c.Call(self.v.memory.store_all(place.dtype), (at, x.x))))

    def whole(self, lo: c.CExpr, hi: c.CExpr) -> tuple[c.CStmt, ...]:
        """Returns the iterations from `lo` to `hi`, which fill all lanes, without masks; and the final sums."""
        self.w.blocks.append(Block())
        partial = self._begin_sums()
        first = self.w.fresh(self.lanes.loop)
        inner = self.iterations(c.Id(first), None)
        self.w.write(c.For(first, lo, hi, self.lanes.width, inner))
        self.w.used.discard(first)
        self._end_sums(partial)
        return tuple(self.w.blocks.pop().statements)

    def loop_and_rest(self, n: c.CExpr) -> tuple[c.CStmt, ...]:
        """Returns the first `n` iterations: whole vectors without masks, the others in one with a mask, and the final sums."""
        self.w.blocks.append(Block())
        width, loop = c.number(self.lanes.width), self.lanes.loop
        end, whole = c.Id(self.w.fresh(f"{loop}_end")), c.Id(self.w.fresh(f"{loop}_whole"))
        self.w.write(c.Declare("long", end.name, n, constant=True))
        n_whole = c.Bin("*", c.Bin("/", end, width), width)
        self.w.write(c.Declare("long", whole.name, n_whole, constant=True))
        partial = self._begin_sums()
        outside = dict(self.v.scalar.locals)
        first = self.w.fresh(loop)
        inner = self.iterations(c.Id(first), None)
        self.w.write(c.For(first, c.Num("0"), whole, self.lanes.width, inner))
        self.w.used.discard(first)
        self.v.scalar.locals = outside
        rest = self.iterations(whole, c.Bin("-", end, whole))
        self.w.write(c.If(c.Bin("<", whole, end), rest))
        self._end_sums(partial)
        return tuple(self.w.blocks.pop().statements)

    def _begin_sums(self) -> dict[str, Value]:
        """Declares a vector of partial sums for each reduction.

        Returns the outer locals to which they are added at the end.
        """
        outer = {name: self.scope.locals[name] for name in self.scope.sums}
        for name, op in self.scope.sums.items():
            dtype = outer[name].dtype
            place = self.w.fresh(f"{name}_lanes")
            start = self.v.splat(Value(neutral(op, dtype), dtype))
            self.w.write(c.Declare(self.v.m.type(dtype), place, start.x))
            self.v.scalar.locals[name] = Value(c.Id(place), dtype, self.lanes.width)
        return outer

    def _end_sums(self, outer: Mapping[str, Value]) -> None:
        for name, op in self.scope.sums.items():
            of_lanes, place = self.v.scalar.locals[name], outer[name]
            folded = c.Call(self.v.ops.fold(op, place.dtype), (of_lanes.x,))
            self.w.write(self.v.scalar.updated(place, op, Value(folded, place.dtype)))

    def declare(self, body: tuple[ir.Stmt, ...]) -> None:
        for s in body:
            name = local_changed(s)
            if isinstance(s, ir.LocalArray) and name not in self.v.scalar.locals:
                self.declare_array(s)
            elif name and name not in self.v.scalar.locals:
                self.declare_local(name, self._dtype_of(s))
            for block in blocks(s):
                self.declare(block)

    def _dtype_of(self, s: ir.Stmt) -> DType:
        if isinstance(s, ir.Update):
            return self.scope.problem.array(s.array).dtype
        assert isinstance(s, ir.SetLocal | ir.UpdateLocal | ir.LocalArray)
        return s.value.dtype

    def declare_local(self, name: str, dtype: DType) -> None:
        if name not in self.v.uniformity.varying:
            self.v.scalar.declare(name, dtype)
            return
        place = self.w.fresh(name)
        kind = self.v.m.type(dtype)
        zero = self.v.splat(Value(c.Num("0"), dtype)).x
        self.v.scalar.locals[name] = Value(c.Id(place), dtype, self.lanes.width)
        self.w.write(c.Declare(kind, place, zero))

    def declare_array(self, s: ir.LocalArray) -> None:
        dtype, place = s.value.dtype, self.w.fresh(s.name)
        is_varying = s.name in self.v.uniformity.varying
        kind = self.v.m.type(dtype) if is_varying else type_name(dtype, 0)
        self.v.scalar.locals[s.name] = Value(c.Id(place), dtype, self.lanes.width * is_varying)
        self.w.write(c.Declare(kind, place, None, s.extent))

    def statements(self, body: tuple[ir.Stmt, ...]) -> None:
        body = written_out(body, self._may_row, self._dtype)
        rows = write_rows(body, self._may_row, self._dtype)
        values: dict[Write, c.CExpr] = {}
        near, around = NearLoads(self.v, body), self.v.near
        for at, s in enumerate(body):
            near.before(at)
            with self.w.rounding(self.scope.rounding.level(s)):
                if isinstance(s, Write) and at in rows:
                    self.row(rows[at], s, values)
                else:
                    self.statement(s)
        self.v.near = around

    def statement(self, s: ir.Stmt) -> None:
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

    def _dtype(self, array: str) -> DType:
        return self.scope.problem.array(array).dtype

    def _may_row(self, s: Write) -> bool:
        """True if a write may be made together with writes of neighbouring elements, as one row (lanes_rows.py)."""
        around, dtype = self.scope.iterations, self._dtype(s.array)
        if isinstance(s, ir.Update):
            may = (around.in_any_order or dtype.is_integer) and not around.is_shared(s)
        else:
            may = around.stores_rows
        if not (may and self.v.rows.has(dtype) and self._is_free(s)):
            return False
        place = self.v.place(s.array, s.indices)
        return place.offsets is not None or place.stride > 1  # else lanes are side by side

    def row(self, row: WriteRow, s: Write, values: dict[Write, c.CExpr]) -> None:
        """Adds the value of write `s` to `values`.

        Writes the whole row (contiguous elements) once all values are there.
        """
        dtype = self._dtype(s.array)
        value = self.v.splat(self.v.converted(self.v.evaluate(s.value), dtype)).x
        values[s] = self.v.named(value, dtype, "part")
        if not all(u in values for u in row.writes):
            return
        parts = [values.pop(u) for u in row.writes]
        place = self.v.place(s.array, row.writes[0].indices)
        at = self.v.address(s.array, place)
        function = self.v.rows.update(operator_of(s), dtype, len(parts))
        args = (at, self.v.mask, self.v.lane_offsets(place), *parts)
        self.w.write(c.Evaluate(c.Call(function, args)))

    def nested(self, body: tuple[ir.Stmt, ...]) -> tuple[c.CStmt, ...]:
        self.w.blocks.append(Block())
        self.statements(body)
        return tuple(self.w.blocks.pop().statements)

    def set(self, s: ir.Stmt, name: str, value: ir.Expr) -> None:
        held = self.v.scalar.locals[name]
        if name in self.scope.iterations.kept:
            found = self.known(self.scope.iterations.kept[name], held.dtype)
            self.assign(s, held, Value(found, held.dtype, self.lanes.width))
            return
        self.assign(s, held, self.v.converted(self.v.evaluate(value), held.dtype))

    def known(self, kept: c.CExpr, dtype: DType) -> c.CExpr:
        """Returns the values that array `kept` has for the iterations."""
        if self.v.numbers is None:
            at = c.Un("&", c.Index(kept, self.v.first))
            return c.Call(self.v.memory.load(dtype), (self.v.mask, at))
        first = c.Un("&", c.Index(kept, c.Num("0")))
        args = (self.v.mask, first, self.v.numbers.x)
        return c.Call(self.v.memory.gather(dtype), args)

    def update_local(self, s: ir.Stmt, name: str, op: ir.ReduceOp, value: ir.Expr) -> None:
        held = self.v.scalar.locals[name]
        if not held.lanes:
            self.w.write(self.v.scalar.updated(held, op, self.v.evaluate(value)))
            return
        new = self.v.converted(self.v.evaluate(value), held.dtype)
        self.assign(s, held, self.v.binary(op, held, new, held.dtype))

    def assign(self, s: ir.Stmt, place: Value, value: Value) -> None:
        if not place.lanes:
            self.w.write(c.Assign(place.x, value.x))
            return
        x = self.v.splat(value).x
        if not (self.v.uniformity.is_whole(s) or self.v.mask is self.v.everyone):
            x = c.Call(self.v.ops.select(place.dtype), (self.v.mask, x, place.x))
        self.w.write(c.Assign(place.x, x))

    def begin_array(self, s: ir.LocalArray) -> None:
        held, k = self.v.scalar.locals[s.name], self.w.fresh("k")
        start = self.v.converted(self.v.evaluate(s.value), held.dtype)
        self.w.blocks.append(Block())
        self.assign(s, replace(held, x=c.Index(held.x, c.Id(k))), start)
        fill = tuple(self.w.blocks.pop().statements)
        self.w.write(c.For(k, c.Num("0"), c.number(s.extent), 1, fill))
        self.w.used.discard(k)

    def set_element(self, s: ir.SetElement) -> None:
        held = self.v.scalar.locals[s.name]
        value = self.v.converted(self.v.evaluate(s.value), held.dtype)
        if not self.v.varies(s.index):
            at = c.Index(held.x, self.v.scalar_index(s.index))
            self.assign(s, replace(held, x=at), value)
            return
        place, offsets = self.v.elements_of(held, s.index)
        args = (place, self.v.mask, offsets, self.v.splat(value).x)
        self.w.write(c.Evaluate(c.Call(self.v.memory.scatter(held.dtype), args)))

    def branch(self, s: ir.If) -> None:
        if not self.v.varies(s.condition):
            test = self.v.evaluate(s.condition).x
            self.w.write(c.If(test, self.nested(s.then), self.nested(s.orelse)))
            return
        outer, was_live = self.v.mask, self.v.is_live
        condition = self.v.evaluate(s.condition).x
        then = self.v.named(self.v.masks("and", outer, condition), BOOL, "then")
        self.masked(s.then, then)
        if s.orelse:
            self.masked(s.orelse, self.v.named(self.v.masks("without", outer, then), BOOL, "other"))
        self.v.mask, self.v.is_live = outer, was_live

    def masked(self, body: tuple[ir.Stmt, ...], mask: c.CExpr) -> None:
        """Writes statements for the lanes of `mask`.

        A test skips them if no lane is live, unless they are cheap and safe without a live lane
        (`_is_cheap`).
        """
        self.v.mask = mask
        if not body:
            return
        if _is_cheap(body):
            self.v.is_live = False
            self.statements(body)
            return
        self.v.is_live = True
        self.w.write(c.If(self.v.any(mask), self.nested(body)))

    def loop_while(self, s: ir.While) -> None:
        if not self.v.varies(s.condition):
            self.w.write(c.While(self.v.evaluate(s.condition).x, self.nested(s.body)))
            return
        outer, was_live = self.v.mask, self.v.is_live
        live = c.Id(self.w.fresh("live"))
        start = self.v.masks("and", outer, self.v.evaluate(s.condition).x)
        self.w.write(c.Declare(self.v.m.mask, live.name, start))
        self.v.mask, self.v.is_live = live, True
        self.w.blocks.append(Block())
        self.statements(s.body)
        goes_on = self.v.masks("and", live, self.v.evaluate(s.condition).x)
        self.w.write(c.Assign(live, goes_on))
        inner = tuple(self.w.blocks.pop().statements)
        self.w.write(c.While(self.v.any(live), inner))
        self.v.mask, self.v.is_live = outer, was_live

    def inner_loop(self, s: ir.For) -> None:
        """Writes a loop inside the body: all lanes run the same iteration, masked off once their own loop has ended."""
        index = c.Id(self.w.fresh(s.loop))
        around = self.v.scalar.loops.get(s.loop)
        self.v.scalar.loops[s.loop] = index
        if not self.v.varies(s.extent):
            end = c.Id(self.w.fresh(f"{s.loop}_end"))
            hi = self.v.evaluate(s.extent).x
            self.w.write(c.Declare("long", end.name, hi, constant=True))
            self.w.write(c.For(index.name, c.Num("0"), end, 1, self.nested(s.body)))
        else:
            self._varying_loop(s, index)
        self.w.used.discard(index.name)
        if around is not None:
            self.v.scalar.loops[s.loop] = around

    def _varying_loop(self, s: ir.For, index: c.Id) -> None:
        outer, was_live = self.v.mask, self.v.is_live
        extent = self.v.evaluate(s.extent)
        end = self.v.named(extent.x, extent.dtype, f"{s.loop}_end")
        live = c.Id(self.w.fresh("live"))

        def left(at: c.CExpr) -> c.CExpr:
            here = self.v.splat(Value(c.CastTo(type_name(extent.dtype, 0), at), extent.dtype))
            return c.Call(self.v.ops.compare("lt", extent.dtype), (here.x, end))

        self.w.write(
            c.Declare(self.v.m.mask, live.name, self.v.masks("and", outer, left(c.Num("0"))))
        )
        self.w.write(c.Declare("long", index.name, c.Num("0")))
        self.v.mask, self.v.is_live = live, True
        self.w.blocks.append(Block())
        self.statements(s.body)
        self.w.write(c.Assign(index, c.Num("1"), "+"))
        self.w.write(c.Assign(live, self.v.masks("and", live, left(index))))
        inner = tuple(self.w.blocks.pop().statements)
        self.w.write(c.While(self.v.any(live), inner))
        self.v.mask, self.v.is_live = outer, was_live

    def store(self, s: ir.Store) -> None:
        dtype = self.scope.problem.array(s.array).dtype
        value = self.v.splat(self.v.converted(self.v.evaluate(s.value), dtype)).x
        self.put(s.array, self.v.place(s.array, s.indices), value, dtype)

    def put(self, array: str, place: LaneAddress, x: c.CExpr, dtype: DType) -> None:
        at = self.v.address(array, place)
        if place.offsets is None and place.stride == 1:
            if self.v.mask is self.v.everyone:
                call = c.Call(self.v.memory.store_all(dtype), (at, x))
            else:
                call = c.Call(self.v.memory.store(dtype), (at, self.v.mask, x))
        else:
            args = (at, self.v.mask, self.v.lane_offsets(place), x)
            call = c.Call(self.v.memory.scatter(dtype), args)
        self.w.write(c.Evaluate(call))

    def update(self, s: ir.Update) -> None:
        """Writes an update of array elements: as vectors if all lanes have different elements, otherwise lane by lane."""
        dtype = self.scope.problem.array(s.array).dtype
        place = self.v.place(s.array, s.indices)
        value = self.v.splat(self.v.converted(self.v.evaluate(s.value), dtype)).x
        atomic = self.scope.iterations.is_shared(s)
        at = self.v.address(s.array, place)
        if place.offsets is None and place.stride != 0 and not atomic:
            if place.stride == 1:
                old = self.v.side_by_side(at, dtype)
            else:
                args = (self.v.mask, at, self.v.lane_offsets(place))
                old = c.Call(self.v.memory.gather(dtype), args)
            held = Value(self.v.named(old, dtype, f"{s.array}_old"), dtype, self.lanes.width)
            new = self.v.binary(s.op, held, Value(value, dtype, self.lanes.width), dtype)
            self.put(s.array, place, new.x, dtype)
            if s.result:
                self.assign(s, self.v.scalar.locals[s.result], held)
            return
        function = self.v.memory.update(s.op, dtype, atomic)
        call = c.Call(function, (at, self.v.mask, self.v.lane_offsets(place), value))
        if not s.result:
            self.w.write(c.Evaluate(call))
            return
        old_name = self.w.fresh(f"{s.result}_old")
        self.w.write(c.Declare(self.v.m.type(dtype), old_name))
        self.w.write(c.Assign(c.Id(old_name), call))
        found = Value(c.Id(old_name), dtype, self.lanes.width)
        self.assign(s, self.v.scalar.locals[s.result], found)


def _is_cheap(body: tuple[ir.Stmt, ...]) -> bool:
    """True if a block costs no more than the test that would skip it, and is safe if no lane is live."""
    nodes = 0
    for s in nested_statements(body):
        if not isinstance(s, ir.SetLocal | ir.UpdateLocal | ir.Store | ir.If):
            return False
        for e in children(s):
            if looks_up(e):
                return False
            nodes += size(e)
    return nodes <= _FEW_NODES
