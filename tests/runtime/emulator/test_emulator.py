"""The emulator: CUDA text computes what it says in every order of threads, and each planted fault is named."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
from kernelscape.codegen.text.source import Argument, KernelLaunch, Source
from kernelscape.codegen.text.types import type_name
from kernelscape.kernels.ir.kernel import DType
from kernelscape.runtime.api.backend import RunError
from kernelscape.runtime.api.errors import DeviceError
from kernelscape.runtime.api.outcome import Failure, Measurement, Protocol
from kernelscape.runtime.cuda.profiles import find_profile
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.runtime.worker.worker import Worker, WorkerOptions

from ...contracts.device import DeviceContract
from .. import gpu_sources as gpu
from ..sources import input_sets

QUICK = Protocol(sample_ns=2e4, min_samples=3, max_samples=5, budget_ns=5e6)
ORDERS = ("forward", "backward", "random")
FOUND = [name for name in ("g++", "clang++") if shutil.which(name)]
pytestmark = pytest.mark.skipif(not FOUND, reason="no C++ compiler")


@pytest.fixture(scope="session")
def emulator(tmp_path_factory):
    return open_device("emulator", DeviceOptions(build_folder=tmp_path_factory.mktemp("build")))


@pytest.fixture(scope="module")
def emulated(emulator):
    with Worker(emulator, WorkerOptions(run_timeout_s=3.0)) as w:
        w.prepare(input_sets(3))
        yield w


class TestEmulator(DeviceContract):
    @pytest.fixture
    def device(self, emulator):
        return emulator

    @pytest.fixture
    def source(self):
        return gpu.source()

    @pytest.fixture
    def broken_source(self):
        return gpu.broken_source()


LOADED = []


@pytest.fixture(autouse=True)
def unloaded():
    """The stacks of a module take two thousand mappings, and a process may have some ten thousands."""
    yield
    while LOADED:
        LOADED.pop().close()


def load(device, source):
    built = device.builder.build(source)
    assert not isinstance(built, Failure), built.log
    module = device.runner.load(built)
    assert not isinstance(module, Failure), module
    LOADED.append(module)
    return module


def arrays(device, source):
    """Random inputs, poisoned outputs: all but the first arrays."""
    rng = np.random.default_rng(3)
    made = [device.runner.allocate(a.shape, np.dtype(a.dtype)) for a in source.arguments]
    for k, array in enumerate(made):
        array.poison()
        if k == 0 or (k == 1 and len(made) == 3 and source.arguments[2].name == "c"):
            array.upload(rng.uniform(-1, 1, array.shape).astype(array.dtype))
    return made


def failure(device, source, order="forward"):
    module = load(device, source)
    with pytest.raises(RunError) as caught:
        module.run(arrays(device, source), order)
    assert caught.value.failure.kind == "crash"
    assert caught.value.failure.advice.startswith("launch_0, ")
    return caught.value.failure.advice


# --- what is right -------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
def test_a_barrier_makes_a_block_agree(emulator, order):
    s = gpu.one_block(gpu.REVERSE.replace("{barrier}", "__syncthreads();"))
    module, (x, y) = load(emulator, s), arrays(emulator, s)
    module.run([x, y], order)
    assert np.array_equal(y.download(), x.download()[::-1])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("compiler", FOUND)
def test_matmul_in_stages(tmp_path, compiler, order):
    device = open_device("emulator", DeviceOptions(compiler=compiler, build_folder=tmp_path))
    s = gpu.matmul("")
    module, (a, b, c) = load(device, s), arrays(device, s)
    module.run([a, b, c], order)
    want = a.download().astype(np.float64) @ b.download()
    assert np.allclose(c.download(), want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("order", ORDERS)
def test_the_last_block_sums_up(emulator, order):
    s = gpu.last_block()
    module, (x, out, work) = load(emulator, s), arrays(emulator, s)
    for _ in range(2):
        module.run([x, out, work], order, seed=5)
        assert out.download()[0] == pytest.approx(x.download().sum(dtype=np.float64), abs=1e-4)


def test_the_largest_block_and_three_dims(emulator):
    s = gpu.one_block("    y[t] = x[t] + threadIdx.z;\n", (8, 16, 8), 1024)
    module, (x, y) = load(emulator, s), arrays(emulator, s)
    module.run([x, y])
    assert np.array_equal(y.download(), x.download() + np.float32(np.arange(1024) // 128))


@pytest.mark.parametrize("order", ORDERS)
def test_warps_are_formed_along_x_then_y_then_z(emulator, order):
    s = gpu.one_block("    y[t] = __shfl_xor_sync(0xffffffffu, x[t], 16);\n", (4, 3, 8), 96)
    module, (x, y) = load(emulator, s), arrays(emulator, s)
    module.run([x, y], order)
    assert np.array_equal(y.download(), x.download()[np.arange(96) ^ 16])


def test_faults_name_threads_by_their_places(emulator):
    outside = "    if (threadIdx.z == 3) y[t + 96] = x[t];\n"
    said = failure(emulator, gpu.one_block(outside, (4, 3, 8), 96), "backward")
    assert "thread (3, 2, 3) of block (0, 0, 0): writes 4 bytes out of bounds" in said
    raced = gpu.REVERSE.replace("{barrier}", "").replace("255", "95")
    said = failure(emulator, gpu.one_block(raced, (4, 3, 8), 96), "backward")
    assert "thread (3, 2, 3) of block (0, 0, 0): writes byte 188 of tile" in said
    assert "which thread (0, 0, 4) of the block read" in said


def test_dynamic_shared_memory(emulator):
    body = """\
    extern __shared__ float pool[];
    pool[t] = x[t];
    __syncthreads();
    y[t] = pool[(t + 1) % 256];
