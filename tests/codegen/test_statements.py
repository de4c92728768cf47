"""The C of while loops, old values, atomic updates, prints and assertions, and of random kernels of all statements."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernelscape.codegen.bodies.bodies import BodyWriter
from kernelscape.codegen.bodies.c_vectors import CHelpers
from kernelscape.codegen.bodies.emitter import Builder
from kernelscape.codegen.bodies.memory import CMemory
from kernelscape.codegen.bodies.vectors import Prelude
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text import csyntax as c
from kernelscape.codegen.text.cprint import Printer
from kernelscape.codegen.text.free_variables import identifiers
from kernelscape.codegen.text.source import Source
from kernelscape.codegen.text.types import type_name
from kernelscape.codegen.write.program_text import LoweredProgram, print_source
from kernelscape.kernels.frontend.recorder import Call, Recording
from kernelscape.kernels.interpret.kernel import run_kernel
from kernelscape.kernels.ir.arrays import ArrayInfo
from kernelscape.kernels.ir.body import Closure, Reason
from kernelscape.kernels.ir.kernel import (
    ArrayParam,
    Assert,
    Binary,
    Cast,
    Compare,
    Const,
    DType,
    For,
    KernelIR,
    Load,
    Local,
    Location,
    LoopIndex,
    Print,
    SetLocal,
    Stmt,
    Store,
    Update,
    UpdateLocal,
    While,
)
from kernelscape.kernels.ir.ops import OPS
from kernelscape.kernels.ir.task import Problem
from kernelscape.kernels.ir.text import problem_key
from kernelscape.kernels.ir.verify import check
from kernelscape.kernels.tasks.non_affine import closed_task
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.cpu.compiler import FEWER_PASSES, find_compiler
from kernelscape.runtime.cpu.dialect import C_TEAM
from kernelscape.search.starts.complete import sketched_candidates
from kernelscape.space.build import build_space
from kernelscape.testing import checking
from kernelscape.testing.calling import InputSet, call_once, in_child, set_team_size
from kernelscape.testing.generator.features import STATEMENTS
from kernelscape.testing.generator.sequences import is_exact, kernels_of, program
from kernelscape.testing.in_llvm import run_in_llvm
from kernelscape.testing.run_tasks import run_tasks
from kernelscape.testing.syntax import calls, program_of

pytestmark = [pytest.mark.compiler]

I, F = DType.i64, DType.f32
HERE = Location("user.py", 7)
i = LoopIndex("i")
zero, one = Const(0, I), Const(1, I)
N = 64


def source_of(problem: Problem) -> Source:
    """The C text that a search would begin with."""
    return print_source(first_program(problem), C_TEAM)


def first_program(problem: Problem) -> LoweredProgram:
    space = build_space(problem, checking.target(2, 32))
    return program_of(sketched_candidates(space, limit=1)[0][1])


def built(source: Source, stem: Path) -> checking.Build:
    # As the product compiles: what gcc 12 finds out of calls is wrong where an address is a difference of pointers (`u[2 * i]`).
    flags = (*FEWER_PASSES, "-fopenmp-simd", "-Wno-unused-but-set-variable")
    made = checking.build(source, stem, flags)
    assert made.library is not None and not made.log, f"{made.log}\n{source.text}"
    return made


def called(made: checking.Build, arrays: dict[str, Any], want: dict[str, Any]) -> str:
    """Calls it in a child; what is wrong, or ""."""

    def call() -> str:
        library = ctypes.CDLL(str(made.library))
        if made.source.team:
            set_team_size(library, made.source.n_threads)
        entry = getattr(library, made.entry)
        entry.restype = None
        return call_once(entry, made.source, InputSet(arrays, {}, want, 0.0, 1.0), 0) or ""

    return in_child(call, 60)


# --- random kernels


def ways_agree(number: int, folder: Path) -> str:
    """Returns the fault of another way to run a kernel; "" where all do what the interpreter does."""
    ((ir, start),) = kernels_of(STATEMENTS, [number])
    check(ir)
    want, compiled = ({name: a.copy() for name, a in start.items()} for _ in range(2))
    run_kernel(ir, want, {})
    if not is_exact(want):
        return ""
    run_in_llvm(ir, compiled)
    problem = program(STATEMENTS, number).problem
    tasks = run_tasks(problem, start, {})
    for name in want:
        np.testing.assert_array_equal(compiled[name], want[name])
        np.testing.assert_array_equal(tasks[name], want[name])
    return called(built(source_of(problem), folder / "drawn"), start, want)


@pytest.mark.parametrize("number", range(12))
def test_random_kernels_do_what_the_interpreter_does(number: int, tmp_path: Path) -> None:
    assert not ways_agree(number, tmp_path)


def test_the_length_of_a_loop_is_known_before_it_begins(tmp_path: Path) -> None:
    """Neither an element nor a local that the loop changes makes it longer."""
    n = Local("n", I)
    by_element = For("i", Load("y", (zero,), I), (Update("y", (zero,), "add", one, HERE),), HERE)
    count = (UpdateLocal("n", "add", one, HERE), Update("y", (one,), "add", one, HERE))
    by_local = (SetLocal("n", Const(3, I), HERE), For("j", n, count, HERE))
    ir = kernel(by_element, *by_local)
    start = {"y": np.full(N, 2)}
    want = {"y": start["y"].copy()}
    run_kernel(ir, want, {})
    assert want["y"][:3].tolist() == [4, 5, 2]
    assert not called(built(source_of(problem_of(ir)), tmp_path / "length"), start, want)


@pytest.mark.parametrize("n", [-3, 0, 1, 40, N])
def test_a_loop_whose_length_a_run_tells_is_shared_out(tmp_path: Path, n: int) -> None:
    length = ArrayParam("n", I, (1,))
    body = (
        While(Compare("lt", Load("y", (i,), I), i), (Update("y", (i,), "add", one, HERE),), HERE),
    )
    ir = kernel(For("i", Load("n", (zero,), I), body, HERE), arrays=(length,))
    start = {"y": np.zeros(N, np.int64), "n": np.array([n])}
    want = {name: a.copy() for name, a in start.items()}
    run_kernel(ir, want, {})
    assert want["y"].sum() == sum(range(n))
    program = first_program(problem_of(ir))
    assert any(f.is_parallel for f in program.functions)
    source = print_source(program, C_TEAM)
    assert not called(built(source, tmp_path / "shared"), start, want)


# --- prints and assertions


def kernel(*body: Stmt, arrays: Sequence[ArrayParam] = ()) -> KernelIR:
    return KernelIR("drawn", (ArrayParam("y", I, (N,)), *arrays), (), body, HERE)


def problem_of(*irs: KernelIR) -> Problem:
    arrays = irs[0].arrays
    calls = tuple(Call(ir, tuple(a.name for a in arrays), (), HERE) for ir in irs)
    return normalise(Recording("drawn", arrays, (), (), calls))


def test_prints_are_in_order_and_look_alike(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Between loops and in them, of several kernels, of every dtype: what the interpreter prints, and the C."""
    y = Load("y", (i,), I)
    half = Binary("div", Cast(y, F), Const(2.0, F), F)
    first = kernel(
        Print(('start \\ "100%" ??/ \u00e9\n',), HERE),
        For(
            "i", Const(3, I), (Print((i, " ", half, " ", Cast(half, DType.f64), "\n"), HERE),), HERE
        ),
        Print((Cast(Const(-3, I), DType.i32), Const(True, DType.bool_), "\n"), HERE),
    )
    second = kernel(
        For("j", Const(2, I), (Store("y", (LoopIndex("j"),), one, HERE),), HERE),
        Print(
            (Load("y", (zero,), I), Const(-1, DType.i32), Const(1e10, F), "\n"),
            HERE,
            ("5d", "x", ".3e"),
        ),
    )
    start = {"y": np.arange(N) - 1}
    want = {"y": start["y"].copy()}
    for ir in (first, second):
        run_kernel(ir, want, {})
    expected = capfd.readouterr().out
    assert expected.splitlines()[:2] == [
        'start \\ "100%" ??/ \u00e9',
        "0 -0.500000 -0.500000000000",
    ]
    assert expected.splitlines()[-2:] == ["-31", "    1ffffffff1.000e+10"]
    made = built(source_of(problem_of(first, second)), tmp_path / "print")
    assert not called(made, start, want)
    assert capfd.readouterr().out == expected


