"""Distribution of random nests: tasks compute what the statements compute one after the other."""

from __future__ import annotations

import operator
from itertools import product
from typing import Any

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st
from kernelscape.kernels.analysis.effects import task_reads
from kernelscape.kernels.frontend.recorder import Call, Recording
from kernelscape.kernels.ir import kernel
from kernelscape.kernels.ir.access import Access, Guard
from kernelscape.kernels.ir.affine import Affine
from kernelscape.kernels.ir.task import Task
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.testing.run_tasks import run_tasks

F = kernel.DType.f64
HERE = kernel.Location("nest", 0)
ARRAYS = {"v": (7,), "w": (7,), "a": (4, 7), "r": (1,)}


@st.composite
def indices(draw: Any, array: str, loops: tuple[tuple[str, int], ...]) -> tuple[kernel.Expr, ...]:
    """Affine indices within the bounds of `array`."""
    found: list[kernel.Expr] = []
    for extent in ARRAYS[array]:
        fitting = [(n, k) for n, k in loops if k <= extent]
        if not fitting or draw(st.integers(0, 7)) == 0:
            found.append(kernel.Const(draw(st.integers(0, min(2, extent - 1))), kernel.DType.i64))
            continue
        name, k = draw(st.sampled_from(fitting))
        offset = draw(st.sampled_from((0, 0, 0, extent - k, max(0, extent - k - 1))))
        index: kernel.Expr = kernel.LoopIndex(name)
        if draw(st.integers(0, 9)) == 0:  # walks backwards
            index, offset = (
                kernel.Binary("sub", kernel.Const(0, kernel.DType.i64), index, kernel.DType.i64),
                k - 1,
            )
        found.append(
            kernel.Binary("add", index, kernel.Const(offset, kernel.DType.i64), kernel.DType.i64)
        )
    return tuple(found)


@st.composite
def values(draw: Any, loops: tuple[tuple[str, int], ...], names: tuple[str, ...]) -> kernel.Expr:
    parts: list[kernel.Expr] = []
    for _ in range(draw(st.integers(1, 2))):
        if names and draw(st.booleans()):
            parts.append(kernel.Local(draw(st.sampled_from(names)), F))
        else:
            array = draw(st.sampled_from(sorted(ARRAYS)))
            parts.append(kernel.Load(array, draw(indices(array, loops)), F))
    total = kernel.Binary("mul", kernel.Const(0.5, F), parts[0], F)
    for part in parts[1:]:
        total = kernel.Binary("add", total, part, F)
    return total


@st.composite
def conditions(
    draw: Any, loops: tuple[tuple[str, int], ...], names: tuple[str, ...], depth: int = 0
) -> kernel.Expr:
    """Of values, of parts of loops, and of residues, alone and together."""
    kind = draw(st.sampled_from(("value", "part", "residue", "and", "or", "not")))
    if depth < 2 and kind in ("and", "or"):
        a, b = (draw(conditions(loops, names, depth + 1)) for _ in range(2))
        return kernel.Binary(kind, a, b, kernel.DType.bool_)
    if depth < 2 and kind == "not":
        return kernel.Unary("not", draw(conditions(loops, names, depth + 1)), kernel.DType.bool_)
    if kind == "value" or not loops:
        return kernel.Compare(
            draw(st.sampled_from(("lt", "ge"))), draw(values(loops, names)), kernel.Const(0.0, F)
        )
    index: kernel.Expr = kernel.LoopIndex(draw(st.sampled_from(loops))[0])
    if kind == "part":
        bound = kernel.Const(draw(st.integers(0, 5)), kernel.DType.i64)
        return kernel.Compare(draw(st.sampled_from(("lt", "ge", "eq", "ne"))), index, bound)
    index = kernel.Binary(
        "add", index, kernel.LoopIndex(draw(st.sampled_from(loops))[0]), kernel.DType.i64
    )
    modulus = draw(st.integers(2, 3))
    rest = kernel.Binary("mod", index, kernel.Const(modulus, kernel.DType.i64), kernel.DType.i64)
    return kernel.Compare(
        "eq", rest, kernel.Const(draw(st.integers(0, modulus - 1)), kernel.DType.i64)
    )


