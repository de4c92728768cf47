"""While loops, old values of updates, prints and assertions: how they are walked, checked, printed, kept and run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.analysis.accesses import analyse
from kernelscape.kernels.frontend.recorder import Call, Recording
from kernelscape.kernels.interpret import kernel as module
from kernelscape.kernels.interpret.kernel import run_kernel
from kernelscape.kernels.ir.body import Closure, Reason
from kernelscape.kernels.ir.domain import Loop
from kernelscape.kernels.ir.kernel import (
    ArrayParam,
    Assert,
    Binary,
    Compare,
    Const,
    DType,
    For,
    KernelIR,
    Load,
    Local,
    Location,
    LoopIndex,
    Param,
    Print,
    SetLocal,
    Stmt,
    Store,
    Update,
    UpdateLocal,
    While,
)
from kernelscape.kernels.ir.text import show
from kernelscape.kernels.ir.verify import IRError, check
from kernelscape.kernels.ir.walk import Renaming, children, nested_statements
from kernelscape.kernels.tasks.archive import ArchiveError, from_values, to_values
from kernelscape.kernels.tasks.non_affine import non_affine_tasks
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.testing.in_llvm import run_in_llvm
from kernelscape.testing.run_tasks import run_tasks

I, F = DType.i64, DType.f32
HERE = Location("user.py", 7)
i = LoopIndex("i")
zero, one = Const(0, I), Const(1, I)
N = 5
ARRAYS = (ArrayParam("x", I, (N,)), ArrayParam("y", I, (N,)), ArrayParam("n", I, (1,)))


def kernel(*body: Stmt) -> KernelIR:
    return KernelIR("drawn", ARRAYS, (), body, HERE)


def over_i(*body: Stmt) -> KernelIR:
    return kernel(For("i", Const(N, I), body, HERE))


c = Local("c", I)
# Steps of Collatz: how often each x is halved or tripled until it is 1.
COLLATZ = over_i(
    SetLocal("c", Load("x", (i,), I), HERE),
    While(
        Compare("gt", c, one),
        (
            SetLocal("half", Binary("floordiv", c, Const(2, I), I), HERE),
            SetLocal(
                "c",
                Binary(
                    "add",
                    Binary(
                        "mul",
                        Binary("mod", c, Const(2, I), I),
                        Binary("add", Binary("mul", c, Const(3, I), I), one, I),
                        I,
                    ),
                    Binary(
                        "mul",
                        Binary("sub", one, Binary("mod", c, Const(2, I), I), I),
                        Local("half", I),
                        I,
                    ),
                    I,
                ),
                HERE,
            ),
            Update("y", (i,), "add", one, HERE),
        ),
        HERE,
    ),
)
# Tickets: each i draws a number and leaves its x there.
TICKETS = over_i(
    Update("n", (zero,), "add", one, HERE, "ticket"),
    Store("y", (Local("ticket", I),), Load("x", (i,), I), HERE),
)
# The old values of elements that belong to one iteration.
OWN = over_i(
    Update("x", (i,), "mul", Const(3, I), HERE, "old"),
    Store("y", (i,), Local("old", I), HERE),
)
# The index of an update is the local that its old value is put into.
CHASE = kernel(
    SetLocal("at", zero, HERE),
    For("i", Const(3, I), (Update("x", (Local("at", I),), "add", one, HERE, "at"),), HERE),
)
# As often as an array says.
COUNTED = kernel(
    For("i", Load("n", (zero,), I), (Update("y", (i,), "add", Const(2, I), HERE),), HERE)
)
CASES = {"collatz": COLLATZ, "tickets": TICKETS, "own": OWN, "chase": CHASE, "counted": COUNTED}


def given() -> dict[str, Any]:
    return {
        "x": np.array([1, 2, 3, 0, 4]),
        "y": np.zeros(N, np.int64),
        "n": np.zeros(1, np.int64),
    }


WANTED = {
    "collatz": {"y": [0, 1, 7, 0, 2]},
    "tickets": {"y": [1, 2, 3, 0, 4], "n": [5]},
    "own": {"x": [3, 6, 9, 0, 12], "y": [1, 2, 3, 0, 4]},
    "chase": {"x": [2, 3, 4, 0, 4]},  # 0 holds 1, 1 holds 2, 2 holds 3
    "counted": {"y": [2, 2, 2, 0, 0]},
}


def start(name: str) -> dict[str, Any]:
    arrays = given()
    if name == "counted":
        arrays["n"][0] = 3
    return arrays


def recording(ir: KernelIR) -> Recording:
    call = Call(ir, tuple(p.name for p in ir.arrays), (), HERE)
    return Recording("drawn", ARRAYS, (), (), (call,))


def in_tasks(ir: KernelIR, arrays: dict[str, Any]) -> None:
    for name, found in run_tasks(normalise(recording(ir)), arrays, {}).items():
        arrays[name][...] = found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("run", [lambda ir, a: run_kernel(ir, a, {}), run_in_llvm, in_tasks])
def test_what_they_mean(name: str, run: Any) -> None:
    check(CASES[name])
    arrays = start(name)
    run(CASES[name], arrays)
    for array, wanted in WANTED[name].items():
        np.testing.assert_array_equal(arrays[array], wanted)


def test_the_text() -> None:
    said = Print(("c=", c, "\n"), HERE, ("4d",))
    claim = Assert(Compare("lt", c, Const(9, I)), "c < 9", (": ", c), HERE)
    body = (SetLocal("c", zero, HERE), While(Compare("lt", c, one), (said,), HERE), claim)
    lines = show(kernel(*body, Update("n", (zero,), "min", c, HERE, "old"))).splitlines()
    assert lines[1:] == [
        "    c: i64 = 0",
        "    while c < 1:",
        "        print('c=', c, '\\n', formats=('4d',))",
        "    assert c < 9, 'c < 9', ': ', c",
        "    old: i64 = atomic_min(n[0], c)",
    ]


def test_values_among_texts_are_walked_and_replaced() -> None:
    said = Print(("c=", c, c, "\n"), HERE)
    assert children(said) == (c, c)
    seven = Const(7, I)
    assert Renaming(locals={"c": seven}).apply_stmt(said).parts == ("c=", seven, seven, "\n")
    loop = While(Compare("lt", c, one), (said,), HERE)
    assert list(nested_statements((loop,))) == [loop, said]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ((While(zero, (), HERE),), "the condition, `0`, is i64"),
        ((While(Compare("lt", c, one), (), HERE),), "the local c: i64 is not set here"),
        ((Print((c,), HERE),), "the local c: i64 is not set here"),
        ((Print(("a", zero), HERE, ("d", "d")),), "1 values are printed in 2 formats"),
        ((Print((zero,), HERE, ("f",)),), "%f is no format of `0`, which is i64"),
        ((Print((zero,), HERE, ("n",)),), "%n is no format"),
        ((Assert(zero, "", (), HERE),), "the condition, `0`, is i64"),
        (
            (SetLocal("t", Const(1.0, F), HERE), Update("n", (zero,), "add", one, HERE, "t")),
            "the local t is f32 and is set to i64",
        ),
    ],
)
def test_what_is_wrong_is_named(body: tuple[Stmt, ...], sentence: str) -> None:
    with pytest.raises(IRError, match=sentence):
        check(kernel(*body))


def test_a_local_of_an_old_value_may_be_used_behind_it_alone() -> None:
    use = Store("y", (zero,), Local("old", I), HERE)
    update = Update("n", (zero,), "add", one, HERE, "old")
    check(kernel(update, use))
    with pytest.raises(IRError, match="old: i64 is not set here"):
        check(kernel(use, update))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("collatz", "a while loop around a store"),
        ("tickets", "the old value of n, which an update gives"),
        ("counted", "a range known only at run time"),
    ],
)
def test_the_tasks_are_closed_and_say_why(name: str, reason: str) -> None:
    problem = normalise(recording(CASES[name]))
    assert [t.reason.text for t in non_affine_tasks(problem).tasks] == [reason]


def test_an_index_that_a_while_loop_changes_is_not_known() -> None:
    at = Local("at", I)
    body = (
        SetLocal("at", zero, HERE),
        While(
            Compare("gt", Load("x", (at,), I), zero),
            (
                Store("y", (at,), i, HERE),
                UpdateLocal("at", "add", one, HERE),
            ),
            HERE,
        ),
    )
    made = analyse(body, (Loop("i", N, False),), Reason(Closure.BRANCH, "drawn", HERE))
    assert made.shape == "loops"
    assert {s.index[0].affine for s in made.sites} == {None}
    store = next(s for s in made.sites if s.op == "store")
    assert not store.guard.is_exact and not store.is_unique


def test_lanes_of_a_while_loop_stop_on_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []
    original = module.AbstractRun._while

    def counted(self: Any, s: While) -> None:
        passes.append(self.shape)
        original(self, s)

    monkeypatch.setattr(module.AbstractRun, "_while", counted)
    arrays = given()
    run_kernel(COLLATZ, arrays, {})
    assert passes == [(N,)]  # once, for all lanes


def test_prints_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    f32, f64 = Const(1.5, F), Const(-2.25, DType.f64)
    ir = over_i(
        Print(("i=", i, " ", f32, " ", f64, "\n"), HERE),
        Print((f32, " ", i, "|"), HERE, (".2e", "03d")),
    )
    run_kernel(ir, given(), {})
    want = "".join(f"i={k} 1.500000 -2.250000000000\n1.50e+00 {k:03d}|" for k in range(N))
    assert capsys.readouterr().out == want


@pytest.mark.parametrize(
    ("value", "text"),
    [(np.nan, "nan"), (-np.nan, "-nan"), (-np.inf, "-inf"), (1e20, "1" + "0" * 20)],
)
def test_numbers_that_are_none(value: float, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    x = Param("alpha", DType.f64)
    ir = replace(kernel(Print((x,), HERE, (".0f",))), scalars=(x,))
    run_kernel(ir, given(), {"alpha": value})
    assert capsys.readouterr().out == text


FAILS = over_i(
    Assert(Compare("lt", i, Const(3, I)), "i < 3", (", but it is ", i), HERE),
    Store("y", (i,), one, HERE),
)


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        (lambda ir, a: run_kernel(ir, a, {}), "^user.py:7: i < 3, but it is 3$"),
        (run_in_llvm, "^user.py:7: i < 3$"),
    ],
)
def test_an_assertion_ends_the_call(run: Any, sentence: str) -> None:
    arrays = given()
    with pytest.raises(AssertionError, match=sentence):
        run(FAILS, arrays)
    assert arrays["y"].tolist() == [1, 1, 1, 0, 0]


ALL = kernel(
    SetLocal("c", zero, HERE),
    While(Compare("lt", c, one), (UpdateLocal("c", "add", one, HERE),), HERE),
    Print(("c=", c, "\n"), HERE, ("4d",)),
    Assert(Compare("lt", c, Const(9, I)), "c < 9", (": ", c), HERE),
    Update("n", (zero,), "min", c, HERE, "old"),
    Update("n", (zero,), "min", c, HERE),
)


def test_they_are_kept_in_files() -> None:
    kept = to_values(recording(ALL))
    assert from_values(json.loads(json.dumps(kept))) == recording(ALL)
    plain = kept["calls"][0]["ir"]["body"][-1]
    assert set(plain) == {"is", "array", "indices", "op", "value", "where"}  # as files of before


@pytest.mark.parametrize(
    ("number", "change", "sentence"),
    [
        (4, {"result": "a b"}, "'a b' is no name"),
        (3, {"message": "two\nlines"}, "is no text of one line"),
        (2, {"parts": ["\x1b"]}, "is no text of one line"),
        (2, {"formats": ["n"]}, "is not well-formed"),
    ],
)
def test_files_are_not_believed(number: int, change: dict[str, Any], sentence: str) -> None:
    values = json.loads(json.dumps(to_values(recording(ALL))))
    values["calls"][0]["ir"]["body"][number].update(change)
    with pytest.raises(ArchiveError, match=sentence):
        from_values(values)
