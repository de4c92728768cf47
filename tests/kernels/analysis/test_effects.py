"""Effects against the elements that statements touch, enumerated; one order in the dependences and in the state-flow graph."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelscape.kernels.analysis.accesses import analyse
from kernelscape.kernels.analysis.conflicts import apart
from kernelscape.kernels.analysis.effects import covers, effects, region_of, written_sets
from kernelscape.kernels.ir import kernel as ir
from kernelscape.kernels.ir.access import AccessSet, AxisMap, Guard
from kernelscape.kernels.ir.affine import Affine
from kernelscape.kernels.ir.body import Body, Closure, Reason
from kernelscape.kernels.ir.domain import Active, Box, Loop, Residue
from kernelscape.kernels.ir.walk import children, loads, nested_statements
from kernelscape.kernels.tasks.dependence import dependences
from kernelscape.kernels.tasks.state_flow import build_graph
from kernelscape.testing.generator.features import LONG
from kernelscape.testing.generator.sequences import program

I64 = ir.DType.i64
N = 24  # elements of the arrays u and v
LOOPS = (Loop("i", 4, False),)
REASON = Reason(Closure.BRANCH, "drawn", ir.NOWHERE)


def number(value: int) -> ir.Const:
    return ir.Const(value, I64)


@st.composite
def affine_index(draw: Any, loops: tuple[str, ...]) -> ir.Expr:
    x: ir.Expr = number(draw(st.integers(0, 3)))
    for loop in loops:
        factor = draw(st.integers(0, 2))
        x = ir.Binary("add", x, ir.Binary("mul", number(factor), ir.LoopIndex(loop), I64), I64)
    return x


@st.composite
def index(draw: Any, loops: tuple[str, ...], names: tuple[str, ...]) -> ir.Expr:
    kind = draw(st.sampled_from(("affine", "floor", "mod", "local", "loaded")))
    x: ir.Expr = draw(affine_index(loops))
    match kind:
        case "floor":
            return ir.Binary(
                "add",
                ir.Binary("floordiv", x, number(draw(st.integers(2, 3))), I64),
                number(1),
                I64,
            )
        case "mod":
            return ir.Binary("mod", x, number(3), I64)
        case "local" if names:
            return ir.Binary("add", ir.Local(draw(st.sampled_from(names)), I64), x, I64)
        case "loaded":
            return ir.Binary("mod", ir.Load("u", (x,), I64), number(5), I64)
    return x


@st.composite
def condition(draw: Any, loops: tuple[str, ...], names: tuple[str, ...]) -> ir.Expr:
    op = draw(st.sampled_from(("lt", "le", "gt", "ge", "eq", "ne")))
    a, b = draw(index(loops, names)), draw(affine_index(loops))
    one = ir.Compare(op, a, b)
    if draw(st.booleans()):
        return one
    other = ir.Compare("lt", draw(affine_index(loops)), number(draw(st.integers(0, 8))))
    return ir.Binary(draw(st.sampled_from(("and", "or"))), one, other, ir.DType.bool_)


@st.composite
def block(
    draw: Any, loops: tuple[str, ...], names: tuple[str, ...], depth: int
) -> tuple[ir.Stmt, ...]:
    found: list[ir.Stmt] = []
    for _ in range(draw(st.integers(1, 3))):
        kinds = ("set", "store", "update", "if", "for") if depth < 2 else ("set", "store", "update")
        match draw(st.sampled_from(kinds)):
            case "set":
                name = draw(st.sampled_from(("a", "b")))
                found.append(ir.SetLocal(name, draw(index(loops, names)), ir.NOWHERE))
                names = (*names, name)
            case "store":
                where = (draw(index(loops, names)),)
                found.append(ir.Store("v", where, draw(index(loops, names)), ir.NOWHERE))
            case "update":
                where = (draw(index(loops, names)),)
                found.append(ir.Update("u", where, "add", draw(affine_index(loops)), ir.NOWHERE))
            case "if":
                test = draw(condition(loops, names))
                then = draw(block(loops, names, depth + 1))
                orelse = draw(block(loops, names, depth + 1)) if draw(st.booleans()) else ()
                found.append(ir.If(test, then, orelse, ir.NOWHERE))
            case "for":
                loop = "jk"[depth] if not any(isinstance(s, ir.For) for s in found) else ""
                if loop and loop not in loops:
                    extent = draw(
                        st.sampled_from((number(2), number(3), *map(ir.LoopIndex, loops)))
                    )
                    inner = draw(block((*loops, loop), names, depth + 1))
                    found.append(ir.For(loop, extent, inner, ir.NOWHERE))
    return tuple(found)


def _one_loop_a_name(body: tuple[ir.Stmt, ...]) -> bool:
    names = [s.loop for s in nested_statements(body) if isinstance(s, ir.For)]
    return len(names) == len(set(names))


class _Trace:
    """Runs statements and notes which element each site touches in which iteration; sites are met in the order of the text."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.touched: dict[int, set[tuple[int, int]]] = {s.number: set() for s in body.sites}
        rng = np.random.default_rng(0)
        self.arrays = {n: rng.integers(0, 6, N) for n in ("u", "v")}

    def run(self) -> None:
        for i in range(LOOPS[0].extent):
            self.at = {"i": i}
            self.locals: dict[str, int] = {}
            self.block(self.body.statements, 0)

    def count(self, s: ir.Stmt) -> int:
        """Sites of a statement and those nested in it."""
        return sum(
            sum(len(loads(e)) for e in children(x)) + isinstance(x, ir.Store | ir.Update)
            for x in nested_statements((s,))
        )

    def block(self, body: tuple[ir.Stmt, ...], n: int) -> None:
        for s in body:
            after = n + self.count(s)
            match s:
                case ir.SetLocal(name=name, value=value):
                    self.locals[name], n = self.value(value, n)
                case ir.Store() | ir.Update():
                    (i,) = s.indices
                    where, n = self.value(i, n)
                    value, n = self.value(s.value, n)
                    self.touch(n, where)
                    old = self.arrays[s.array][where] if isinstance(s, ir.Update) else 0
                    self.arrays[s.array][where] = (old + value) % 6
                case ir.If():
                    taken, n = self.value(s.condition, n)
                    middle = n + sum(self.count(x) for x in s.then)
                    self.block(*((s.then, n) if taken else (s.orelse, middle)))
                case ir.For():
                    extent, n = self.value(s.extent, n)
                    for k in range(extent):
                        self.at[s.loop] = k
                        self.block(s.body, n)
            n = after

    def touch(self, n: int, element: int) -> None:
        self.touched[n].add((self.at["i"], int(element)))

    def value(self, e: ir.Expr, n: int) -> tuple[int, int]:
        """The value, and the number of the next site; a load comes before what its index reads, `and` and `or` evaluate both."""
        match e:
            case ir.Const():
                return int(e.value), n
            case ir.LoopIndex():
                return self.at[e.loop], n
            case ir.Local():
                return self.locals.get(e.name, 0), n
            case ir.Load():
                where, after = self.value(e.indices[0], n + 1)
                self.touch(n, where)
                return int(self.arrays[e.array][where]), after
            case ir.Binary() | ir.Compare():
                a, n = self.value(e.a, n)
                b, n = self.value(e.b, n)
                return int(_OPS[e.op](a, b)), n
        raise AssertionError(e)


