"""Sources of kernels that measure a GPU: each exercises one resource, at its highest rate or in a dependent chain.

Sums are compared with `wanted`, which they never equal on a GPU (NaN). So the compiler cannot drop them, and a test on the
emulator can read them.
"""

from __future__ import annotations

from ...codegen.text.source import Argument, KernelLaunch, Source

THREADS = 256
CHAINS = 8  # independent sums a thread: more than a multiply-add has stages in flight from one warp
NEAR_VECTORS = 1024  # of 16 bytes, that a block reads again and again from L1 or shared memory
STRIDE = (
    64  # integers between two places of `chase`, so that they lie in different sectors and slices
)

_HEAD = 'extern "C" __global__ void __launch_bounds__({threads}) {name}({parameters}) {{\n'
_SHOW = "    if (sum.x + sum.y + sum.z + sum.w == wanted) atomicAdd(out, 1.0f);\n"
_ADD = "sum.x += v.x; sum.y += v.y; sum.z += v.z; sum.w += v.w;"
_SUM = "    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);\n"


def _source(
    name: str,
    body: str,
    arguments: tuple[Argument, ...],
    grid: int,
    threads: int = THREADS,
) -> Source:
    spelt = {"array": "{} *__restrict__ {}", "scalar": "{} {}"}
    types = {"float32": "float", "float64": "double", "int32": "int", "int64": "long long"}
    parameters = ", ".join(spelt[a.kind].format(types[a.dtype], a.name) for a in arguments)
    head = _HEAD.format(threads=threads, name=name, parameters=parameters)
    launch = KernelLaunch(name, (grid, 1, 1), (threads, 1, 1), 0, tuple(range(len(arguments))))
    text = f"{head}{body}}}\n"
    return Source(text, "entry", arguments, n_threads=1, launches=(launch,), suffix=".cu")


def _array(name: str, n: int, dtype: str = "float32") -> Argument:
    return Argument(name, "array", dtype, (n,))


def _scalar(name: str, dtype: str) -> Argument:
    return Argument(name, "scalar", dtype, ())


def stream(what: str, n_floats: int, grid: int, unrolled: int) -> Source:
    """Returns a kernel that streams `n_floats` once, in vectors of 16 bytes.

    `what`: "read" (x), "write" (y) or "copy" (x to y).
    """
    source, goal = (
        "    const float4 *from = (const float4 *)x;\n",
        "    float4 *to = (float4 *)y;\n",
    )
    opening, move, closing = {
        "read": (source + _SUM, f"const float4 v = from[i]; {_ADD}", _SHOW),
        "write": (goal, "to[i] = make_float4(wanted, wanted, wanted, wanted);", ""),
        "copy": (source + goal, "to[i] = from[i];", ""),
    }[what]
    first = f"{THREADS}ll * blockIdx.x + threadIdx.x"
    body = (
        f"{opening}    const long long step = {THREADS}ll * gridDim.x;\n#pragma unroll {unrolled}\n"
        f"    for (long long i = {first}; i < {n_floats // 4}; i += step) {{ {move} }}\n{closing}"
    )
    arrays = (_array("x", n_floats), _array("y", n_floats), _array("out", 1))
    return _source(f"probe_{what}", body, (*arrays, _scalar("wanted", "float32")), grid)


def far_read(n_floats: int, grid: int, threads: int) -> Source:
    """Returns a probe kernel that reads x several times, past L1, so from L2 if x fits there.

    `n_passes`, an argument of the kernel, is the number of passes over all `n_floats`. In each of them a block begins elsewhere.
    """
    body = (
        f"    const float4 *from = (const float4 *)x;\n{_SUM}"
        f"    const int n = {n_floats // 4}, step = {threads} * gridDim.x;\n"
        "    for (long long pass = 0; pass < n_passes; ++pass) {\n"
        f"        const int first = {threads} * ((blockIdx.x + (int)pass) % gridDim.x) + threadIdx.x;\n#pragma unroll 8\n"
        f"        for (int i = first; i < n; i += step) {{ const float4 v = __ldcg(&from[i]); {_ADD} }}\n"
        f"    }}\n{_SHOW}"
    )
    scalars = (_scalar("n_passes", "int64"), _scalar("wanted", "float32"))
    arguments = (_array("x", n_floats), _array("out", 1), *scalars)
    return _source("probe_far_read", body, arguments, grid, threads)


