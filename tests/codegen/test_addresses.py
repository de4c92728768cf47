"""Pointers that neighbouring elements share: what is reached is what was reached before, and each address is one that is."""

from __future__ import annotations

from dataclasses import fields
from itertools import count

import numpy as np
import pytest
from kernelscape.codegen.lower import lower
from kernelscape.codegen.passes.pipeline import CPU
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text import csyntax as c
from kernelscape.codegen.text.addresses import share_addresses
from kernelscape.codegen.text.cprint import Printer
from kernelscape.explorer.entry import library_workload
from kernelscape.kernels.library import load, names
from kernelscape.runtime.cpu.dialect import C_TEAM
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking

PARAMETERS = (
    c.Parameter("const float *", "x", "restrict "),
    c.Parameter("float *", "y", "restrict "),
)
I, J = c.Id("i"), c.Id("j")


def at(array, *terms, constant=0):
    """An element; terms are names, or names and factors."""
    pairs = tuple((c.Id(t), 1) if isinstance(t, str) else (c.Id(t[0]), t[1]) for t in terms)
    return c.Index(c.Id(array), c.linear(pairs, constant))


def put(constant, value, *terms):
    return c.Assign(at("y", *(terms or ("i",)), constant=constant), value)


def loaded(constant):
    """An element at an index that lies in an array."""
    return c.Index(c.Id("x"), c.add(at("y", "i"), c.number(constant)))


def ask(element):
    return c.Evaluate(c.Call(c.PREFETCH, (c.Un("&", element), c.Num("0"))))


def lines(*body, parameters=PARAMETERS):
    p = Printer(C_TEAM)
    p.block(share_addresses(body, parameters))
    return [line.strip() for line in p.lines]


def test_neighbours_are_reached_from_the_first_of_them():
    loop = c.For("i", c.Num("0"), c.Num("64"), 8, (
        put(0, at("x", "i", constant=5)),
        put(4, at("x", "i", constant=1)),
    ))  # fmt: skip
    assert lines(loop) == [
        "for (long i = 0; i < 64; i += 8) {",
        "float *y_at = &y[i];",
        "const float *x_at = &x[i + 1];",
        "y_at[0] = x_at[4];",
        "y_at[4] = x_at[0];",
        "}",
    ]


@pytest.mark.parametrize(
    "body",
    [
        (put(0, at("x", "i")),),  # one of each
        (put(0, at("y", "i")), put(0, at("x", "i"))),  # one, time and again
        (put(0, at("x", "i")), put(0, at("x", "j", constant=1), "j")),  # no constant distance
        (put(0, at("x", ("i", 2)), "j"), put(0, at("x", ("i", 3), constant=1), ("j", 2))),
        (c.Assign(at("z", "i"), at("z", "i", constant=1)),),  # an array of the stack
        (c.Assign(c.Index(c.Id("y"), c.Num("0")), c.Index(c.Id("y"), c.Num("1"))),),
        (ask(at("x", "i")), ask(at("x", "i", constant=8))),  # nothing is reached
        (put(0, at("x", "i")), c.Assign(I, c.Num("1"), "+"), put(0, at("x", "i", constant=1))),
        (put(0, at("x", "i")), c.Declare("long", "i", J), put(0, at("x", "i", constant=-1))),
        (put(0, loaded(0)), c.Assign(at("y", "i"), c.Num("1")), put(0, loaded(1))),  # from memory
        (put(0, c.Cond(J, at("x", "i"), at("x", "i", constant=1))),),  # one or the other
        (put(0, c.Bin("&&", J, c.Bin("&&", at("x", "i"), at("x", "i", constant=1)))),),
    ],
)
def test_nothing_else_gets_a_pointer(body):
    plain = Printer(C_TEAM)
    plain.block(body)
    assert lines(*body) == [line.strip() for line in plain.lines]


def test_what_may_not_be_reached_moves_no_pointer_but_uses_it():
    before = c.Cond(c.Bin(">", I, c.Num("0")), at("x", "i", constant=-1), c.Num("0"))
    found = lines(
        c.Assign(at("y", "j"), at("x", "i", constant=3)),
        c.Assign(at("y", ("j", 2)), at("x", "i", constant=2)),
        c.Assign(at("y", ("j", 3)), before),
        ask(at("x", "i", constant=100)),
    )
    assert found == [
        "const float *x_at = &x[i + 2];",
        "y[j] = x_at[1];",
        "y[j * 2] = x_at[0];",
        "y[j * 3] = i > 0 ? x_at[-3] : 0;",
        "__builtin_prefetch(&x_at[98], 0);",
    ]