def test_a_loop_that_prints_is_not_shared_out() -> None:
    loop = For("i", Const(N, I), (Print((i,), HERE), Store("y", (i,), one, HERE)), HERE)
    program = first_program(problem_of(kernel(loop)))
    assert calls(program, "dprintf") and not any(f.is_parallel for f in program.functions)


def test_an_assertion_ends_the_call_and_leaves_its_message(tmp_path: Path) -> None:
    """The closed body of a kernel in debug mode, as the program runs it: sequences that are searched have none."""
    below = Compare("lt", i, Const(5, I))
    inner = For("j", Const(4, I), (Assert(below, "i < 5", (", i = ", i, "%"), HERE),), HERE)
    body = (For("i", Const(N, I), (inner, Store("y", (i,), one, HERE)), HERE),)
    array = ArrayParam("y", I, (N,))
    task = closed_task(body, "drawn", {"y": array}, True, Reason(Closure.BRANCH, "drawn", HERE))
    assert task is not None
    info = ArrayInfo("y", I, (N,), "inout")
    problem = Problem("drawn", (info,), (), (replace(task, name="drawn0"),), "")
    problem = replace(problem, key=problem_key(problem))
    made = built(source_of(problem), tmp_path / "assert")

    def call() -> str:
        library = ctypes.CDLL(str(made.library))
        message = (ctypes.c_char * 1024).in_dll(library, "ks_message")
        if made.source.team:
            set_team_size(library, 1)
        for _ in range(2):  # the second call begins anew
            y = np.zeros(N, np.int64)
            library.run_sequence((ctypes.c_void_p * 1)(y.ctypes.data))
            found = message.value.decode(), y.sum(), bool(y[:5].all())
            if found != ("user.py:7: i < 5, i = 5%", 5, True):
                return str(found)
        return ""

    assert in_child(call, 60) == ""


