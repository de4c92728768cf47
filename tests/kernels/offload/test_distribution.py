"""Distribution of random nests: tasks compute what the statements compute one after the other."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st
from kernelscape.kernels.ir.access import Access
from kernelscape.kernels.ir.effects import task_reads
from kernelscape.kernels.ir.kernel import (
    ArrayParam,
    Binary,
    Const,
    DType,
    Expr,
    For,
    KernelIR,
    Load,
    Local,
    Location,
    LoopIndex,
    SetLocal,
    Stmt,
    Store,
    Update,
    UpdateLocal,
)
from kernelscape.kernels.ir.task import Task
from kernelscape.kernels.language.record import Call, Recording
from kernelscape.kernels.offload.pipeline import normalise
from kernelscape.testing.run_tasks import run_tasks

F = DType.f64
HERE = Location("nest", 0)
ARRAYS = {"v": (7,), "w": (7,), "a": (4, 7), "r": (1,)}


@st.composite
def indices(draw: Any, array: str, loops: tuple[tuple[str, int], ...]) -> tuple[Expr, ...]:
    """Affine indices within the bounds of `array`."""
    found: list[Expr] = []
    for extent in ARRAYS[array]:
        fitting = [(n, k) for n, k in loops if k <= extent]
        if not fitting or draw(st.integers(0, 7)) == 0:
            found.append(Const(draw(st.integers(0, min(2, extent - 1))), DType.i64))
            continue
        name, k = draw(st.sampled_from(fitting))
        offset = draw(st.sampled_from((0, 0, 0, extent - k, max(0, extent - k - 1))))
        index: Expr = LoopIndex(name)
        if draw(st.integers(0, 9)) == 0:  # walks backwards
            index, offset = Binary("sub", Const(0, DType.i64), index, DType.i64), k - 1
        found.append(Binary("add", index, Const(offset, DType.i64), DType.i64))
    return tuple(found)


@st.composite
def values(draw: Any, loops: tuple[tuple[str, int], ...], names: tuple[str, ...]) -> Expr:
    parts: list[Expr] = []
    for _ in range(draw(st.integers(1, 2))):
        if names and draw(st.booleans()):
            parts.append(Local(draw(st.sampled_from(names)), F))
        else:
            array = draw(st.sampled_from(sorted(ARRAYS)))
            parts.append(Load(array, draw(indices(array, loops)), F))
    total = Binary("mul", Const(0.5, F), parts[0], F)
    for part in parts[1:]:
        total = Binary("add", total, part, F)
    return total


@st.composite
def bodies(
    draw: Any, loops: tuple[tuple[str, int], ...], names: tuple[str, ...], depth: int
) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    for position in range(draw(st.integers(1, 4 if depth else 2))):
        kind = draw(st.sampled_from(("for", "for", "set", "add", "store", "update")))
        if kind == "for" and depth < 3:
            loop, extent = f"l{depth}_{position}", draw(st.sampled_from((1, 3, 4, 6)))
            inside = draw(bodies((*loops, (loop, extent)), names, depth + 1))
            result.append(For(loop, Const(extent, DType.i64), inside, HERE))
        elif kind == "set" or (kind == "add" and not names):
            name = f"t{len(names)}"
            result.append(SetLocal(name, draw(values(loops, names)), HERE))
            names = (*names, name)
        elif kind == "add":
            name = draw(st.sampled_from(names))
            result.append(UpdateLocal(name, "add", draw(values(loops, ())), HERE))
        else:
            array = draw(st.sampled_from(sorted(ARRAYS)))
            where = draw(indices(array, loops))
            value = draw(values(loops, names))
            if kind == "store":
                result.append(Store(array, where, value, HERE))
            else:
                result.append(Update(array, where, "add", value, HERE))
    return tuple(result)


class _Plain:
    """Statements executed one after the other, in Python."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.arrays = arrays
        self.locals: dict[str, float] = {}
        self.loops: dict[str, int] = {}

    def run(self, body: tuple[Stmt, ...]) -> None:
        for s in body:
            match s:
                case For():
                    assert isinstance(s.extent, Const)
                    for k in range(int(s.extent.value)):
                        self.loops[s.loop] = k
                        self.run(s.body)
                case SetLocal():
                    self.locals[s.name] = self.value(s.value)
                case UpdateLocal():
                    self.locals[s.name] += self.value(s.value)
                case Store() | Update():
                    where = tuple(self.value(i) for i in s.indices)
                    old = self.arrays[s.array][where] if isinstance(s, Update) else 0.0
                    self.arrays[s.array][where] = old + self.value(s.value)

    def value(self, e: Expr) -> Any:
        match e:
            case Const():
                return e.value
            case LoopIndex():
                return self.loops[e.loop]
            case Local():
                return self.locals[e.name]
            case Load():
                return self.arrays[e.array][tuple(self.value(i) for i in e.indices)]
            case Binary():
                a, b = self.value(e.a), self.value(e.b)
                return {"add": a + b, "sub": a - b, "mul": a * b}[e.op]
        raise AssertionError(e)


def check_iterations_are_independent(task: Task) -> None:
    """No element that one iteration writes is written or read by another, reduction loops aside."""
    outer = [x.name for x in task.loops if not x.is_reduction]
    writer: dict[tuple[int, ...], tuple[int, ...]] = {}
    points = [
        dict(zip((x.name for x in task.loops), at, strict=True))
        for at in product(*(range(x.extent) for x in task.loops))
    ]

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
    i = LoopIndex("i")
    ahead = Load("v", (Binary("add", i, Const(3, DType.i64), DType.i64),), F)
    body = (
        SetLocal("t", Binary("mul", Const(0.5, F), ahead, F), HERE),
        Store("v", (i,), Local("t", F), HERE),
    )
    params = (ArrayParam("v", F, (7,)),)
    ir = KernelIR("nest", params, (), (For("i", Const(4, DType.i64), body, HERE),), HERE)
    recording = Recording("nest", params, (), (), (Call(ir, ("v",), (), HERE),))
    tasks = normalise(recording).tasks
    assert [t.target.array for t in tasks] == ["nest0.t", "v"]
    for task in tasks:
        check_iterations_are_independent(task)


def test_reduction_over_its_own_target_is_stored_first() -> None:
    def at(offset: int) -> Expr:
        return Binary("add", LoopIndex("i"), Const(offset, DType.i64), DType.i64)

    def load(offset: int) -> Expr:
        near = Binary("add", at(offset), LoopIndex("j"), DType.i64)
        return Load("v", (near,), F)

    inner = For("j", Const(2, DType.i64), (UpdateLocal("t", "add", load(0), HERE),), HERE)
    inside = (SetLocal("t", Const(0.0, F), HERE), inner, Store("v", (at(0),), Local("t", F), HERE))
    body = (For("i", Const(5, DType.i64), inside, HERE),)
    params = (ArrayParam("v", F, (7,)),)
    ir = KernelIR("nest", params, (), body, HERE)
    recording = Recording("nest", params, (), (), (Call(ir, ("v",), (), HERE),))
    assert [t.target.array for t in normalise(recording).tasks] == ["nest0.t", "v"]


@settings(max_examples=400, deadline=None)
@given(bodies((), (), 0))
def test_tasks_of_a_nest_compute_what_its_statements_compute(body: tuple[Stmt, ...]) -> None:
    params = tuple(ArrayParam(n, F, shape) for n, shape in ARRAYS.items())
    ir = KernelIR("nest", params, (), body, HERE)
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
    for name, got in run_tasks(problem, arrays, {}).items():
        np.testing.assert_allclose(got, wanted[name], rtol=1e-9, atol=1e-9, err_msg=name)
