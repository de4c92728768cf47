"""`explore export`: files that build and check themselves without this package."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.lower import lower, print_source
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text.header import header_file, header_text
from kernelscape.explorer.check_inputs import inputs_of
from kernelscape.explorer.entry import library_workload
from kernelscape.explorer.export import cmake_text
from kernelscape.explorer.results import load as load_best
from kernelscape.explorer.self_check import check_text
from kernelscape.explorer.workload import Workload, make_workload
from kernelscape.kernels.library import load
from kernelscape.runtime.cpu.dialect import C_TEAM
from kernelscape.runtime.cpu.probe import guess_target
from kernelscape.search.starts.complete import first_candidates
from kernelscape.space.build import build_space
from msgspec import structs

from .command import made, objects

GCC = ("gcc", "-O1", "-march=native", "-ffp-contract=off", "-Wno-psabi")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two evaluations."""
    folder = tmp_path_factory.mktemp("found")
    return made(folder, "gesummv", "--size", "m=30,n=50", "--max-evals", 2, "--time-limit", "5s")


@pytest.mark.compiler
@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not here")
def test_cmake_builds_it_and_it_checks_itself(explore, found: Path) -> None:
    code, out, err = explore("export", found / "best.json", "-o", "out", "--json")
    assert code == 0, err
    (fields,) = objects(out)
    names = ["kernel.c", "gesummv.h", "main.c", "CMakeLists.txt", "libgesummv.so"]
    assert (fields["function"], fields["files"]) == ("gesummv", names)
    for command in (["-S", "out", "-B", "build"], ["--build", "build"]):
        done = subprocess.run(["cmake", *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run(["build/check_gesummv"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "gesummv: all 46 values agree\n")


@pytest.mark.compiler
def test_its_library_is_loaded_by_any_program(explore, found: Path) -> None:
    """It needs nothing but C's own libraries, and finds them by itself."""
    assert explore("export", found, "-o", "out")[0] == 0
    assert hasattr(ctypes.CDLL("out/libgesummv.so"), "run_sequence")


def test_texts_of_the_file_begin_no_line(explore, found: Path) -> None:
    """A best.json may be anybody's, and CMake runs what it reads."""
    best = json.loads((found / "best.json").read_text())
    best["conditions"]["compiler"] = "gcc\nexecute_process(COMMAND touch harm)"
    Path("best.json").write_text(json.dumps(best))
    code, _, err = explore("export", "best.json", "-o", "out")
    assert (code, err.count("\n")) == (2, 1)  # refused when it is read
    found_best = load_best(found)
    conditions = structs.replace(found_best.file.conditions, compiler="gcc\nexecute_process(x)")
    file = structs.replace(found_best.file, conditions=conditions)
    text = cmake_text(
        "f", SimpleNamespace(suffix=".c"), ["gcc"], replace(found_best, file=file), False
    )
    assert not any(line.lstrip().startswith("execute_process") for line in text.splitlines())


@ks.kernel
def count_and_scale(
    k: ks.types.ndarray(dtype=ks.i32), x: ks.types.ndarray(), y: ks.types.ndarray(), f: float
) -> None:
    for i in range(x.shape[0]):
        k[i] += 3
        y[i] = f * ks.sqrt(x[i])


def _of_integers() -> Workload:
    """Integers, a root that wants positive numbers, an array that is updated, a scalar."""

    def mixed(x, k, f, y):
        count_and_scale(k, x, y, f)

    n = 300
    k = np.arange(-150, 150, dtype=np.int32)
    return make_workload(
        mixed, (np.linspace(0.5, 9, n), k, 0.3, np.zeros(n)), sequence="here:mixed", name="mixed"
    )


@pytest.mark.compiler
@pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is not here")
@pytest.mark.parametrize("name", ["gemver", "heat", "mixed"])
def test_the_check_finds_what_is_wrong(name: str, tmp_path: Path) -> None:
    """It passes for right code and, made wrong in one place, fails."""
    workload = _of_integers() if name == "mixed" else None
    if workload is None:
        entry = load(name)
        workload = library_workload(entry, entry.complete({"n": 40, "m": 40}), "f64", 1)
    space = build_space(workload.problem, guess_target())
    ((_, candidate),) = first_candidates(space, limit=1)
    source = print_source(lower(plan_of(candidate)), C_TEAM)
    parameters = [p.name for p in workload.stored.parameters]
    inputs = inputs_of(workload.stored, workload.recording, {})
    texts = {
        "kernel.c": source.file_text,
        header_file(workload.problem): header_text(source, workload.problem, parameters),
        "main.c": check_text(source, workload.problem, workload.recording, workload.stored, inputs),
        # The last element of the last array that is written, after the call.
        "wrong.c": check_text(
            source, workload.problem, workload.recording, workload.stored, inputs
        ),
    }
    last = max(
        k
        for k, a in enumerate(workload.recording.arrays)
        if workload.problem.array(a.name).role != "input"
    )
    texts["wrong.c"] = texts["wrong.c"].replace(
        "  for (const ks_sample", f"  a{last}[0] += 1;\n  for (const ks_sample", 1
    )
    for file, text in texts.items():
        (tmp_path / file).write_text(text)
    for main, code, words in (("main.c", 0, "values agree"), ("wrong.c", 1, "[0] is ")):
        program = tmp_path / f"{main}.out"
        subprocess.run(
            [*GCC, "-o", program, tmp_path / main, tmp_path / "kernel.c", "-lm"], check=True
        )
        done = subprocess.run([program], capture_output=True, text=True)
        assert done.returncode == code, done.stdout
        assert words in done.stdout
