"""Closed bodies are functions of their own, which the compiler may put into vectors; what is opened is not."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from kernelscape.codegen.lower import lower, print_source
from kernelscape.kernels.language.kernel import kernel, types
from kernelscape.kernels.language.record import record_sequence
from kernelscape.kernels.offload.pipeline import normalise
from kernelscape.runtime.cpu.compiler import find_compiler, other_compilers
from kernelscape.runtime.cpu.dialect import C_TEAM
from kernelscape.runtime.cpu.probe import guess_target
from kernelscape.search.starts.complete import first_candidates
from kernelscape.space.build import build_space

nd = types.ndarray()


@kernel
def plus(x: nd, y: nd):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] + 1.0


@kernel
def triangle(x: nd, y: nd):
    for i in range(x.shape[0]):
        for j in range(i + 1):
            acc = 0.0
            for k in range(x.shape[1]):
                acc += x[i, k] * x[j, k]
            y[i, j] = acc


@kernel(fast_math=False)
def exact(x: nd, y: nd):
    for i in range(x.shape[0]):
        for j in range(i + 1):
            acc = 0.0
            for k in range(x.shape[1]):
                acc += x[i, k] * x[j, k]
            y[i, j] = acc


@kernel
def early(x: nd, y: nd):
    for i in range(x.shape[0]):
        if x[i, 0] > 0.0:
            y[i, 0] = x[i, 0]


def texts(*kernels, n: int = 32) -> list[str]:
    """The texts of the candidates that a search begins with."""

    def sequence(x, y):
        for one in kernels:
            one(x, y)

    x = np.ones((n, n), np.float32)
    problem = normalise(record_sequence(sequence, (x, x.copy()), name="sequence"))
    space = build_space(problem, guess_target())
    return [print_source(lower(c), C_TEAM).text for _, c in first_candidates(space)]


def functions(text: str) -> dict[str, str]:
    """The text of each function by its name."""
    found = re.findall(r"^static (?:VECTORISED )?void (\w+)\(.*?\) \{\n(.*?)^\}", text, re.M | re.S)
    return dict(found)


def test_a_closed_body_is_vectorised_and_what_is_open_beside_it_is_not() -> None:
    for text in texts(plus, triangle):
        closed = {name: body for name, body in functions(text).items() if "_closed_" in name}
        assert text.count("static VECTORISED void") == len(closed) > 0
        for name, body in closed.items():
            assert f"{name}(const float *restrict x, float *restrict y" in text
            assert "acc = acc + x[" in body
            assert "+ 1.0f" not in body
            assert "#pragma omp simd reduction(+:acc)\n" in body
        assert "omp simd" not in "".join(
            functions(text)[n] for n in functions(text).keys() - closed
        )


def test_the_order_of_exact_sums_is_kept() -> None:
    for text in texts(exact):
        assert "static VECTORISED" in text
        assert "omp simd" not in text
        assert not re.search(r"^ *ANY_ORDER$", text, re.M)


def test_without_closed_bodies_nothing_is_said_of_them() -> None:
    for text in texts(plus):
        assert "VECTORISED" not in text
        assert "ANY_ORDER" not in text


@pytest.mark.compiler
def test_compilers_take_them_without_a_word(tmp_path: Path) -> None:
    compiler = find_compiler()
    for one in (compiler, *other_compilers(compiler)):
        for k, text in enumerate(dict.fromkeys(texts(plus, triangle, early) + texts(exact))):
            source = tmp_path / f"{k}.c"
            source.write_text(text)
            command = one.command(source, tmp_path / f"{k}.so", ("-Wall", "-Wextra", "-Werror"))
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr


@pytest.mark.compiler
def test_a_sum_of_a_closed_body_is_in_vectors(tmp_path: Path) -> None:
    """What the flags of the function are for: each instruction multiplies several elements."""
    compiler = find_compiler()
    source, assembly = tmp_path / "one.c", tmp_path / "one.s"
    source.write_text(texts(triangle)[0])
    subprocess.run([compiler.path, *compiler.flags, "-S", "-o", assembly, source], check=True)
    if not (tmp_path / "one.s").read_text().count("ss\t"):
        pytest.skip("the assembly is of no x86")
    assert re.search(r"\bvf?n?m(ul|add)\w*ps\b|\bmulps\b", assembly.read_text())
