"""Exported results of a GPU (`explore export`): run on the emulator through the calls of CUDA's runtime that they make."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from kernelscape.codegen.text.header import header_file
from kernelscape.codegen.text.source import Argument, KernelLaunch, Source
from kernelscape.codegen.write.host_launcher import launch_header_text, launched_text
from kernelscape.explorer.check_inputs import inputs_of
from kernelscape.explorer.entry import library_workload
from kernelscape.explorer.self_check import check_text
from kernelscape.explorer.workload import Workload
from kernelscape.kernels.ir.arrays import ArrayInfo
from kernelscape.kernels.ir.kernel import DType
from kernelscape.kernels.ir.task import Problem
from kernelscape.kernels.library import load

from .gpu_cases import BICGK, NEEDS_COMPILER, decided, gpu, nvrtc_is_there

emulator = pytest.importorskip("kernelscape.runtime.emulator.device")
emulator_text = pytest.importorskip("kernelscape.runtime.emulator.adapted_text")

pytestmark = [*NEEDS_COMPILER, pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")]
STUBS = Path(__file__).parent / "emulated_cuda"
# Two tiles of 64 x 64 doubles in shared memory: 64 KiB, which a launch has to ask for.
LARGE = {
    "dim_kind(multiply0.i.outer)": "PARALLEL",
    "dim_kind(multiply0.j.outer)": "PARALLEL",
    "dim_kind(multiply0.k.outer)": "LOOP",
    "dim_kind(multiply0.i.mid)": "THREAD",
    "dim_kind(multiply0.j.mid)": "THREAD",
    "size(multiply0.i.mid)": "16",
    "size(multiply0.j.mid)": "16",
    "dim_kind(multiply0.k.mid)": "LOOP",
    "size(multiply0.k.mid)": "64",
    "dim_kind(multiply0.i.inner)": "UNROLL",
    "size(multiply0.i.inner)": "4",
    "dim_kind(multiply0.j.inner)": "UNROLL",
    "size(multiply0.j.inner)": "4",
    "dim_kind(multiply0.k.inner)": "ABSENT",
    "staged(multiply0.a)": "COPY",
    "staged(multiply0.b)": "COPY",
}


def _workload(name: str, dtype: str) -> Workload:
    entry = load(name)
    return library_workload(entry, entry.complete(dict.fromkeys(entry.sizes, 70)), dtype, 1)


def _texts(source: Source, workload: Workload) -> dict[str, str]:
    parameters = [p.name for p in workload.stored.parameters]
    problem = workload.problem
    inputs = inputs_of(workload.stored, workload.recording, {})
    return {
        "kernel.cu": launched_text(source, problem, parameters),
        header_file(problem): launch_header_text(source, problem, parameters),
        "main.c": check_text(source, problem, workload.recording, workload.stored, inputs),
    }


def _ran(texts: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """The program that checks it, with the emulator in place of a GPU."""
    folder.mkdir()
    for file, text in texts.items():
        (folder / file).write_text(text)
    (folder / "all.cpp").write_text(
        emulator_text.emulated_kernels(texts["kernel.cu"], '#include "runtime.h"')
    )
    include = ("-I", STUBS, "-I", folder)
    strict = ("-std=c11", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror")
    for command in (
        (
            "g++",
            *emulator.COMPILE_FLAGS,
            *include,
            "-c",
            folder / "all.cpp",
            "-o",
            folder / "all.o",
        ),
        ("gcc", *strict, *include, "-c", folder / "main.c", "-o", folder / "main.o"),
        ("gcc", folder / "main.o", folder / "all.o", "-lm", "-o", folder / "check"),
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    return subprocess.run([folder / "check"], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("name", "dtype", "decisions"),
    [("bicgk", "f32", BICGK), ("matmul", "f64", LARGE)],
    ids=["two launches and a workspace", "much shared memory"],
)
def test_exported_launches_are_right_and_the_check_finds_what_is_wrong(
    name: str, dtype: str, decisions: dict[str, str], tmp_path: Path, nvrtc_folder: Path
) -> None:
    workload = _workload(name, dtype)
    source = gpu.source_of(decided(workload.problem, decisions))
    texts = _texts(source, workload)
    done = _ran(texts, tmp_path / "right")
    assert (done.returncode, done.stderr) == (0, "")
    assert "values agree" in done.stdout
    if name == "bicgk":
        assert len(source.launches) == 2
        wrong = _texts(replace(source, launches=source.launches[:1]), workload)
        done = _ran(wrong, tmp_path / "wrong")
        assert (done.returncode, "should be" in done.stdout) == (1, True)
    else:
        assert source.launches[0].shared_bytes > 48 << 10
        lines = texts["kernel.cu"].splitlines()
        unasked = "\n".join(x for x in lines if "cudaFuncSetAttribute" not in x)
        done = _ran(texts | {"kernel.cu": unasked}, tmp_path / "unasked")
        assert (done.returncode, done.stderr) == (2, "a launch: refused\n")
    if nvrtc_is_there():  # which passes over what is for the host
        assert gpu.compiler_says(replace(source, text=texts["kernel.cu"]), nvrtc_folder) == ""


def test_golden_names_of_its_own_are_not_those_of_the_sequence(
    golden: Callable[[str, str], None],
) -> None:
    arrays = (ArrayInfo("stream", DType.f32, (4,), "output"),)
    problem = Problem("cudaLaunchKernel", arrays, (), (), "")
    given = (Argument("stream", "array", "float32", (4,)),)
    launch = KernelLaunch("launch_0", (1, 1, 1), (1, 1, 1), 0, (0,))
    source = Source("", "run_sequence", given, 1, launches=(launch,))
    golden(launched_text(source, problem), "names.cu.txt")
    with pytest.raises(ValueError, match="launched by itself"):
        launch_header_text(replace(source, launches=()), problem)
