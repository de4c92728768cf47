"""Closed bodies are functions of their own, which the compiler may put into vectors; what is opened is not."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from kernelscape.codegen.text import csyntax as c
from kernelscape.codegen.text.cprint import Printer
from kernelscape.codegen.write.program_text import LoweredProgram, print_source
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.cpu.compiler import find_compiler, other_compilers
from kernelscape.runtime.cpu.dialect import C_TEAM
from kernelscape.search.starts.complete import first_candidates
from kernelscape.space.build import build_space
from kernelscape.testing import checking
from kernelscape.testing.assembly import instructions, lanes_of
from kernelscape.testing.joining import joined
from kernelscape.testing.syntax import innermost, loops, names_in, nodes, program_of

nd = types.ndarray()


@kernel
def plus(x: nd, y: nd):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] + 1.0


@kernel
def chained(x: nd, y: nd):
    for i in range(x.shape[0]):
        last = 0.0
        for j in range(x.shape[0]):
            acc = 0.0
            for k in range(x.shape[1]):
                acc += x[i, k] * x[j, k]
            y[i, j] = acc + last
            last = acc


@kernel(fast_math=False)
def exact(x: nd, y: nd):
    for i in range(x.shape[0]):
        last = 0.0
        for j in range(x.shape[0]):
            acc = 0.0
            for k in range(x.shape[1]):
                acc += x[i, k] * x[j, k]
            y[i, j] = acc + last
            last = acc


@kernel
def early(x: nd, y: nd):
    for i in range(x.shape[0]):
        if x[i, 0] > 0.0:
            y[i, 0] = x[i, 0]


def texts(*kernels) -> list[str]:
    """The texts of programs."""
    return [print_source(p, C_TEAM).text for p in programs(*kernels)]


def programs(*kernels, n: int = 32) -> list[LoweredProgram]:
    """The programs of the candidates that a search begins with."""

    def sequence(x, y, z):
        for one in kernels:
            one(x, z if one is plus else y)

    x = np.ones((n, n), np.float32)
    problem = normalise(record_sequence(sequence, (x, x.copy(), x.copy()), name="sequence"))
    space = build_space(problem, checking.target(4, 64))
    return [program_of(candidate) for _, candidate in first_candidates(space)]


def closed(program: LoweredProgram) -> list[c.Function]:
    """Functions with closed bodies."""
    return [f for f in program.functions if f.is_closed]


def test_a_closed_body_is_vectorised_and_what_is_open_beside_it_is_not() -> None:
    found = [p for p in programs(plus, chained) if not any(map(is_in_lanes, closed(p)))]
    assert len(found) > 1
    for program in found:
        assert closed(program)
        for f in closed(program):
            assert [(p.type, p.restrict, p.name) for p in f.parameters[:2]] == [
                ("const float *", "restrict ", "x"),
                ("float *", "restrict ", "y"),
            ]
            (summing,) = innermost(f)
            assert summing.sums == (("+", "acc"),)
            (added,) = summing.body
            assert isinstance(added, c.Assign) and added.target == c.Id("acc")
            assert {"acc", "x"} <= names_in(added.value)
            assert not has_one(f)
        opened = [f for f in program.functions if not f.is_closed]
        assert any(map(has_one, opened))
        assert not [x for x in loops(tuple(opened)) if x.sums or x.independent or x.in_any_order]


def test_golden_closed_body(golden: Callable[[str, str], None]) -> None:
    """Hints to compilers: flags of the function, sums of its loop."""
    printer = Printer(C_TEAM)
    for f in closed(programs(chained)[0]):
        printer.function(f, 1)
    golden("\n".join((C_TEAM.closed_prelude, *printer.lines, "")), "closed_body.c.txt")


def is_in_lanes(f: c.Function) -> bool:
    """True if a function has vectors of our own: of iterations, or along a range."""
    return any(isinstance(n, c.Declare) and "x16" in n.type for n in nodes(f))


def has_one(f: c.Function) -> bool:
    """True if a function adds one, as `plus` does."""
    return any(isinstance(n, c.Num) and n.text == "1.0f" for n in nodes(f))


def test_the_order_of_exact_sums_is_kept() -> None:
    for program in programs(exact):
        assert closed(program)
        assert not [x for x in loops(program) if x.sums or x.independent or x.in_any_order]


def test_without_closed_bodies_nothing_is_said_of_them() -> None:
    for program in programs(plus):
        assert not closed(program)
        assert not [x for x in loops(program) if x.sums or x.independent or x.in_any_order]


@pytest.mark.compiler
def test_compilers_take_them_without_a_word(tmp_path: Path) -> None:
    made = [*programs(plus, chained, early), *programs(exact)]
    text = joined(list(dict.fromkeys(print_source(p, C_TEAM) for p in made))).text
    (source := tmp_path / "all.c").write_text(text)
    compiler = find_compiler()
    for one in (compiler, *other_compilers(compiler)):
        command = one.command(source, tmp_path / "all.so", ("-Wall", "-Wextra", "-Werror"))
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.compiler
def test_a_sum_of_a_closed_body_is_in_vectors(tmp_path: Path) -> None:
    """The purpose of the function's flags: each instruction multiplies several elements."""
    compiler = find_compiler()
    source, assembly = tmp_path / "one.c", tmp_path / "one.s"
    source.write_text(texts(chained)[0])
    made = instructions([compiler.path, *compiler.flags, str(source), "-o", str(assembly)])
    if not lanes_of(made):
        pytest.skip("the assembly is of no x86")
    assert "packed" in lanes_of(made)
