"""CUDA text compiled by NVRTC, without a GPU: cubins for two architectures, no warnings, and what the kernels take."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from kernelscape.codegen.bodies.cuda_prelude import ATOMIC_EXTREMA, COPY_ASYNC, PUBLISH, STRONG
from kernelscape.codegen.text.source import KernelLaunch
from kernelscape.runtime.api.artifact import Artifact, BuildReport
from kernelscape.runtime.api.errors import DeviceError
from kernelscape.runtime.api.outcome import Failure
from kernelscape.runtime.building.queue import report_many
from kernelscape.runtime.cuda import nvrtc
from kernelscape.runtime.cuda.compiler import CudaCompiler
from kernelscape.runtime.cuda.driver import explain
from kernelscape.runtime.cuda.nvrtc import KernelReport, read_log
from kernelscape.runtime.cuda.profiles import PROFILES, find_profile, profile_target
from kernelscape.runtime.cuda.resources import launch_resources, refusal
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.space.targets.target import Target

from .. import gpu_sources as gpu

ARCHITECTURES = ("sm_80", "sm_90")


@pytest.fixture(scope="session")
def compiler(tmp_path_factory):
    try:
        nvrtc.library()
    except DeviceError as e:
        pytest.skip(str(e))
    made = CudaCompiler(tmp_path_factory.mktemp("cubins"), 60.0)
    yield made
    made.close()


@pytest.fixture(scope="session")
def cuda(compiler, tmp_path_factory):
    return open_device("cuda", DeviceOptions(build_folder=tmp_path_factory.mktemp("build")))


TEXTS = {
    "axpy": gpu.source(),
    "reverse": gpu.one_block(gpu.REVERSE.replace("{barrier}", "__syncthreads();")),
    "matmul in stages": gpu.matmul(COPY_ASYNC),
    "last block": gpu.last_block(),
    "blocks meet": gpu.meeting(4),
    "extrema": gpu.extrema(ATOMIC_EXTREMA),
    "published": gpu.counting(gpu.PUBLISHED, preamble=STRONG + PUBLISH),
}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", TEXTS)
def test_text_compiles_without_warnings(compiler, name, architecture):
    built = compiler.build(TEXTS[name].text, architecture)
    assert not isinstance(built, Failure), built.log
    assert built.log == ""
    assert built.path.read_bytes()[:4] == b"\x7fELF"
    assert [r.kernel for r in built.reports] == ["launch_0"]
    assert 0 < built.reports[0].registers <= 255
    assert built.reports[0].spill_store_bytes == 0


@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
def test_one_text_with_its_preamble_runs_on_the_emulator(tmp_path):
    device = open_device("emulator", DeviceOptions(build_folder=tmp_path))
    s = gpu.matmul(COPY_ASYNC)
    module = device.runner.load(device.builder.build(s))
    a, b = (np.ones(x.shape, np.float32) for x in s.arguments[:2])
    c = np.zeros(s.arguments[2].shape, np.float32)
    module.run([a, b, c])
    assert (c == 45).all()


@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
def test_extrema_of_floats_on_the_emulator(tmp_path):
    device = open_device("emulator", DeviceOptions(build_folder=tmp_path))
    module = device.runner.load(device.builder.build(gpu.extrema(ATOMIC_EXTREMA)))
    x = np.random.default_rng(1).uniform(-9, 9, 1000).astype(np.float32)
    y, z = np.array([-1, 1], np.float32), np.array([-1, 1], np.float64)
    module.run([x, y, z])
    assert list(y) == list(z) == [x.max(), x.min()]


@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
def test_what_is_published_comes_with_what_was_stored_before(tmp_path):
    device = open_device("emulator", DeviceOptions(build_folder=tmp_path))
    module = device.runner.load(device.builder.build(TEXTS["published"]))
    for order in ("forward", "backward", "random"):
        n, y = np.zeros(64, np.int32), np.zeros(64, np.int32)
        module.run([n, y], order)
        assert y.tolist() == [0 if t == 40 else 7 for t in range(64)]


def test_asynchronous_copies_are_that(compiler):
    built = compiler.build(TEXTS["matmul in stages"].text, "sm_80")
    assert not isinstance(built, Failure)
    assert built.reports[0].shared_bytes == 4 * (2 * 16 * 9 + 2 * 8 * 32)


def test_warnings_are_kept(compiler):
    built = compiler.build(gpu.source("    int unused = 3;\n" + gpu.CORRECT).text, "sm_90")
    assert not isinstance(built, Failure)
    assert "never referenced" in built.log
    again = compiler.build(gpu.source("    int unused = 3;\n" + gpu.CORRECT).text, "sm_90")
    assert not isinstance(again, Failure)
    assert (again.log, again.reports, again.build_ns) == (built.log, built.reports, 0)


def test_spills_are_reported(compiler):
    body = """\
    float r[200];
    #pragma unroll
    for (int k = 0; k < 200; ++k) r[k] = x[(i * 200 + k) % 1000];
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < 200; ++k) y[(i + 7 * k) % 1000] += r[k] * r[(k * 37 + 11) % 200];
"""
    text = gpu.source(body).text.replace(
        "__global__ void", "__global__ void __launch_bounds__(1024)"
    )
    built = compiler.build(text, "sm_90")
    assert not isinstance(built, Failure)
    assert built.reports[0].spill_store_bytes > 0
    assert built.reports[0].registers <= 64


def test_refused_text_says_why(cuda):
    failure = cuda.builder.build(gpu.broken_source())
    assert isinstance(failure, Failure)
    assert (failure.kind, "these words" in failure.log) == ("compile", True)


def test_artifact_says_how_it_is_launched(cuda):
    first, second = cuda.builder.build(gpu.source()), cuda.builder.build(gpu.source())
    assert isinstance(first, Artifact)
    assert first.launches == gpu.source().launches
    assert (second.key, second.build_ns) == (first.key, 0)
    assert gpu.source(block=256).key != gpu.source().key


def test_compiler_past_its_deadline_is_killed_and_the_next_text_compiles(compiler, tmp_path):
    made = CudaCompiler(tmp_path, 0.05)
    many = "\n".join(
        f"    y[(i + {k}) % 1000] += x[(i * {k + 3}) % 1000] * sinf(y[i] + {k}.0f);"
        for k in range(3000)
    )
    made.build(gpu.source().text, "sm_90")  # the process has started
    failure = made.build(gpu.source(many).text, "sm_90")
    assert isinstance(failure, Failure)
    assert "0.05 s" in failure.advice
    assert not isinstance(made.build(gpu.source().text + "\n", "sm_90"), Failure)
    made.close()


def test_reports_of_many_builds(cuda):
    sources = [gpu.source(), gpu.broken_source(), gpu.matmul(COPY_ASYNC)]
    first, refused, last = report_many(cuda.builder, cuda.reporter, sources, jobs=2)
    assert isinstance(refused, Failure)
    assert first.launches[0].block == (128, 1, 1)
    assert first.launches[0].occupancy == 1.0
    assert last.launches[0].shared_bytes == 3200
    assert first.warnings == last.warnings == ""


@pytest.mark.parametrize(
    ("registers", "shared", "block", "blocks", "limit"),
    [
        (32, 0, 256, 8, "threads"),
        (64, 0, 256, 4, "registers"),
        (33, 0, 1024, 1, "registers"),
        (16, 0, 32, 32, "blocks"),
        (32, 100 << 10, 128, 2, "shared memory"),
        (32, 228 << 10, 128, 0, "shared memory"),
    ],
)
def test_blocks_that_fit_a_multiprocessor(registers, shared, block, blocks, limit):
    report = KernelReport("k", registers, 0, 0, 0, 0)
    launch = KernelLaunch("k", (1, 1, 1), (block, 1, 1), shared, ())
    found = launch_resources(report, launch, find_profile("h200"))
    assert (found.blocks_per_core, found.limit) == (blocks, limit)


def test_a_block_has_few_threads_along_z():
    report, sheet = KernelReport("k", 32, 0, 0, 0, 0), find_profile("h200")
    for block, blocks, shape in (((4, 1, 64), 8, "4x1x64"), ((2, 1, 128), 0, "2x1x128")):
        launch = KernelLaunch("k", (1, 1, 1), block, 0, ())
        found = launch_resources(report, launch, sheet)
        assert (found.blocks_per_core, found.limit, found.shape) == (blocks, "threads", shape)
    refused = refusal(BuildReport((found,), "", 0), "this GPU")
    assert refused is not None
    assert refused.advice == "k: a block needs 2x1x128 threads, too many for this GPU"


def test_log_of_two_kernels_is_told_apart():
    log = """\