@st.composite
def bodies(
    draw: Any,
    loops: tuple[tuple[str, int], ...],
    names: tuple[str, ...],
    depth: int,
    branches: bool = False,
) -> tuple[kernel.Stmt, ...]:
    result: list[kernel.Stmt] = []
    kinds = ("for", "for", "set", "add", "store", "update") + ("if", "if", "again") * branches
    for position in range(draw(st.integers(1, 4 if depth else 2))):
        kind = draw(st.sampled_from(kinds))
        if kind == "for" and depth < 3:
            loop, extent = f"l{depth}_{position}", draw(st.sampled_from((1, 3, 4, 6)))
            inside = draw(bodies((*loops, (loop, extent)), names, depth + 1, branches))
            result.append(kernel.For(loop, kernel.Const(extent, kernel.DType.i64), inside, HERE))
        elif kind == "if" and depth < 4:
            then, orelse = (draw(bodies(loops, names, depth + 1, branches)) for _ in range(2))
            orelse = orelse if draw(st.booleans()) else ()
            result.append(kernel.If(draw(conditions(loops, names)), then, orelse, HERE))
        elif kind == "again" and names:
            name = draw(st.sampled_from(names))
            result.append(kernel.SetLocal(name, draw(values(loops, names)), HERE))
        elif kind == "set" or (kind == "add" and not names):
            name = f"t{len(names)}"
            result.append(kernel.SetLocal(name, draw(values(loops, names)), HERE))
            names = (*names, name)
        elif kind == "add":
            name = draw(st.sampled_from(names))
            result.append(kernel.UpdateLocal(name, "add", draw(values(loops, ())), HERE))
        else:
            array = draw(st.sampled_from(sorted(ARRAYS)))
            where = draw(indices(array, loops))
            value = draw(values(loops, names))
            if kind == "store":
                result.append(kernel.Store(array, where, value, HERE))
            else:
                result.append(kernel.Update(array, where, "add", value, HERE))
    return tuple(result)


_MEANING: dict[str, Any] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "mod": operator.mod,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "lt": operator.lt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}


