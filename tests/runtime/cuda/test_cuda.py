"""The cuda device: its contract on a GPU where there is one, and everywhere on a stand-in for the driver."""

from __future__ import annotations

import gc
import struct
import weakref
from dataclasses import replace

import numpy as np
import pytest
from kernelscape.cli import commands as cli
from kernelscape.cli.doctor import examine
from kernelscape.kernels.ir.kernel import DType
from kernelscape.runtime.api.backend import CallArguments, RunError, WindowCall
from kernelscape.runtime.api.errors import DeviceError
from kernelscape.runtime.api.outcome import Failure, Measurement, Protocol
from kernelscape.runtime.cpu.guarded_arrays import in_memory
from kernelscape.runtime.cuda import device as cuda_device
from kernelscape.runtime.cuda import driver as cuda_driver
from kernelscape.runtime.cuda import gpu as cuda_gpu
from kernelscape.runtime.cuda import graph as cuda_graph
from kernelscape.runtime.cuda import memory as cuda_memory
from kernelscape.runtime.cuda import module as cuda_module
from kernelscape.runtime.cuda import nvrtc
from kernelscape.runtime.cuda import runner as cuda_runner
from kernelscape.runtime.cuda import windows as cuda_windows
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.runtime.worker.worker import Worker, WorkerError, WorkerOptions

from ...contracts.device import QUICK, DeviceContract
from .. import gpu_sources as gpu
from ..sources import N, input_sets
from . import fake_pycuda


def why_no_compiler() -> str:
    try:
        nvrtc.library()
    except DeviceError as e:
        return str(e)
    return ""


def why_no_driver() -> str:
    try:
        cuda_driver.driver()
    except DeviceError as e:
        return str(e)
    return ""


def why_no_gpu() -> str:
    return why_no_driver() or why_no_compiler()


NO_GPU, NO_COMPILER = why_no_gpu(), why_no_compiler()
on_a_gpu = pytest.mark.skipif(bool(NO_GPU), reason=NO_GPU)
compiled = pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("build")


class CudaContract(DeviceContract):
    @pytest.fixture
    def source(self):
        return gpu.source()

    @pytest.fixture
    def broken_source(self):
        return gpu.broken_source()


@on_a_gpu
class TestOnAGpu(CudaContract):
    @pytest.fixture
    def device(self, folder):
        return open_device("cuda", DeviceOptions(build_folder=folder))


FAULTS = {
    "wrong value": (gpu.CORRECT + "    if (i == 17) z[17] += 1;\n", "wrong", "z[17]"),
    "just behind": (gpu.CORRECT + "    if (i == 0) z[1000] = 0;\n", "wrong", "behind it"),
    "read-only input": (
        gpu.CORRECT + "    ((float *)x)[3] = 0;\n",
        "wrong",
        "inside a read-only input",
    ),
    "far outside": ("    z[i + (1ll << 40)] = 0;\n", "crash", "outside its arrays"),
    "misaligned": ("    *(double *)((char *)z + 4) = 0;\n", "crash", "misaligned"),
    "endless": ("    while (*(volatile float *)z != 3.5f) {}\n", "timeout", "within"),
}


@on_a_gpu
@pytest.mark.parametrize("name", FAULTS)
def test_fault_has_its_status_and_the_next_candidate_runs(folder, name):
    body, kind, detail = FAULTS[name]
    device = open_device("cuda", DeviceOptions(build_folder=folder))
    with Worker(device, WorkerOptions(run_timeout_s=3.0)) as worker:
        worker.prepare(input_sets())
        outcome = worker.evaluate(device.builder.build(gpu.source(body)), QUICK)
        assert isinstance(outcome, Failure)
        assert (outcome.kind, detail in outcome.advice) == (kind, True), outcome
        assert isinstance(worker.evaluate(device.builder.build(gpu.source()), QUICK), Measurement)


# --- without one -------------------------------------------------------------------------------------