kernel.cu(3): warning #177-D: variable "u" was declared but never referenced
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'b' for 'sm_90'
ptxas info    : Function properties for b
ptxas         .     16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 16 bytes cumulative stack size, 512 bytes smem
ptxas info    : Compiling entry function 'a' for 'sm_90'
ptxas info    : Function properties for a
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""
    rest, reports = read_log(log)
    assert rest.startswith("kernel.cu(3): warning")
    assert len(rest.splitlines()) == 1
    assert reports == (KernelReport("b", 40, 512, 8, 12, 16), KernelReport("a", 8, 0, 0, 0, 0))


@pytest.mark.parametrize("name", PROFILES)
def test_data_sheets_are_targets(cuda, name, tmp_path):
    target = profile_target(name, "cuda")
    assert isinstance(target, Target)
    # Peak rate: two flops a lane and clock, to a few per cent.
    p = PROFILES[name]
    lanes = 64 if name == "a100" else 128
    assert p.f32_flops_per_ns == pytest.approx(
        2 * lanes * p.multiprocessors * p.clock_ghz, rel=0.02
    )
    assert p.architecture in nvrtc.supported()


def test_an_unknown_data_sheet_is_a_sentence():
    with pytest.raises(DeviceError, match="there are h200, h100, a100, rtx4090"):
        open_device("cuda", DeviceOptions(profile="voodoo"))


