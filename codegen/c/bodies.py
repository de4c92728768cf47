"""Writes the statements of a body as they are: scalar C, one iteration of its outermost loop at a time."""

from __future__ import annotations

from collections.abc import Callable

from ...kernels.ir import kernel as ir
from ...kernels.ir.effects import arrays_written
from ...kernels.ir.task import Problem
from ...kernels.ir.walk import locals_read, nested_statements
from ..plan import TaskPlan
from . import csyntax as c
from .block import Block, Value, Writer
from .cprint import expression
from .point import row_strides
from .vectors import type_name

_SUMS = {"add": "+", "mul": "*"}  # what OpenMP calls the reductions that compilers may reorder


class BodyWriter:
    """See `write`."""

    def __init__(self, w: Writer, problem: Problem, array_of: Callable[[str], c.CExpr]) -> None:
        self.w, self.problem, self.array_of = w, problem, array_of
        self.loops: dict[str, c.CExpr] = {}
        self.locals: dict[str, Value] = {}
        self.is_free = False  # whether sums may be reordered

    def write(self, task: TaskPlan, variables: dict[tuple[int, str, int], c.CExpr]) -> None:
        """Writes the body for the values of the loop variables in force; locals belong to one iteration."""
        assert task.task.body is not None
        self.loops = {loop: x for (t, loop, _), x in variables.items() if t == task.index}
        self.w.blocks.append(Block())
        self.is_free = task.task.fast_math
        body = task.task.body.statements
        self.declare_locals(body)
        self.statements(body)
        written = tuple(self.w.blocks.pop().statements)
        self.w.write(c.Scope(written))
        for array in arrays_written(task.task):
            self.w.forget(array)

    def declare_locals(self, body: tuple[ir.Stmt, ...]) -> None:
        for s in body:
            match s:
                case ir.SetLocal(name, value):
                    if name not in self.locals:
                        kind = value.dtype
                        self.locals[name] = Value(c.Id(self.w.fresh(name)), kind)
                        zero = c.Num("0")
                        place = self.locals[name].x
                        assert isinstance(place, c.Id)
                        self.w.write(c.Declare(type_name(kind, 0), place.name, zero))
                case ir.For(body=inner):
                    self.declare_locals(inner)
                case ir.If(then=then, orelse=orelse):
                    self.declare_locals(then)
                    self.declare_locals(orelse)

    def statements(self, body: tuple[ir.Stmt, ...]) -> None:
        for s in body:
            match s:
                case ir.For(loop, extent, inner):
                    self.loop(loop, extent, inner)
                case ir.SetLocal(name, value):
                    held = self.locals[name]
                    self.w.write(
                        c.Assign(held.x, self.w.converted(self.evaluate(value), held.dtype).x)
                    )
                case ir.UpdateLocal(name, op, value):
                    self.update(self.locals[name], op, self.evaluate(value))
                case ir.Store(array, indices, value):
                    place = self.element(array, indices)
                    self.w.write(
                        c.Assign(place.x, self.w.converted(self.evaluate(value), place.dtype).x)
                    )
                case ir.Update(array, indices, op, value):
                    self.update(self.element(array, indices), op, self.evaluate(value))
                case ir.If(condition, then, orelse):
                    test = self.evaluate(condition).x
                    self.w.write(c.If(test, self.nested(then), self.nested(orelse)))

    def nested(self, body: tuple[ir.Stmt, ...]) -> tuple[c.CStmt, ...]:
        self.w.blocks.append(Block())
        self.statements(body)
        return tuple(self.w.blocks.pop().statements)

    def loop(self, loop: str, extent: ir.Expr, body: tuple[ir.Stmt, ...]) -> None:
        name = self.w.fresh(loop)
        outer = self.loops.get(loop)
        self.loops[loop] = c.Id(name)
        inner = self.nested(body)
        is_innermost = not any(isinstance(s, ir.For) for s in nested_statements(body))
        is_free = self.is_free and is_innermost
        sums = self.sums_of(body) if is_free else ()
        hi = self.evaluate(extent).x
        self.w.write(c.For(name, c.Num("0"), hi, 1, inner, is_free, sums))
        self.w.used.discard(name)
        if outer is not None:
            self.loops[loop] = outer

    def sums_of(self, body: tuple[ir.Stmt, ...]) -> tuple[tuple[str, str], ...]:
        """The operators and variables of a loop that does nothing but sum up; () where it does anything else."""
        ops: dict[str, str] = {}
        for s in body:
            if not isinstance(s, ir.UpdateLocal) or s.op not in _SUMS:
                return ()
            if ops.setdefault(s.name, s.op) != s.op:
                return ()
        if any(ops.keys() & locals_read(s.value) for s in body if isinstance(s, ir.UpdateLocal)):
            return ()
        return tuple((_SUMS[op], expression(self.locals[name].x)) for name, op in ops.items())

    def update(self, place: Value, op: str, value: Value) -> None:
        value = self.w.converted(value, place.dtype)
        self.w.write(c.Assign(place.x, self.w.combine(op, place, value).x))

    def element(self, array: str, indices: tuple[ir.Expr, ...]) -> Value:
        info = self.problem.array(array)
        flat: c.CExpr = c.Num("0")
        for index, stride in zip(indices, row_strides(info.shape), strict=True):
            x = self.evaluate(index).x
            flat = c.add(flat, x if stride == 1 else c.Bin("*", x, c.number(stride)))
        return Value(c.Index(self.array_of(array), flat), info.dtype)

    def evaluate(self, e: ir.Expr) -> Value:
        def leaf(x: ir.Expr) -> Value:
            match x:
                case ir.Load(array, indices):
                    return self.element(array, indices)
                case ir.LoopIndex(loop, dtype):
                    return Value(c.CastTo(type_name(dtype, 0), self.loops[loop]), dtype)
                case ir.Local(name):
                    return self.locals[name]
            raise AssertionError(x)

        return self.w.evaluate(e, leaf)