@pytest.fixture
def stand_in(monkeypatch, folder):
    """The device with fake_pycuda for a driver."""
    for module in (cuda_runner, cuda_memory, cuda_module, cuda_windows):
        monkeypatch.setattr(module, "driver", lambda: fake_pycuda)
    for module in (cuda_runner, cuda_memory):
        monkeypatch.setattr(module, "enter_context", lambda: None)
    monkeypatch.setattr(cuda_gpu, "driver", lambda: fake_pycuda)
    for module in (cuda_gpu, cuda_runner):
        monkeypatch.setattr(module, "gpu", lambda: fake_pycuda.Device(0))

    def no_graph(*_):
        raise DeviceError("no graphs here")

    monkeypatch.setattr(cuda_runner, "CudaGraph", no_graph)
    return open_device("cuda", DeviceOptions(build_folder=folder))


@compiled
class TestOnAStandIn(CudaContract):
    @pytest.fixture
    def device(self, stand_in):
        return stand_in


def loaded(device, source=None):
    module = device.runner.load(device.builder.build(source or gpu.source()))
    assert not isinstance(module, Failure), module
    return module


@compiled
def test_arguments_reach_the_kernel(stand_in):
    module = loaded(stand_in)
    x, y, z = np.ones(N, np.float32), np.full(N, 2, np.float32), np.zeros(N, np.float32)
    module.run([x, y, z, 3.0])
    assert (z == 5).all()
    assert (y == 5).all()
    with pytest.raises(TypeError, match="argument y must be"):
        module.run([x, x[:5], z, 3.0])


@compiled
def test_writes_around_an_array_show(stand_in):
    array = stand_in.runner.allocate((N,), np.dtype(np.float32))
    array.upload(np.ones(N, np.float32))
    array.freeze()
    assert array.trespass() is None
    fake_pycuda.memset_d8(array.address + 17, 0x11, 1)
    assert array.trespass() == "inside a read-only input"
    for offset, place in ((-1, "before it"), (4 * N, "behind it")):
        array.poison()
        assert array.trespass() is None
        assert np.isnan(array.download()).all()
        fake_pycuda.memset_d8(array.address + offset, 0, 1)
        assert array.trespass() == place


@compiled
@pytest.mark.parametrize(
    ("said", "kind", "is_lost"),
    [
        ("cuStreamSynchronize failed: an illegal memory access was encountered", "crash", True),
        ("cuStreamSynchronize failed: misaligned address", "crash", True),
    ],
)
def test_faults_of_a_run_are_outcomes(stand_in, said, kind, is_lost):
    module = loaded(stand_in)
    zeros = [np.zeros(N, np.float32) for _ in range(3)]
    fake_pycuda.fault.append(said)
    with pytest.raises(RunError, match="launch_0") as caught:
        module.run([*zeros, 1.0])
    assert (caught.value.failure.kind, caught.value.is_lost) == (kind, is_lost)


@compiled
@pytest.mark.parametrize(
    ("source", "said"),
    [
        (gpu.source(block=2048), "launch_0: a block needs 2048 threads"),
        (gpu.source(shared_bytes=1 << 20), "launch_0: a block needs 1048576 bytes of shared"),
        (gpu.source(gpu.MANY_REGISTERS, block=1024), "registers in each of 1024 threads"),
    ],
)
def test_what_cannot_fit_is_not_run(stand_in, source, said):
    """The compiler's report tells, before anything is loaded."""
    refused = stand_in.builder.build(source)
    assert isinstance(refused, Failure)
    assert refused.kind == "launch"
    assert said in refused.advice
    assert "H200" in refused.advice


@compiled
def test_limits_that_only_the_driver_knows_are_launch_failures(stand_in, monkeypatch):
    monkeypatch.setattr(cuda_device, "refusal", lambda report, gpu: None)
    zeros = [np.zeros(N, np.float32) for _ in range(3)]
    with pytest.raises(RunError, match="limits") as caught:
        loaded(stand_in, gpu.source(block=2048)).run([*zeros, 1.0])
    assert (caught.value.failure.kind, caught.value.is_lost) == ("launch", False)
    greedy = stand_in.runner.load(stand_in.builder.build(gpu.source(shared_bytes=1 << 20)))
    assert isinstance(greedy, Failure)
    assert "shared memory" in greedy.advice


@compiled
def test_a_kernel_that_is_not_there_is_a_launch_failure(stand_in):
    s = gpu.source()
    other = replace(s, launches=(replace(s.launches[0], kernel="absent"),))
    missing = stand_in.builder.build(other)
    assert isinstance(missing, Failure)
    assert (missing.kind, "absent" in missing.advice) == ("launch", True)


