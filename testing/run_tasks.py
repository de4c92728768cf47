"""Running a Problem task by task in NumPy: what its tasks mean, said without the statements they
came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.ir import kernel as ir
from ..kernels.ir.affine import Affine, to_affine
from ..kernels.ir.body import Body
from ..kernels.ir.domain import Loop
from ..kernels.ir.ops import OPS
from ..kernels.ir.repeats import flag_of, with_steps
from ..kernels.ir.task import Problem, Task

Array = NDArray[Any]


def run_tasks(
    problem: Problem,
    arrays: Mapping[str, Array],
    scalars: Mapping[str, Any],
    *,
    float64: bool = False,
) -> dict[str, Array]:
    """New arrays, by name, after the sequence; the given ones stay as they are. Temporaries hold
    garbage at first.

    `arrays` holds every non-temporary array of the problem. `float64` computes every float in
    double precision.
    """
    store: dict[str, Array] = {}
    for a in problem.arrays:
        dtype = _numpy(a.dtype, float64)
        if a.role == "temp":
            poison = np.nan if a.dtype.is_float else -77
            store[a.name] = np.full(a.shape, poison, dtype)
        else:
            store[a.name] = np.array(arrays[a.name], dtype)
    with np.errstate(all="ignore"):
        for k, steps in with_steps(len(problem.tasks), problem.repeats, flag_of(store)):
            _Run(store, scalars, float64, steps).task(problem.tasks[k])
    return {a.name: store[a.name] for a in problem.arrays if a.role != "temp"}


def _numpy(dtype: ir.DType, float64: bool) -> np.dtype[Any]:
    return np.dtype(np.float64) if float64 and dtype.is_float else dtype.numpy


class _Run:
    def __init__(
        self,
        store: dict[str, Array],
        scalars: Mapping[str, Any],
        float64: bool,
        steps: Mapping[str, int],
    ) -> None:
        self.store = store
        self.scalars = scalars
        self.float64 = float64
        self.loops: dict[str, Any] = dict(steps)  # loop -> index, or open grid of indices
        self.locals: dict[str, Any] = {}
        self.accumulator: Any = None

    def task(self, task: Task) -> None:
        if task.body is not None:
            self.body(task.loops, task.body)
            return
        assert task.value is not None
        if task.condition is not None:
            self.guarded(task, task.condition, task.value)
            return
        n = len(task.loops)
        for k, loop in enumerate(task.loops):
            shape = tuple(loop.extent if m == k else 1 for m in range(n))
            self.loops[loop.name] = np.arange(loop.extent).reshape(shape)
        full = tuple(loop.extent for loop in task.loops)
        value = np.broadcast_to(self.value(task.value), full)
        axes = tuple(k for k, loop in enumerate(task.loops) if loop.is_reduction)
        if task.op is not None and task.finish is not None:
            dtype = _numpy(task.dtype, self.float64)
            total = OPS[task.op].ufunc.reduce(value, axis=axes, keepdims=True, dtype=dtype)
            self.accumulator = total
            full = total.shape
            for loop in task.loops:
                if loop.is_reduction:
                    del self.loops[loop.name]  # finish must not use it
            value = np.broadcast_to(self.value(task.finish), full)
        where = tuple(
            np.broadcast_to(self.affine(axis), full)
            for axis in task.target.axes
            if axis is not None
        )
        self.store[task.target.array][where] = value

    def guarded(self, task: Task, condition: ir.Expr, value: ir.Expr) -> None:
        """One iteration after the other: elsewhere its value may not be there."""
        for cell in np.ndindex(*(loop.extent for loop in task.loops)):
            self.loops |= dict(zip((loop.name for loop in task.loops), cell, strict=True))
            if self.value(condition):
                where = tuple(int(self.affine(a)) for a in task.target.axes if a is not None)
                self.store[task.target.array][where] = self.value(value)

    def affine(self, axis: Affine) -> Any:
        return reduce(np.add, [c * self.loops[n] for n, c in axis.terms], np.asarray(axis.const))

    def body(self, loops: tuple[Loop, ...], body: Body) -> None:
        for cell in np.ndindex(*(loop.extent for loop in loops)):
            self.loops |= dict(zip((loop.name for loop in loops), cell, strict=True))
            self.locals = {}
            self.statements(body.statements)

    def statements(self, body: tuple[ir.Stmt, ...]) -> None:
        for s in body:
            self.statement(s)

    def statement(self, s: ir.Stmt) -> None:
        match s:
            case ir.For():
                affine = to_affine(s.extent)
                known = affine is not None and not affine.terms
                n = affine.const if affine and known else int(self.value(s.extent))
                for k in range(n):
                    self.loops[s.loop] = k
                    self.statements(s.body)
            case ir.If():
                self.statements(s.then if self.value(s.condition) else s.orelse)
            case ir.SetLocal():
                self.locals[s.name] = self.value(s.value)
            case ir.LocalArray():
                self.locals[s.name] = np.full(s.extent, self.value(s.value))
            case ir.SetElement():
                self.locals[s.name][int(self.value(s.index))] = self.value(s.value)
            case ir.UpdateLocal():
                old = self.locals[s.name]
                self.locals[s.name] = OPS[s.op].numpy(old, self.value(s.value))
            case ir.While():
                while self.value(s.condition):
                    self.statements(s.body)
            case ir.Store() | ir.Update():
                where = tuple(int(self.value(i)) for i in s.indices)
                value = self.value(s.value)
                array = self.store[s.array]
                old = array[where]
                array[where] = value if isinstance(s, ir.Store) else OPS[s.op].numpy(old, value)
                if isinstance(s, ir.Update) and s.result:
                    self.locals[s.result] = old

    def value(self, e: ir.Expr) -> Any:
        """The value of an expression: an array over the open grid of loops, or a scalar."""
        match e:
            case ir.Const():
                return _numpy(e.dtype, self.float64).type(e.value)
            case ir.LoopIndex():
                return self.loops[e.loop]
            case ir.Param():
                return _numpy(e.dtype, self.float64).type(self.scalars[e.name])
            case ir.Local():
                return self.locals[e.name]
            case ir.LocalElement():
                return self.locals[e.name][int(self.value(e.index))]
            case ir.Load():
                return self.store[e.array][tuple(self.value(i) for i in e.indices)]
            case ir.Accumulator():
                return self.accumulator
            case ir.Unary():
                return OPS[e.op].numpy(self.value(e.x))
            case ir.Binary():
                return OPS[e.op].numpy(self.value(e.a), self.value(e.b))
            case ir.Compare():
                return OPS[e.op].numpy(self.value(e.a), self.value(e.b))
            case ir.Select():
                return np.where(self.value(e.condition), self.value(e.a), self.value(e.b))
            case ir.Cast():
                return np.asarray(self.value(e.x)).astype(_numpy(e.dtype, self.float64))
            case ir.Bitcast():
                exact = np.asarray(self.value(e.x)).astype(e.x.dtype.numpy)
                return exact.view(e.dtype.numpy).astype(_numpy(e.dtype, self.float64))