def test_scopes_inside_use_a_pointer_until_a_name_means_something_else():
    inner = c.Assign(at("y", "j"), at("x", "i", constant=9))
    found = lines(
        c.Assign(at("y", "j"), c.Bin("+", at("x", "i"), at("x", "i", constant=1))),
        c.For("j", c.Num("0"), c.Num("4"), 1, (inner,)),
        c.For("i", c.Num("0"), c.Num("4"), 1, (inner,)),
        c.Scope((c.Declare("long", "i", J, constant=True), inner)),
        c.If(at("x", "i", constant=2), (inner,), ()),
    )
    assert [line for line in found if line != "}"] == [
        "const float *x_at = &x[i];",
        "y[j] = x_at[0] + x_at[1];",
        "for (long j = 0; j < 4; ++j) {",
        "y[j] = x_at[9];",
        "for (long i = 0; i < 4; ++i) {",
        "y[j] = x[i + 9];",
        "{",
        "const long i = j;",
        "y[j] = x[i + 9];",
        "if (x_at[2]) {",
        "y[j] = x_at[9];",
    ]


def test_names_of_pointers_are_nobody_else_s():
    taken = (
        *PARAMETERS,
        c.Parameter("float *", "x_at", "restrict "),
        c.Parameter("float ", "y_at"),
    )
    found = lines(
        c.Declare("float", "x_at_1", c.Num("0")),
        c.For("y_at_1", c.Num("0"), c.Num("4"), 1, ()),
        put(0, at("x", "i")),
        put(1, at("x", "i", constant=1)),
        parameters=taken,
    )
    assert found[3:] == [
        "float *y_at_2 = &y[i];",
        "const float *x_at_2 = &x[i];",
        "y_at_2[0] = x_at_2[0];",
        "y_at_2[1] = x_at_2[1];",
    ]


def test_buffers_are_reached_so_too():
    start = c.CastTo("float *", c.Id("workspace"))
    found = lines(
        c.Declare("float *restrict ", "t", start),
        c.Assign(at("t", "i"), at("t", "i", constant=1)),
        parameters=(c.Parameter("char *", "workspace", "restrict "),),
    )
    assert found[1:] == ["float *t_at = &t[i];", "t_at[0] = t_at[1];"]


class Flat:
    """Statements with each variable numbered by its declaration, and elements by array, terms and constant, without pointers."""

    def __init__(self, body):
        self.numbers = count()
        self.reached, self.pointed_to = set(), set()
        self.found = self.block(body, {})
        assert self.pointed_to <= self.reached

    def block(self, body, env):
        env, found = dict(env), []
        for s in body:
            match s:
                case c.Declare(kind, name, c.Un("&", c.Index() as x)) if kind.endswith("*"):
                    env[name] = self.element(x, env)
                    self.pointed_to.add(env[name])
                case c.Declare(kind, name, init, extent):
                    value = self.x(init, env)
                    env[name] = next(self.numbers)
                    found.append((kind, env[name], value, extent))
                case c.For(name, lo, hi, step, inner):
                    inside = {**env, name: next(self.numbers)}
                    head = (self.x(lo, env), self.x(hi, inside), self.x(step, inside))
                    found.append(("for", *head, self.block(inner, inside)))
                case c.Scope(inner):
                    found.append(("scope", self.block(inner, env)))
                case c.If(condition, then, orelse):
                    test = self.x(condition, env)
                    found.append(("if", test, self.block(then, env), self.block(orelse, env)))
                case _:
                    found.append(self.x(s, env))
        return found

    def element(self, x, env):
        terms, constant = c.flatten(x.index)
        known = env.get(x.base.name, x.base.name)
        if isinstance(known, tuple):
            assert not terms
            return (*known[:2], known[2] + constant)
        return known, tuple((repr(self.x(t, env)), k) for t, k in terms), constant

    def x(self, x, env):
        match x:
            case c.Index(c.Id()):
                element = self.element(x, env)
                self.reached.add(element)
                return element
            case c.Id(name):
                assert not isinstance(env.get(name), tuple), "a pointer is for elements alone"
                return env.get(name, name)
            case tuple():
                return tuple(self.x(one, env) for one in x)
        parts = c.PARTS.get(type(x), ())
        rest = (
            {f.name: getattr(x, f.name) for f in fields(x) if f.name not in parts} if parts else x
        )
        return (type(x).__name__, str(rest), *(self.x(getattr(x, p), env) for p in parts))


@pytest.mark.parametrize("name", names())
def test_all_that_is_reached_is_reached_as_before(name):
    sequence = load(name)
    sizes = {key: 48 + 5 * k for k, key in enumerate(sequence.sizes)}
    problem = library_workload(sequence, sizes, "f32", 1).problem
    root = build_space(problem, checking.target(2, 32)).root()
    assert isinstance(root, Candidate)
    rng = np.random.default_rng(1)
    drawn = [checking.random_candidate(root, rng) for _ in range(12)]
    n_pointers = 0
    for candidate in (d for d in drawn if isinstance(d, Candidate)):
        apart, near = (
            lower(plan_of(candidate), passes=passes)
            for passes in (CPU.without(share_addresses), CPU)
        )
        for f, g in zip(apart.functions, near.functions, strict=True):
            assert Flat(g.body).found == Flat(f.body).found
            assert Flat(g.after).found == Flat(f.after).found
            n_pointers += g.body != f.body
    assert n_pointers