# --- updates of several threads

UPDATES = {
    "add": [(DType.i32, 1), (DType.i64, 1), (F, 1), (DType.f64, 1)],
    "mul": [(DType.i32, 3)],
    "max": [(DType.f64, 7), (DType.i64, 7)],
    "min": [(F, -7)],
}


@pytest.mark.parametrize(
    ("op", "dtype", "value"), [(op, *case) for op, cases in UPDATES.items() for case in cases]
)
def test_updates_that_threads_share_are_atomic(
    tmp_path: Path, op: Any, dtype: DType, value: int
) -> None:
    """Each thread leaves the old values that it saw: of sums they are all different."""
    n = 20_000
    total, old = ArrayParam("total", dtype, (1,)), ArrayParam("old", dtype, (n,))
    update = Update(
        "total", (zero,), op, Const(dtype.numpy.type(value).item(), dtype), HERE, "before"
    )
    body = (update, Store("old", (i,), Local("before", dtype), HERE))
    arrays = {"total": total, "old": old}
    reason = Reason(Closure.CARRIED, "drawn", HERE)
    task = closed_task((For("i", Const(n, I), body, HERE),), "drawn", arrays, True, reason)
    assert task is not None
    infos = tuple(ArrayInfo(p.name, dtype, p.shape, "inout") for p in arrays.values())
    prelude = Prelude(CHelpers())
    w = Builder(prelude, {}, CMemory())
    problem = Problem("drawn", infos, (), (replace(task, name="drawn0"),), "")
    plan = plan_of(sketched_candidates(build_space(problem, checking.target(1, 32)), limit=1)[0][1])
    with w.scope() as block:
        writer = BodyWriter(w, problem, c.Id, lambda u: True)
        writer.write(plan.tasks[0], {(0, "i", 0): c.Id("k")})
    loop = c.For("k", c.Id("begin"), c.Id("end"), 1, tuple(block.statements))
    stored = identifiers((loop,))[1]
    assert stored == {"total", "old"}
    kind = type_name(dtype, 0)
    parameters = tuple(c.Parameter(f"{kind} *", name) for name in arrays)
    parameters += (c.Parameter("long ", "begin"), c.Parameter("long ", "end"))
    printer = Printer(C_TEAM)
    printer.function(c.Function("run", parameters, (loop,), False), 1)
    text = "\n".join(printer.lines).replace("static void run", "void run")
    source, library = tmp_path / "run.c", tmp_path / "run.so"
    source.write_text(f"#include <stdint.h>\n{prelude.text()}\n{text}\n")
    command = [*find_compiler().command(source, library, ("-Wall", "-Wextra", "-Werror"))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + source.read_text()
    run = ctypes.CDLL(str(library)).run
    run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    sums, before = np.ones(1, dtype.numpy), np.zeros(n, dtype.numpy)
    parts = 4
    with ThreadPoolExecutor(parts) as pool:
        jobs = [
            pool.submit(
                run, sums.ctypes.data, before.ctypes.data, k * n // parts, (k + 1) * n // parts
            )
            for k in range(parts)
        ]
        for job in jobs:
            job.result()
    want = np.full(n, value, dtype.numpy)
    with np.errstate(over="ignore"):
        assert sums[0] == OPS[op].numpy.reduce(want, initial=dtype.numpy.type(1), dtype=dtype.numpy)
    if op == "add":
        assert sorted(before.tolist()) == list(range(1, n + 1))
