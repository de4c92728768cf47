"""Faults that cost a GPU's context, in a worker: its child ends, and the next candidate has a new one.

The child meets the stand-in for PyCUDA under PyCUDA's name, and a library under that of the driver, so it runs as on a GPU.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from kernelscape.runtime.api.outcome import Failure, Measurement
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.runtime.worker.worker import Worker, WorkerOptions

from ...contracts.device import QUICK
from .. import gpu_sources as gpu
from ..sources import input_sets
from .test_cuda import NO_COMPILER

COMPILER = shutil.which("gcc") or shutil.which("clang")
pytestmark = [
    pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER),
    pytest.mark.skipif(COMPILER is None, reason="no C compiler"),
    pytest.mark.compiler,
]

# It has no graphs; everything else is asked of PyCUDA.
LIBRARY = """\
int cuStreamBeginCapture_v2(void *stream, int mode) { return 801; }
int cuStreamEndCapture(void *stream, void **graph) { return 801; }
int cuGetErrorString(int status, const char **said) { *said = "operation not supported"; return 0; }
"""
DRIVER = """\
import time
from pathlib import Path

from kernelscape.tests.runtime.cuda import fake_pycuda
from kernelscape.tests.runtime.cuda.fake_pycuda import *

FAULT = Path(__file__).with_name("fault")


class Stream(fake_pycuda.Stream):
    def synchronize(self):
        if FAULT.exists():
            said = FAULT.read_text()
            FAULT.unlink()
            if said == "endless":
                time.sleep(1e6)
            if said == "damage":  # an input
                fake_pycuda.memset_d8(fake_pycuda.given[0] + 12, 0x11, 4)
                return
            raise LogicError(said)
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """The folder of the stand-ins."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "pycuda").mkdir()
    (folder / "pycuda/__init__.py").touch()
    (folder / "pycuda/driver.py").write_text(DRIVER)
    (folder / "cuda.c").write_text(LIBRARY)
    assert COMPILER is not None
    built = ["-shared", "-fPIC", "-o", folder / "libcuda.so.1", folder / "cuda.c"]
    subprocess.run([COMPILER, *built], check=True)
    return folder


@pytest.fixture
def worker(driver, monkeypatch, tmp_path):
    """An artifact, and a worker whose child meets the stand-ins; NVRTC, which looks for a driver too, does not."""
    device = open_device("cuda", DeviceOptions(build_folder=tmp_path))
    artifact = device.builder.build(gpu.source())
    for name in ("PYTHONPATH", "LD_LIBRARY_PATH"):
        rest = os.environ.get(name)
        monkeypatch.setenv(name, f"{driver}:{rest}" if rest else str(driver))
    with Worker(device, WorkerOptions(run_timeout_s=1.0)) as found:
        found.prepare(input_sets())
        yield artifact, found


@pytest.mark.parametrize(
    ("fault", "kind", "said", "n_restarts"),
    [
        ("an illegal memory access was encountered", "crash", "outside its arrays", 1),
        ("misaligned address", "crash", "misaligned", 1),
        ("the launch timed out and was terminated", "timeout", "for its time", 1),
        ("endless", "timeout", "within", 1),
        ("damage", "wrong", "inside a read-only input was written: x", 1),
        ("out of memory", "memory", "memory ran out", 0),
        ("invalid argument", "launch", "limits", 0),
    ],
)
def test_a_lost_context_is_one_candidate_s_loss(worker, driver, fault, kind, said, n_restarts):
    artifact, evaluator = worker
    assert isinstance(evaluator.evaluate(artifact, QUICK), Measurement)
    (driver / "pycuda/fault").write_text(fault)
    outcome = evaluator.evaluate(artifact, QUICK)
    assert isinstance(outcome, Failure)
    assert (outcome.kind, said in outcome.advice) == (kind, True), outcome
    assert isinstance(evaluator.evaluate(artifact, QUICK), Measurement)
    assert evaluator.n_restarts == n_restarts
