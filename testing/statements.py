"""Random kernels of all statements: nested loops, also of lengths known at run time only, branches, while loops, updates of locals
and of elements, with and without the old value, indices that are computed.

Values are small integers in f64, so that every order of summation gives the same sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ..kernels.ir.kernel import (
    ArrayParam,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    Const,
    DType,
    Expr,
    For,
    If,
    KernelIR,
    Load,
    Local,
    LocalArray,
    LocalElement,
    Location,
    LoopIndex,
    ReduceOp,
    Select,
    SetElement,
    SetLocal,
    Stmt,
    Store,
    Update,
    UpdateLocal,
    While,
)
from ..kernels.ir.simplify import binary
from ..kernels.ir.walk import rewrite
from ..kernels.language.record import Call, Recording

WHERE = Location("test", 1)
SIDE = 28  # of every array: more than any index
I64, F64 = DType.i64, DType.f64
_ARRAYS = tuple(ArrayParam(n, F64, (SIDE,) * r) for n, r in (("a", 2), ("u", 1), ("v", 1)))
_LONGEST = 4  # loop
_LOCAL_EXTENT = 5
_DEEPEST = 3

Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass(frozen=True)
class _Scope:
    loops: tuple[str, ...]
    locals: tuple[str, ...]


def _number(value: float) -> Const:
    return Const(float(value), F64)


@dataclass
class _Drawing:
    draw: Draw
    may_compute: bool  # indices and lengths from values
    numbers: Iterator[int]

    def one_of(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def index(self, scope: _Scope, depth: int) -> Expr:
        if self.may_compute and depth < 2 and self.draw(st.integers(0, 7)) == 0:
            return self.whole(scope, 0, 9)
        x: Expr = Const(self.draw(st.integers(0, 3)), I64)
        for loop in scope.loops:
            if self.draw(st.booleans()):
                factor = Const(self.one_of(1, 1, 1, 2), I64)
                x = binary("add", x, binary("mul", LoopIndex(loop), factor))
        return x

    def whole(self, scope: _Scope, least: int, most: int) -> Expr:
        """A computed integer between the two."""
        x = Binary("max", self.value(scope, 2), _number(least), F64)
        return Cast(Binary("min", x, _number(most), F64), I64)

    def load(self, scope: _Scope, depth: int = 0) -> Load:
        p = self.one_of(*_ARRAYS)
        return Load(p.name, tuple(self.index(scope, depth) for _ in p.shape), F64)

    def element(self, scope: _Scope) -> LocalElement:
        """An element of the local array."""
        kind = self.one_of("const", "loop", "computed")
        if kind == "loop" and scope.loops:
            last = Const(_LOCAL_EXTENT - 1, I64)
            at: Expr = Binary("min", LoopIndex(self.one_of(*scope.loops)), last, I64)
        elif kind == "computed":
            at = self.whole(scope, 0, _LOCAL_EXTENT - 1)
        else:
            at = Const(self.draw(st.integers(0, _LOCAL_EXTENT - 1)), I64)
        return LocalElement("h", at, F64)

    def value(self, scope: _Scope, depth: int = 0) -> Expr:
        kinds = ["load", "load", "const", "local", "index", "sum", "max", "select"]
        kind = (
            self.one_of(*kinds, "element")
            if self.may_compute and depth < 2
            else self.one_of(*kinds)
        )
        if kind == "element" and scope.loops:
            return self.element(scope)
        if kind == "local" and scope.locals:
            return Local(self.one_of(*scope.locals), F64)
        if kind == "index" and scope.loops:
            return Cast(LoopIndex(self.one_of(*scope.loops)), F64)
        if kind in ("sum", "max") and depth < 2:
            op: BinaryOp = self.one_of("add", "sub") if kind == "sum" else "max"
            return Binary(op, self.value(scope, depth + 1), self.value(scope, depth + 1), F64)
        if kind == "select" and depth < 2:
            a, b = self.value(scope, depth + 1), self.value(scope, depth + 1)
            return Select(Compare("lt", a, b), a, self.value(scope, depth + 1), F64)
        if kind == "const":
            return _number(self.draw(st.integers(-3, 3)))
        return self.load(scope, depth)

    def condition(self, scope: _Scope) -> Expr:
        op: CompareOp = self.one_of("lt", "lt", "ge", "ne")
        return Compare(op, self.value(scope, 1), self.value(scope, 1))

    def block(self, scope: _Scope, depth: int) -> tuple[Stmt, ...]:
        body: list[Stmt] = []
        for _ in range(self.draw(st.integers(1, 3))):
            made, scope = self.statement(scope, depth)
            body += made
        return tuple(body)

    def statement(self, scope: _Scope, depth: int) -> tuple[list[Stmt], _Scope]:
        """Statements, and what is known behind them."""
        kinds = ["for", "for", "store", "update", "set", "update_local", "if"]
        more = ("while", "old", "element") if self.may_compute else ()
        kind = self.one_of(*kinds, *more)
        if kind in ("for", "if", "while") and depth < _DEEPEST:
            return self.nested(kind, scope, depth), scope
        if kind == "update_local" and scope.locals:
            op: ReduceOp = self.one_of("add", "add", "max", "min")
            name = self.one_of(*scope.locals)
            return [UpdateLocal(name, op, self.value(scope), WHERE)], scope
        if kind == "element":
            place = self.element(scope)
            return [SetElement("h", place.index, self.value(scope), WHERE)], scope
        if kind in ("set", "old"):
            name, behind = self.target(scope)
            return [self.setting(kind, name, scope)], behind
        target = self.load(scope)
        if kind == "store":
            return [Store(target.array, target.indices, self.value(scope), WHERE)], scope
        return [self.update(target, scope)], scope

    def target(self, scope: _Scope) -> tuple[str, _Scope]:
        """A local to set, known or new."""
        known = self.one_of(None, *scope.locals)
        if known is not None:
            return known, scope
        name = f"t{next(self.numbers)}"
        return name, replace(scope, locals=(*scope.locals, name))

    def setting(self, kind: str, name: str, scope: _Scope) -> Stmt:
        if kind == "set":
            return SetLocal(name, self.value(scope), WHERE)
        return replace(self.update(self.load(scope), scope), result=name)

    def update(self, place: Load, scope: _Scope) -> Update:
        op: ReduceOp = self.one_of("add", "add", "max")
        return Update(place.array, place.indices, op, self.value(scope), WHERE)

    def nested(self, kind: str, scope: _Scope, depth: int) -> list[Stmt]:
        if kind == "if":
            then, orelse = self.block(scope, depth + 1), self.block(scope, depth + 1)
            return [If(self.condition(scope), then, orelse, WHERE)]
        if kind == "while":
            return self.loop_while(scope, depth)
        loop = f"i{next(self.numbers)}"
        extent: Expr = Const(self.draw(st.integers(0, _LONGEST)), I64)
        if self.may_compute and self.draw(st.booleans()):
            extent = self.whole(scope, -2, _LONGEST)
        inner = replace(scope, loops=(*scope.loops, loop))
        return [For(loop, extent, self.block(inner, depth + 1), WHERE)]

    def loop_while(self, scope: _Scope, depth: int) -> list[Stmt]:
        """A while loop of at most a few passes, which its condition may end sooner; nothing else touches what counts them."""
        left = Local(f"w{next(self.numbers)}", F64)
        goes_on: Expr = Compare("gt", left, _number(0))
        if self.draw(st.booleans()):
            goes_on = Binary("and", goes_on, self.condition(scope), DType.bool_)
        passes = self.draw(st.integers(0, 3))
        start = self.value(scope, 1) if passes == 0 else _number(passes)
        first = SetLocal(left.name, Binary("min", start, _number(3), F64), WHERE)
        one_less = UpdateLocal(left.name, "add", _number(-1), WHERE)
        return [first, While(goes_on, (*self.block(scope, depth + 1), one_less), WHERE)]


@st.composite
def kernels(draw: Draw, may_compute: bool = True) -> KernelIR:
    """Kernels of arrays a (two axes), u and v. `may_compute`: with while loops, old values, lengths and indices from values, and a
    local array.
    """
    drawing = _Drawing(draw, may_compute, count())
    body = drawing.block(_Scope(("o",), ("s", "t")), 0)
    ends = tuple(Update("u", (LoopIndex("o"),), "add", Local(n, F64), WHERE) for n in "st")
    starts: tuple[Stmt, ...] = tuple(SetLocal(n, _number(1), WHERE) for n in "st")
    if may_compute:
        starts = (LocalArray("h", _LOCAL_EXTENT, _number(2), WHERE), *starts)
    extent: Expr = Const(draw(st.integers(1, 3)), I64)
    if may_compute and draw(st.booleans()):
        extent = drawing.whole(_Scope((), ()), -1, 3)
    outer = For("o", extent, (*starts, *body, *ends), WHERE)
    return KernelIR("random", _ARRAYS, (), (outer,), WHERE)


def in_any_order(ir: KernelIR, n: int) -> KernelIR:
    """A drawn kernel of `n` iterations of its outer loop whose order nobody sees: what is loaded is never written, and all that is
    done to one array are updates of one operator.
    """
    ops: dict[str, ReduceOp] = {"a": "add", "u": "add", "v": "max"}

    def change(x: Any) -> Any:
        match x:
            case Load():
                return replace(x, array=f"{x.array}_in")
            case Store(array, indices, value, where):
                return Update(array, indices, ops[array], value, where)
            case Update(result=name) if name:
                return SetLocal(name, x.value, x.where)
            case Update():
                return replace(x, op=ops[x.array])
        return x

    body: list[Stmt] = []
    for s in rewrite(ir.body, change):
        assert isinstance(s, For)
        body.append(replace(s, extent=Const(n, I64)))
    side = SIDE + 2 * n
    arrays = [replace(p, shape=(side,) * len(p.shape)) for p in ir.arrays]
    read = [ArrayParam(f"{p.name}_in", p.dtype, p.shape) for p in arrays]
    return replace(ir, arrays=(*arrays, *read), body=tuple(body))


def drawn(n: int) -> list[KernelIR]:
    found: list[KernelIR] = []

    @settings(
        max_examples=n,
        phases=(Phase.generate,),
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(kernels())
    def collect(ir: KernelIR) -> None:
        found.append(ir)

    collect()
    return found


def arrays_of(ir: KernelIR, seed: int = 3) -> dict[str, Any]:
    """Small integers for the arrays of a kernel."""
    rng = np.random.default_rng(seed)
    return {p.name: rng.integers(-4, 5, p.shape).astype(p.dtype.numpy) for p in ir.arrays}


def is_exact(arrays: dict[str, Any]) -> bool:
    """Whether sums of such numbers are exact in any order."""
    return all(np.abs(a).max() < 2**50 for a in arrays.values())


def recording_of(ir: KernelIR) -> Recording:
    """The kernel as a sequence of one call."""
    call = Call(ir, tuple(p.name for p in ir.arrays), (), WHERE)
    return Recording("random", ir.arrays, (), (), (call,))