class _Plain:
    """Statements executed one after the other, in Python."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.arrays = arrays
        self.locals: dict[str, float] = {}
        self.loops: dict[str, int] = {}

    def run(self, body: tuple[kernel.Stmt, ...]) -> None:
        for s in body:
            match s:
                case kernel.For():
                    assert isinstance(s.extent, kernel.Const)
                    for k in range(int(s.extent.value)):
                        self.loops[s.loop] = k
                        self.run(s.body)
                case kernel.If():
                    self.run(s.then if self.value(s.condition) else s.orelse)
                case kernel.SetLocal():
                    self.locals[s.name] = self.value(s.value)
                case kernel.UpdateLocal():
                    self.locals[s.name] += self.value(s.value)
                case kernel.Store() | kernel.Update():
                    where = tuple(self.value(i) for i in s.indices)
                    old = self.arrays[s.array][where] if isinstance(s, kernel.Update) else 0.0
                    self.arrays[s.array][where] = old + self.value(s.value)

    def value(self, e: kernel.Expr) -> Any:
        match e:
            case kernel.Const():
                return e.value
            case kernel.LoopIndex():
                return self.loops[e.loop]
            case kernel.Local():
                return self.locals[e.name]
            case kernel.Load():
                return self.arrays[e.array][tuple(self.value(i) for i in e.indices)]
            case kernel.Binary():
                return _MEANING[e.op](self.value(e.a), self.value(e.b))
            case kernel.Unary():
                return not self.value(e.x)
            case kernel.Compare():
                return _MEANING[e.op](self.value(e.a), self.value(e.b))
        raise AssertionError(e)


def _is_inside(guard: Guard, at: dict[str, int]) -> bool:
    def value(a: Affine) -> int:
        return a.const + sum(c * at[n] for n, c in a.terms)

    return all(low <= value(a) < high for a, low, high in guard.bounds) and all(
        value(x.affine) % x.modulus == x.remainder for x in guard.residues
    )


def check_iterations_are_independent(task: Task) -> None:
    """No element that one iteration writes is written or read by another of its step, reduction loops aside."""
    for step in product(*(range(x.extent) for x in task.steps)):
        check_step(task, dict(zip((x.name for x in task.steps), step, strict=True)))


def check_step(task: Task, step: dict[str, int]) -> None:
    outer = [x.name for x in task.loops if not x.is_reduction]
    writer: dict[tuple[int, ...], tuple[int, ...]] = {}
    points = [
        {**step, **dict(zip((x.name for x in task.loops), at, strict=True))}
        for at in product(*(range(x.extent) for x in task.loops))
    ]
    points = [at for at in points if _is_inside(task.guard, at)]

    def element(access: Access, at: dict[str, int]) -> tuple[int, ...]:
        axes = [a for a in access.axes if a is not None]
        return tuple(a.const + sum(c * at[n] for n, c in a.terms) for a in axes)

    for at in points:
        iteration = tuple(at[n] for n in outer)
        assert writer.setdefault(element(task.target, at), iteration) == iteration
    own = [access for access, _ in task_reads(task) if access.array == task.target.array]
    for access, at in product(own, points):
        iteration = tuple(at[n] for n in outer)
        assert writer.get(element(access, at), iteration) == iteration


def test_local_read_ahead_of_its_own_array_is_stored_first() -> None:
    """`t = v[i + 3]; v[i] = t`: in one statement, iteration 0 would read what iteration 3 writes."""
    i = kernel.LoopIndex("i")
    ahead = kernel.Load(
        "v", (kernel.Binary("add", i, kernel.Const(3, kernel.DType.i64), kernel.DType.i64),), F
    )
    body = (
        kernel.SetLocal("t", kernel.Binary("mul", kernel.Const(0.5, F), ahead, F), HERE),
        kernel.Store("v", (i,), kernel.Local("t", F), HERE),
    )
    params = (kernel.ArrayParam("v", F, (7,)),)
    ir = kernel.KernelIR(
        "nest", params, (), (kernel.For("i", kernel.Const(4, kernel.DType.i64), body, HERE),), HERE
    )
    recording = Recording("nest", params, (), (), (Call(ir, ("v",), (), HERE),))
    tasks = normalise(recording).tasks
    assert [t.target.array for t in tasks] == ["nest0.t", "v"]
    for task in tasks:
        check_iterations_are_independent(task)


def test_reduction_over_its_own_target_is_stored_first() -> None:
    def at(offset: int) -> kernel.Expr:
        return kernel.Binary(
            "add", kernel.LoopIndex("i"), kernel.Const(offset, kernel.DType.i64), kernel.DType.i64
        )

    def load(offset: int) -> kernel.Expr:
        near = kernel.Binary("add", at(offset), kernel.LoopIndex("j"), kernel.DType.i64)
        return kernel.Load("v", (near,), F)

    inner = kernel.For(
        "j",
        kernel.Const(2, kernel.DType.i64),
        (kernel.UpdateLocal("t", "add", load(0), HERE),),
        HERE,
    )
    inside = (
        kernel.SetLocal("t", kernel.Const(0.0, F), HERE),
        inner,
        kernel.Store("v", (at(0),), kernel.Local("t", F), HERE),
    )
    body = (kernel.For("i", kernel.Const(5, kernel.DType.i64), inside, HERE),)
    params = (kernel.ArrayParam("v", F, (7,)),)
    ir = kernel.KernelIR("nest", params, (), body, HERE)
    recording = Recording("nest", params, (), (), (Call(ir, ("v",), (), HERE),))
    assert [t.target.array for t in normalise(recording).tasks] == ["nest0.t", "v"]


def check_tasks(body: tuple[kernel.Stmt, ...]) -> None:
    """The tasks of a nest compute what its statements compute one after the other."""
    params = tuple(kernel.ArrayParam(n, F, shape) for n, shape in ARRAYS.items())
    ir = kernel.KernelIR("nest", params, (), body, HERE)
    recording = Recording("nest", params, (), (), (Call(ir, tuple(ARRAYS), (), HERE),))
    rng = np.random.default_rng(0)
    arrays = {n: rng.uniform(-0.2, 0.2, shape) for n, shape in ARRAYS.items()}
    wanted = {n: x.copy() for n, x in arrays.items()}
    _Plain(wanted).run(body)
    problem = normalise(recording)
    for task in problem.tasks:
        if task.is_structured:
            check_iterations_are_independent(task)
    event("structured" if all(t.is_structured for t in problem.tasks) else "closed")
    event("guarded" if any(t.is_guarded for t in problem.tasks) else "not guarded")
    for name, got in run_tasks(problem, arrays, {}).items():
        np.testing.assert_allclose(got, wanted[name], rtol=1e-9, atol=1e-9, err_msg=name)


@settings(max_examples=120, deadline=None)
@given(bodies((), (), 0))
def test_tasks_of_a_nest_compute_what_its_statements_compute(body: tuple[kernel.Stmt, ...]) -> None:
    check_tasks(body)


@settings(max_examples=50, deadline=None)
@given(bodies((), (), 0, branches=True))
def test_guarded_tasks_compute_what_branches_do(body: tuple[kernel.Stmt, ...]) -> None:
    check_tasks(body)
