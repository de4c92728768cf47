"""Calibration of a GPU: its kernels on NVRTC and the emulator, and what follows from their times on a stand-in for the driver."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from kernelscape.cli import commands as cli
from kernelscape.cli.views import calibration_fields, calibration_lines
from kernelscape.runtime.api.errors import DeviceError
from kernelscape.runtime.api.outcome import Failure
from kernelscape.runtime.cuda import gpu as cuda_gpu
from kernelscape.runtime.cuda import memory as cuda_memory
from kernelscape.runtime.cuda import probe
from kernelscape.runtime.cuda import probe_kernels as pk
from kernelscape.runtime.cuda import runner as cuda_runner
from kernelscape.runtime.cuda.compiler import CudaCompiler
from kernelscape.runtime.cuda.graph import GraphError
from kernelscape.runtime.cuda.profiles import find_profile, target_of
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.runtime.measure.calibration import fresh_calibration, keep

from . import fake_pycuda
from .test_cuda import NO_COMPILER, NO_GPU

compiled = pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)
emulated = pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")

N = 4 * pk.THREADS * 6  # floats: 6 blocks of vectors
KERNELS = {
    **{f"{what} {u}": pk.stream(what, N, 2, u) for what in ("read", "write", "copy") for u in (1, 4)},
    "far read": pk.far_read(N, 3, pk.THREADS),
    "near read": pk.near_read(2, in_shared=False),
    "shared read": pk.near_read(2, in_shared=True),
    "f32": pk.multiply_add("float32", 2),
    "f64": pk.multiply_add("float64", 1, 64),
    "additions": pk.additions(),
    "barriers": pk.barriers(64),
    **{f"chase {where}": pk.chase(where, 256) for where in ("shared", "near", "far")},
    "nothing": pk.nothing(),
}  # fmt: skip


@compiled
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_compile_and_keep_what_they_measure(name, tmp_path_factory):
    compiler = CudaCompiler(tmp_path_factory.getbasetemp() / "probes", 60.0)
    for architecture in ("sm_80", "sm_90"):
        built = compiler.build(KERNELS[name].text, architecture)
        assert not isinstance(built, Failure), built.log
        assert built.log == ""
        [report] = built.reports
        assert report.spill_store_bytes == 0
        if name in ("f32", "f64"):  # all sums are there: none was left away
            assert report.registers >= pk.CHAINS * (1 if name == "f32" else 2)
    compiler.close()


def run(source, values, folder):
    device = open_device("emulator", DeviceOptions(build_folder=folder))
    module = device.runner.load(device.builder.build(source))
    assert not isinstance(module, Failure), module
    module.run(values)
    module.close()


ONES = np.ones(N, np.float32)


@emulated
@pytest.mark.parametrize("what", ["read", "write", "copy"])
def test_streams_touch_everything_once(what, tmp_path):
    x, y, out = np.arange(N, dtype=np.float32), np.full(N, 3, np.float32), np.zeros(1, np.float32)
    if what == "read":
        x = ONES.copy()
        run(pk.stream(what, N, 2, 4), [x, y, out, N / (2 * pk.THREADS)], tmp_path)
        assert out[0] == 2 * pk.THREADS  # every thread found its share
        return
    run(pk.stream(what, N, 2, 4), [x, y, out, 7.0], tmp_path)
    assert (y == (7 if what == "write" else x)).all()


@emulated
def test_reads_of_caches_read_as_much_as_they_count(tmp_path):
    out, near = np.zeros(1, np.float32), np.ones(4 * pk.NEAR_VECTORS, np.float32)
    run(pk.far_read(N, 3, pk.THREADS), [ONES, out, 5, 5.0 * N / (3 * pk.THREADS)], tmp_path)
    assert out[0] == 3 * pk.THREADS
    for in_shared in (False, True):
        out[0] = 0
        run(pk.near_read(2, in_shared=in_shared), [near, out, 9, 36.0], tmp_path)
        assert out[0] == 2 * pk.THREADS


@emulated
def test_arithmetic_and_chains_do_every_step(tmp_path):
    for dtype, source in (("float32", KERNELS["f32"]), ("float64", KERNELS["f64"])):
        out = np.zeros(1, np.float32)
        run(source, [out, 11, 1.0, 0.5, 11 * 0.5 * pk.CHAINS], tmp_path)
        assert out[0] == source.launches[0].grid[0] * source.launches[0].block[0], dtype
    out = np.zeros(1, np.float32)
    run(pk.additions(), [out, 100, 0.25], tmp_path)
    assert out[0] == 25
    run(pk.barriers(64), [out, 12], tmp_path)
    assert out[0] == 12
    for where in ("shared", "near", "far"):
        x, found = np.arange(256, dtype=np.int32), np.zeros(1, np.int32)
        run(pk.chase(where, 256), [x, found, 40, 64], tmp_path)
        assert found[0] == 64


# --- on a stand-in --------------------------------------------------------------------------------

SHEET = replace(
    find_profile("h200"), l2_bytes=1 << 20, l1_bytes=1 << 16, memory_bytes=1 << 28, multiprocessors=4
)  # fmt: skip
LAUNCH_NS = 900.0


def last(buffer: bytes, form: str) -> tuple:
    """The scalars behind the pointers of a launch's arguments."""
    return struct.unpack(form, buffer)