"""
    s = gpu.with_grid(gpu.one_block(body), (1, 1, 1), 1024)
    module, (x, y) = load(emulator, s), arrays(emulator, s)
    module.run([x, y])
    assert np.array_equal(y.download(), np.roll(x.download(), -1))
    assert "past the end of pool" in failure(emulator, gpu.with_grid(s, (1, 1, 1), 1020))


WARP = {
    "down": ("__shfl_down_sync(0xffffffffu, v, 3)", lambda x: np.r_[x[3:32], x[29:32]]),
    "up": ("__shfl_up_sync(0xffffffffu, v, 3)", lambda x: np.r_[x[:3], x[:29]]),
    "xor": ("__shfl_xor_sync(0xffffffffu, v, 5)", lambda x: x[np.arange(32) ^ 5]),
    "index": ("__shfl_sync(0xffffffffu, v, 7)", lambda x: np.full(32, x[7])),
    "width": ("__shfl_down_sync(0xffffffffu, v, 1, 4)", lambda x: x[[1, 2, 3, 3]]),
    "double": ("(float)__shfl_xor_sync(0xffffffffu, (double)v, 1)", lambda x: x[[1, 0]]),
    "any": ("__any_sync(0xffffffffu, t == 9)", lambda x: np.ones(32)),
    "all": ("__all_sync(0xffffffffu, t != 9)", lambda x: np.zeros(32)),
    "ballot": ("__ballot_sync(0xffffffffu, t == 2)", lambda x: np.full(32, 4)),
}


@pytest.mark.parametrize("name", WARP)
def test_lanes_exchange(emulator, name):
    text, of = WARP[name]
    s = gpu.one_block(f"    const float v = x[t];\n    y[t] = {text};\n")
    module, (x, y) = load(emulator, s), arrays(emulator, s)
    for order in ORDERS:
        y.poison()
        module.run([x, y], order)
        want = of(x.download())
        assert np.array_equal(y.download()[: len(want)], want.astype(np.float32)), order


def test_half_a_warp_exchanges_while_the_other_does_not(emulator):
    body = "    y[t] = x[t];\n    if (t % 32 < 16) y[t] = __shfl_xor_sync(0xffffu, x[t], 1);\n"
    s = gpu.one_block(body)
    module, (x, y) = load(emulator, s), arrays(emulator, s)
    module.run([x, y])
    at = np.arange(256)
    assert np.array_equal(y.download(), x.download()[np.where(at % 32 < 16, at ^ 1, at)])


def test_vectors_and_hints_about_caches(emulator):
    body = """\
    if (t < 64) {
        const float4 v = __ldcs((const float4 *)x + t);
        __stcg((float4 *)y + t, make_float4(v.w, v.z, v.y, fmaf(v.x, 1.0f, 0.0f)));
    }
"""
    s = gpu.one_block(body)
    module, (x, y) = load(emulator, s), arrays(emulator, s)
    module.run([x, y])
    assert np.array_equal(y.download(), x.download().reshape(-1, 4)[:, ::-1].reshape(-1))


def test_atomics_of_every_type(emulator):
    text = """\