@compiled
def test_memory_that_is_not_there_is_python_s_error(stand_in):
    with pytest.raises(MemoryError, match="the GPU has no"):
        stand_in.runner.allocate((1 << 29,), np.dtype(np.float64))


@compiled
def test_arrays_in_place_start_from_their_contents(stand_in):
    module = loaded(stand_in)
    x, y, z = (stand_in.runner.allocate((N,), np.dtype(np.float32)) for _ in range(3))
    for a in (x, y, z):
        a.upload(np.ones(N, np.float32))
    contents = np.full(N, 7, np.float32)
    protocol = Protocol(sample_ns=1e3, min_samples=2, max_samples=3, budget_ns=1e6)
    call = CallArguments((x, y, z, 0.0), ((y, contents),))
    [measured] = stand_in.runner.time([(module, call)], protocol)
    assert measured.time_ns > 0
    assert (y.download() == 7).all()


@compiled
@pytest.mark.skipif(not NO_GPU, reason="there is a GPU")
def test_without_a_gpu_it_builds_and_a_worker_says_what_is_missing(folder):
    device = open_device("cuda", DeviceOptions(build_folder=folder, profile="a100"))
    assert device.machine.facts().cores == 108
    assert not isinstance(device.builder.build(gpu.source()), Failure)
    with pytest.raises(DeviceError, match=r"driver|PyCUDA|pycuda"):
        device.runner.check()
    with Worker(device) as worker, pytest.raises(WorkerError, match=r"driver|PyCUDA|pycuda"):
        worker.prepare(input_sets())


def test_the_doctor_says_what_is_there_and_how_to_get_the_rest():
    found = {f.topic: f for f in examine({})}
    assert found["gpu"].verdict == ("note" if why_no_driver() else "ok")
    assert found["nvrtc"].verdict == ("note" if NO_COMPILER else "ok")
    for topic in ("gpu", "nvrtc", "pycuda"):
        assert found[topic].verdict == "ok" or found[topic].advice


