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
from kernelscape.kernels.ir.access import Access, Guard
from kernelscape.kernels.ir.affine import Affine
from kernelscape.kernels.ir.kernel import (
    ArrayParam,
    Binary,
    Compare,
    Const,
    DType,
    Expr,
    For,
    If,
    KernelIR,
    Load,
    Local,
    Location,
    LoopIndex,
    SetLocal,
    Stmt,
    Store,
    Unary,
    Update,
    UpdateLocal,
)
from kernelscape.kernels.ir.task import Task
from kernelscape.kernels.tasks.pipeline import normalise
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
def conditions(
    draw: Any, loops: tuple[tuple[str, int], ...], names: tuple[str, ...], depth: int = 0
) -> Expr:
    """Of values, of parts of loops, and of residues, alone and together."""
    kind = draw(st.sampled_from(("value", "part", "residue", "and", "or", "not")))
    if depth < 2 and kind in ("and", "or"):
        a, b = (draw(conditions(loops, names, depth + 1)) for _ in range(2))
        return Binary(kind, a, b, DType.bool_)
    if depth < 2 and kind == "not":
        return Unary("not", draw(conditions(loops, names, depth + 1)), DType.bool_)
    if kind == "value" or not loops:
        return Compare(
            draw(st.sampled_from(("lt", "ge"))), draw(values(loops, names)), Const(0.0, F)
        )
    index: Expr = LoopIndex(draw(st.sampled_from(loops))[0])
    if kind == "part":
        bound = Const(draw(st.integers(0, 5)), DType.i64)
        return Compare(draw(st.sampled_from(("lt", "ge", "eq", "ne"))), index, bound)
    index = Binary("add", index, LoopIndex(draw(st.sampled_from(loops))[0]), DType.i64)
    modulus = draw(st.integers(2, 3))
    rest = Binary("mod", index, Const(modulus, DType.i64), DType.i64)
    return Compare("eq", rest, Const(draw(st.integers(0, modulus - 1)), DType.i64))


@st.composite
def bodies(
    draw: Any,
    loops: tuple[tuple[str, int], ...],
    names: tuple[str, ...],
    depth: int,
    branches: bool = False,
) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    kinds = ("for", "for", "set", "add", "store", "update") + ("if", "if", "again") * branches
    for position in range(draw(st.integers(1, 4 if depth else 2))):
        kind = draw(st.sampled_from(kinds))
        if kind == "for" and depth < 3:
            loop, extent = f"l{depth}_{position}", draw(st.sampled_from((1, 3, 4, 6)))
            inside = draw(bodies((*loops, (loop, extent)), names, depth + 1, branches))
            result.append(For(loop, Const(extent, DType.i64), inside, HERE))
        elif kind == "if" and depth < 4:
            then, orelse = (draw(bodies(loops, names, depth + 1, branches)) for _ in range(2))
            orelse = orelse if draw(st.booleans()) else ()
            result.append(If(draw(conditions(loops, names)), then, orelse, HERE))
        elif kind == "again" and names:
            name = draw(st.sampled_from(names))
            result.append(SetLocal(name, draw(values(loops, names)), HERE))
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

    def run(self, body: tuple[Stmt, ...]) -> None:
        for s in body:
            match s:
                case For():
                    assert isinstance(s.extent, Const)
                    for k in range(int(s.extent.value)):
                        self.loops[s.loop] = k
                        self.run(s.body)
                case If():
                    self.run(s.then if self.value(s.condition) else s.orelse)
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
                return _MEANING[e.op](self.value(e.a), self.value(e.b))
            case Unary():
                return not self.value(e.x)
            case Compare():
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


def check_tasks(body: tuple[Stmt, ...]) -> None:
    """The tasks of a nest compute what its statements compute one after the other."""
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
    event("guarded" if any(t.is_guarded for t in problem.tasks) else "not guarded")
    for name, got in run_tasks(problem, arrays, {}).items():
        np.testing.assert_allclose(got, wanted[name], rtol=1e-9, atol=1e-9, err_msg=name)


@settings(max_examples=120, deadline=None)
@given(bodies((), (), 0))
def test_tasks_of_a_nest_compute_what_its_statements_compute(body: tuple[Stmt, ...]) -> None:
    check_tasks(body)


@settings(max_examples=50, deadline=None)
@given(bodies((), (), 0, branches=True))
def test_guarded_tasks_compute_what_branches_do(body: tuple[Stmt, ...]) -> None:
    check_tasks(body)