extern "C" __global__ void launch_0(float *f, double *d, int *i, int *most) {
    atomicAdd(f, 1.0f);
    atomicAdd(d, 0.5);
    atomicAdd(i, 2);
    atomicMax(most, (int)(blockIdx.x * 7 % 5));
}
"""
    names = {"f": "float32", "d": "float64", "i": "int32", "most": "int32"}
    arguments = tuple(Argument(n, "array", d, (1,)) for n, d in names.items())
    launch = KernelLaunch("launch_0", (6, 1, 1), (96, 1, 1), 0, (0, 1, 2, 3))
    s = Source(text, "entry", arguments, 1, launches=(launch,))
    module = load(emulator, s)
    made = [np.zeros(1, a.dtype) for a in arguments]
    module.run(made)
    assert [m[0] for m in made] == [576, 288, 1152, 4]


def counted(device, body, order="forward", seed=None, **shape):
    """The 64 integers `n` and `y` behind a kernel, zero at first."""
    n, y = np.zeros(64, np.int32), np.zeros(64, np.int32)
    load(device, gpu.counting(body, **shape)).run([n, y], order, seed)
    return n.tolist(), y.tolist()


FENCES = {"RELEASE": "__threadfence();", "ACQUIRE": "__threadfence();"}


def handed_over(**fences):
    body = gpu.HANDED_OVER
    for name, text in {**FENCES, **fences}.items():
        body = body.replace(name, text)
    return body


@pytest.mark.parametrize("order", ORDERS)
def test_threads_wait_for_what_another_publishes(emulator, order):
    _, y = counted(emulator, handed_over(), order)
    assert y == [0 if t == 40 else 7 for t in range(64)]


@pytest.mark.parametrize("order", ORDERS)
def test_other_threads_run_between_atomic_operations(emulator, order):
    """All find the mark missing before one sets it; whoever exchanges it finds it once."""
    late = "    if (atomicAdd(&n[0], 0) == 0) {\n        atomicExch(&n[0], 1);\n        atomicAdd(&n[1], 1);\n    }\n"
    n, _ = counted(emulator, late, order, 3)
    assert n[1] > 1
    n, _ = counted(emulator, "    if (atomicCAS(&n[0], 0, 1) == 0) atomicAdd(&n[1], 1);\n", order)
    assert n[1] == 1


@pytest.mark.parametrize("order", ORDERS)
def test_lanes_that_run_together_find_one_another(emulator, order):
    """Those of a warp that are in one branch, all of them unless the order is random; and each knows those with its own value."""
    body = """\
    if (t % 2) {
        const unsigned here = __activemask();
        y[t] = here;
        n[t] = __match_any_sync(here, t % 3);
    }
