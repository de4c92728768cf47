"""Hand-written CUDA text: the call of sources.py (y, z = alpha x + y), and kernels that use what a GPU has."""

from __future__ import annotations

from dataclasses import replace

from kernelscape.codegen.bodies.cuda_prelude import PUBLISH, STRONG
from kernelscape.codegen.text.source import Argument, KernelLaunch, Source

from .sources import ARGUMENTS, N

HEAD = """\
extern "C" __global__ void launch_0(const float *__restrict__ x, float *__restrict__ y, float *__restrict__ z, float alpha) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
"""
CORRECT = """\
    if (i < 1000) {
        z[i] = alpha * x[i] + y[i];
        y[i] = z[i];
    }
"""

# Without __launch_bounds__ the compiler does not know that a block has 1024 threads.
MANY_REGISTERS = """\
    float r[100];
    #pragma unroll
    for (int k = 0; k < 100; ++k) r[k] = x[(i * 100 + k) % 1000];
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < 100; ++k) y[(i + 7 * k) % 1000] += r[k] * r[(k * 37 + 11) % 100];
"""


def source(body: str = CORRECT, *, shared_bytes: int = 0, block: int = 128) -> Source:
    """A kernel with `body` on the arguments of sources.py, one thread an element."""
    grid = (-(-N // block), 1, 1)
    launch = KernelLaunch("launch_0", grid, (block, 1, 1), shared_bytes, (0, 1, 2, 3))
    text = HEAD + body + "}\n"
    return Source(text, "entry", ARGUMENTS, n_threads=1, launches=(launch,))


def broken_source() -> Source:
    """One that no compiler takes."""
    return source("#error these words\n")


def one_block(body: str, threads: tuple[int, int, int] = (256, 1, 1), n: int = 256) -> Source:
    """`launch_0(const float *x, float *y)` in one block, on n elements of each; `t` is the thread's number."""
    head = (
        'extern "C" __global__ void launch_0(const float *__restrict__ x, float *__restrict__ y) {\n'
        "    const int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);\n"
    )
    arguments = tuple(Argument(name, "array", "float32", (n,)) for name in "xy")
    launch = KernelLaunch("launch_0", (1, 1, 1), threads, 0, (0, 1))
    return Source(head + body + "}\n", "entry", arguments, n_threads=1, launches=(launch,))


def with_grid(s: Source, grid: tuple[int, int, int], shared_bytes: int = 0) -> Source:
    """The same with another grid and dynamic shared memory."""
    launch = replace(s.launches[0], grid=grid, shared_bytes=shared_bytes)
    return replace(s, launches=(launch,))


REVERSE = """\
    __shared__ float tile[256];
    tile[t] = x[t];
    {barrier}
    y[t] = tile[255 - t];
"""

# The usual product of two matrices through shared memory: 2 stages of panels, copied beside the arithmetic.
MATMUL = """\
enum { M = 37, N = 70, K = 45, TM = 16, TN = 32, TK = 8 };
__device__ __forceinline__ void fetch(const float *a, const float *b, float (*p)[TK + 1], float (*q)[TN], int k0, int t) {
    const int rows = blockIdx.y * TM, columns = blockIdx.x * TN;
    for (int e = t; e < TM * TK; e += 128) {
        const int i = rows + e / TK, k = k0 + e % TK;
        const bool is_inside = i < M && k < K;
        copy_async4(&p[e / TK][e % TK], is_inside ? &a[i * K + k] : a, is_inside ? 4 : 0);
    }
    for (int e = t; e < TK * TN; e += 128) {
        const int k = k0 + e / TN, j = columns + e % TN;
        const bool is_inside = k < K && j < N;
        copy_async4(&q[e / TN][e % TN], is_inside ? &b[k * N + j] : b, is_inside ? 4 : 0);
    }
    copy_async_commit();
}
extern "C" __global__ void __launch_bounds__(128) launch_0(
    const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c) {
    __shared__ float p[2][TM][TK + 1];
    __shared__ float q[2][TK][TN];
    const int t = threadIdx.x + 16 * threadIdx.y, tx = threadIdx.x, ty = threadIdx.y;
    float sum[2][2] = {};
    fetch(a, b, p[0], q[0], 0, t);
    for (int k0 = 0, stage = 0; k0 < K; k0 += TK, stage ^= 1) {
        if (k0 + TK < K) fetch(a, b, p[stage ^ 1], q[stage ^ 1], k0 + TK, t);
        else copy_async_commit();
        copy_async_wait<1>();
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TK; ++k)
#pragma unroll
            for (int u = 0; u < 2; ++u)
#pragma unroll
                for (int v = 0; v < 2; ++v) sum[u][v] += p[stage][ty + 8 * u][k] * q[stage][k][tx + 16 * v];
        LAST_BARRIER
    }
    for (int u = 0; u < 2; ++u)
        for (int v = 0; v < 2; ++v) {
            const int i = blockIdx.y * TM + ty + 8 * u, j = blockIdx.x * TN + tx + 16 * v;
            if (i < M && j < N) c[i * N + j] = sum[u][v];
        }
}
"""


def matmul(preamble: str, last_barrier: str = "__syncthreads();") -> Source:
    """c = a b for 37 x 45 and 45 x 70."""
    shapes = {"a": (37, 45), "b": (45, 70), "c": (37, 70)}
    arguments = tuple(Argument(n, "array", "float32", s) for n, s in shapes.items())
    launch = KernelLaunch("launch_0", (3, 3, 1), (16, 8, 1), 0, (0, 1, 2))
    text = preamble + MATMUL.replace("LAST_BARRIER", last_barrier)
    return Source(text, "entry", arguments, n_threads=1, launches=(launch,))


# A sum in which the block that finishes last adds up the partial sums of all.
LAST_BLOCK = """\
__device__ unsigned n_finished = 0;
extern "C" __global__ void launch_0(const float *__restrict__ x, float *__restrict__ out, char *__restrict__ workspace) {
    float *partial = (float *)workspace;
    __shared__ float warps[8];
    __shared__ bool is_last;
    const int t = threadIdx.x;
    float sum = 0.0f;
    for (int i = blockIdx.x * 256 + t; i < 5001; i += gridDim.x * 256) sum += __ldg(&x[i]);
    for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    if (t % 32 == 0) warps[t / 32] = sum;
    __syncthreads();
    if (t == 0) {
        for (int w = 1; w < 8; ++w) sum += warps[w];
        partial[blockIdx.x] = sum;
        FENCE
        is_last = atomicAdd(&n_finished, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last && t == 0) {
        float total = 0.0f;
        for (int b = 0; b < (int)gridDim.x; ++b) total += __ldcg(&partial[b]);
        out[0] = total;
        n_finished = 0;
    }
}
"""


def last_block(fence: str = "__threadfence();") -> Source:
    """out[0] = sum of 5001 elements, by four blocks."""
    arguments = (
        Argument("x", "array", "float32", (5001,)),
        Argument("out", "array", "float32", (1,)),
        Argument("workspace", "workspace", "uint8", (16,)),
    )
    launch = KernelLaunch("launch_0", (4, 1, 1), (256, 1, 1), 0, (0, 1, 2))
    text = LAST_BLOCK.replace("FENCE", fence)
    return Source(text, "entry", arguments, n_threads=1, launches=(launch,))


def counting(body: str, threads: int = 64, blocks: int = 1, preamble: str = "") -> Source:
    """A kernel with 64 integers `n`, all zero, 64 integers `y`, and the number `t` of its thread in the grid."""
    text = (
        f'{preamble}extern "C" __global__ void launch_0(int *n, int *y) {{\n'
        f"    const int t = blockIdx.x * {threads} + threadIdx.x;\n{body}}}\n"
    )
    arguments = tuple(Argument(x, "array", "int32", (64,)) for x in ("n", "y"))
    launch = KernelLaunch("launch_0", (blocks, 1, 1), (threads, 1, 1), 0, (0, 1))
    return Source(text, "entry", arguments, n_threads=1, launches=(launch,))


# Thread 40 hands a value to all others.
PUBLISHED = """\
    if (t == 40) {
        n[1] = 7;
        publish(&n[0], t);
    } else {
        while (load_strong(&n[0]) == 0) {}
        __threadfence();
        y[t] = n[1];
    }
"""
HANDED_OVER = """\
    if (t == 40) {
        n[1] = 7;
        RELEASE
        store_strong(&n[0], 1);
    } else {
        while (load_strong(&n[0]) == 0) {}
        ACQUIRE
        y[t] = n[1];
    }
"""


# All blocks meet: they count themselves, and the last one tells the others. The count is 0 again behind it.
MEET_ALL = """\
__device__ __forceinline__ void meet_all(int *meeting) {
    __syncthreads();
    if (threadIdx.x == 0) {
        const int before = load_strong(&meeting[1]);
        RELEASE
        if (atomicInc((unsigned *)meeting, gridDim.x - 1) == gridDim.x - 1)
            publish(&meeting[1], before + 1);
        else
            while (load_strong(&meeting[1]) == before) {}
        __threadfence();
    }
    __syncthreads();
}
"""


def meeting(n_blocks: int, release: str = "__threadfence();", shared_bytes: int = 0) -> Source:
    """A grid of blocks of 32 threads that stays: it fills y, then n[2 + r] counts the blocks that found round r right.

    `n` and `y` as `counting` has them, but as long as the grid needs; n[0] and n[1] are where blocks meet.
    """
    body = """\
    __shared__ int kept[32];
    kept[threadIdx.x] = t;
    for (int round = 0; round < 3; ++round) {
        y[t] = kept[threadIdx.x] + round;
        meet_all(n);
        const int other = (t + 32 * (round + 1)) % (32 * gridDim.x);
        if (__syncthreads_and(y[other] == other + round) && threadIdx.x == 0) atomicAdd(&n[2 + round], 1);
        meet_all(n);
    }
"""
    text = MEET_ALL.replace("RELEASE", release)
    s = counting(body, threads=32, blocks=n_blocks, preamble=STRONG + PUBLISH + text)
    arguments = tuple(replace(a, shape=(32 * max(n_blocks, 2),)) for a in s.arguments)
    (launch,) = s.launches
    return replace(s, arguments=arguments, launches=(replace(launch, shared_bytes=shared_bytes),))


EXTREMA = """\
extern "C" __global__ void launch_0(const float *__restrict__ x, float *__restrict__ y, double *__restrict__ z) {
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= 1000) return;
    atomic_max(&y[0], x[i]);
    atomic_min(&y[1], x[i]);
    atomic_max(&z[0], (double)x[i]);
    atomic_min(&z[1], (double)x[i]);
}
"""


def extrema(preamble: str) -> Source:
    """y, z = (max, min) of what they hold and of 1000 elements."""
    arguments = (
        Argument("x", "array", "float32", (1000,)),
        Argument("y", "array", "float32", (2,)),
        Argument("z", "array", "float64", (2,)),
    )
    launch = KernelLaunch("launch_0", (8, 1, 1), (128, 1, 1), 0, (0, 1, 2))
    return Source(preamble + EXTREMA, "entry", arguments, n_threads=1, launches=(launch,))