FAULTS = {
    "cuStreamSynchronize failed: an illegal memory access was encountered": ("crash", True),
    "cuStreamSynchronize failed: misaligned address": ("crash", True),
    "cuLaunchKernel failed: too many resources requested for launch": ("launch", False),
    "cuLaunchKernel failed: invalid argument": ("launch", False),
    "cuStreamSynchronize failed: the launch timed out and was terminated": ("timeout", True),
    "cuMemAlloc failed: out of memory": ("memory", False),
    "cuStreamSynchronize failed: unspecified launch failure": ("crash", True),
}


@pytest.mark.parametrize("said", FAULTS)
def test_errors_of_the_driver_have_their_status(said):
    failure, is_lost = explain(RuntimeError(said), "launch_0")
    assert (failure.kind, is_lost) == FAULTS[said]
    assert failure.advice.startswith("launch_0: ")
    assert failure.log == said


def test_a_launch_with_other_sizes_is_another_source():
    s = gpu.source()
    wider = replace(s, launches=(replace(s.launches[0], grid=(9, 1, 1)),))
    assert s.key != wider.key


def test_everything_imports_without_driver_and_pycuda():
    modules = (
        "device",
        "runner",
        "gpu",
        "memory",
        "graph",
        "driver",
        "compiler",
        "resources",
        "nvrtc",
        "profiles",
    )
    code = "import sys\nsys.modules['pycuda'] = None\n" + "".join(
        f"import kernelscape.runtime.cuda.{m}\n" for m in modules
    )
    code += "from kernelscape.runtime.device import open_device\nopen_device('cuda')\n"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_compiler_is_looked_for_in_wheels_and_toolkits(tmp_path, monkeypatch):
    places = ["carried/nvidia/cu13/lib/libnvrtc.so.13", "carried/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
              "toolkit/lib64/libnvrtc.so", "toolkit/lib64/libnvrtc.so.9", "toolkit/lib64/libnvrtc.so.13"]  # fmt: skip
    for place in (*places, "carried/nvidia/cu13/lib/libnvrtc-builtins.so.13"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_bytes(b"no library")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "carried")])
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    found = list(nvrtc._candidates())
    own = [f.removeprefix(f"{tmp_path}/") for f in found if f.startswith(str(tmp_path))]
    assert own == [*places[:2], places[4], places[3], places[2]]
    assert found.index(f"{tmp_path}/{own[-1]}") < found.index("libnvrtc.so.13")
    monkeypatch.setattr(nvrtc, "_candidates", lambda: iter([str(tmp_path / p) for p in places]))
    with pytest.raises(DeviceError, match="NVRTC, the compiler of CUDA, was not found"):
        nvrtc.library.__wrapped__()
