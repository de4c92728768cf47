"""The cpu device with a build folder of its own, and a worker prepared for the sources of
sources.py.
"""

from __future__ import annotations

import shutil

import pytest
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.runtime.worker.worker import Worker, WorkerOptions

from .sources import input_sets


@pytest.fixture(scope="session")
def cpu(tmp_path_factory):
    if shutil.which("gcc") is None and shutil.which("clang") is None and shutil.which("cc") is None:
        pytest.skip("no C compiler")
    return open_device("cpu", DeviceOptions(build_folder=tmp_path_factory.mktemp("build")))


@pytest.fixture(scope="module")
def worker(cpu):
    with Worker(cpu, WorkerOptions(run_timeout_s=1.0, memory_bytes=192 << 20)) as w:
        w.prepare(input_sets())
        yield w