@pytest.mark.skipif(not NO_GPU, reason="there is a GPU")
def test_a_run_without_a_gpu_ends_with_a_sentence(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        cli.main(["run", "axpydot", "--size", "n=9", "--target", "cuda"])
    out, err = capfd.readouterr()
    assert (caught.value.code, out) == (cli.Exit.ENVIRONMENT, "")
    assert "driver" in err or "PyCUDA" in err


class GraphLibrary:
    """The driver's functions for graphs: a graph is as many kernels as were launched while it was recorded."""

    def __init__(self):
        self.n_recorded = self.n_launched = 0
        self.is_open = False

    def cuStreamBeginCapture_v2(self, stream, mode):
        self.before = len(fake_pycuda.calls)
        return 0

    def cuStreamEndCapture(self, stream, graph):
        self.n_recorded = len(fake_pycuda.calls) - self.before
        fake_pycuda.clock_ns[0] -= NS * self.n_recorded  # recorded is not run
        graph._obj.value = 7
        return 0

    def cuGraphInstantiateWithFlags(self, made, graph, flags):
        assert graph.value == 7
        made._obj.value = 9
        self.is_open = True
        return 0

    def cuGraphDestroy(self, graph):
        return 0

    def cuGraphLaunch(self, made, stream):
        assert made.value == 9
        self.n_launched += 1
        fake_pycuda.clock_ns[0] += NS * self.n_recorded
        return 0

    def cuGraphExecDestroy(self, made):
        self.is_open = False
        return 0


NS = 3000.0  # of a launch


@compiled
def test_arrays_of_timed_calls_stay_while_they_are_timed(stand_in):
    given = [stand_in.runner.allocate((N,), np.dtype(np.float32)) for _ in range(3)]
    seen = [weakref.ref(a) for a in given]
    run = cuda_runner.TimedCalls(loaded(stand_in), CallArguments((*given, 1.0))).run
    del given
    gc.collect()
    assert all(a() is not None for a in seen)
    assert run(1) > 0
    del run
    gc.collect()
    assert all(a() is None for a in seen)


@compiled
def test_many_short_calls_are_timed_as_graphs(stand_in, monkeypatch):
    library = GraphLibrary()
    monkeypatch.setattr(cuda_runner, "CudaGraph", cuda_graph.CudaGraph)
    monkeypatch.setattr(cuda_graph, "library", lambda: library)
    monkeypatch.setitem(fake_pycuda.models, "launch_0", lambda *_: NS)
    calls = [stand_in.runner.allocate((N,), np.dtype(np.float32)) for _ in range(3)]
    timed = cuda_runner.TimedCalls(loaded(stand_in), CallArguments((*calls, 1.0)))
    assert timed.run(31) == pytest.approx(31 * NS)
    assert library.n_recorded == 0
    n_calls = len(fake_pycuda.calls)
    assert timed.run(100) == pytest.approx(100 * NS)
    assert (library.n_recorded, library.n_launched) == (32, 3)
    assert (
        len(fake_pycuda.calls) == n_calls + 32
    )  # while it was recorded: nothing at the host's pace
    timed.run(64)
    assert (library.n_launched, library.is_open) == (5, True)
    timed.close()
    assert not library.is_open


@compiled
def test_windows_that_come_again_are_graphs(stand_in, monkeypatch):
    """Equal launches are equal arguments of equal functions; contents of arrays do not count."""
    library = GraphLibrary()
    monkeypatch.setattr(cuda_graph, "library", lambda: library)
    monkeypatch.setattr(cuda_windows, "_MOST_GRAPHS", 2)
    x, y, z = (stand_in.runner.allocate((N,), np.dtype(np.float32)) for _ in range(3))
    for array in (x, y, z):
        array.upload(np.ones(N, np.float32))
    module, windows = loaded(stand_in), stand_in.runner.windows()

    def window(*numbers):
        n = len(fake_pycuda.calls)
        windows.run([WindowCall(module, (x, y, z, number)) for number in numbers])
        return len(fake_pycuda.calls) - n, library.n_launched

    assert window(1.0, 2.0) == (2, 0)  # y = z = y + x, then y + 2 x
    assert (z.download() == 4).all()
    assert window(1.0, 2.0) == (2, 1)  # recorded, then launched
    x.upload(np.full(N, 3, np.float32))
    assert window(1.0, 2.0) == (0, 2) and library.is_open
    assert window(2.0, 1.0) == (2, 2)
    assert window(5.0) == (1, 2) and not library.is_open  # two others ran since
    assert window(1.0, 2.0) == (2, 2)
    assert window(1.0, 2.0) == (2, 3) and library.is_open
    windows.close()
    assert not library.is_open


@compiled
def test_windows_that_the_driver_does_not_record_run_launch_by_launch(stand_in, monkeypatch):
    class Refusing(GraphLibrary):
        def cuStreamEndCapture(self, stream, graph):
            return 900

        def cuGetErrorString(self, status, said):
            return 0

    monkeypatch.setattr(cuda_graph, "library", Refusing)
    given = [stand_in.runner.allocate((N,), np.dtype(np.float32)) for _ in range(3)]
    for array in given:
        array.upload(np.ones(N, np.float32))
    windows = stand_in.runner.windows()
    call = WindowCall(loaded(stand_in), (*given, 1.0))
    for n in (1, 3, 4):  # the second time it is tried
        before = len(fake_pycuda.calls)
        windows.run([call])
        assert len(fake_pycuda.calls) - before == (2 if n == 3 else 1)
    fake_pycuda.fault.append("cuStreamSynchronize failed: misaligned address")
    with pytest.raises(RunError, match="launch_0: it accessed a misaligned") as caught:
        windows.run([call, call])
    assert caught.value.is_lost


@compiled
def test_memory_of_the_gpu_is_lent_where_it_is(stand_in):
    array = stand_in.runner.allocate((N,), np.dtype(np.float32))
    assert array.lendable == (array.address, (2, 0))


@pytest.mark.parametrize("dtype", list(DType))
def test_scalars_of_every_type_are_packed_as_the_text_has_them(dtype):
    value = -2.5 if dtype.is_float else True if dtype is DType.bool_ else dtype.range[1]
    kind, number = cuda_module.packed_scalar(dtype.value, value)
    assert struct.pack(kind, number) == in_memory(dtype, value).tobytes()
