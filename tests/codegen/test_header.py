"""The header for C callers: its text, and programs that are compiled with it and call the code."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
from kernelscape.codegen.text.header import function_name, header_file, header_text
from kernelscape.codegen.text.source import KernelLaunch, Source
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.arrays import ArrayInfo
from kernelscape.kernels.ir.kernel import DType
from kernelscape.kernels.ir.task import Problem
from kernelscape.kernels.library import load
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.sketches import Fusion, Sketch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking

CALLER = """
#include <stdio.h>
#include <stdlib.h>
#include "axpydot.h"

int main(void) {
  float w[1000], v[1000], u[1000], z[1000], r[1];
  for (int i = 0; i < 1000; i++) { w[i] = i % 7; v[i] = i % 5; u[i] = i % 3; }
  void *workspace = aligned_alloc(AXPYDOT_ALIGNMENT, (AXPYDOT_WORKSPACE_BYTES + 63) / 64 * 64);
  axpydot(0.5f, w, v, u, z, r, workspace);
  double sum = 0;
  for (int i = 0; i < 1000; i++) sum += (w[i] - 0.5f * v[i]) * u[i];
  printf("%g %g %g\\n", r[0], sum, z[999]);
  free(workspace);
  return 0;
}
"""


def made(name, sizes, sketch):
    entry = load(name)
    args = entry.make_arguments(
        entry.complete(sizes), np.dtype(np.float32), np.random.default_rng(0)
    )
    problem = normalise(record_sequence(entry.sequence, args, name), entry.formula)
    root = build_space(problem, checking.target(4, 64)).root()
    assert isinstance(root, Candidate)
    candidate = complete_sketch(root, sketch)
    assert candidate is not None
    return checking.source_of(candidate), problem


def test_golden_header(golden):
    source, problem = made("gemver", {"m": 120, "n": 96}, Sketch(fusion=Fusion(launch=False)))
    golden(header_text(source, problem), "gemver.h")


@pytest.mark.compiler
@pytest.mark.parametrize("language", ["c", "c++"])
def test_a_caller_in_another_language_is_compiled_and_right(language, tmp_path):
    compilers = {"c": ("gcc", "-std=c11"), "c++": ("g++", "-std=c++17")}
    compiler, standard = compilers[language]
    if shutil.which(compiler) is None or shutil.which("gcc") is None:
        pytest.skip(f"needs gcc and {compiler}")
    source, problem = made("axpydot", {"n": 1000}, Sketch(fusion=Fusion(launch=False, loops=False)))
    assert header_file(problem) == "axpydot.h"
    parameters = ("alpha", "w", "v", "u", "z", "r")
    (tmp_path / "axpydot.h").write_text(header_text(source, problem, parameters))
    (tmp_path / "kernel.c").write_text(source.file_text)
    (tmp_path / "caller.c").write_text(CALLER)
    strict = [standard, "-Wall", "-Wextra", "-Werror", "-x", language]
    commands = [
        ["gcc", "-std=gnu11", "-O1", "-Wno-psabi", "-c", "kernel.c", "-o", "kernel.o"],
        [
            compiler,
            *strict,
            "caller.c",
            "-x",
            "none",
            "kernel.o",
            "-pthread",
            "-lm",
            "-o",
            "caller",
        ],
        ["./caller"],
    ]
    for command in commands:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    found, wanted, last = map(float, done.stdout.split())
    assert found == pytest.approx(wanted, rel=1e-5)
    assert last == 999 % 7 - 0.5 * (999 % 5)


def test_golden_names_of_python_become_names_of_c(golden):
    """Keywords, names of C++ and the end of a comment do no harm; equal names are told apart."""
    arrays = tuple(
        ArrayInfo(name, DType.f32, (4,), role)
        for name, role in (("class", "input"), ("double", "output"), ("tmp", "temp"))
    )
    problem = Problem("operator", arrays, (), (), "", "a */ b")
    source = Source("", "run_sequence", (), n_threads=1)
    assert function_name(problem) == "v_operator_"
    golden(header_text(source, problem, entry="renamed"), "operator.h")


def test_code_for_a_gpu_has_no_header():
    launch = KernelLaunch("k", (1, 1, 1), (1, 1, 1), 0, ())
    gpu = Source("", "run_sequence", (), 1, launches=(launch,))
    with pytest.raises(ValueError, match="no function that C could call"):
        header_text(gpu, Problem("p", (), (), (), ""))
