"""Everything that is done with a run on the CPU is done with one of CUDA text, run by the emulator."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.library import load
from kernelscape.runtime.records.loading import load_best

from .command import evaluations, made, objects

pytest.importorskip("kernelscape.runtime.emulator")
pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(not shutil.which("g++") and not shutil.which("clang++"), reason="no C++"),
]
GIVEN = ("gesummv", "--size", "n=37", "--target", "emulator", "--max-evals", 3)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory) -> Path:
    """A run of three evaluations."""
    return made(tmp_path_factory.mktemp("emulated"), *GIVEN)


@pytest.fixture
def run(emulated: Path, tmp_path: Path) -> Path:
    """A copy, to go on with or to damage."""
    return Path(shutil.copytree(emulated, tmp_path / "copy"))


def test_a_run_is_saved_and_resumed(explore, run: Path) -> None:
    assert len(evaluations(run)) == 3
    assert load_best(run / "best.json").target == "emulator"
    code, out, _ = explore("resume", run, "--max-evals", 2)
    assert code == 0
    assert "Resumed    3 finished evaluations" in out
    assert "emulator NVIDIA H200 SXM (data sheet); no rate is measured" in out
    assert "Bound " in out
    assert "proved" not in out  # times of the emulator mean nothing beside a data sheet
    assert len(evaluations(run)) == 5


def test_it_is_replayed_verified_and_called(explore, run: Path) -> None:
    code, out, _ = explore("replay", run, "--tolerance", "1000%")
    assert code == 0
    assert "verified on 3 input sets" in out
    entry = load("gesummv")
    sizes = entry.complete({"n": 37})
    given = entry.make_arguments(sizes, np.float32, np.random.default_rng(5))
    wanted = [x.copy() if isinstance(x, np.ndarray) else x for x in given]
    entry.reference(*wanted)
    ks.replay(run / "best.json")(*given)
    for got, want in zip(given, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4)


def test_its_text_and_what_compiles_it_are_written(explore, run: Path) -> None:
    code, out, err = explore("codegen", run, "-o", "text")
    assert (code, Path("text/kernel.cu").read_text()) == (0, (run / "kernel.cu").read_text())
    assert shlex.split(out)[0] == "nvcc"
    assert "text/kernel.cu  exports launch_0" in err


def test_it_is_exported_without_nvcc(explore, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    code, out, err = explore("export", run, "-o", "out")
    assert code == 0, err
    assert "no library: nvcc is not here" in out
    assert Path("out/kernel.cu").read_text().startswith((run / "kernel.cu").read_text().rstrip())
    code, out, _ = explore("export", run, "-o", "out", "--json")
    (fields,) = objects(out)
    names = ["kernel.cu", "gesummv.h", "main.c", "CMakeLists.txt"]
    assert (code, fields["files"], fields["library"]) == (0, names, None)


@pytest.mark.skipif(not shutil.which("nvcc") or not shutil.which("cmake"), reason="no CUDA toolkit")
def test_cmake_builds_what_is_exported(explore, run: Path) -> None:
    """With a GPU the program finds that all agrees; without one it says what is missing."""
    code, out, err = explore("export", run, "-o", "out", "--json")
    assert code == 0, err
    assert objects(out)[0]["library"] == "libgesummv.so"
    assert Path("out/libgesummv.so").read_bytes()[:4] == b"\x7fELF"
    for command in (["-S", "out", "-B", "build"], ["--build", "build"]):
        done = subprocess.run(["cmake", *command], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run(["build/check_gesummv"], capture_output=True, text=True, timeout=300)
    if done.returncode == 2:
        assert done.stderr.startswith("memory of the GPU: ")
    else:
        assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_it_is_explained(explore, run: Path) -> None:
    code, out, _ = explore("explain", run)
    assert code == 0
    assert "note: rates are guessed from a data sheet\n" in out
    for part in ("L2", "issue", "launches"):
        assert f"\n  {part}" in out
    assert "team" not in out
    code, out, _ = explore("explain", run, "--json")
    (fields,) = objects(out)
    kernels = (run / "kernel.cu").read_text().count("__global__")
    assert fields["best"]["starts"]["n_launches"] == kernels
    assert fields["best"]["starts"]["n_teams"] is None


@pytest.mark.parametrize(
    ("target", "code", "sentence"),
    [("cpu", 7, "do not fit the space"), ("quantum", 3, "no backend 'quantum'")],
)
def test_a_file_that_says_another_target_is_a_sentence(
    explore, run: Path, target: str, code: int, sentence: str
) -> None:
    best = json.loads((run / "best.json").read_text()) | {"target": target}
    (run / "best.json").write_text(json.dumps(best))
    for command in (("replay", run), ("codegen", run, "-o", "text"), ("explain", run)):
        got, out, err = explore(*command)
        assert (got, out, err.count("\n")) == (code, "", 1)
        assert sentence in err