"""
    n, y = counted(emulator, body, order, 5)
    odd = range(1, 64, 2)
    for t in odd:
        here = y[t] & 0xFFFFFFFF
        assert here >> t % 32 & 1 and not here & 0x55555555
        same = [k for k in range(t // 32 * 32, t // 32 * 32 + 32) if k % 3 == t % 3]
        assert n[t] & 0xFFFFFFFF == here & sum(1 << k % 32 for k in same)
    if order != "random":
        assert {y[t] & 0xFFFFFFFF for t in odd} == {0xAAAAAAAA}
    else:
        assert len({y[t] for t in odd}) > 1


def test_scalars_of_every_type(emulator):
    """But halves, which not every C++ compiler has."""
    dtypes = [d for d in DType if d is not DType.f16]
    given = {d: -2.5 if d.is_float else True for d in dtypes}
    given |= {d: d.range[0] if d.is_signed else d.range[1] // 3 for d in dtypes if d.is_integer}
    declared = ", ".join(f"{type_name(d, 0)} {d.name}" for d in dtypes)
    body = "".join(
        f"    wide[{k}] = (long long){d.name}; y[{k}] = {d.name};\n" for k, d in enumerate(dtypes)
    )
    text = f'extern "C" __global__ void launch_0(double *y, long long *wide, {declared}) {{\n{body}}}\n'
    n = len(dtypes)
    arguments = (
        Argument("y", "array", "float64", (n,)),
        Argument("wide", "array", "int64", (n,)),
        *(Argument(d.name, "scalar", d.value, ()) for d in dtypes),
    )
    launch = KernelLaunch("launch_0", (1, 1, 1), (1, 1, 1), 0, tuple(range(n + 2)))
    module = load(emulator, Source(text, "entry", arguments, 1, launches=(launch,)))
    y, wide = np.zeros(n), np.zeros(n, np.int64)
    module.run([y, wide, *(given[d] for d in dtypes)])
    assert y.tolist() == [float(given[d]) for d in dtypes]
    assert wide.tolist() == [int(given[d]) for d in dtypes]


def test_launches_follow_one_another(emulator):
    """And the last call has the time of each component that they are of."""
    s = gpu.one_block("    y[t] = x[255 - t];\n")
    back = KernelLaunch("launch_0", (1, 1, 1), (256, 1, 1), 0, (1, 0), component=1)
    there = replace(s.launches[0], component=0)
    s = Source(s.text, "entry", s.arguments, 1, launches=(there, back))
    module, (x, y) = load(emulator, s), arrays(emulator, s)
    before = x.download().copy()
    module.run([x, y])
    assert np.array_equal(x.download(), before)
    assert len(module.component_ns) == 2 and min(module.component_ns) > 1


# --- what is not -----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
def test_a_missing_barrier_is_found(emulator, order):
    said = failure(emulator, gpu.one_block(gpu.REVERSE.replace("{barrier}", "")), order)
    assert "tile" in said
    assert "with no barrier in between" in said


@pytest.mark.parametrize("order", ORDERS)
def test_a_missing_barrier_after_the_last_use_of_a_stage_is_found(emulator, order):
    assert "no barrier in between" in failure(emulator, gpu.matmul("", ""), order)


def test_a_copy_that_is_not_waited_for_gives_nothing(emulator):
    body = """\
    __shared__ float tile[256];
    copy_async4(&tile[t], &x[t]);
    copy_async_commit();
    {wait}
    __syncthreads();
    y[t] = tile[t];
"""
    for wait, is_right in (("copy_async_wait<0>();", True), ("", False)):
        s = gpu.one_block(body.replace("{wait}", wait))
        module, (x, y) = load(emulator, s), arrays(emulator, s)
        module.run([x, y])
        assert np.array_equal(x.download(), y.download()) == is_right


def test_a_barrier_of_the_warp_is_enough_for_a_warp(emulator):
    body = """\
    __shared__ float tile[256];
    tile[t] = x[t];
    __syncwarp();
    y[t] = tile[{other}];
