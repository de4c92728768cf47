"""The kind: what is kept to be quicker may go at any moment, and nothing but time is lost."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pytest
from kernelscape.explorer.entry import explore_workload, library_workload
from kernelscape.explorer.workload import Options
from kernelscape.kernels.library import load
from kernelscape.runtime.cpu import compiler
from kernelscape.runtime.cpu.compiler import Library, build_library, find_compiler
from kernelscape.runtime.worker.worker import Worker

pytestmark = pytest.mark.compiler


@pytest.mark.parametrize("is_before", [True, False])
def test_a_folder_that_goes_while_it_compiles(tmp_path, monkeypatch, is_before):
    """Before the compiler opens the text, and before the library is moved to its place."""
    folder, compile_it = tmp_path / "build", compiler.run_compiler

    def removing(*given):
        if is_before:
            shutil.rmtree(folder, ignore_errors=True)
        failure = compile_it(*given)
        shutil.rmtree(folder, ignore_errors=True)
        return failure

    spare = tmp_path / "spare"
    monkeypatch.setattr(compiler, "_spare_folder", lambda: spare)
    found = find_compiler()
    monkeypatch.setattr(compiler, "run_compiler", removing)
    built = build_library(found, f"int seven{is_before}(void) {{ return 7; }}", (), folder, 60.0)
    assert isinstance(built, Library)
    assert built.path.parent == spare
    assert ctypes.CDLL(str(built.path))[f"seven{is_before}"]() == 7


def test_a_library_that_is_gone_before_it_is_run(tmp_path, monkeypatch):
    """It is no failure of the candidate."""
    evaluate = Worker.evaluate
    n_removed = 0

    def removing(self, artifact, protocol, *, verify=True):
        nonlocal n_removed
        if n_removed == 0:
            n_removed += 1
            Path(artifact.path).unlink()
        return evaluate(self, artifact, protocol, verify=verify)

    monkeypatch.setattr(Worker, "evaluate", removing)
    workload = library_workload(load("vadd"), {"n": 64}, "f32", 1)
    options = Options(max_evals=2, store=False, compiler="gcc")
    run = explore_workload(workload, options, directory=tmp_path / "run")
    assert n_removed == 1
    assert run.best is not None
    assert run.ended.failures == {}