def steps(ns: float, form: str, place: int) -> Callable[..., float]:
    return lambda grid, block, buffer: LAUNCH_NS + ns * last(buffer, form)[place]


def models() -> dict[str, Callable[..., float]]:
    """A GPU of round numbers."""
    near = 16.0 * pk.THREADS

    def multiply_add(rate: float, form: str) -> Callable[..., float]:
        def ns(grid, block, buffer):
            share = min(1.0, grid[0] / SHEET.multiprocessors * 1.2)  # one alone is faster
            return 2.0 * pk.CHAINS * last(buffer, form)[1] * grid[0] * block[0] / (rate * share)

        return ns

    def far(grid, block, buffer):
        n_passes = last(buffer, "PPqf")[2]
        size = SHEET.l2_bytes // 4
        return size * n_passes / (100.0 if grid[0] == 1 else 3000.0)

    def moved(n: int, rate: float) -> Callable[..., float]:
        n_bytes = SHEET.memory_bytes // 16  # of each array
        return lambda grid, block, buffer: n * n_bytes / (rate if grid[0] > 64 else rate / 2)

    return {
        "probe_read": moved(1, 2000.0),
        "probe_write": moved(1, 1900.0),
        "probe_copy": moved(2, 2100.0),
        "probe_far_read": far,
        "probe_near_read": lambda g, b, x: near * g[0] * last(x, "PPqf")[2] / 8000.0,
        "probe_shared_read": lambda g, b, x: near * g[0] * last(x, "PPqf")[2] / 9000.0,
        "probe_multiply_add_float32": multiply_add(5000.0, "Pqfff"),
        "probe_multiply_add_float64": multiply_add(2500.0, "Pqddd"),
        "probe_additions": steps(2.0, "Pqf", 1),
        "probe_barriers": lambda g, b, x: LAUNCH_NS + b[0] / 4 * last(x, "Pq")[1],
        "probe_chase_shared": steps(15.0, "PPqi", 2),
        "probe_chase_near": steps(18.0, "PPqi", 2),
        "probe_chase_far": lambda g, b, x: (100 + last(x, "PPqi")[3] % 7) * last(x, "PPqi")[2],
        "probe_nothing": lambda g, b, x: LAUNCH_NS,
    }


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    def no_graph(*_):
        raise GraphError("no graphs here")

    for module in (cuda_runner, cuda_memory):
        monkeypatch.setattr(module, "driver", lambda: fake_pycuda)
        monkeypatch.setattr(module, "enter_context", lambda: None)
    for module in (cuda_gpu, cuda_runner):
        monkeypatch.setattr(module, "gpu", lambda: fake_pycuda.Device(0))
    monkeypatch.setattr(cuda_runner, "CudaGraph", no_graph)
    monkeypatch.setattr(cuda_gpu, "_profile_of", lambda gpu: SHEET)
    monkeypatch.setattr(fake_pycuda, "models", models())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return open_device("cuda", DeviceOptions(build_folder=tmp_path / "build"))


