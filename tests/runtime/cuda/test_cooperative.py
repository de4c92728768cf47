"""Launches whose blocks wait for each other: what the driver is asked for, and what is refused before it."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from kernelscape.runtime.api.backend import CallArguments, RunError
from kernelscape.runtime.api.outcome import Failure
from kernelscape.runtime.cuda import cooperative
from kernelscape.runtime.cuda import runner as cuda_runner

from .. import gpu_sources as gpu
from ..sources import N
from . import fake_pycuda
from .test_cuda import compiled, folder, loaded, stand_in  # noqa: F401

TOO_LARGE = 720  # CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE


class Library:
    """The driver's functions for such launches: a multiprocessor of two holds `each` blocks of the kernel."""

    def __init__(self, each=4):
        self.each, self.said, self.launched, self.n_open = each, [], [], 0

    def cuModuleLoadData(self, made, cubin):
        assert cubin[:4] == b"\x7fELF"
        made._obj.value, self.cubin = 5, cubin
        self.n_open += 1
        return 0

    def cuModuleUnload(self, loaded):
        assert loaded.value == 5
        self.n_open -= 1
        return 0

    def cuModuleGetFunction(self, found, loaded, name):
        assert loaded.value == 5 and name in self.cubin
        found._obj.value = 6
        return 0

    def cuFuncSetAttribute(self, function, attribute, value):
        assert (function.value, attribute) == (6, 8)
        self.said.append(value)
        return 0

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, found, function, n_threads, shared):
        self.said.append((function.value, n_threads, shared.value))
        found._obj.value = self.each
        return 0

    def cuDeviceGetAttribute(self, found, attribute, number):
        assert (attribute, number) == (16, 0)
        found._obj.value = 2
        return 0

    def cuGetErrorString(self, status, said):
        assert status == TOO_LARGE
        said._obj.value = b"too many blocks in cooperative launch"
        return 0

    def cuLaunchCooperativeKernel(self, function, *given):
        *sizes, _stream, places = given
        sizes = [n.value for n in sizes]
        self.launched.append(sizes)
        if sizes[0] > 2 * self.each:
            return TOO_LARGE
        x, y, z = (ctypes.c_uint64.from_address(places[k]).value for k in range(3))
        alpha = ctypes.c_float.from_address(places[3]).value
        packed = b"".join(int(a).to_bytes(8, "little") for a in (x, y, z))
        packed += np.float32(alpha).tobytes()
        fake_pycuda.Function("launch_0")._launch_kernel((), (), packed, 0, None)
        return 0


@pytest.fixture
def driver(monkeypatch):
    library = Library()
    monkeypatch.setattr(cooperative, "library", lambda: library)
    monkeypatch.setattr(cooperative, "driver", lambda: fake_pycuda)
    return library


def staying(**options):
    s = gpu.source(**options)
    return replace(s, launches=tuple(replace(x, stays=True) for x in s.launches))


@compiled
def test_a_grid_that_stays_is_launched_cooperatively(stand_in, driver):  # noqa: F811
    """Its parameters are given by their places: three pointers, and a scalar behind them."""
    made = loaded(stand_in, staying(shared_bytes=50 << 10))
    x, y, z = np.ones(N, np.float32), np.full(N, 2, np.float32), np.zeros(N, np.float32)
    made.run([x, y, z, 3.0])
    assert (z == 5).all()
    assert driver.said == [50 << 10, (6, 128, 50 << 10)]
    assert driver.launched == [[8, 1, 1, 128, 1, 1, 50 << 10]]
    assert driver.n_open == 1
    made.close()
    assert driver.n_open == 0


@compiled
def test_other_grids_are_not(stand_in, driver):  # noqa: F811
    loaded(stand_in)
    assert driver.said == [] and driver.n_open == 0


@compiled
def test_more_blocks_than_the_driver_counts_are_refused(stand_in, driver):  # noqa: F811
    driver.each = 3
    refused = stand_in.runner.load(stand_in.builder.build(staying()))
    assert isinstance(refused, Failure)
    assert refused.kind == "launch"
    wanted = "launch_0: 8 blocks wait for each other, and NVIDIA H200 holds 6 at once"
    assert refused.advice == wanted
    assert driver.n_open == 0


@compiled
def test_a_launch_that_cannot_be_loaded_leaves_no_module(stand_in, driver):  # noqa: F811
    """Kind: a module that is loaded twice, and closed once."""
    built = stand_in.builder.build(staying())
    (launch,) = built.launches
    other = replace(launch, kernel="absent", stays=False)
    refused = stand_in.runner.load(replace(built, launches=(launch, other)))
    assert isinstance(refused, Failure)
    assert refused.advice == "the built module does not export absent"
    assert driver.n_open == 0


@compiled
def test_more_blocks_than_the_compiler_s_report_has_room_for_are_not_built(stand_in):  # noqa: F811
    """1024 threads a block: two of them a multiprocessor, of which an H200 has 132."""
    s = staying(block=1024)
    (launch,) = s.launches
    for n, fits in ((264, True), (265, False)):
        built = stand_in.builder.build(replace(s, launches=(replace(launch, grid=(n, 1, 1)),)))
        assert isinstance(built, Failure) != fits
    assert built.kind == "launch"
    assert "265 blocks wait for each other, and H200" in built.advice.replace("NVIDIA ", "")
    assert "holds 264 at once" in built.advice


@compiled
def test_what_the_driver_refuses_at_last_is_a_launch_failure(stand_in, driver, monkeypatch):  # noqa: F811
    monkeypatch.setattr(cuda_runner, "too_many_blocks", lambda *_: None)
    driver.each = 3
    made = loaded(stand_in, staying())
    zeros = [np.zeros(N, np.float32) for _ in range(3)]
    with pytest.raises(RunError, match="wait for each other") as caught:
        made.run([*zeros, 1.0])
    assert (caught.value.failure.kind, caught.value.is_lost) == ("launch", False)


@compiled
def test_calls_that_the_driver_does_not_record_are_timed_one_by_one(stand_in, driver, monkeypatch):  # noqa: F811
    def refuse(stream, record):
        raise fake_pycuda.LogicError("cuLaunchCooperativeKernel failed: not permitted")

    monkeypatch.setattr(cuda_runner, "CudaGraph", refuse)
    given = [stand_in.runner.allocate((N,), np.dtype(np.float32)) for _ in range(3)]
    timed = cuda_runner.TimedCalls(loaded(stand_in, staying()), CallArguments((*given, 1.0)))
    assert timed.run(64) > 0
    assert len(driver.launched) == 64