_OPS: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


def iterations(x: AccessSet) -> Iterator[dict[str, int]]:
    """The iterations within the guard's bounds and residues."""
    for point in product(*(range(loop.extent) for loop in x.loops)):
        at = dict(zip((loop.name for loop in x.loops), point, strict=True))
        inside = all(low <= value(a, at) < high for a, low, high in x.guard.bounds)
        parts = (*x.guard.residues, *(x.domain.parts if isinstance(x.domain, Active) else ()))
        if inside and all(value(r.affine, at) % r.modulus == r.remainder for r in parts):
            yield at


def value(affine: Affine, at: dict[str, int]) -> int:
    return affine.const + sum(c * at[n] for n, c in affine.terms)


def elements(x: AccessSet) -> set[tuple[int, int]]:
    """(iteration of i, element) of a set of one axis."""
    (axis,) = x.index
    assert axis.affine is not None
    return {(at.get("i", 0), value(axis.affine, at) // axis.divisor) for at in iterations(x)}


def drawn_body(statements: tuple[ir.Stmt, ...]) -> Body:
    return analyse(statements, LOOPS, REASON)


@settings(max_examples=200, deadline=None)
@given(block(("i",), (), 0).filter(_one_loop_a_name))
def test_sites_touch_what_they_say(statements: tuple[ir.Stmt, ...]) -> None:
    body = drawn_body(statements)
    trace = _Trace(body)
    try:
        trace.run()
    except IndexError:
        return  # the drawn indices leave their arrays
    for s in body.sites:
        touched = trace.touched[s.number]
        (axis,) = s.index
        here = AccessSet(Box(), (*LOOPS, *s.loops), s.index, s.guard)
        known = all(loop.extent < 100 for loop in s.loops)
        if axis.affine is not None and known:
            allowed = elements(here)
            assert touched <= allowed
            if s.guard.is_exact:
                assert touched == allowed
        if s.is_unique:
            by_element = {e: {i for i, other in touched if other == e} for _, e in touched}
            assert all(len(found) == 1 for found in by_element.values())


@st.composite
def access_sets(draw: Any) -> AccessSet:
    loops = tuple(Loop(n, draw(st.integers(1, 4)), False) for n in ("i", "j"))

    def affine() -> Affine:
        terms = [(n, draw(st.integers(-2, 3))) for n in ("i", "j")]
        return Affine(draw(st.integers(-1, 6)), tuple((n, c) for n, c in terms if c))

    bounds = tuple(
        (affine(), draw(st.integers(-2, 2)), draw(st.integers(1, 8)))
        for _ in range(draw(st.integers(0, 1)))
    )
    parts = tuple(
        Residue(affine(), 2, draw(st.integers(0, 1))) for _ in range(draw(st.integers(0, 1)))
    )
    is_exact = draw(st.booleans())
    axis = AxisMap(affine(), draw(st.sampled_from((1, 1, 2, 3))))
    return AccessSet(Box(), loops, (axis,), Guard(bounds, parts, (), is_exact))


@settings(max_examples=400, deadline=None)
@given(access_sets(), access_sets())
def test_apart_and_covers_against_enumeration(a: AccessSet, b: AccessSet) -> None:
    left, right = ({e for _, e in elements(x)} for x in (a, b))
    if apart(a, b):
        assert not left & right
    elif a.guard == b.guard == Guard() and {x.index[0].divisor for x in (a, b)} == {1}:
        assert left & right  # small systems are decided
    if covers(a, b, (40,)):
        assert right <= left
    box = region_of(a, (40,))
    ((low, high),) = box.bounds
    assert all(low <= e <= high for e in left if 0 <= e < 40)
    if box.is_exact:
        assert left == set(range(low, high + 1))


def test_colours_are_apart() -> None:
    cell = Affine(0, (("i", 1),))

    def colour(r: int) -> AccessSet:
        domain = Active("grid", 1, (4,), False, (Residue(cell, 2, r),))
        return AccessSet(domain, (Loop("i", 8, False),), (AxisMap(cell),))

    assert apart(colour(0), colour(1))
    assert not apart(colour(0), colour(0))
    assert not covers(colour(0), colour(0), (8,))  # that two lists are equal is not known here


@pytest.mark.parametrize("number", range(60))
def test_dependences_are_paths_of_the_state_flow_graph(number: int) -> None:
    """Both come from effects: each dependence is an order of the graph, and what the graph orders that no dependence does
    are parts of one array that never meet.
    """
    problem = program(LONG, number).problem
    graph = build_graph(problem)
    before: dict[int, set[int]] = {}
    for k in range(len(problem.tasks)):
        direct = {e.source for e in graph.edges if e.sink == k}
        before[k] = direct.union(*(before[p] for p in direct))
    found = dependences(problem)
    for d in found:
        assert d.source in before[d.sink]
    ordered: dict[int, set[int]] = {}
    for k in range(len(problem.tasks)):
        direct = tuple(d.source for d in found if d.sink == k)
        ordered[k] = set(direct).union(*(ordered[p] for p in direct))
    for e in graph.edges:
        if e.source not in ordered[e.sink]:
            first, second = (effects(problem.tasks[k]) for k in (e.source, e.sink))
            touched = [(*x.reads, *written_sets(x)) for x in (first, second)]
            written = [written_sets(x) for x in (first, second)]
            pairs = (*product(touched[0], written[1]), *product(written[0], touched[1]))
            assert all(apart(a, b) for (s, a), (t, b) in pairs if s == t == e.state)