@compiled
def test_times_become_facts(stand_in):
    sheet = target_of(SHEET, "cuda")
    samples = probe.take_samples(stand_in, SHEET)
    found = probe.target_from_samples(sheet, samples)
    assert found.calibrated
    assert found.memory_read_bytes_per_ns == pytest.approx(2000)
    assert found.memory_write_bytes_per_ns == pytest.approx(1900)
    assert found.memory_mixed_bytes_per_ns == pytest.approx(2100)
    assert [x.read_bytes_per_ns for x in found.levels] == pytest.approx([8000, 3000])
    assert found.shared_bytes_per_ns == pytest.approx(9000)
    assert found.core_read_bytes_per_ns == pytest.approx(100)
    assert (found.f32_flops_per_ns, found.f64_flops_per_ns) == pytest.approx((5000, 2500))
    assert found.core_boost == pytest.approx(1.2)
    assert found.launch_ns == pytest.approx(LAUNCH_NS)
    assert (found.add_latency_ns, found.barrier_ns) == pytest.approx((2, 8))
    assert found.load_latency_ns == pytest.approx(15 - 4)
    assert found.far_load_latency_ns == pytest.approx(100 - 4)
    assert found.instructions_per_ns >= sheet.instructions_per_ns
    # The space is that of the data sheet: decisions mean the same before and after.
    measured = {f for f in sheet.__dataclass_fields__ if getattr(sheet, f) != getattr(found, f)}
    assert all(f.endswith(("_ns", "levels", "boost", "calibrated")) for f in measured)
    assert [x.capacity_bytes for x in found.levels] == [x.capacity_bytes for x in sheet.levels]


@compiled
def test_facts_are_kept_for_the_gpu_and_not_for_its_data_sheet(stand_in, monkeypatch):
    assert not stand_in.machine.facts().calibrated
    target = probe.target_from_samples(
        target_of(SHEET, "cuda"), samples := probe.take_samples(stand_in, SHEET)
    )
    kept = keep(fresh_calibration(probe.machine_key(stand_in.gpu.profile), target, samples))
    assert stand_in.machine.facts() == target
    lines = "\n".join(calibration_lines(kept))
    assert "4 multiprocessors, sm_90" in lines
    assert "load from L2, ns" in lines
    assert calibration_fields(kept)["facts"]["f32, GFLOP/s"] == pytest.approx(5000)
    monkeypatch.setattr(cuda_gpu, "gpu", _nothing_there)
    assert not open_device("cuda").machine.facts().calibrated


def _nothing_there():
    raise DeviceError("the NVIDIA driver was not found")


@compiled
def test_where_memory_is_short_less_of_it_streams(stand_in, monkeypatch):
    monkeypatch.setattr(fake_pycuda, "LIMIT_BYTES", 10 << 20)
    _, _, n_floats = probe._Probe(stand_in, SHEET).large_arrays()
    assert 8 * SHEET.l2_bytes <= 4 * n_floats < 10 << 20
    monkeypatch.setattr(fake_pycuda, "LIMIT_BYTES", 4 << 20)
    with pytest.raises(MemoryError):
        probe._Probe(stand_in, SHEET).large_arrays()


@compiled
def test_a_chain_that_takes_no_time_is_no_fact(stand_in):
    fake_pycuda.models["probe_additions"] = lambda grid, block, buffer: LAUNCH_NS
    with pytest.raises(DeviceError, match="probe_additions was disturbed"):
        probe.take_samples(stand_in, SHEET)


@pytest.mark.skipif(not NO_GPU, reason="there is a GPU")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("cuda",), "driver"), (("emulator",), "no facts that could be measured")],
)
def test_without_a_gpu_calibration_ends_with_a_sentence(
    arguments, said, capfd, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        cli.main(["calibrate", "--target", *arguments])
    out, err = capfd.readouterr()
    assert (caught.value.code, out) == (cli.Exit.ENVIRONMENT, "")
    assert said in err
    assert len(err.splitlines()) == 1


@pytest.mark.skipif(bool(NO_GPU), reason=NO_GPU)
def test_a_gpu_is_no_faster_than_its_data_sheet(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    device = open_device("cuda", DeviceOptions(build_folder=tmp_path / "build"))
    found, sheet = device.machine.calibrate().target, target_of(device.gpu.profile, "cuda")
    assert 0.5 * sheet.f32_flops_per_ns < found.f32_flops_per_ns < 1.1 * sheet.f32_flops_per_ns
    assert found.memory_read_bytes_per_ns < 1.05 * sheet.memory_read_bytes_per_ns
    assert found.launch_ns > sheet.launch_ns
    assert device.machine.facts() == found