"""
    s = gpu.one_block(body.replace("{other}", "t ^ 1"))
    load(emulator, s).run(arrays(emulator, s))
    assert "no barrier" in failure(emulator, gpu.one_block(body.replace("{other}", "t ^ 32")))


DIVERGENT = {
    "half": ("    if (t < 128) __syncthreads();\n    y[t] = x[t];\n", "have finished without it"),
    "two": (
        "    if (t < 128)\n        __syncthreads();\n    else\n        __syncthreads();\n",
        "line 4, thread (128, 0, 0) at the one in line 6",
    ),
    "lanes": (
        "    if (t % 32 < 16) y[t] = __shfl_xor_sync(0xffffffffu, x[t], 1);\n",
        "has finished, and others wait for it at line 3",
    ),
    "mask": ("    y[t] = __shfl_xor_sync(1u, x[t], 1);\n", "not in the mask"),
}


@pytest.mark.parametrize("name", DIVERGENT)
def test_divergence_is_found_with_block_and_line(emulator, name):
    body, words = DIVERGENT[name]
    said = failure(emulator, gpu.one_block(body))
    assert words in said
    assert "block (0, 0, 0)" in said


OUTSIDE = {
    "global read": (
        "    y[t] = x[t + 1];\n",
        "reads 4 bytes out of bounds, 0 bytes past the end of x",
    ),
    "global write": (
        "    y[t - 1] = x[t];\n",
        "writes 4 bytes out of bounds, 4 bytes before the start of y",
    ),
    "far": ("    y[t + (1 << 28)] = x[t];\n", "outside every array"),
    "shared index": (
        "    __shared__ float a[16][16];\n    float *p = &a[0][0];\n    p[t + 1] = x[t];\n",
        "0 bytes past the end of a",
    ),
    "shared row": (
        "    __shared__ float a[16][17];\n    a[t / 16][t % 16 + 2] = x[t];\n",
        "index 17 at line 4",
    ),
    "register": (
        "    float r[4] = {};\n    for (int k = 0; k <= t; k++) r[k] += x[k];\n    y[t] = r[t % 4];\n",
        "index 4",
    ),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_out_of_bounds_is_found(emulator, name):
    body, words = OUTSIDE[name]
    assert words in failure(emulator, gpu.one_block(body))


def test_a_vector_across_the_end_is_found(emulator):
    body = "    if (t == 0) *(float4 *)&y[252] = make_float4(0, 0, 0, 0);\n"
    load(emulator, gpu.one_block(body)).run(arrays(emulator, gpu.one_block(body)))
    assert "the end of y" in failure(emulator, gpu.one_block(body, n=254))


def test_misalignment_is_found(emulator):
    body = "    if (t < 8) *(float2 *)&y[2 * t + 1] = make_float2(0, 0);\n"
    assert "misaligned" in failure(emulator, gpu.one_block(body))


def test_blocks_that_write_one_element_are_found(emulator):
    s = gpu.with_grid(gpu.one_block("    if (t == 0) y[0] = blockIdx.x;\n"), (2, 1, 1))
    assert "another block of this launch wrote" in failure(emulator, s)


def test_a_missing_fence_before_the_last_block_is_found(emulator):
    assert "another block" in failure(emulator, gpu.last_block(""))


@pytest.mark.parametrize("name", FENCES)
@pytest.mark.parametrize("order", ORDERS)
def test_a_value_that_is_handed_over_without_a_fence_is_found(emulator, order, name):
    """The fence may be missing in the thread that stores the value, or in those that read it."""
    said = failure(emulator, gpu.counting(handed_over(**{name: ""})), order)
    assert "reads byte 4 of n, which thread (40, 0, 0) of the block wrote" in said


def test_a_fence_of_one_thread_orders_no_others(emulator):
    body = "    __threadfence();\n    if (t % 64 == 0) y[0] = t;\n"
    assert "another block of this launch wrote" in failure(emulator, gpu.counting(body, blocks=2))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("written", "is_found"),
    [
        ("    __threadfence();\n    __syncthreads();\n", False),
        ("    __syncthreads();\n    if (threadIdx.x == 0) __threadfence();\n", False),
        ("    if (threadIdx.x == 0) __threadfence();\n    __syncthreads();\n", True),
        ("    if (threadIdx.x > 0) __threadfence();\n    __syncthreads();\n", True),
        (
            "    if (threadIdx.x == 0) __threadfence();\n    __syncthreads();\n    __syncthreads();\n",
            True,
        ),
    ],
)
def test_a_fence_covers_what_others_wrote_behind_a_barrier_only(emulator, written, is_found, order):
    """A block counts for what all of its threads have written: each needs a fence, or one fence behind a barrier."""
    body = (
        "    __shared__ int before;\n"
        f"    y[t] = t;\n{written}"
        "    if (threadIdx.x == 0) {\n        before = atomicAdd(&n[0], 1);\n        __threadfence();\n    }\n"
        "    __syncthreads();\n"
        "    if (before == 1) n[8 + threadIdx.x] = y[(t + 32) % 64] + y[t];\n"
    )
    source = gpu.counting(body, threads=32, blocks=2)
    if is_found:
        assert "another block of this launch wrote" in failure(emulator, source, order)
    else:
        load(emulator, source).run(arrays(emulator, source), order)


@pytest.mark.parametrize("order", ORDERS)
def test_plain_accesses_to_what_others_change_are_found(emulator, order):
    body = "    if (t == 40) store_strong(&n[0], 1);\n    else y[t] = n[0];\n"
    assert "byte 0 of n" in failure(emulator, gpu.counting(body), order)
    body = "    if (t == 40) n[0] = 1;\n    else y[t] = load_strong(&n[0]);\n"
    assert "byte 0 of n" in failure(emulator, gpu.counting(body), order)


READ_ONLY = {
    "written before": (
        "    n[t] = t;\n    __syncthreads();\n    y[t] = __ldg(&n[t ^ 32]);\n",
        "of n through the read-only cache, and this launch wrote it",
    ),
    "written behind": (
        "    const int v = __ldg(&n[t ^ 32]);\n    __syncthreads();\n    n[t] = v;\n",
        "of n, which this launch read through the read-only cache",
    ),
    "own": ("    n[t] = t;\n    y[t] = __ldg(&n[t]);\n", "and this launch wrote it"),
    "updated": (
        "    atomicAdd(&n[t], 1);\n    __syncthreads();\n    y[t] = __ldg(&n[t]);\n",
        "and this launch wrote it",
    ),
    "in a vector": (
        "    n[t] = t;\n    __syncthreads();\n    y[t] = __ldg((const int4 *)n + t / 4).w;\n",
        "and this launch wrote it",
    ),
    "past the other caches": ("    n[t] = t;\n    y[t] = __ldcg(&n[t]) + __ldcs(&n[t]);\n", ""),
    "another element": ("    n[t] = __ldg(&y[63 - t]) + __ldg(&y[0]);\n", ""),
    "not written": ("    if (t < 32) n[t] = __ldg(&n[t + 32]);\n", ""),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", READ_ONLY)
def test_what_a_launch_writes_it_does_not_read_through_the_read_only_cache(emulator, name, order):
    """Barriers do not help: that cache may have the line from before."""
    body, words = READ_ONLY[name]
    if words:
        assert words in failure(emulator, gpu.counting(body), order)
    else:
        counted(emulator, body, order)


def test_the_next_launch_reads_through_the_read_only_cache(emulator):
    body = "    y[t] = __ldg(&n[t ^ 32]) + 1;\n"
    s = gpu.counting(body)
    (there,) = s.launches
    back = replace(there, arguments=(1, 0))
    n, y = np.zeros(64, np.int32), np.zeros(64, np.int32)
    load(emulator, replace(s, launches=(there, back, there))).run([n, y])
    assert set(y.tolist()) == {3}


@pytest.mark.parametrize("order", ORDERS)
def test_a_standstill_names_kernel_and_line(emulator, order):
    """Threads wait for what none does: nothing changes, however long they run."""
    body = "    while (load_strong(&n[0]) == 0) {}\n    y[t] = 1;\n"
    said = failure(emulator, gpu.counting(body), order)
    assert "no thread goes on: thread (" in said
    assert "is at line 3, where it found nothing new" in said


def met(device, source, order, seed=None, n_runs=1):
    """Returns the array n that `gpu.meeting` leaves: where blocks meet, and how many found each round right."""
    module = load(device, source)
    n, y = (np.zeros(a.shape, np.int32) for a in source.arguments)
    for _ in range(n_runs):
        module.run([n, y], order, seed)
    return n[:5].tolist()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n_blocks", [1, 2, 7])
def test_blocks_of_a_grid_that_stays_meet(emulator, n_blocks, order):
    """Six times a launch: what each wrote all find, shared arrays stay, and the next launch finds the count at 0."""
    source = gpu.meeting(n_blocks)
    assert met(emulator, source, order, 7, n_runs=2) == [0, 12] + 3 * [2 * n_blocks]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("release", ["", "if (blockIdx.x != 2) __threadfence();"])
def test_blocks_that_meet_without_a_fence_are_found(emulator, release, order):
    """Fences of the other blocks, and those of earlier meetings, do not stand for the one that is missing."""
    source = gpu.meeting(4, release)
    with pytest.raises(
        RunError, match=r"launch_0, thread .* another block of this launch (wrote|read)"
    ):
        met(emulator, source, order, 7)


@pytest.mark.parametrize("order", ORDERS)
def test_more_blocks_than_a_gpu_holds_at_once_stand_still(emulator, order):
    """A multiprocessor has shared memory for one such block. As many as there are meet; one more never begins."""
    n = find_profile(DeviceOptions().profile).multiprocessors
    assert met(emulator, gpu.meeting(n, shared_bytes=120 << 10), order)[2:] == 3 * [n]
    with pytest.raises(RunError) as caught:
        met(emulator, gpu.meeting(n + 1, shared_bytes=120 << 10), order)
    said = caught.value.failure.advice
    assert said.startswith("launch_0, block (")
    assert (
        f"no block goes on, and 1 of {n + 1} cannot begin, since {n} are resident at once" in said
    )
    line = (
        gpu.meeting(2)
        .text.split("\n")
        .index("            while (load_strong(&meeting[1]) == before) {}")
        + 1
    )
    assert f"thread (0, 0, 0) is at line {line}, where it found nothing new" in said


@pytest.mark.parametrize("order", ORDERS)
def test_blocks_that_wait_for_what_none_does_stand_still(emulator, order):
    body = "    while (load_strong(&n[0]) == 0) {}\n    y[t] = 1;\n"
    said = failure(emulator, gpu.counting(body, blocks=3), order)
    assert "no block goes on: thread (" in said
    assert "is at line 3, where it found nothing new" in said


def test_a_fence_behind_the_count_is_too_late(emulator):
    """A fence between partial results and the count makes them visible to the block that reads the count."""
    source = gpu.last_block("")
    counted = "is_last = atomicAdd(&n_finished, 1u) == gridDim.x - 1;"
    assert counted in source.text
    late = replace(source, text=source.text.replace(counted, f"{counted} __threadfence();"))
    assert "another block" in failure(emulator, late)


def test_shared_memory_is_not_zero_at_first(emulator):
    s = gpu.one_block("    __shared__ float a[256];\n    y[t] = a[t];\n")
    module, (x, y) = load(emulator, s), arrays(emulator, s)
    y.upload(np.zeros(256, np.float32))
    module.run([x, y])
    assert np.isnan(y.download()).all()


@pytest.mark.parametrize(
    ("threads", "bytes_", "words"),
    [
        ((1025, 1, 1), 0, "1025 x 1 x 1 threads"),
        ((2, 2, 65), 0, "2 x 2 x 65 threads"),
        ((32, 1, 1), 233000, "shared memory"),
    ],
)
def test_limits_of_a_launch(emulator, threads, bytes_, words):
    s = gpu.one_block("    extern __shared__ float p[];\n    p[t] = 0;\n", threads, 2048)
    assert words in failure(emulator, gpu.with_grid(s, (1, 1, 1), bytes_))


def test_too_much_static_shared_memory(emulator):
    s = gpu.one_block("    __shared__ float a[12289];\n    a[t] = 0;\n")
    assert "static shared memory" in failure(emulator, s)


# --- in a worker -------------------------------------------------------------------------------------


FAULTS = {
    "wrong value": (gpu.CORRECT + "    if (i == 17) z[17] += 1;\n", "wrong", "z[17]"),
    "one element missing": (gpu.CORRECT.replace("1000", "999"), "wrong", "[999] is"),
    "just behind": (gpu.CORRECT.replace("1000", "1001"), "crash", "0 bytes past the end of"),
    "read-only input": (gpu.CORRECT + "    ((float *)x)[3] = 0;\n", "crash", ""),
    "endless": ("    while (true) __syncwarp();\n", "timeout", "within"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_has_its_status_and_the_next_candidate_runs(emulator, emulated, name):
    body, kind, detail = FAULTS[name]
    outcome = emulated.evaluate(emulator.builder.build(gpu.source(body)), QUICK)
    assert isinstance(outcome, Failure)
    assert (outcome.kind, detail in outcome.advice) == (kind, True), outcome
    assert isinstance(emulated.evaluate(emulator.builder.build(gpu.source()), QUICK), Measurement)


def test_interleave_names_the_one_that_fails(emulator, emulated):
    bodies = (gpu.CORRECT, "    z[i] = 0;\n", gpu.CORRECT + "    // again\n")
    outcomes = emulated.interleave([emulator.builder.build(gpu.source(b)) for b in bodies], QUICK)
    assert [type(o) for o in outcomes] == [Measurement, Failure, Measurement]


def test_locals_of_a_kernel_may_be_large(emulator, emulated):
    """Kind: a frame beyond a thread's stack."""
    held = "    volatile float held[30000];\n    held[i % 30000] = 1;\n"
    outcome = emulated.evaluate(emulator.builder.build(gpu.source(held + gpu.CORRECT)), QUICK)
    assert isinstance(outcome, Measurement), outcome


def test_many_candidates_leave_no_memory_behind(emulator, emulated):
    artifact = emulator.builder.build(gpu.source())
    for _ in range(12):  # 256 MiB of stacks each
        assert isinstance(emulated.evaluate(artifact, QUICK), Measurement)


def test_it_says_that_it_reports_nothing(emulator):
    with pytest.raises(DeviceError, match="does not report"):
        emulator.reporter.report(gpu.source())


def test_a_missing_compiler_is_a_sentence():
    device = open_device("emulator", DeviceOptions(compiler="no-such-compiler"))
    with pytest.raises(DeviceError, match="install g"):
        device.builder.build(gpu.source())


def test_an_unknown_order_is_a_sentence():
    with pytest.raises(DeviceError, match="sideways"):
        open_device("emulator", DeviceOptions(thread_order="sideways"))