def near_read(grid: int, *, in_shared: bool) -> Source:
    """Returns a kernel whose blocks all read the same 16 KiB of x through L1, or its copy in shared memory.

    Each thread reads `n_passes` vectors.
    """
    n = NEAR_VECTORS
    body = f"    const float4 *from = (const float4 *)x;\n{_SUM}"
    if in_shared:
        body += (
            f"    __shared__ float4 tile[{n}];\n"
            f"    for (int i = threadIdx.x; i < {n}; i += {THREADS}) tile[i] = from[i];\n    __syncthreads();\n"
        )
    place = "tile[i]" if in_shared else "from[i]"
    body += (
        "    const int first = threadIdx.x;\n#pragma unroll 8\n"
        "    for (long long pass = 0; pass < n_passes; ++pass) {\n"
        f"        const int i = (first + (int)pass * {THREADS}) & {n - 1};\n"
        f"        const float4 v = {place}; {_ADD}\n    }}\n{_SHOW}"
    )
    scalars = (_scalar("n_passes", "int64"), _scalar("wanted", "float32"))
    name = "probe_shared_read" if in_shared else "probe_near_read"
    return _source(name, body, (_array("x", 4 * n), _array("out", 1), *scalars), grid)


def multiply_add(dtype: str, grid: int, threads: int = THREADS) -> Source:
    """Returns a kernel in which each thread does `n_passes` times CHAINS independent multiply-adds.

    Every sum starts at 0 and ends as n_passes * b if a is 1.
    """
    kind = {"float32": "float", "float64": "double"}[dtype]
    step = " ".join(f"s{k} = s{k} * a + b;" for k in range(CHAINS))
    total = " + ".join(f"s{k}" for k in range(CHAINS))
    body = (
        f"    {kind} {', '.join(f's{k} = 0' for k in range(CHAINS))};\n#pragma unroll 8\n"
        f"    for (long long pass = 0; pass < n_passes; ++pass) {{ {step} }}\n"
        f"    if ({total} == wanted) atomicAdd(out, 1.0f);\n"
    )
    scalars = (_scalar("n_passes", "int64"), _scalar("a", dtype), _scalar("b", dtype))
    arguments = (_array("out", 1), *scalars, _scalar("wanted", dtype))
    return _source(f"probe_multiply_add_{dtype}", body, arguments, grid, threads)


def additions() -> Source:
    """Returns a kernel whose single thread adds b to a sum `n_passes` times, each addition dependent on the last."""
    body = (
        "    float sum = 0.0f;\n#pragma unroll 64\n"
        "    for (long long pass = 0; pass < n_passes; ++pass) sum += b;\n    out[0] = sum;\n"
    )
    arguments = (_array("out", 1), _scalar("n_passes", "int64"), _scalar("b", "float32"))
    return _source("probe_additions", body, arguments, 1, 1)


def barriers(threads: int) -> Source:
    """Returns a kernel whose single block executes `n_passes` barriers."""
    body = (
        "#pragma unroll 16\n"
        "    for (long long pass = 0; pass < n_passes; ++pass) __syncthreads();\n"
        "    if (threadIdx.x == 0) out[0] = (float)n_passes;\n"
    )
    arguments = (_array("out", 1), _scalar("n_passes", "int64"))
    return _source("probe_barriers", body, arguments, 1, threads)


def chase(where: str, n: int) -> Source:
    """Returns a kernel whose single thread follows indices x[k] = k from k = `start`, `n_passes` times.

    `where`: memory of x: "shared", "near" (L1) or "far" (L2).
    """
    copy = "    __shared__ int tile[256];\n    for (int i = 0; i < 256; ++i) tile[i] = x[i];\n"
    step = {"shared": "tile[k]", "near": "x[k]", "far": "__ldcg(&x[k])"}[where]
    body = copy if where == "shared" else ""
    body += (
        "    int k = start;\n#pragma unroll 16\n"
        f"    for (long long pass = 0; pass < n_passes; ++pass) k = {step};\n    found[0] = k;\n"
    )
    arguments = (_array("x", n, "int32"), _array("found", 1, "int32"))
    scalars = (_scalar("n_passes", "int64"), _scalar("start", "int32"))
    return _source(f"probe_chase_{where}", body, (*arguments, *scalars), 1, 1)


def nothing() -> Source:
    """Returns an empty kernel, whose time is that of a launch."""
    return _source("probe_nothing", "", (_array("out", 1),), 1, 32)
